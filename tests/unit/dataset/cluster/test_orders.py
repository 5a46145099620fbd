"""Orders to hold a version: the newest counts, and all nodes end with the same one."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.cluster.effects import KeepOrders
from gossipkv.placement.orders import MAX_AHEAD_MS, MAX_STAMP, Orders, RollbackOrder
from tests.unit.dataset.cluster.scene import Node, active

NAMES = ("a", "b", "c")
DECADES_MS = 60 * 365 * 86_400_000  # A clock without a battery begins in 1970.
CLOCKS = st.integers(0, 50) | st.integers(0, DECADES_MS)
GIVEN = st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "2", None]), CLOCKS, st.integers(0, 5))


@given(st.lists(GIVEN, max_size=8), st.integers())
def test_all_obey_one_order(given, seed):
    """Orders spread from any node, by differing clocks, and in any order of gossip."""
    chance, known = random.Random(seed), dict.fromkeys(NAMES, Orders())
    for name, version, wall_ms, heard in given:
        for _ in range(heard):
            other = known[chance.choice(NAMES)].cluster
            known[name] = known[name] if other is None else known[name].heard(other, wall_ms=0)
        before = known[name]
        known[name] = before.given(version, here=False, wall_ms=wall_ms)
        assert known[name].newest == RollbackOrder(known[name].newest.stamp, version)
        assert known[name].newest.is_after(before.newest)
    for _ in range(2):
        for name in NAMES:
            for other in NAMES:
                if (order := known[other].cluster) is not None:
                    known[name] = known[name].heard(order, wall_ms=0)
    assert len({orders.newest for orders in known.values()}) == 1


def test_an_order_to_one_node_counts_until_a_later_one_to_all():
    """A release at that node makes it follow the cluster again."""
    orders = Orders().given("1", here=False, wall_ms=10)
    here = orders.given("2", here=True, wall_ms=5)
    assert (here.cluster, here.newest.version) == (orders.cluster, "2")
    assert here.given(None, here=True, wall_ms=0) == orders
    assert here.heard(RollbackOrder(12, "3"), wall_ms=0).newest.version == "3"
    assert here.heard(RollbackOrder(here.newest.stamp - 1, "3"), wall_ms=0).newest.version == "2"
    assert here.given(None, here=False, wall_ms=0).newest.version is None
    assert Orders(RollbackOrder(MAX_STAMP, "1")).given("2", here=False, wall_ms=0).newest == RollbackOrder(
        MAX_STAMP, "2"
    )


def test_an_order_from_far_ahead_does_not_count():
    """Otherwise one false order would be the last; a later order can always be given within the bound."""
    orders = Orders().given("1", here=False, wall_ms=10)
    lie = RollbackOrder(10 + MAX_AHEAD_MS, "lie")
    assert orders.heard(lie, wall_ms=9) == orders
    lied_to = orders.heard(lie, wall_ms=10)
    assert lied_to.newest == lie
    assert lied_to.heard(lied_to.given("2", here=False, wall_ms=11).cluster, wall_ms=11).newest.version == "2"


def test_what_was_heard_is_said_and_kept():
    """Every node repeats the order; an older or known order changes nothing."""
    node = Node("b")
    node.settle()
    node.hear("b", database=active(order=RollbackOrder(7, "1")))
    assert (node.core.orders, node.database.order) == (Orders(RollbackOrder(7, "1")), RollbackOrder(7, "1"))
    for order in (RollbackOrder(7, "1"), RollbackOrder(6, "2"), None):
        node.hear("b", database=active(order=order))
        node.hear("c", database=active(order=order))
    assert node.database.order == RollbackOrder(7, "1")
    assert [effect for effect in node.effects if isinstance(effect, KeepOrders)] == [KeepOrders()]


def test_what_is_heard_while_an_order_is_written_down():
    """The later of the two orders counts and is written down as well."""
    node = Node("b")
    node.settle()
    written = node.core.orders.given("1", here=False, wall_ms=5)
    node.hear("b", database=active(order=RollbackOrder(9, "2")))
    node.core.order(written)
    assert node.core.orders == Orders(RollbackOrder(9, "2"))
    assert KeepOrders() in node.step()
