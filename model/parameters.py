"""The costs that calibration finds: one flat record of numbers, each with its unit, meaning and prior.

The prior is what stands when no data identify a parameter: a typical value of a current x86 server core and
a factor by which it may be off either way (90 % interval). Symbols in brackets are those of reference 8.1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class ParameterInfo:
    """What a parameter means: its unit, a sentence, and the factor its prior may be off either way."""

    unit: str
    meaning: str
    factor: float


@dataclass(frozen=True)
class Parameters:
    """Costs of one rank, host, or lane. CPU costs are core seconds on a core of speed 1."""

    enqueue_s: float = 60e-6
    cycle_slack_s: float = 60e-6
    control_round_s: float = 40e-6
    message_s: float = 120e-6
    busy_wait_s: float = 2e-3
    tensor_s: float = 5e-6
    bucket_s: float = 30e-6
    fuse_in_s_per_byte: float = 0.25e-9
    fuse_out_s_per_byte: float = 0.25e-9
    stock_s_per_byte: float = 0.9e-9
    stock_reduce_s_per_byte: float = 0.7e-9
    stock_duplex: float = 1.5
    spin_weight: float = 0.15
    lane_s_per_byte: float = 0.9e-9
    lane_crowd: float = 1.25
    copy_s_per_byte: float = 0.3e-9
    lane_call_s: float = 300e-6
    lane_start_s: float = 20e-6
    lane_round_s: float = 150e-6
    wire_efficiency: float = 0.956

    def replaced(self, **values: float) -> Parameters:
        """A copy with some values changed."""
        return dataclasses.replace(self, **values)


INFO: dict[str, ParameterInfo] = {
    "enqueue_s": ParameterInfo(
        "s", "gradient written until it stands in Horovod's queue [d_eng + c_enq]", 3.0
    ),
    "cycle_slack_s": ParameterInfo("s", "a cycle's sleep lasts that much longer than asked [eps_slp]", 3.0),
    "control_round_s": ParameterInfo("s", "one round of a small control message [alpha_s]", 3.0),
    "message_s": ParameterInfo("s", "latency of one large MPI message besides the wire's [alpha]", 3.0),
    "busy_wait_s": ParameterInfo(
        "s",
        "Horovod's thread waits that long for a core, each time it wakes, when compute holds all of them",
        3.0,
    ),
    "tensor_s": ParameterInfo("s", "Horovod's work per gradient in a bucket [c_f + c_cb + k_m]", 3.0),
    "bucket_s": ParameterInfo("s", "Horovod's work per bucket [c_0]", 3.0),
    "fuse_in_s_per_byte": ParameterInfo("s/B", "copy into the fusion buffer [1/mu_in]", 2.0),
    "fuse_out_s_per_byte": ParameterInfo("s/B", "copy out of the fusion buffer [1/mu_out]", 2.0),
    "stock_s_per_byte": ParameterInfo(
        "s/B", "stock MPI: CPU to send and receive one byte [sigma_s + sigma_r]", 2.0
    ),
    "stock_reduce_s_per_byte": ParameterInfo(
        "s/B", "stock MPI: CPU to add one byte, page faults included [gamma + phi]", 2.0
    ),
    "stock_duplex": ParameterInfo(
        "1",
        "stock MPI sends and receives on one connection: time of an exchange over that of one direction",
        1.5,
    ),
    "spin_weight": ParameterInfo(
        "1", "share of a core a waiting stock thread takes beside one busy thread", 3.0
    ),
    "lane_s_per_byte": ParameterInfo("s/B", "lane: CPU to send, receive and add one byte of the ring", 2.0),
    "lane_crowd": ParameterInfo("1", "CPU a byte costs with four lanes on a core over that with one", 1.5),
    "copy_s_per_byte": ParameterInfo(
        "s/B", "copy between the rank's buffer and the lanes' shared memory, one way", 2.0
    ),
    "lane_call_s": ParameterInfo("s", "one lane allreduce: post, vote and wake-ups [h_d + h_j]", 3.0),
    "lane_start_s": ParameterInfo("s", "added by each lane that is woken", 3.0),
    "lane_round_s": ParameterInfo("s", "one round of a lane's ring besides the wire's latency", 3.0),
    "wire_efficiency": ParameterInfo(
        "1", "payload bytes per byte on the wire (TCP/IP/Ethernet headers)", 1.03
    ),
}
