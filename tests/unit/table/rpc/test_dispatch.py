"""Answers of whole nodes with stores about tables, in virtual time."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from unittest.mock import patch

import msgpack
import pytest
import trio

from gossipkv.errors import (
    BadRequest,
    Conflict,
    NotReady,
    TimedOut,
    Unavailable,
    Unknown,
    UnknownDatabase,
)
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.server import Metadata
from gossipkv.table.peers.peer_client import CHANGES
from tests.documented import fields_of, methods
from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.phases import begin, refused, shown
from tests.world.nodes.whole_cluster import simulated

# One value for each kind of parameter that a method of the table takes.
SAMPLES = {
    "database": "t", "table": "t", "table or nil": "t", "database or nil": "t", "key": b"k", "value": b"v",
    "[key, …]": [b"k"], "[[key, value], …]": [[b"k", b"v"]], "{start, end, prefix}": {"prefix": b"k"},
    "version": "1", "path": "p", "destination": "/d",
    "destination or one of its backups": "/d", "node": "n1", "old node": "n1", "new node": "n1", "weight": 1,
    "groups": 0, "copy": "c", "token": b"x", "[node, …]": ["n1"], "request id": 1,
}  # fmt: skip
ONE_COPY = {"kind": "hash", "partitions": 2, "replication": 1}


@simulated(1)
async def test_the_life_of_a_table(cluster):
    """A table is made, listed, shown and dropped on a single node, with the answers of the client page."""
    (machine,) = cluster.machines
    await machine.start()
    assert await cluster.ask(machine, "metadata_status", None) == []
    made = await cluster.ask(machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
    assert (made["partition_count"], made["replication"], made["replicas"], made["left_out"]) == (2, 1, 1, [])
    assert re.fullmatch("[0-9a-f]{32}", made["table"])
    again = await cluster.ask(machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
    assert again == made
    assert isinstance(await refused(cluster, machine, "create_table", "orders", ONE_COPY), Conflict)
    assert await cluster.ask(machine, "databases") == [{"name": "orders", "kind": "hash"}]
    shown = await cluster.ask(machine, "partition_map", "orders")
    assert (shown["table"], shown["config"], shown["kind"]) == (made["table"], made["config"], "hash")
    assert [one["start"] for one in shown["partitions"]] == [b"\0\0\0\0", b"\0\0\0\1"]
    (assignment,) = shown["partitions"][0]["assignments"]
    assert (assignment["node"], assignment["slot"], assignment["state"]) == ("n1", 0, "AVAILABLE")
    assert re.fullmatch("[0-9a-f]{16}", assignment["id"])
    registers = await cluster.ask(machine, "metadata_status", None)
    assert [one["table"] for one in registers] == [None, "orders"]
    (acceptor,) = registers[0]["new"]
    assert (acceptor["node"], acceptor["answers"], acceptor["why"]) == ("n1", True, None)
    fields = fields_of("a partition map") - {"owners", "time_key", "smear", "ttl_ms", "retention_ms"}
    assert shown.keys() == fields
    assert registers[0].keys() == fields_of("a register")
    dropped = await cluster.ask(machine, "drop_table", "orders")
    assert (dropped["table"], set(dropped)) == (made["table"], {"table", "config", "before"})
    assert dropped["before"] is False
    assert await cluster.ask(machine, "databases") == []
    assert isinstance(await refused(cluster, machine, "drop_table", "orders"), UnknownDatabase)
    error = await refused(cluster, machine, "create_table", "orders", {**ONE_COPY, "operation": bytes(20)})
    assert isinstance(error, Conflict)
    assert "dropped since" in error.message
    second = await cluster.ask(machine, "create_table", "orders", ONE_COPY)
    assert second["table"] != made["table"]
    await machine.stop()
    await machine.start()
    assert (await cluster.ask(machine, "partition_map", "orders"))["table"] == second["table"]


@simulated(1)
async def test_a_time_key_is_told(cluster):
    (machine,) = cluster.machines
    await machine.start()
    wanted = {"kind": "range", "replication": 1, "time_key": [0, 8, "ms"]}
    await cluster.ask(machine, "create_table", "readings", wanted)
    await cluster.ask(machine, "create_table", "plain", {**wanted, "smear": False})
    shown = await cluster.ask(machine, "partition_map", "readings")
    assert (shown["time_key"], shown["smear"]) == ([0, 8, "ms"], True)
    told = {one["name"]: one for one in await cluster.ask(machine, "databases")}
    assert (told["readings"]["time_key"], told["plain"]["smear"]) == ([0, 8, "ms"], False)


@simulated(1)
async def test_a_map_in_pieces(cluster):
    """A piece has the wanted number of partitions and the start of the next piece."""
    (machine,) = cluster.machines
    await machine.start()
    bounds = [b"b", b"c", b"d"]
    await cluster.ask(machine, "create_table", "t", {"kind": "range", "bounds": bounds, "replication": 1})
    first = await cluster.ask(machine, "partition_map", "t", {"limit": 3})
    assert ([one["start"] for one in first["partitions"]], first["next"]) == ([b"", b"b", b"c"], b"d")
    rest = await cluster.ask(machine, "partition_map", "t", {"start": first["next"], "limit": 3})
    assert ([one["start"] for one in rest["partitions"]], rest["next"]) == ([b"d"], None)


WRONG = [
    ("create_table", [], "the table is missing"),
    ("create_table", ["t", {"kind": "tree"}], "the kind must be"),
    ("create_table", ["a b", {"kind": "hash"}], "cannot be a table's name"),
    ("drop_table", [b"\xff"], "the table is not UTF-8"),
    ("drop_table", ["t", {}, 1], "takes 2 parameters"),
    ("partition_map", ["t", {"limit": 0}], "at least 1"),
    ("partition_map", ["t", {"start": 1}], "must be bytes"),
    ("metadata_status", [1], "the table must be"),
    ("metadata_join", [None], "the node is missing"),
    ("metadata_leave", [None, "n1"], "the last"),
    ("metadata_force", [None, []], "1 to 16 survivors"),
    ("register", [b""], ""),
    ("register", [b"\xc1"], ""),
    ("register", ["text"], ""),
    ("register", [b"", b"", 1], "takes 2 parameters"),
    ("map_changes", [[[bytes(15), 0, 1, None]], 0], "a position must be"),
    ("map_changes", [[[bytes(16), 0, 1, [1]]], 0], "a position must be"),
    ("map_changes", [[], 60_001], "wait_ms"),
    ("map_page", [bytes(15), b""], "the register must be 16 bytes, not 15"),
    ("map_page", [bytes(16), None], "start"),
    ("metadata_transact", [bytes(16), [], 1], "1 to"),
    ("metadata_transact", [bytes(16), [b"\xc1"], 1], ""),
    ("metadata_transact", [bytes(16), [b"x"], 60_001], "timeout"),
    ("metadata_look", [bytes(15)], "16 bytes"),
    ("metadata_invite", ["x" * 8, 1], "takes 1 parameter"),
    ("within", [1 << 62, b"ping", b"\x90"], "ping has no deadline"),
    ("within", [1 << 62, b"table_divide", b"\xc1"], ""),
]  # fmt: skip


@simulated(1)
async def test_what_is_no_request(cluster):
    (machine,) = cluster.machines
    await machine.start()
    await cluster.ask(machine, "create_table", "t", ONE_COPY)
    for method, params, words in WRONG:
        error = await refused(cluster, machine, method, *params)
        assert isinstance(error, BadRequest), (method, params, error.code, error.message)
        assert words in error.message, (method, params, error.message)


@simulated(1)
async def test_what_comes_behind_its_deadline_changes_nothing(cluster):
    """The node's own clock counts, and a late request is not even read."""
    (machine,) = cluster.machines
    await machine.start()
    made = msgpack.packb(["t", ONE_COPY])
    for method in CHANGES:
        assert isinstance(await refused(cluster, machine, "within", 1, method, made), TimedOut)
    assert await cluster.ask(machine, "databases") == []
    assert {"table", "config"} < {*await cluster.ask(machine, "within", 1 << 62, "create_table", made)}


