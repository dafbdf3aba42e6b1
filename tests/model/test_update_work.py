import pandas as pd
import pytest
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.collectives import Leg, alone_s, fusion_copy, lane_legs
from vsketchdlc.model.parameters import Parameters
from vsketchdlc.model.sites import Sites
from vsketchdlc.model.update_work import bytes_updated, update_work_s
from vsketchdlc.tracer.meta import TensorInfo

MS = 1_000_000
# One step: backward ends at 100 ms; buckets of 20 and 10 MB; the last one's weights take 5 ms.
ANCHORS = pd.DataFrame(
    {
        "step": [1],
        "rank": [0],
        "backward_end_ns": [100 * MS],
        "last_done_ns": [300 * MS],
        "update_end_ns": [305 * MS],
    }
)


def reduced(*rows):
    columns = ["step", "rank", "bucket", "updated", "t_start_ns", "t_end_ns"]
    return pd.DataFrame([(1, 0, *row) for row in rows], columns=columns)


def test_the_bucket_befores_weights_are_updated_beside_the_next():
    table = reduced((0, 20e6, 50 * MS, 200 * MS), (1, 10e6, 210 * MS, 298 * MS))
    assert update_work_s(table, table, ANCHORS).tolist() == pytest.approx([0.0, 0.010])


def test_what_backward_has_still_done_is_not_left():
    table = reduced((0, 20e6, 20 * MS, 94 * MS), (1, 10e6, 96 * MS, 298 * MS))
    assert update_work_s(table, table, ANCHORS).tolist() == pytest.approx([0.0, 0.004])


def test_a_call_of_a_bucket_that_was_not_reduced_has_none():
    table = reduced((0, 20e6, 50 * MS, 200 * MS))
    assert update_work_s(reduced((7, 1e6, 0, MS)), table, ANCHORS).tolist() == [0.0]


def bucketed(*members):
    """Buckets 0 and 1 of one step, 30 and 10 bytes; `members` (bucket, tensor) and six gradients, in pairs one operation."""
    table = reduced((0, 0, 50 * MS, 200 * MS), (1, 0, 210 * MS, 298 * MS)).assign(bytes=[30, 10])
    done = pd.DataFrame([(1, 0, *row) for row in members], columns=["step", "rank", "bucket", "tensor"])
    tensors = [TensorInfo(name, None, None, size, "float32", n) for n, (name, size) in enumerate(SIZES)]
    return bytes_updated(table, done, tensors, 2).tolist()


SIZES = [("a", 1), ("b", 2), ("c", 4), ("d", 8), ("e", 16), ("f", 32)]


def test_an_operation_waits_for_the_last_of_its_gradients():
    # a, b are one operation, c, d another: d comes with the second bucket, so c's weight waits for it.
    assert bucketed((0, "a"), (0, "b"), (0, "c"), (1, "d")) == [3, 12]


def test_a_bucket_without_a_whole_operation_updates_nothing():
    assert bucketed((0, "a"), (0, "c"), (0, "e"), (1, "b"), (1, "d"), (1, "f")) == [0, 63]


def test_gradients_that_the_trace_does_not_name_wait_for_no_other():
    assert bucketed((0, "a"), (1, "somebody")) == [30, 10]


def test_lanes_beside_updates_on_one_core_take_longer():
    sites = Sites.of(Cluster.star(2, cores=1, nic_bits_per_s=20e9), 0.956)
    legs = lane_legs(sites, Parameters(), 64 << 20, 4)
    alone = alone_s(legs, sites, Parameters())
    beside = alone_s(legs, sites, Parameters(), update_s=0.02)
    assert alone < beside <= alone + 0.02 + 4 * Parameters().busy_wait_s


def test_a_copy_after_a_wait_shares_its_core_when_its_time_slice_is_over():
    sites = Sites.of(Cluster.star(2, cores=1), 0.956)

    def copy_s(core_s):
        parts = fusion_copy("fuse_in", core_s, sites, 0.0)
        return alone_s([Leg(0.0, part, spins=False) for part in parts], sites, Parameters(), busy_s=1.0)

    assert copy_s(1e-3) == pytest.approx(1e-3, rel=0.03)
    assert copy_s(10e-3) == pytest.approx(3e-3 + 2 * 7e-3, rel=0.001)
