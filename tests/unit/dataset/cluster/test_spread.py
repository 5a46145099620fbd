"""The status of a database that is spread over nodes, from members and statements."""

from __future__ import annotations

import pytest

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.dataset.cluster.spread import MAX_NODES, MAX_RUNS, Spread
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import Statement
from tests.unit.dataset.cluster.scene import TERMS, Node, active, answer, identity, statement, uuid_of


def spread(node: Node) -> Spread:
    return Spread(node.core)


def of(node: Node, version: str = "1"):
    return spread(node).of_version(version)


def runs(*partitions: int, text: str | None = None):
    return {"count": len(partitions), "runs": ",".join(map(str, partitions)) if text is None else text}


def owner(name: str, state: str, ready, building=None):
    return {"node": name, "state": state, "ready": ready, "building": building or runs()}


def test_the_owners_of_a_version_are_told_with_what_they_have_and_how_they_are_known():
    """Partitions of the dead are missing, and partitions with one of two owners under-replicated."""
    node = Node("b", "c", "d", terms=TERMS._replace(replication=2))
    node.has(0, 1)
    node.hear("b", statement("b", ready=[1, 2]))
    node.hear("c", statement("c", ready=[1, 2, 3], building=[0]))
    node.state("b", MemberStanding.SUSPECT)
    node.state("c", MemberStanding.DEAD)
    node.step()
    told = of(node)
    assert told["owners"] == [
        owner("a", "alive", runs(0, 1, text="0-1")),
        owner("b", "suspect", runs(1, 2, text="1-2")),
        owner("c", "dead", runs(1, 2, 3, text="1-3"), runs(0)),
    ]
    assert (told["missing"], told["under_replicated"]) == (runs(3), runs(0, 2, 3, text="0,2-3"))
    assert told["single_owner"] == runs(0, 2)
    assert (told["partition_count"], told["function"], told["regrouped"]) == (4, "sequins", False)
    assert told["owners_not_named"] == 0
    assert not told.keys() & {"conflicts", "disputes", "unpublished"}


def test_a_switch_that_waits_for_copies_says_so():
    """The gate itself holds already."""
    node = Node("b", terms=TERMS._replace(replication=2, switch_patience_ms=60_000))
    node.core.activate(identity("0"))
    node.has(0, 1, 2, 3)
    words = "every partition has 2 owners, or switch_patience has passed: 4 of 4 partitions have fewer owners"
    assert spread(node).gate_waits_until("1") == words
    node.hear("b", statement("b", (0, 1, 2, 3)))
    assert (
        spread(node).gate_waits_until("1") == "the owners of every partition have confirmed that they serve the version"
    )


def test_of_what_nobody_has_said_anything_of_nothing_is_told():
    """Without any statement the number of partitions is unknown, so none is missing."""
    assert of(Node("b")) == {}
    assert spread(Node("b")).gate_waits_until("1") is None


def test_each_node_is_told_with_the_version_that_is_active_there():
    """Members without a statement have no active version; members that have left are not listed."""
    node = Node("b", "c", "d", "e")
    node.core.activate(identity("2"))
    node.hear("b", database=active(identity("1")))
    node.hear("c", database=active(identity("2")))
    node.state("c", MemberStanding.DEAD)
    node.state("e", MemberStanding.LEFT)
    node.step()
    told = spread(node).of_database()
    assert told == {
        "replication": 1,
        "min_replication": 1,
        "nodes": [
            {"node": "a", "state": "alive", "active": "2"},
            {"node": "b", "state": "alive", "active": "1"},
            {"node": "d", "state": "alive", "active": None},
            {"node": "c", "state": "dead", "active": "2"},
        ],
        "nodes_not_named": 0,
    }


def test_two_contents_by_one_name_are_told_with_those_who_have_them():
    """The files or their number differ."""
    node = Node("b", "c")
    other = identity(digest="cd" * 32, partitions=2)
    node.has(0, 1, 2, 3)
    node.hear("b", statement("b", ready=[0]))
    node.hear("c", statement("c", ready=[0], of=other))
    told = {(each["digest"], each["partition_count"]): each["nodes"] for each in of(node)["conflicts"]}
    assert told == {(identity().digest, 4): ["a", "b"], (other.digest, 2): ["c"]}
    assert [each["node"] for each in of(node)["owners"]] == ["a", "b"]


def test_owners_whose_files_differ_are_told():
    """The disputed partitions are named, and the gate waits for agreement."""
    node = Node("b")
    node.has(0, 1, 2, 3)
    node.hear("b", statement("b", ready=[0, 1, 2, 3]))
    node.answered("b", answer(0, 1, 2, 3, seals={"1/none": {0: 7, 1: 8, 2: 8, 3: 7}}))
    assert of(node)["disputes"] == [{"nodes": ["a", "b"], "partitions": runs(1, 2, text="1-2")}]
    assert spread(node).gate_waits_until("1") == "the files of a and b agree: partitions 1-2 differ"


