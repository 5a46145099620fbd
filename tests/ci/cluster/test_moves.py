"""Real nodes whose table moves while clients of all nodes write and read it, and sessions look for steps back."""

from __future__ import annotations

import time

import pytest

from tests.ci.cluster.table_moves import Death, check, held, newcomer_to, shares, still_there, traffic_at
from tests.ci.cluster.table_nodes import until
from tests.ci.cluster.views import LOGGED

pytestmark = pytest.mark.timeout(600)

SETTINGS = {**LOGGED, "refresh_period": "off", "table_segment": "4MiB"}
LEAST = 100  # Reads and writes of clients, and of sessions, in each phase; an idle machine does thousands.
PARTITIONS = 32


def test_a_node_more_and_one_less(tmp_path):
    """No read or write fails; the new node gets its share, and the removed node has no partition left."""
    with newcomer_to(tmp_path, SETTINGS, partitions=PARTITIONS) as (nodes, records):
        with traffic_at(nodes, seed=1) as traffic:
            traffic.goes_on(0.5, LEAST)
            # This fails while n5 is suspect.
            until(lambda: nodes.ask(2, "add_node", "n5"), lambda _: True)
            grown = shares(nodes, range(1, 6), range(1, 6))
            traffic.goes_on(0.5, LEAST)
            nodes.ask(5, "remove_node", "n1")
            shrunk = shares(nodes, range(1, 6), range(2, 6))
            traffic.goes_on(0.5, LEAST)
        assert traffic.failures() == ([], [])
        assert min(traffic.counts()) >= 6 * LEAST
        assert sorted(grown) == ["n1", "n2", "n3", "n4", "n5"]
        assert {*grown.values()} == {3 * PARTITIONS // 5, 3 * PARTITIONS // 5 + 1}
        assert shrunk == dict.fromkeys(["n2", "n3", "n4", "n5"], 3 * PARTITIONS // 4)
        check(nodes, traffic, 1)
        assert still_there(nodes.cluster, 1, records) == []


def test_a_move_goes_on_after_its_ends_were_killed(tmp_path):
    """The target and then a source are killed amid the moves and started again: the moves complete."""
    slowly = {**SETTINGS, "table_transfer": "64KiB/s", "max_moves": "4"}
    with newcomer_to(tmp_path, slowly, partitions=PARTITIONS) as (nodes, records):
        with traffic_at(nodes, seed=3) as traffic:
            traffic.goes_on(0.5, LEAST)
            # This fails while n5 is suspect.
            until(lambda: nodes.ask(1, "add_node", "n5"), lambda _: True)
            until(lambda: coming(nodes, 1), bool)
            deaths = [restart(nodes, 5, asked=1)]
            until(lambda: sources(nodes, 1), bool)
            victim = sources(nodes, 1)[0]
            deaths.append(restart(nodes, victim, asked=5))
            grown = shares(nodes, range(1, 6), range(1, 6))
        reads, writes = traffic.failures()
        assert reads == []
        assert [one for one in writes if not any(one.is_amid(death) for death in deaths)] == []
        assert {*grown.values()} == {3 * PARTITIONS // 5, 3 * PARTITIONS // 5 + 1}
        check(nodes, traffic, 1)
        assert still_there(nodes.cluster, 1, records) == []


def coming(nodes, index):
    """Return the table's assignments that are being moved to their nodes."""
    return [one for one in held(nodes, index) if one.state in {"PROPOSED", "INITIALIZING"}]


def sources(nodes, index):
    """Return the numbers of the nodes that are sources of a move, except n1, which this test asks most."""
    slots = {(one.partition, one.slot) for one in coming(nodes, index) if one.state == "INITIALIZING"}
    found = [one for one in held(nodes, index) if (one.partition, one.slot) in slots and one.state == "AVAILABLE"]
    return sorted({int(one.node[1:]) for one in found})


def restart(nodes, victim, *, asked):
    """Kill a node amid moves, as node `asked` confirms, and restart it; return when all nodes see it alive."""
    killed_s = time.monotonic()
    nodes.cluster.kill(victim)
    assert coming(nodes, asked) != []
    nodes.cluster.start(victim)
    nodes.all_alive(range(1, 6))
    return Death(killed_s, time.monotonic())
