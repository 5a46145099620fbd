"""The status report about tables: holders, lag, and partitions that take no writes."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack
import pytest
import trio

from gossipkv.errors import BadRequest, StorageError, Unavailable
from gossipkv.gossip.member import MemberState
from gossipkv.placement.partition import Assignment, Partition
from gossipkv.placement.partition import AssignmentState as Slot
from gossipkv.register.metadata.partitions import decode_partition
from gossipkv.register.metadata.tables import NamedNode
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.bootstrap import Bootstrap
from gossipkv.replication.replica.keys import ReplicaIdentity, suffix_of
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.spaces import QuarantinedReplica
from gossipkv.replication.replica.status import ReplicaStatus
from gossipkv.table.records.router import Router
from gossipkv.table.rpc import status as telling
from gossipkv.table.rpc.quarantine import QuarantineMethods
from gossipkv.table.rpc.status import TableReporter
from gossipkv.wire.arguments import Arguments
from tests.unit.table.edited_maps import edited
from tests.unit.table.made_up_participant import participant
from tests.unit.table.record_nodes import Records

PARTITIONS = 4
RATE = 1000  # In bytes a second.


@pytest.fixture
def records():
    """Return four nodes; three hold a table, and the first one knows that the other two have no records."""
    made = Records(4)
    three = made.nodes[:3]
    for node in made.nodes:
        node.collector = SimpleNamespace(held_back={})
        node.digests = SimpleNamespace(differ={})
        node.refusal = None
        node.size_bytes = lambda space, _: 100 + space
        node.replicas.loader.pace.rate = RATE
    made.passed_over = {}
    made.placed = {}  # The catalogue's nodes of tables; empty at first.
    made.make("t", firsts=PARTITIONS, holders=lambda _: three)
    asked = made.nodes[0].replicas
    for node in three[1:]:
        asked.connected(node.uuid)
        peer = asked.peers[node.uuid]
        peer.greeted = True
        peer.sender._shared.at = asked.tail.first  # The place after a first read of the log.
        for copy in asked.by_partition.values():
            peer.sender.statuses[copy] = ReplicaStatus(
                2, clock.named(b"", copy.named), 1, can_take=True, available=True
            )
    return made


def status(records, by=0):
    return trio.run(of(records, by).status, "t")


def of(records, by=0):
    """Return the reporter of a node that knows all tables and nodes of tables."""
    catalogue = SimpleNamespace(
        register=b"c", tables=records.tables, table=records.table, nodes=SimpleNamespace(named=lambda: records.placed)
    )
    deciding = participant(
        replicating=lambda *_: records.nodes[by], members=lambda: records.nodes, catalogue=catalogue,
        name_of=lambda uuid: records.node(uuid).name, taking_part=lambda *_: (records, catalogue), metadata=records,
        known_names=lambda: {node.uuid: node.name for node in records.nodes}, absent=lambda: {b"4": "n4"},
        controllers=lambda: SimpleNamespace(rebalancer=SimpleNamespace(passed_over_s=lambda: records.passed_over)),
        smear_buffer=None,
    )  # fmt: skip
    return TableReporter(deciding, Router(deciding, None), {"UNAVAILABLE": 3})


def raising(error):
    def fails(*_):
        raise error

    return fails


def write(records, count):
    """Write records to the first node's first replica."""
    replicas = records.nodes[0].replicas
    copy = next(iter(replicas.by_partition.values()))
    replicas.originate({copy: [RecordWrite(b"k%d" % number, b"v") for number in range(count)]})
    records.run()
    return copy


def test_who_holds_it(records):
    told = status(records)
    assert (told["kind"], told["partition_count"], told["unwell"]) == ("hash", PARTITIONS, [])
    assert [(one["node"], one["state"], one["partitions"], one["lag_records"]) for one in told["nodes"]] == [
        ("n1", "alive", PARTITIONS, 0), ("n2", "alive", PARTITIONS, 0), ("n3", "alive", PARTITIONS, 0),
    ]  # fmt: skip


