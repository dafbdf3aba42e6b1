import pytest
from vsketchdlc.model.openmpi import Algorithm, algorithm_for, control_rounds, stages, tuned_algorithm

KI = 1024


@pytest.mark.parametrize(
    "ranks,nbytes,expected",
    [
        (2, 24, Algorithm.RECURSIVE_DOUBLING),
        (2, 4 * KI, Algorithm.RING),
        (2, 8 * KI, Algorithm.RECURSIVE_DOUBLING),
        (3, 255 * KI, Algorithm.RING),
        (2, 256 * KI, Algorithm.RABENSEIFNER),
        (4, 8 * KI - 1, Algorithm.RECURSIVE_DOUBLING),
        (4, 8 * KI, Algorithm.RABENSEIFNER),
        (16, 4 * KI, Algorithm.RABENSEIFNER),
        (100, 200 * KI, Algorithm.RECURSIVE_DOUBLING),
        (1024, 100 * KI, Algorithm.RABENSEIFNER),
    ],
)
def test_the_decision_table(ranks, nbytes, expected):
    assert tuned_algorithm(ranks, nbytes, nbytes // 4) is expected


def test_few_elements_fall_back():
    assert tuned_algorithm(2, 4, 1) is Algorithm.RECURSIVE_DOUBLING
    assert tuned_algorithm(64, 300 * KI, 8) is Algorithm.LINEAR


def test_several_ranks_on_several_hosts_are_hans():
    assert algorithm_for(2, 4, 1 << 20, 1 << 18) is Algorithm.HAN
    assert algorithm_for(1, 4, 1 << 20, 1 << 18) is Algorithm.RABENSEIFNER


def moved(ranks, nbytes, algorithm=Algorithm.RABENSEIFNER):
    steps = stages(algorithm, ranks, nbytes)
    return (
        sum(s.exchange_bytes for s in steps),
        sum(s.one_way_bytes for s in steps),
        sum(s.reduce_bytes for s in steps),
        sum(s.rounds for s in steps),
    )


def test_rabenseifner_moves_what_the_cost_model_says():
    assert moved(2, 800) == (800.0, 0.0, 400.0, 2)
    assert moved(4, 800) == (1200.0, 0.0, 600.0, 4)
    # Three ranks: half both ways and half one way before, all of it one way after.
    assert moved(3, 800) == (400.0 + 800.0, 400.0 + 800.0, 400.0 + 400.0, 5)


def test_ring_moves_two_times_n_minus_one_parts():
    assert moved(4, 800, Algorithm.RING) == (1200.0, 0.0, 600.0, 6)


def test_one_rank_moves_nothing():
    assert stages(Algorithm.RABENSEIFNER, 1, 800) == []


def test_rounds_of_the_bit_vector():
    assert [control_rounds(n) for n in (1, 2, 3, 4, 8, 12)] == [0, 1, 3, 2, 3, 5]
