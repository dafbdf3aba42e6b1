from vsketchdlc.validation.lab.flows import Flow, Sighting, collisions
from vsketchdlc.validation.lab.shaping import flow_class

BIG = Sighting(100 << 20, first_s=10.0, last_s=20.0)


def flow(source_port, destination_port, cookie=1):
    return Flow("h0", "10.77.0.1", source_port, "10.77.0.2", destination_port, cookie)


def two_in_one_class():
    seen = {}
    for port in range(1024, 65536):
        number = flow_class(port, 5000, "10.77.0.2")
        if number in seen:
            return flow(seen[number], 5000), flow(port, 5000)
        seen[number] = port
    raise AssertionError("a hash into 4,096 classes without a collision in 64,512 ports")


def test_big_flows_in_one_class_at_the_same_time_void_the_run():
    one, other = two_in_one_class()
    (found,) = collisions({one: BIG, other: BIG})
    assert found.flows == (one, other)
    assert str(found) == (
        f"h0: flows {one.source_port} to 10.77.0.2:5000, {other.source_port} to 10.77.0.2:5000 "
        "shared one cap; run it again"
    )


def test_a_small_flow_or_one_after_the_other_does_no_harm():
    one, other = two_in_one_class()
    assert collisions({one: BIG, other: Sighting(1000, 10.0, 20.0)}) == []
    assert collisions({one: BIG, other: Sighting(100 << 20, 21.0, 30.0)}) == []


def test_flows_of_different_hosts_have_different_classes():
    one, other = two_in_one_class()
    elsewhere = Flow("h1", "10.77.0.3", other.source_port, other.destination, other.destination_port, 1)
    assert collisions({one: BIG, elsewhere: BIG}) == []