def test_who_lacks_what(records):
    """The lag is told in records, and in seconds since the oldest missing record; `info` covers all replicas."""
    copy = write(records, 2)
    records.nodes[0].replicas.peers[records.nodes[2].uuid].sender.statuses[copy] = ReplicaStatus(
        2, copy.synced, 1, can_take=True, available=True
    )
    records.pass_s(5)
    write(records, 1)
    lags = {one["node"]: (one["lag_records"], round(one["lag_s"])) for one in status(records)["nodes"]}
    assert lags == {"n1": (0, 0), "n2": (3, 5), "n3": (1, 0)}
    info = of(records).to_map()
    assert (info["copies"], info["copies_aside"], info["waiting"]) == (PARTITIONS, 0, 0)
    assert info["lag_records"] == {"t": {"n2": 3, "n3": 1}}
    assert info["lag_s"]["t"]["n2"] == pytest.approx(5)


def test_nothing_is_said_of_what_a_node_lacks_that_lives_and_is_not_reached(records):
    """A live unreachable node may be fed by others; a dead one has a lag, which does not affect the verdict."""
    write(records, 2)
    n1, n2, _, _ = records.nodes
    n1.replicas.disconnected(n2.uuid)
    lacks = {"n1": 0, "n2": 0, "n3": 2}
    assert {one["node"]: one["lag_records"] for one in status(records)["nodes"]} == lacks
    assert of(records).to_map()["lag_records"] == {"t": {"n3": 2}}
    n2.state = MemberState.DEAD
    assert {one["node"]: one["lag_records"] for one in status(records)["nodes"]} == lacks | {"n2": 2}
    condition = trio.run(of(records).condition, "t")
    assert [*condition["lags"]] == ["n3"]
    assert condition["away"] == {"n2": {"state": "dead", "partitions": PARTITIONS}}


def test_what_an_ended_assignment_wrote_nobody_lacks(records):
    """A known clock may not name the ended assignment any more."""
    copy = next(iter(records.nodes[0].replicas.by_partition.values()))
    copy.synced = clock.merge(copy.synced, clock.of([(MOVE, 872)]))
    assert {one["lag_records"] for one in status(records)["nodes"]} == {0}


def test_who_decides_where_too_few_do(records):
    """The acceptors are named as soon as one of them is not alive, and counted in `info`."""
    assert status(records)["acceptors"] == []
    for alive, node in zip((2, 1), records.nodes, strict=False):
        node.state = MemberState.DEAD
        assert status(records)["acceptors"] == ["n1", "n2", "n3"]
        counts = of(records).to_map()["by_table"]["t"]
        assert (counts["acceptors"], counts["acceptors_alive"]) == (3, alive)


def test_what_moves_to_a_node_it_does_not_lack(records):
    """The missing records of a target are reported as a move, not as a lag."""
    copy = write(records, 3)
    feed = records.nodes[0].replicas.peers[records.nodes[2].uuid].sender
    for available, lacks in (True, 3), (False, 0):
        feed.statuses[copy] = ReplicaStatus(2, clock.named(b"", copy.named), 1, can_take=True, available=available)
        assert {one["node"]: one["lag_records"] for one in status(records)["nodes"]} == {"n1": 0, "n2": 3, "n3": lacks}


def test_a_store_that_takes_no_writes(records):
    """The error gives the reason, and the holders are reported as well."""
    records.nodes[0].refusal = "the disk is full"
    told = status(records)
    assert told["error"] == "this node takes no writes: the disk is full"
    assert len(told["nodes"]) == 3
    assert of(records).to_map()["refusal"] == "the disk is full"


def test_for_whom_tombstones_are_kept(records):
    """The dead holders are named; no replica loads."""
    n1, _, n3, _ = records.nodes
    n1.collector.held_back = dict.fromkeys(n1.replicas.by_partition.values(), (n3.uuid,))
    told = status(records)
    assert (told["tombstones_held_by"], told["loading"]) == (["n3"], 0)


