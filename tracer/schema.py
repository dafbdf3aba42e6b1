"""The words of a Trace: kinds of events, columns of its two tables, version of its files.

One event is one interval on one track. Times are nanoseconds of the recording host's CLOCK_MONOTONIC;
`Trace` shifts them to the reference host's clock when it is opened aligned. An instant has equal ends.

Who writes which columns (others are null):

================  =======================================================================================
kind              meaning of the interval, and the columns beside step, rank, host, process, track
================  =======================================================================================
forward           from the start of the forward pass (not before the weights of the step before are written)
                  to its true end (engine marker)
backward          from the end of forward to the true end of backward
update            from the first optimizer operation to the last weight written
push              Python hands the gradient's allreduce to the MXNet engine: tensor, layer, bytes
ready             push until the gradient is written and the engine starts the operation: tensor, bytes
enqueue           the operation puts the tensor into Horovod's queue: tensor, bytes
negotiate         with tensor: from queued until all ranks agreed; without: one control call, with bytes
fuse_in           copy into the fusion buffer: bucket, bytes (of the bucket)
allreduce, ...    one MPI collective of the data path: bucket, bytes (of the bucket)
fuse_out          copy out of the fusion buffer: bucket, bytes
socket_send/recv  one call that moved bytes of a TCP stream: bytes, peer, flow (``sender>receiver``), offset
done              from the end of the collective until the tensor's callback: tensor, bucket, bytes
operator          one operation of the framework or a device, as another tool recorded it: layer has its name
================  =======================================================================================

Tracks of a recorded process: ``step`` (forward, backward, update), ``python`` (push), ``engine`` (enqueue),
``horovod`` (what the background thread does: control calls, copies, collectives) and ``tensors`` (what single
tensors wait for: ready, negotiate, done), ``tcp`` (calls of all threads on sockets). Only events on ``tensors`` and
``tcp`` may overlap each other.

`peer` of a tensor's negotiate row is ``rank N``, the rank that was last to have the tensor in its queue.
`process` is the process number with the number of its host (in the order of ``meta.hosts``) in bits 32 and up.

`flow` is the same text at both ends of a TCP stream, and `offset` the number of its bytes before this call: so a send
and the receives of the same bytes fit together.

Stamps of samples stay on the clock of the host of their `process`. Processor samples are in cores (seconds a second)
since the sample before; subjects are thread names, ``process`` and ``host``; of TCP samples, flows.

Parameter servers (track ``kvstore``): kv_push and kv_pull from the first byte of the request to the last of the answer,
at the worker; kv_request and kv_response while a message goes out or comes in, at either end; kv_queue from the last
byte of the request to the first of the answer, at the server. ``bucket`` is the request's number on its worker, ``flow``
the worker and the server: both ends of one request share them. Scheduler traffic and commands are negotiate rows.

`step` counts from 0 at the first optimizer step of the run (-1 before it). `bucket` counts the data
collectives of one rank within a step. `bytes` of a tensor is its own size.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa

FORMAT_VERSION = 1


class Kind(str, Enum):
    """What an event is; the value is what stands in the file."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    PUSH = "push"
    READY = "ready"
    ENQUEUE = "enqueue"
    NEGOTIATE = "negotiate"
    FUSE_IN = "fuse_in"
    ALLREDUCE = "allreduce"
    BROADCAST = "broadcast"
    ALLGATHER = "allgather"
    ALLTOALL = "alltoall"
    REDUCESCATTER = "reducescatter"
    BARRIER = "barrier"
    FUSE_OUT = "fuse_out"
    DONE = "done"
    KV_PUSH = "kv_push"
    KV_PULL = "kv_pull"
    KV_REQUEST = "kv_request"
    KV_QUEUE = "kv_queue"
    KV_RESPONSE = "kv_response"
    LANE_LOCAL_SUM = "lane_local_sum"
    LANE_REDUCE_SCATTER = "lane_reduce_scatter"
    LANE_ALLGATHER = "lane_allgather"
    SOCKET_SEND = "socket_send"
    SOCKET_RECV = "socket_recv"
    OPERATOR = "operator"

    def __str__(self) -> str:
        return self.value


EVENTS = pa.schema(
    [
        ("step", pa.int32()),
        ("rank", pa.int32()),
        ("host", pa.string()),
        ("process", pa.int64()),
        ("track", pa.string()),
        ("kind", pa.string()),
        ("tensor", pa.string()),
        ("layer", pa.string()),
        ("bucket", pa.int32()),
        ("bytes", pa.int64()),
        ("peer", pa.string()),
        ("flow", pa.string()),
        ("lane", pa.int32()),
        ("t_start_ns", pa.int64()),
        ("t_end_ns", pa.int64()),
        ("offset", pa.int64()),
    ]
)

SAMPLES = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("process", pa.int64()),
        ("subject", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
    ]
)
