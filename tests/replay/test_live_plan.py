"""What a live replay tells its ranks: whole, small enough for an environment variable, in the right order."""

import dataclasses

import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.workload import GradientTensor, Workload
from vsketchdlc.replay.live import live_plan, replay_live
from vsketchdlc.replay.live_plan import LivePlan


def workload(dtype="float32"):
    tensors = (
        GradientTensor("fc_w", "fc", 4000, dtype, ready_s=0.01, index=3),
        GradientTensor("fc_b", "fc", 40, dtype, ready_s=0.01, index=2),
        GradientTensor("conv_w", "conv", 400, dtype, ready_s=0.03, index=1),
        GradientTensor("conv_b", "conv", 4, dtype, ready_s=0.03, index=0),
    )
    return Workload("tiny", tensors, forward_s=0.02, backward_s=0.03, update_s=0.004444, update_group=2)


def test_the_plan_survives_the_environment():
    plan = live_plan(workload(), steps=5, compute="sleep", result="/some where/steps.json")
    text = plan.to_text()
    assert LivePlan.from_text(text) == plan
    assert ";" not in text  # Open MPI separates the variables of its list with it


def test_updates_are_in_the_order_their_gradients_are_reduced():
    plan = live_plan(workload(), steps=5, compute="sleep", result="r")
    assert [sorted(group) for group, _ in plan.updates] == [[0, 1], [2, 3]]
    assert [seconds for _, seconds in plan.updates] == pytest.approx([0.00404, 0.000404])


def test_elements_follow_from_bytes_and_type():
    plan = live_plan(workload("float16"), steps=5, compute="sleep", result="r")
    assert [tensor.elements for tensor in plan.tensors] == [2000, 20, 200, 2]


def test_the_largest_catalogue_entry_fits_an_environment_variable():
    text = live_plan(catalogue_workload("bert-large"), steps=5, compute="sleep", result="r").to_text()
    assert len(text) < 100_000  # the kernel takes 128 KiB in one string


def test_a_type_that_arrays_do_not_have_is_refused():
    with pytest.raises(UserError, match="bfloat16"):
        live_plan(workload("bfloat16"), steps=5, compute="sleep", result="r")


def test_too_few_steps_are_refused():
    with pytest.raises(UserError, match="warm-up"):
        replay_live(workload(), ["mpirun"], steps=2)


def test_a_gradient_is_called_as_in_the_recorded_run():
    work = workload()
    recorded = dataclasses.replace(work.tensors[0], name="horovod_allreduce.0")
    plan = live_plan(
        dataclasses.replace(work, tensors=(recorded, *work.tensors[1:])), steps=5, compute="sleep", result="r"
    )
    assert plan.tensors[0].name == "0"  # Horovod puts its prefix before it again