def test_why_writes_are_refused(records, monkeypatch):
    """Barred replicas and partitions without a majority or any node are named, up to a limit."""
    n1, n2, n3, _ = records.nodes
    copy = write(records, 1)
    copy.barred = "an older copy of the store"
    assert [one["why"] for one in status(records)["unwell"]] == [
        "its replica at n1 takes no writes: an older copy of the store"
    ]
    copy.barred = None
    n1.digests.differ[copy] = {n3.uuid}
    assert "other records than n3" in status(records)["unwell"][0]["why"]
    n1.digests.differ.clear()
    n1.replicas.loader.log_too_small.add(copy)
    assert "`table_log` is too small" in status(records)["unwell"][0]["why"]
    n1.replicas.loader.log_too_small.clear()
    n3.state = MemberState.DEAD
    assert status(records)["unwell"] == []
    n1.replicas.disconnected(n2.uuid)
    n1.replicas.disconnected(n3.uuid)
    told = status(records)
    assert {one["why"] for one in told["unwell"]} == {"1 of 3 replicas can confirm a write, but a majority is 2"}
    monkeypatch.setattr(telling, "MAX_NAMED", 1)
    n1.state = n2.state = MemberState.DEAD
    told = status(records)
    assert [one["why"] for one in told["unwell"]] == ["none of its nodes is alive, so it cannot be read or written"]
    assert told["unwell_not_named"] == PARTITIONS - 1


MOVE = 900  # The assignment of the target.


def have_moved(records, how, *numbers):
    """Move a slot of these partitions to the fourth node, which is in state `how`.

    `LEAVING`: the fourth one is AVAILABLE, and the third one LEAVING.  None: the third one was taken out.
    """
    table, partitions = bytes(16), {}
    for number, entry in enumerate(records.view(table).scan()):
        found = decode_partition(entry.record)
        *others, old = found.assignments
        left, come = (Slot.LEAVING, Slot.AVAILABLE) if how is Slot.LEAVING else (Slot.AVAILABLE, how)
        ends = [old._replace(state=left), Assignment(MOVE + number, records.nodes[3].uuid, old.slot, come)]
        after = Partition.of(found.id, [*others, *(ends if how else [])])
        partitions[entry.key] = after if number in numbers else found
    records.tell(table, edited(records.bases[table], partitions))


def named(records, **weights):
    """Name the nodes of tables in the catalogue: all with weight 1 except for `weights`."""
    records.placed = {
        node.uuid: NamedNode(node.name, "", weights.get(node.name, 1)) for node in records.nodes
    }  # fmt: skip


def rows(told):
    """Return for each node its number of partitions, arriving ones and leaving ones."""
    return {one["node"]: (one["partitions"], one["coming"], one["leaving"]) for one in told["nodes"]}


def test_nothing_moves(records):
    """No node is waited for either, and the condition holds only the table's kind."""
    told = status(records)
    assert (told["moving"], told["missing"], told["waits_for"], told["to_copy"], told["aside"]) == ({}, 0, [], {}, None)
    assert trio.run(of(records).condition, "t") == {"kind": "hash"}


@pytest.mark.parametrize(("how", "counted", "fourth", "third"), [
    (Slot.PROPOSED, {"PROPOSED": 3}, (0, 3, 0), (4, 0, 0)),
    (Slot.INITIALIZING, {"INITIALIZING": 3}, (0, 3, 0), (4, 0, 0)),
    (Slot.LEAVING, {"LEAVING": 3}, (3, 0, 0), (1, 0, 3)),
])  # fmt: skip
def test_what_moves(records, how, counted, fourth, third):
    """Moves are counted by state, and arriving and leaving partitions by node."""
    have_moved(records, how, 0, 1, 3)
    told = status(records)
    assert (told["moving"], told["missing"], told["waits_for"]) == (counted, 0, [])
    assert rows(told) == {"n1": (4, 0, 0), "n2": (4, 0, 0), "n3": third, "n4": fourth}
    assert trio.run(of(records).condition, "t")["moving"] == counted


