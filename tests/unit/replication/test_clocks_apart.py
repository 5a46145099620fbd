"""With clock skew within the limit, the later of two writes wins, whichever node has seen which."""

from __future__ import annotations

import random

import pytest

from tests.unit.replication.memory import Cluster

WITHIN_S = 30  # The bound per node from the true time, so two nodes differ by at most 60 s.


def apart(chance, *, offs=None):
    """Return three nodes that know each other's clocks and are then disconnected."""
    cluster = Cluster()
    for node, off_s in zip(cluster.nodes, offs or [chance.uniform(-WITHIN_S, WITHIN_S) for _ in range(3)], strict=True):
        node.skew_s = off_s
    cluster.connect()
    cluster.pass_s(0.3)
    for node in cluster.nodes:
        cluster.cut(node)
    return cluster


@pytest.mark.parametrize("seed", range(20))
def test_the_later_write_stays(seed):
    """Disconnected hosts write a tenth of a second apart."""
    chance = random.Random(seed)
    cluster = apart(chance)
    wrote = None
    for number in range(60):
        wrote = chance.choice((None, b"%d" % number))
        chance.choice(cluster.nodes).write(a=wrote)
        cluster.pass_s(0.1)
    cluster.connect()
    cluster.until(lambda: cluster.is_caught_up)
    assert [node.live for node in cluster.nodes] == [{} if wrote is None else {b"a": wrote}] * 3


@pytest.mark.parametrize(("off_s", "ahead_s"), [(50, 50), (70, 0), (-50, 0)])
def test_a_clock_that_is_too_far_ahead_leads_nobody(off_s, ahead_s):
    """A clock beyond `max_clock_skew` is taken as wrong; a slow clock does not set time back."""
    cluster = apart(None, offs=(0, 0, off_s))
    one = cluster.nodes[0]
    one.write(a=b"1")
    assert 0 <= one.now_ms() + ahead_s * 1000 - (one.copy.time >> 16) <= 20