def test_a_version_that_the_tree_has_no_room_for_is_told():
    """Other members do not know of the copy."""
    node = Node("b")
    node.has(0)
    node.core.refused("1", now_ms=node.now_ms)
    assert of(node)["unpublished"] is True


def test_who_keeps_an_old_version_from_going_is_told():
    """Members that have it active, or say nothing, keep it."""
    node = Node("b", "c")
    node.has(0, asked_ms=node.now_ms)
    node.hear("b", database=active(identity("1")))
    node.hear("c", database=active(identity("2")))
    assert spread(node).kept_by("1", node.now_ms) == ["b"]


@pytest.mark.parametrize(
    ("least", "words"),
    [
        (1, "every partition has an owner: 2 of 4 partitions have none (1, 3)"),
        (2, "every partition has 2 owners: 3 of 4 partitions have fewer (1-3)"),
    ],
)
def test_a_gate_waits_for_owners_that_are_alive(least, words):
    """The words name the partitions without owners and count them."""
    node = Node("b", "c", terms=TERMS._replace(min_replication=least))
    node.has(0)
    node.hear("b", statement("b", ready=[0, 2]))
    node.hear("c", statement("c", ready=[1]))
    node.state("c", MemberStanding.SUSPECT)
    node.step()
    assert spread(node).gate_waits_until("1") == words


def test_a_gate_waits_for_answers():
    node = Node("b")
    node.hear("b", statement("b", ready=[0, 1, 2, 3]))
    waits = "the owners of every partition have confirmed that they serve the version"
    assert spread(node).gate_waits_until("1") == waits


def test_a_share_waits_for_the_list_of_members():
    """A node that was told to join waits to hear a member, then for a stable list."""
    node = Node("b")
    node.step()
    node.step(3_000)
    still = "the list of members has not changed for time_to_converge (it has waited 3 s)"
    assert spread(node).share_waits_until() == still
    node.settle()
    assert spread(node).share_waits_until() is None
    alone = Node()
    alone.step()
    assert spread(alone).share_waits_until() == "this node has heard from another node (it has waited 0 s)"


def test_what_others_have_or_build_is_brought_by_them():
    """Partitions that other members have or build count, even if this node cannot build its share."""
    node = Node("b", "c")
    assert not spread(node).is_brought_by_others("1")
    node.hear("b", statement("b", ready=[0, 2]))
    node.hear("c", statement("c", ready=[1]))
    assert not spread(node).is_brought_by_others("1")
    node.hear("c", statement("c", ready=[1], building=[3]))
    assert spread(node).is_brought_by_others("1")


def test_what_is_told_is_bounded_whatever_the_number_of_partitions_and_of_nodes():
    """The first runs and nodes are named, and the rest are counted."""
    count = 65_536
    of_all = identity(partitions=count)
    names = [f"n{number:03}" for number in range(MAX_NODES + 10)]
    node = Node(*names)
    every_other = PartitionSet.of(count, range(0, count, 2))
    for name in names:
        said = Statement(of_all, 0, 100, every_other, PartitionSet.empty(count), uuid_of(name))
        node.core.hear(name, uuid_of(name), 1, {"1": said}, active(of_all), wall_ms=0)
    node.step()
    told = of(node)
    assert (len(told["owners"]), told["owners_not_named"]) == (MAX_NODES, 10)
    assert told["missing"]["count"] == count // 2
    assert told["missing"]["runs"].endswith(f",{2 * MAX_RUNS - 1} and {count // 2 - MAX_RUNS:,} more")
    assert spread(node).of_database()["nodes_not_named"] == 11
    assert len(spread(node).gate_waits_until("1")) < 120


def test_sets_are_told_whole_as_bitmaps():
    """Bitmaps have all runs and all nodes: bit p & 7 of byte p >> 3 is partition p."""
    others = [f"n{number:03}" for number in range(MAX_NODES + 2)]
    count = 4 * MAX_RUNS
    node, of_many = Node(*others), identity(partitions=count)
    for name in others:
        node.hear(name, statement(name, ready=range(0, count, 2), of=of_many))
    node.step()
    look = Spread(node.core, bitmaps=True)
    told = look.of_version("1")
    assert len(told["owners"]) == len(others)
    assert told["owners_not_named"] == 0
    assert told["owners"][-1]["ready"] == {"count": count // 2, "bitmap": b"\x55" * (count // 8)}
    assert told["missing"] == {"count": count // 2, "bitmap": b"\xaa" * (count // 8)}
    assert (len(look.of_database()["nodes"]), look.of_database()["nodes_not_named"]) == (len(others) + 1, 0)