def test_how_much_is_to_be_copied(records):
    """Only the first running host reports the size of a partition, and the target reports its progress."""
    have_moved(records, Slot.INITIALIZING, 0, 1)
    sizes = [100 + copy.space for copy in records.nodes[0].replicas.by_partition.values()]
    told = status(records)
    assert (told["to_copy"], told["copied"], told["transfer"]) == ({"n4": sum(sizes[:2])}, 0, None)
    assert status(records, 1)["to_copy"] == {}
    records.nodes[0].state = MemberState.DEAD
    assert status(records, 1)["to_copy"] != {}

    target = records.nodes[3]
    told = status(records, 3)
    assert (told["to_copy"], told["copied"], told["transfer"]) == ({}, 0, RATE)
    replicas, (first, second) = target.replicas, [*records.nodes[0].replicas.by_partition][:2]
    for (table, partition), number in ((first, 0), (second, 1)):
        replicas.place(ReplicaIdentity(table, partition, MOVE + number), 1, [])
    records.run()
    loading, loaded = replicas.by_partition.values()
    for copy in loading, loaded:
        copy.joining = Bootstrap()  # The load has not begun.
    assert status(records, 3)["copied"] == 0
    replicas.loader.loads[loading] = SimpleNamespace(replica=loading, space=77)
    loaded.joining = Bootstrap(is_loaded=True)
    assert status(records, 3)["copied"] == (100 + 77) + (100 + loaded.space)
    loaded.joining = None  # The replica is complete and about to be AVAILABLE.
    assert status(records, 3)["copied"] == (100 + 77) + (100 + loaded.space)


@pytest.mark.parametrize("error", [StorageError("damaged"), ValueError("there is no space 17")])
def test_a_size_that_cannot_be_read(records, error):
    """An unreadable or missing space is left out of the sizes, and the rest is reported."""
    have_moved(records, Slot.PROPOSED, 0)
    records.nodes[0].size_bytes = raising(error)
    assert status(records)["to_copy"] == {"n4": 0}


WAITS = [
    # The move, the nodes that are down, the weights, and the nodes to wait for.
    ("a majority adopts", Slot.PROPOSED, ["n3"], {}, []),
    ("too few adopt", Slot.PROPOSED, ["n2", "n3"], {}, ["n2", "n3"]),
    ("too few have what is to be covered", Slot.INITIALIZING, ["n1", "n2"], {}, ["n1", "n2"]),
    ("the target is down", Slot.INITIALIZING, ["n4"], {}, []),  # Another target is found.
    ("all hosts are to have what the leaving one has", Slot.LEAVING, ["n2"], {}, ["n2"]),
    ("who leaves is down", Slot.LEAVING, ["n3"], {"n3": 0}, ["n3"]),
    ("who leaves is gone for good", Slot.LEAVING, ["n3"], {"n3": None}, []),
    ("a host is gone for good", Slot.LEAVING, ["n2"], {"n2": None}, []),
    ("removed, and down before it moved", Slot.PROPOSED, ["n3"], {"n3": 0}, ["n3"]),
]  # fmt: skip


@pytest.mark.parametrize(("how", "down", "weights", "waits"), [each[1:] for each in WAITS], ids=[w[0] for w in WAITS])
def test_who_is_waited_for(records, how, down, weights, waits):
    """A node is waited for if it is down and a partition needs it; a node removed by force is not."""
    named(records, **weights)
    have_moved(records, how, 2)
    for node in records.nodes:
        node.state = MemberState.DEAD if node.name in down else MemberState.ALIVE
    assert status(records)["waits_for"] == waits


def test_one_that_was_removed_is_waited_for_at_rest(records):
    """A removed node's partitions cannot move without it; a dead node that is not removed keeps them."""
    records.nodes[2].state = MemberState.DEAD
    for weight, waits in (1, []), (0, ["n3"]), (None, []):
        named(records, n3=weight)
        assert status(records)["waits_for"] == waits


def test_who_is_passed_over(records):
    """The report has the remaining seconds, from this node's rebalancer."""
    assert status(records)["passed_over"] == {}
    records.passed_over = {records.nodes[3].uuid: 3599.5}
    assert status(records)["passed_over"] == {"n4": 3599}
    assert trio.run(of(records).condition, "t")["passed_over"] == {"n4": 3599}


def test_copies_that_are_missing(records):
    have_moved(records, None, 0, 2)
    told = status(records)
    assert (told["missing"], told["moving"], told["fewest"], told["absent"]) == (2, {}, 2, ["n4"])
    assert trio.run(of(records).condition, "t")["replication"] == 3


def set_aside(node, *parts):
    for one in parts:
        node.replicas.spaces.quarantined[one.space] = (*node.replicas.spaces.quarantined.get(one.space, ()), one)