@simulated(1)
async def test_options_are_those_of_the_reference(cluster):
    """A node refuses an unknown option with the names of the known ones, which are those of the table of methods."""
    (machine,) = cluster.machines
    await machine.start()
    await cluster.ask(machine, "create_table", "t", ONE_COPY)
    of_others = {"forwarded", "identity", "max_frame", "version", "min_version"}  # Between nodes, and of datasets.
    for method in methods():
        samples = [SAMPLES[name] for name in method.parameters]
        error = await refused(cluster, machine, method.name, *samples, {"?": None})
        assert isinstance(error, BadRequest), (method.name, error)
        if method.options:
            known = set(error.message.rpartition("the options are ")[2].split(", "))
            assert {*method.options} <= known <= {*method.options, *of_others}, (method.name, error.message)
        else:
            assert f"takes {len(samples)} param" in error.message, (method.name, error.message)


@simulated(1)
async def test_a_node_that_never_had_tables(cluster):
    """The node reports clearly that it has no tables, founds nothing and makes no store."""
    (machine,) = cluster.machines
    await machine.start()
    for method, *params in (
        ("drop_table", "t"), ("partition_map", "t"), ("metadata_join", None, "n1"), ("metadata_leave", None, "n1"),
        ("register", b""), ("map_page", bytes(16), b""),
    ):  # fmt: skip
        error = await refused(cluster, machine, method, *params)
        assert isinstance(error, NotReady | UnknownDatabase), (method, error.code)
        assert "table" in error.message
    assert (await cluster.ask(machine, "info"))["tables"]["state"] == "none"


