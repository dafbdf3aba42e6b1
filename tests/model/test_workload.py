import dataclasses

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.workload import GradientTensor, Workload, backward_bulks


def test_json_brings_back_the_same_workload(alexnet):
    assert Workload.from_json(alexnet.to_json()) == alexnet


def test_another_format_is_refused(alexnet):
    with pytest.raises(UserError, match="format 99"):
        Workload.from_json({**alexnet.to_json(), "format_version": 99})


def test_damaged_content_is_refused(alexnet):
    data = alexnet.to_json()
    del data["tensors"]
    with pytest.raises(UserError, match="damaged"):
        Workload.from_json(data)


def test_gradients_of_one_bulk_become_ready_together(alexnet):
    bulks = backward_bulks(alexnet.tensors)
    assert [(ready, len(tensors)) for ready, tensors in bulks] == [
        (0.01, 2),
        (0.05, 2),
        (0.13, 2),
        (0.3, 3),
        (0.31, 2),
    ]


def test_twice_the_batch_doubles_forward_and_backward_but_not_the_update(alexnet):
    double = alexnet.scaled(batch_per_rank=8)
    assert (double.forward_s, double.backward_s, double.update_s) == pytest.approx((0.30, 0.64, 0.12))
    assert double.tensors[0].ready_s == pytest.approx(0.02)


def test_fp16_halves_the_gradients(alexnet):
    assert alexnet.scaled(dtype_bytes=2).gradient_bytes * 2 == alexnet.gradient_bytes


def test_a_cpu_casts_to_fp16_and_back_a_gpu_does_it_for_nothing(alexnet):
    cast_s = alexnet.gradient_bytes / 4 * 2.5e-9
    half = alexnet.scaled(dtype_bytes=2)
    assert half.update_s == pytest.approx(alexnet.update_s + cast_s)
    assert half.backward_s == pytest.approx(alexnet.backward_s + cast_s)
    gpu = dataclasses.replace(alexnet, device="gpu")
    assert gpu.scaled(dtype_bytes=2).compute_s == gpu.compute_s
    assert alexnet.scaled(dtype_bytes=4).compute_s == alexnet.compute_s


@pytest.mark.parametrize("nbytes,ready", [(0, 0.0), (-4, 0.0), (4, float("nan")), (4, -1.0)])
def test_impossible_tensors_are_refused(nbytes, ready):
    with pytest.raises(UserError):
        Workload("bad", (GradientTensor("a", "a", nbytes, "float32", ready),), 1.0, 1.0, 0.0)


def test_a_workload_without_gradients_is_refused():
    with pytest.raises(UserError, match="no gradients"):
        Workload("bad", (), 1.0, 1.0, 0.0)
