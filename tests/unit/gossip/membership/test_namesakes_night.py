"""Two nodes keep one name for hours."""

from __future__ import annotations

from gossipkv.gossip.membership.namesakes import MAX_REST_MS
from gossipkv.gossip.profile import LAN
from tests.unit.gossip.links import Link, Node, all_alive
from tests.unit.gossip.membership.test_namesakes import HOUR_MS, LIAR, SECOND_MS, Liar, duplicates, twins


def renewals(node: Node) -> int:
    return len(node.stores)


def test_without_keys_both_go_on_and_say_so():
    """Both nodes complain, all nodes see it, and the cost falls to one epoch an hour."""
    link = Link()
    nodes, elder, younger = twins(link)
    assert link.run(60 * SECOND_MS, lambda: elder.complaints and younger.complaints)
    for complainer, other in ((elder, younger), (younger, elder)):
        assert str(other.address) in str(complainer.complaints[-1].error)
    places = {str(elder.address), str(younger.address)}
    link.run(2 * SECOND_MS)
    for _ in range(20):
        link.run(60 * SECOND_MS)
        assert all(len(seen) == 1 and seen < places for seen in duplicates(nodes))
    link.run(2 * HOUR_MS)
    before = renewals(elder) + renewals(younger)
    link.run(2 * HOUR_MS)
    assert renewals(elder) + renewals(younger) - before <= 4
    assert before <= 30
    assert renewals(elder) > 3
    assert elder.stopped is younger.stopped is None


def test_two_that_cannot_reach_each_other_do_not_renew_for_ever():
    """Two nodes that all others reach raise their epochs ever more rarely and report the conflict."""
    link = Link(7)
    nodes, one, two = twins(link)
    link.cut = lambda source, to: {source, to} == {one.address, two.address}
    link.run(120 * SECOND_MS)
    assert 4 < renewals(one) + renewals(two) < 20
    assert one.complaints
    assert two.complaints
    assert all(duplicates(nodes))
    link.run(2 * HOUR_MS)
    before = renewals(one) + renewals(two)
    for _ in range(6):
        link.run(HOUR_MS // 2)
        assert all(duplicates(nodes))
    assert renewals(one) + renewals(two) - before <= 6
    assert one.stopped is two.stopped is None


def test_a_flood_of_claims_costs_little():
    """Two claims a second for ten minutes cost a few epochs and a few questions."""
    link = Link(4)
    nodes = link.cluster(3)
    link.run(LAN.converge_ms)
    victim, liar = nodes[1], Liar(link, age_ms=1 << 40)
    for _ in range(600):
        liar.claim(victim)
        liar.claim(victim, more_epochs=0)
        link.run(SECOND_MS)
    assert victim.stopped is None
    assert 4 <= renewals(victim) <= 10
    assert liar.asked <= 11
    assert len(victim.complaints) == 1
    link.run(3 * MAX_REST_MS)
    assert all_alive(nodes)
    del link.nodes[LIAR]
    assert link.run(3 * MAX_REST_MS, lambda: not any(duplicates(nodes)))