def test_copies_that_are_set_aside(records):
    n1 = records.nodes[0]
    for space, table, partition, epoch in ((7, bytes(16), 1, 2), (9, bytes(16), 2, 3), (11, b"x" * 16, 2, 3)):
        set_aside(n1, QuarantinedReplica(space, b"", ReplicaIdentity(table, partition, epoch), "taken"))
    assert status(records)["aside"] == {"copies": 2, "bytes": 107 + 109}
    assert trio.run(of(records).condition, "t")["aside"] == {"copies": 2, "bytes": 107 + 109}
    assert of(records).to_map()["copies_aside"] == 3


def quarantine(records, answers, method, *params):
    """Return the answer of the first node; `answers` maps other nodes to their answer or error."""

    async def ask(uuid, name, params, _timeout_s):
        answer = answers[records.node(uuid).name]
        if isinstance(answer, Exception):
            raise answer
        return [{"node": records.node(uuid).name, "asked": (name, params)}] if answer is None else answer

    catalogue = SimpleNamespace(tables=lambda: {"t": SimpleNamespace(id=bytes(16))})
    metadata = SimpleNamespace(me=SimpleNamespace(node=records.nodes[0].uuid))
    deciding = participant(
        taking_part=lambda *_: (metadata, catalogue), replicating=lambda *_: records.nodes[0],
        alive=lambda: [node.uuid for node in records.nodes if node.state is MemberState.ALIVE],
        name_of=lambda uuid: records.node(uuid).name, peers=SimpleNamespace(ask=ask),
        uuid_of=lambda name: next(node.uuid for node in records.nodes if node.name == name),
    )  # fmt: skip
    arguments = Arguments(method, msgpack.packb([*params]))
    return trio.run(QuarantineMethods(deciding).methods[method](arguments).result)


def test_what_was_set_aside_is_listed(records):
    """The list covers all live nodes; a silent node has an error entry, or an error if it alone is asked."""
    n1 = records.nodes[0]
    behind = suffix_of(1)
    set_aside(n1, QuarantinedReplica(10, behind, ReplicaIdentity(bytes(16), 1, 2), "taken"))
    set_aside(n1, QuarantinedReplica(3, b"", ReplicaIdentity(b"x" * 16, 2, 3), "taken"))
    told = quarantine(records, {"n2": [{"node": "n2"}], "n3": Unavailable("away"), "n4": []}, b"quarantine_list")
    own = [one for one in told if one["node"] == "n1"]
    assert [(one["copy"], one["table"], one["partition"], one["bytes"], one["why"]) for one in own] == [
        ("3", (b"x" * 16).hex(), 2, 103, "taken"), (f"a.{behind.hex()}", "t", 1, 110, "taken"),
    ]  # fmt: skip
    others = sorted((one for one in told if one not in own), key=lambda one: one["node"])
    assert others == [{"node": "n2"}, {"node": "n3", "error": "away"}]
    n1.size_bytes = raising(StorageError("damaged"))
    assert [one["bytes"] for one in quarantine(records, {}, b"quarantine_list", {"node": "n1"})] == [None, None]
    asked = quarantine(records, {"n3": None}, b"quarantine_list", {"node": "n3"})
    assert asked == [{"node": "n3", "asked": ("quarantine_list", [{"node": "n3"}])}]
    with pytest.raises(Unavailable, match="away"):
        quarantine(records, {"n3": Unavailable("away")}, b"quarantine_list", {"node": "n3"})


def test_what_was_set_aside_is_dropped(records):
    """A replica is dropped by its listed name, on its own node; an unknown name is refused."""
    dropped = []

    async def drop(one):
        dropped.append(one.space)

    n1 = records.nodes[0]
    n1.drop_quarantined = drop
    set_aside(n1, QuarantinedReplica(10, b"", ReplicaIdentity(bytes(16), 1, 2), "taken"))
    assert quarantine(records, {}, b"quarantine_drop", "n1", "a") == {"node": "n1", "copy": "a"}
    assert dropped == [10]
    for copy in "10", "b", "":
        with pytest.raises(BadRequest, match="no quarantined replica"):
            quarantine(records, {}, b"quarantine_drop", "n1", copy)
    told = quarantine(records, {"n3": None}, b"quarantine_drop", "n3", "a")
    assert told == [{"node": "n3", "asked": ("quarantine_drop", ["n3", "a"])}]
    assert dropped == [10]