@simulated(1)
async def test_an_invitation_of_another_cluster(cluster):
    """A foreign invitation has no effect; an invitation of the own cluster returns the store."""
    (machine,) = cluster.machines
    await machine.start()
    await trio.sleep(5)  # The node has drawn an id by then.
    error = await refused(cluster, machine, "metadata_invite", b"another!")
    assert isinstance(error, NotReady)
    assert "belongs to the cluster" in error.message
    assert (await cluster.ask(machine, "info"))["tables"]["state"] == "none"
    store = await cluster.ask(machine, "metadata_invite", bytes.fromhex(error.message.split()[6].rstrip(",")))
    assert f"{store:016x}" == (await cluster.ask(machine, "info"))["tables"]["store"]


@simulated(3)
async def test_who_decides_is_changed_by_command(cluster):
    """A node leaves and joins a register, repeatably, and the last node cannot leave."""
    await begin(cluster)
    one, other, _ = cluster.machines
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)

    async def decides(machine, method, *params):
        told = await cluster.ask(machine, method, "t", *params, timeout_s=30)
        assert told["old"] == told["new"]
        return sorted(each["node"] for each in told["new"])

    assert await decides(one, "metadata_leave", "n2") == ["n1", "n3"]
    assert await decides(other, "metadata_leave", "n2") == ["n1", "n3"]
    assert await decides(other, "metadata_leave", "n1") == ["n3"]
    assert isinstance(await refused(cluster, one, "metadata_leave", "t", "n3"), BadRequest)
    assert await decides(one, "metadata_join", "n2") == ["n2", "n3"]
    assert await decides(one, "metadata_join", "n2") == ["n2", "n3"]
    assert (await refused(cluster, one, "metadata_join", "t", "n9")).message == "the cluster has no member n9"
    assert isinstance(await refused(cluster, one, "metadata_join", "nothing", "n1"), UnknownDatabase)
    assert isinstance(await refused(cluster, one, "metadata_force", "t", ["n2", "n3"]), Conflict)


@simulated(2)
async def test_a_node_without_a_store_takes_no_place(cluster):
    """The error is about the node, with the reason, and not about the register."""
    one, other = cluster.machines
    await one.start()
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    other.config = replace(other.config, join=(one.address,))
    await other.start()
    await shown(cluster, other, "alive", 60)
    other.strike(Fault(0, Action.FAIL, kinds=CHANGING, error=errno.EIO, lasting=True))
    error = await refused(cluster, one, "metadata_replace", None, "n1", "n2")
    assert error.message.startswith("n2 cannot become an acceptor: it has no store: ")
    assert "register" not in error.details


@simulated(3)
async def test_tables_that_were_made_on_one_node_grow(cluster):
    one, *others = cluster.machines
    await one.start()
    await cluster.ask(one, "create_table", "t", ONE_COPY, timeout_s=30)
    for machine in others:
        machine.config = replace(machine.config, join=(one.address,))
        await machine.start()
    await grown_to(cluster, one, 3)
    await grown_to(cluster, one, 3, "t")


async def grown_to(cluster, machine, count, table=None):
    """Wait until `count` nodes decide on the catalogue, or on a table."""

    async def holds():
        told = await cluster.ask(machine, "metadata_status", table)
        return len(told[0]["new"]) == count and told[0]["old"] == told[0]["new"]

    await cluster.until(holds, within_s=20)


@simulated(3, seed=2)
async def test_who_decides_is_told_in_time_without_a_quorum(cluster):
    """The answer uses local knowledge; if the map is missing, it names the table's first acceptors."""
    await begin(cluster)
    one, *others = cluster.machines
    for name in "t", "u":
        await cluster.ask(one, "create_table", name, {**ONE_COPY, "replication": 3}, timeout_s=30)
    for name in None, "t", "u":
        await grown_to(cluster, one, 3, name)
    for machine in others:
        machine.kill()

    async def told(table, timeout_s):
        registers = await cluster.ask(
            one, "metadata_status", table, {"timeout_ms": int(timeout_s * 1000)}, timeout_s=timeout_s
        )
        for register in registers:
            assert {each["node"]: each["answers"] for each in register["new"]} == {"n1": True, "n2": False, "n3": False}
        return [register["table"] for register in registers]

    for timeout_s in 1, 4:
        assert await told(None, timeout_s) == [None, "t", "u"]
        assert await told("u", timeout_s) == ["u"]
    with pytest.raises(UnknownDatabase):
        await told("nosuch", 1)
    only_catalogue = property(lambda self: {self.catalogue: vars(self)["known"][self.catalogue]})
    with patch.object(Metadata, "known", only_catalogue, create=True):
        assert await told(None, 2) == [None, "t", "u"]
    nothing = property(lambda _: {})
    with (
        patch.object(Metadata, "known", nothing, create=True),
        pytest.raises(NotReady, match="too few of its acceptors answer"),
    ):
        await told(None, 1)


