from hypothesis import given
from hypothesis import strategies as st
from vsketchdlc.model.fusion import fuse, rounded_threshold
from vsketchdlc.model.workload import GradientTensor


def reference_fuse(ready, threshold):
    """The pseudo-code of Horovod's FuseResponses, line by line."""
    queue = list(ready)
    emitted = []
    while queue:
        first = queue.pop(0)
        bucket, size, skip, skipped = [first], first.bytes, [], 0
        while queue:
            candidate = queue[0]
            if candidate.dtype == first.dtype and size + candidate.bytes <= threshold:
                bucket.append(candidate)
                size += candidate.bytes
                queue.pop(0)
            else:
                skipped += candidate.bytes
                if size + skipped <= threshold:
                    skip.append(queue.pop(0))
                else:
                    break
        queue = skip + queue
        emitted.append(bucket)
    return emitted


def tensor(name, nbytes, dtype="float32"):
    return GradientTensor(name, name, nbytes, dtype)


tensors = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from(["float32", "float16"])), min_size=0, max_size=25
).map(lambda rows: [tensor(f"t{i}", size, dtype) for i, (size, dtype) in enumerate(rows)])


@given(tensors, st.integers(0, 200))
def test_buckets_are_those_of_the_reference_algorithm(ready, threshold):
    assert fuse(ready, threshold) == reference_fuse(ready, threshold)


@given(tensors, st.integers(0, 200))
def test_each_gradient_is_in_one_bucket_of_its_type_below_the_threshold(ready, threshold):
    buckets = fuse(ready, threshold)
    assert sorted(t.name for bucket in buckets for t in bucket) == sorted(t.name for t in ready)
    for bucket in buckets:
        assert len({t.dtype for t in bucket}) == 1
        assert len(bucket) == 1 or sum(t.bytes for t in bucket) <= threshold


def names(buckets):
    return [[t.name for t in bucket] for bucket in buckets]


def test_look_ahead_passes_over_another_type():
    ready = [tensor("a", 10), tensor("half", 10, "float16"), tensor("b", 10)]
    assert names(fuse(ready, 100)) == [["a", "b"], ["half"]]


def test_look_ahead_stops_when_what_is_set_aside_no_longer_fits():
    ready = [tensor("a", 60), tensor("big", 50), tensor("b", 10)]
    assert names(fuse(ready, 100)) == [["a"], ["big", "b"]]


def test_threshold_zero_fuses_nothing_and_a_large_tensor_goes_alone():
    assert names(fuse([tensor("a", 1), tensor("b", 1)], 0)) == [["a"], ["b"]]
    assert names(fuse([tensor("a", 500), tensor("b", 1)], 100)) == [["a"], ["b"]]


def test_threshold_is_rounded_up_to_the_local_ranks():
    assert rounded_threshold(128 * 1024 * 1024, 2) == 128 * 1024 * 1024
    assert rounded_threshold(1000, 3) == 1536
