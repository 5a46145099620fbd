"""Comparisons of two results: the verdict on each measure, and the differences of plan and machine."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest.compare import CHANCE, Difference, chance, compare, judge, spread, unlike
from tests.unit.loadtest import results

FOUR = [100.0, 101.0, 102.0, 103.0]
ROUNDS = st.lists(st.integers(1, 60).map(float), min_size=1, max_size=5)


def by_name(one, other):
    return {each.name: each for each in compare(one, other).measures}


def test_ranges_that_part_are_a_difference():
    """A higher rate is better and a longer latency worse, by the medians."""
    one = results.repeated(FOUR, [900.0, 910.0, 920.0, 930.0])
    other = results.repeated([rate * 1.5 for rate in FOUR], [1200.0, 1210.0, 1220.0, 1230.0])
    found = by_name(one, other)
    assert (found["rate"].difference, found["p99"].difference) == (Difference.BETTER, Difference.WORSE)
    assert (found["p50"].difference, found["wrong"].difference) == (Difference.SAME, Difference.SAME)
    assert found["rate"].change == pytest.approx(0.5)
    back = by_name(other, one)
    assert (back["rate"].difference, back["p99"].difference) == (Difference.WORSE, Difference.BETTER)


def test_ranges_that_overlap_are_noise():
    """One round within the other's range makes a difference noise."""
    found = by_name(results.repeated(FOUR, FOUR), results.repeated([101.5, 111.0, 112.0, 113.0], FOUR))
    assert found["rate"].difference is Difference.NOISE
    assert found["rate"].change == pytest.approx(0.0985, abs=1e-3)


def test_few_rounds_tell_nothing():
    """Three rounds each are disjoint by chance once in ten times; single runs never tell."""
    comparison = compare(results.repeated(FOUR[:3], FOUR[:3]), results.repeated([900.0, 910.0, 920.0], FOUR[:3]))
    assert not comparison.can_tell
    assert {each.name: each.difference for each in comparison.measures}["rate"] is Difference.UNKNOWN
    single = compare(results.plain(), results.eventful())
    assert single.rounds == (1, 1)
    assert {each.difference for each in single.measures} == {Difference.UNKNOWN, Difference.SAME}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(range(1, 5), repeat=2)))
def test_the_chance_is_counted(one, other):
    """The chance of disjoint rounds equals a count over all orders."""
    orders = list(itertools.combinations(range(one + other), one))
    parted = [order for order in orders if max(order) == one - 1 or min(order) == other]
    expected = len(parted) / len(orders)
    assert chance(one, other) == pytest.approx(expected)


def oracle(one, other):
    """Return the verdict by comparing each round with each, unless chance explains the difference."""
    if set(one) == set(other) and len(set(one)) == 1:
        return "same"
    if chance(len(one), len(other)) > CHANCE:
        return "unknown"
    if all(a < b for a in one for b in other):
        return "up"
    return "down" if all(a > b for a in one for b in other) else "noise"


@given(one=ROUNDS, other=ROUNDS)
def test_the_rule(one, other):
    """The verdict agrees with the oracle, and is reversed with the arguments."""
    words = {"same": "SAME", "unknown": "UNKNOWN", "up": "BETTER", "down": "WORSE", "noise": "NOISE"}
    found = judge(one, other, more_is_better=True)
    assert found.name == words[oracle(one, other)]
    opposite = {"BETTER": "WORSE", "WORSE": "BETTER"}
    assert judge(one, other, more_is_better=False).name == opposite.get(found.name, found.name)
    assert judge(other, one, more_is_better=True).name == opposite.get(found.name, found.name)


def test_a_measure_that_one_does_not_know_is_left_out():
    """Processor time of servers elsewhere is unknown, and so not compared."""
    assert "cpu" not in by_name(results.eventful(), results.plain())
    assert by_name(results.eventful(), results.eventful())["cpu"].first == (pytest.approx(61.5),)


def test_kinds_are_compared_where_there_was_a_mix():
    """Kinds that both results have are compared, but not the only kind of a run."""
    assert {"get.p99", "scan.mean"} <= set(by_name(results.eventful(), results.eventful()))
    assert not [name for name in by_name(results.plain(), results.plain()) if name.startswith("get.")]


def test_what_was_not_alike_is_named():
    """Each value is named by its path, also one that only one result has."""
    one = {"database": "", "connections": 8, "mix": {"get": 1.0}, "same": [1, 2]}
    other = {"database": "geo", "connections": 9, "mix": {"get": 1.0, "scan": 2.0}, "same": [1, 2], "rate": None}
    assert unlike(one, other) == [
        ("database", "(none)", "geo"),
        ("connections", "8", "9"),
        ("mix.scan", "(not said)", "2"),
        ("rate", "(not said)", "None"),
    ]
    machines = [{**results.plain().machine, "load_average": load} for load in (0.5, 1.5)]
    idle, busy = (results.plain(machine=machine) for machine in machines)
    assert compare(idle, busy).machines == []  # The load average is no property of the machine.
    comparison = compare(results.plain(), results.plain(machine={"processor": "other", "cores": 2}))
    assert (comparison.plans, comparison.machines) == ([], [("processor", "some", "other")])


def test_the_spread_is_a_share_of_the_median():
    """The spread is the range divided by the median; a median of 0 has none."""
    assert spread([90.0, 100.0, 120.0]) == pytest.approx(0.3)
    assert spread([0.0, 0.0]) is None
