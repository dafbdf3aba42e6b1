import simpy
from vsketchdlc.model.fluid import Activity, Fluid


class Story:
    """Runs activities that start at given times and keeps the log of starts and ends."""

    def __init__(self, **capacity):
        self.env = simpy.Environment()
        self.fluid = Fluid(self.env, capacity)
        self.log = []

    def begin(self, at, activity):
        self.env.process(self._run(at, activity))

    def _run(self, at, activity):
        yield self.env.timeout(at)
        self.log.append((round(self.env.now, 6), f"{activity.name} starts"))
        took = yield self.fluid.start(activity)
        self.log.append((round(self.env.now, 6), f"{activity.name} ends after {took:.3f}"))

    def run(self):
        self.env.run()
        return self.log


def test_one_transfer_takes_bytes_over_rate():
    story = Story(nic=10.0)
    story.begin(1.0, Activity("a", 50.0, {"nic": 1.0}))
    assert story.run() == [(1.0, "a starts"), (6.0, "a ends after 5.000")]


def test_rates_change_when_another_starts_and_ends():
    story = Story(nic=10.0)
    story.begin(0.0, Activity("a", 50.0, {"nic": 1.0}))
    story.begin(2.0, Activity("b", 15.0, {"nic": 1.0}))
    # a alone: 20 done at 2 s; both at 5/s: b done at 5 s, a has 15 left; alone again: 1.5 s more.
    assert story.run() == [
        (0.0, "a starts"),
        (2.0, "b starts"),
        (5.0, "b ends after 3.000"),
        (6.5, "a ends after 6.500"),
    ]


def test_equal_activities_end_in_the_order_in_which_they_started():
    story = Story(cpu=1.0)
    for name in "abc":
        story.begin(0.0, Activity(name, 1.0, {"cpu": 1.0}, bound=1.0))
    assert story.run() == [(0.0, f"{n} starts") for n in "abc"] + [
        (3.0, f"{n} ends after 3.000") for n in "abc"
    ]


def test_a_spinning_thread_takes_its_weight_until_it_is_cancelled():
    story = Story(cpu=1.0)
    spin = story.fluid.start(Activity("spin", float("inf"), {"cpu": 1.0}, 1.0, weight=0.25))

    def stop():
        yield story.env.timeout(5.0)
        story.fluid.cancel(spin)

    story.env.process(stop())
    story.begin(0.0, Activity("work", 6.0, {"cpu": 1.0}, bound=1.0))
    # 0.8 of the core for 5 s, then all of it for the last 2.
    assert story.run() == [(0.0, "work starts"), (7.0, "work ends after 7.000")]


def test_work_of_nothing_ends_at_once():
    story = Story(cpu=1.0)
    story.begin(2.0, Activity("nothing", 0.0, {"cpu": 1.0}))
    assert story.run() == [(2.0, "nothing starts"), (2.0, "nothing ends after 0.000")]


def test_busy_counts_what_was_used():
    story = Story(cpu=2.0, nic=10.0)
    story.begin(0.0, Activity("send", 40.0, {"nic": 1.0, "cpu": 0.05}, bound=8.0))
    story.run()
    assert (round(story.fluid.busy["nic"], 6), round(story.fluid.busy["cpu"], 6)) == (40.0, 2.0)