@simulated(3, seed=5)
async def test_of_many_who_make_one_table_at_once_one_makes_it(cluster):
    """The other requests are told that the table and its name exist, even for the very first table."""
    await begin(cluster)
    for name in "first", "second":
        ends = []

        async def create(machine, name=name, ends=ends):
            try:
                ends.append(await cluster.ask(machine, "create_table", name, ONE_COPY, timeout_s=30))
            except Conflict as error:
                assert (f"the table {name} " in error.message) is True, error.message
                assert error.details == {"database": name}

        async with trio.open_nursery() as nursery:
            for machine in cluster.machines * 2:
                nursery.start_soon(create, machine)
        assert len(ends) == 1


@simulated(1)
async def test_who_polls_a_peer_waits_for_news(cluster):
    """A poll is answered with the next transaction, or at its timeout; a poller that is behind is answered at once."""
    (machine,) = cluster.machines
    await machine.start()
    made = await cluster.ask(machine, "create_table", "t", ONE_COPY)
    register, told = bytes.fromhex(made["table"]), []
    ((_, generation, sequence, *_, ballot, _),) = await cluster.ask(
        machine, "map_changes", [[register, 0, -1, None]], 0
    )
    assert (generation, sequence) == (0, made["config"])

    async def poll(after, wait_ms):
        rows = await cluster.ask(machine, "map_changes", [[register, 0, after, ballot]], wait_ms)
        told.append(([row[2] for row in rows], round(trio.current_time() - began)))

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(poll, sequence, 4_000)
        nursery.start_soon(poll, sequence, 1_000)
        await poll(sequence - 1, 4_000)
        await trio.sleep(2)
        shown = await cluster.ask(machine, "partition_map", "t")
        first = shown["partitions"][0]
        operation = Operation(bytes(20), made["config"], "unassign", 1, (first["start"], first["id"], 0))
        await cluster.ask(machine, "metadata_transact", register, [operation.encode()], 1_000)
    assert told == [([sequence], 0), ([], 1), ([sequence + 1], 2)]


@simulated(1)
async def test_a_disk_that_fails_below_the_tables(cluster):
    """Changes are refused with the reason, and reads work; once the disk is well the node decides again."""
    (machine,) = cluster.machines
    await machine.start()
    await cluster.ask(machine, "create_table", "t", ONE_COPY)
    known = await cluster.ask(machine, "partition_map", "t")
    life = (await cluster.ask(machine, "info"))["tables"]["life"]
    machine.strike(Fault(0, Action.FAIL, kinds=CHANGING, error=errno.EIO, lasting=True))
    for _ in range(2):
        error = await refused(cluster, machine, "create_table", "u", ONE_COPY)
        assert isinstance(error, Unavailable | Unknown), error.code
        assert isinstance(await refused(cluster, machine, "drop_table", "t"), Unavailable | Unknown)
    assert (await cluster.ask(machine, "info"))["tables"]["state"] == "closed"
    assert await cluster.ask(machine, "databases") == [{"name": "t", "kind": "hash"}]
    assert (await cluster.ask(machine, "partition_map", "t")) == known
    (status,) = await cluster.ask(machine, "metadata_status", "t")
    assert "cannot be written" in status["new"][0]["why"]
    machine.strike()
    while (told := (await cluster.ask(machine, "info"))["tables"])["state"] == "closed":
        assert "tries again to open" in told["why"]
        await trio.sleep(0.5)
    await trio.sleep(2)
    assert told["life"] > life
    assert (await cluster.ask(machine, "partition_map", "t")) == known
    error = None
    try:
        await cluster.ask(machine, "create_table", "u", ONE_COPY)
    except (Unavailable, Unknown) as refusal:
        error = refusal
    assert error is None
    await cluster.ask(machine, "drop_table", "t")
    machine.kill()
    await machine.start()
    assert [each["name"] for each in await cluster.ask(machine, "databases")] == ["u"]
