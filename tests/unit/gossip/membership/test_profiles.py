"""Each profile keeps its promises within its own times."""

from __future__ import annotations

import pytest

from gossipkv.gossip.profile import PROFILES
from tests.unit.gossip.links import Link, all_alive, all_see

SIZE = 6


@pytest.mark.parametrize("name", PROFILES)
def test_a_life_in_each_profile(name: str) -> None:
    """At rest no suspicion; a crash is found in time, the member returns and leaves, and a partition heals."""
    profile = PROFILES[name]
    link = Link(delay_ms=profile.probe_timeout_ms // 5)
    first = link.start(link.node("n00", profile=profile))
    nodes = [first, *(link.start(link.node(f"n{i:02}", profile=profile), first) for i in range(1, SIZE))]
    assert link.run(20 * profile.gossip_interval_ms, lambda: all_alive(nodes))
    link.run(30 * profile.probe_interval_ms)
    assert all_alive(nodes)
    assert not any(change.before is not None for node in nodes for change in node.changes)

    crashed = nodes.pop()
    link.kill(crashed)
    others = {node.me.name: "ALIVE" for node in nodes}
    # One round of probes, and one suspicion that all other members confirm in the next round.
    most_ms = 2 * SIZE * profile.probe_interval_ms + profile.suspicion_most_ms(SIZE)
    assert link.run(most_ms, lambda: all_see(nodes, others | {"n05": "DEAD"}))
    again = link.start(link.node("n05", epoch=2, port=crashed.address.port, profile=profile), first)
    nodes.append(again)
    assert link.run(20 * profile.gossip_interval_ms, lambda: all_alive(nodes))

    half = {node.address for node in nodes[:3]}
    link.cut = lambda source, to: (source in half) != (to in half)
    assert link.run(most_ms, lambda: all([*node.states().values()].count("DEAD") == 3 for node in nodes))
    link.cut = lambda source, to: False
    assert link.run(3 * profile.reconnect_interval_ms + profile.ask_timeout_ms, lambda: all_alive(nodes))

    again.core.leave(now_ms=link.now_ms)
    link.settle(again)
    assert link.run(8 * profile.gossip_interval_ms, lambda: all_see(nodes[:-1], others | {"n05": "LEFT"}))
