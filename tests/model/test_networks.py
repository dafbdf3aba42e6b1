import pytest
from vsketchdlc.errors import UserError
from vsketchdlc.model.catalogue import PUBLISHED, catalogue_workload, published
from vsketchdlc.model.networks import NETWORKS

# Published counts: torchvision (no auxiliary classifier), and the BERT checkpoints with their pooler.
PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "inception-v3": 23_834_568,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
}
# 10^9 multiply-adds of one forward pass, as commonly stated.
GIGA_MACS = {
    "alexnet": 0.71,
    "vgg16": 15.5,
    "resnet50": 4.1,
    "resnet152": 11.6,
    "inception-v3": 5.7,
    "bert-base": 11.2,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameter_counts_are_the_published_ones(name):
    assert sum(sum(layer.parameters.values()) for layer in NETWORKS[name]()) == PARAMETERS[name]


@pytest.mark.parametrize("name", GIGA_MACS)
def test_multiply_adds_are_the_published_ones(name):
    assert sum(layer.macs for layer in NETWORKS[name]()) / 1e9 == pytest.approx(GIGA_MACS[name], rel=0.02)


def test_alexnet_has_its_eight_layers_with_the_largest_gradient_of_151_mb():
    sizes = [sum(layer.parameters.values()) for layer in NETWORKS["alexnet"]()]
    assert sizes == [23_296, 307_392, 663_936, 884_992, 590_080, 37_752_832, 16_781_312, 4_097_000]


def test_vgg16_has_thirteen_convolutions_and_three_dense_layers():
    names = [layer.name for layer in NETWORKS["vgg16"]()]
    assert (sum(n.startswith("conv") for n in names), sum(n.startswith("dense") for n in names)) == (13, 3)


@pytest.mark.parametrize("model,gpu", PUBLISHED)
def test_a_step_of_the_catalogue_takes_the_published_time(model, gpu):
    work = catalogue_workload(model, gpu)
    speed = published(model, gpu)
    assert work.compute_s == pytest.approx(speed.batch / speed.samples_per_s)
    assert work.tensors[-1].layer == NETWORKS[model]()[0].name
    assert speed.source in work.source


def test_unknown_network_or_device_is_refused_with_the_list():
    with pytest.raises(UserError, match="choose one of alexnet, vgg16"):
        catalogue_workload("lenet")
    with pytest.raises(UserError, match="choose one of v100"):
        catalogue_workload("bert-base", "k80")
