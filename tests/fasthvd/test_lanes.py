"""The lanes without MPI: sums over real processes, lanes and TCP connections on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.fasthvd.lanes import OPERATIONS, TYPES, Lanes, LanesFailed, LanesMismatch


def values(rank: int, count: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Small values: sums and products of a few ranks stay inside every type."""
    random = np.random.default_rng([seed, rank])
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(count).astype(dtype)
    return random.integers(0, 4 if rank < 3 else 2, count).astype(dtype)


def expected(size: int, count: int, dtype: str, op: str, seed: int = 0) -> np.ndarray:
    wide = np.float64 if np.dtype(dtype).kind == "f" else np.int64
    parts = np.stack([values(rank, count, dtype, seed).astype(wide) for rank in range(size)])
    return getattr(parts, {"sum": "sum", "min": "min", "max": "max", "prod": "prod"}[op])(axis=0)


def close(got: np.ndarray, want: np.ndarray) -> bool:
    tolerance = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}.get(got.dtype.name, 0)
    return bool(np.allclose(got.astype(want.dtype), want, rtol=tolerance, atol=8 * tolerance))


@pytest.mark.parametrize("hosts", [(1, 1), (1, 1, 1), (2, 1), (3,), (2, 3, 1, 1)], ids=str)
def test_every_type_and_operation(start_group, hosts):
    size = sum(hosts)

    def body(lanes: Lanes, rank: int) -> list[str]:
        wrong = []
        for dtype in TYPES:
            for op in OPERATIONS:
                array = values(rank, 10_007, dtype)
                out = np.empty_like(array)
                lanes.allreduce(array, op, out)
                if not np.array_equal(array, values(rank, 10_007, dtype)):
                    wrong.append(f"{dtype} {op}: input changed")
                lanes.allreduce(array, op)
                if array.tobytes() != out.tobytes() or not close(out, expected(size, 10_007, dtype, op)):
                    wrong.append(f"{dtype} {op}")
        return wrong

    assert start_group(body, hosts=hosts).results() == [[]] * size


@pytest.mark.parametrize("count", [0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 4097, 300_001])
def test_counts_that_do_not_divide(start_group, count):
    def body(lanes: Lanes, rank: int) -> tuple[bool, bytes]:
        array = values(rank, count, "float32", seed=count)
        lanes.allreduce(array)
        return close(array, expected(3, count, "float32", "sum", count)), array.tobytes()

    results = start_group(body, hosts=(1, 1, 1), aux=3).results()
    assert all(good for good, _ in results)
    assert len({bits for _, bits in results}) == 1


def test_same_bits_for_every_lane_count(start_group):
    def body(lanes: Lanes, rank: int) -> set[bytes]:
        found = set()
        for count in (1, 2, 3, 5):
            lanes.limit(count)
            array = values(rank, 123_457, "float32")
            lanes.allreduce(array)
            found.add(array.tobytes())
        return found

    results = start_group(body, hosts=(2, 1, 1), aux=5).results()
    assert len(set.union(*results)) == 1


def test_ranks_that_disagree_get_an_error_not_a_sum(start_group):
    def body(lanes: Lanes, rank: int) -> None:
        array = np.ones(100_000 + rank % 2, "float32")
        lanes.allreduce(array)

    results = start_group(body, hosts=(1, 1), timeout_s=10).results()
    assert all(result.startswith(LanesMismatch.__name__) for result in results), results
    assert any("100000" in result and "100001" in result for result in results)


def test_local_ranks_that_disagree(start_group):
    def body(lanes: Lanes, rank: int) -> None:
        lanes.allreduce(np.ones(1000, "int32" if rank == 1 else "float32"))

    results = start_group(body, hosts=(2, 1), timeout_s=10).results()
    assert all(result.startswith(LanesMismatch.__name__) for result in results), results


def test_no_memory_on_one_rank_is_told_to_all_and_leaves_arrays_alone(start_group):
    import resource

    def body(lanes: Lanes, rank: int) -> bytes:
        array = np.full(16 << 20, rank + 1, "uint8")
        if rank == 1:  # no address space for the result beside it
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), -1))
        with pytest.raises(LanesFailed, match=r"host1.*memory"):
            lanes.allreduce(array)
        return bytes(array[:2])

    assert start_group(body, timeout_s=10).results() == [b"\1\1", b"\2\2"]


def test_wrong_use_is_a_sentence(start_group):
    def body(lanes: Lanes, rank: int) -> None:
        with pytest.raises(UserError, match="complex64"):
            lanes.allreduce(np.ones(3, "complex64"))
        with pytest.raises(UserError, match="contiguous"):
            lanes.allreduce(np.ones((4, 4), "float32")[:, 1])

    assert start_group(body).results() == [None, None]
