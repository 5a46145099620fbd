"""A stranger's packets have no lasting effect; members are believed without keys.

The rows of `docs/development/gossip-packets.md` match the methods, fields and packets.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgpack
import trio

from gossipkv.access.rights import COMMANDS, METHODS, Right
from gossipkv.errors import GossipKVError, Unauthorized
from gossipkv.gossip.member import MAX_EPOCH
from gossipkv.node.identity import read_node
from gossipkv.node.peers.hello import Hello
from gossipkv.protocol import PROTOCOL_MAX
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import RegisterRequest, RequestKind, encode_request
from gossipkv.table.peers.words import Words
from tests.oracle import packets as oracle
from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.wire.rpc import Value
    from tests.world.nodes.machine import NodeMachine
    from tests.world.nodes.whole_cluster import SimulatedCluster

PAGE = Path(__file__).parents[2] / "docs" / "development" / "gossip-packets.md"
STRANGER, OTHER = 16 * b"s", 16 * b"o"
OPEN_METHODS = sorted(name.decode() for name, right in METHODS.items() if right == Right.NONE)
OPEN_COMMANDS = sorted(name.decode() for name, right in COMMANDS.items() if right == Right.NONE)


async def made(cluster: SimulatedCluster, machine: NodeMachine, table: str) -> None:
    """Wait until the table exists and has a record."""

    async def there() -> bool:
        try:
            await cluster.ask(machine, "create_table", table, {"kind": "hash", "partitions": 4, "replication": 1})
        except GossipKVError as error:
            if error.code != "CONFLICT":
                return False
        try:
            await cluster.ask(machine, "put", table, b"k", b"v")
        except GossipKVError:
            return False
        return True

    await cluster.until(there, within_s=120)


async def state_of(cluster: SimulatedCluster, machine: NodeMachine) -> Value:
    info = await cluster.ask(machine, "info")
    assert isinstance(info, dict), info
    return info["tables"]["state"]


def invented(me: AcceptorId) -> bytes:
    """Return a stranger's false claims: its own store, another store, and an older copy here."""
    rows = [[STRANGER, 1, 1, 1, 1], [OTHER, 1, 9, 9, 9], [*me, 1 << 40, 12345, 999]]
    told: bytes = msgpack.packb(rows)
    return told


def lies(true: Hello, me: AcceptorId) -> dict[str, list[Value]]:
    """Return the false values that a stranger may send, by field of hello."""
    return {
        "protocol": [0, 1 << 40],
        "cluster_id": [b"", 8 * b"x", 4000 * b"x"],
        "uuid": [STRANGER, true.uuid, b""],
        "epoch": [0, MAX_EPOCH],
        "store": [0, me.store, (1 << 64) - 1],
        "life": [0, (1 << 64) - 1],
        "seen": [invented(me), b"\xc1"],
        "nonce": [16 * b"n"],
        "proof": [36 * b"p"],
        "word": [16 * b"w"],
        "min": [1 << 40],
        "max": [(1 << 64) - 1],
    }


def requests(true: Hello, me: AcceptorId) -> Iterator[tuple[str, list[Value]]]:
    """Yield every request that needs no right, with every lie."""
    asked = {**lies(true, me)}
    assert asked.keys() == {*Hello._fields}
    hellos = [{**true._asdict(), "uuid": STRANGER, field: lie} for field, values in asked.items() for lie in values]
    params: dict[str, list[list[Value]]] = {
        "ping": [[]],
        "auth": [[b"token"], [4000 * b"t"]],
        "cancel": [[0], [(1 << 32) - 1]],
        "hello": [[hello] for hello in [*hellos, {**hellos[0], "protocol": PROTOCOL_MAX, "seen": invented(me)}]],
        "gossip": [[b""], [b"G\x01\x00" + 40 * b"x"]],
    }
    assert sorted(params) == OPEN_METHODS
    yield from ((method, each) for method, several in params.items() for each in several)
    for command in OPEN_COMMANDS:
        yield from (("resp", [command, *more]) for more in ([], [b"3", b"auth", b"x", b"y"], [invented(me)]))


def seen_of(answer: Value) -> list[bytes]:
    """Return the nodes whose positions hello reports."""
    assert isinstance(answer, dict), answer
    return [row[0] for row in msgpack.unpackb(answer["seen"])]


@simulated(1)
async def test_nothing_lasts_of_what_a_stranger_sends(cluster: SimulatedCluster) -> None:
    """The acceptor refuses a false claim, and no refusal reveals an id."""
    [machine] = cluster.machines
    await machine.start()
    await made(cluster, machine, "carts")
    await trio.sleep(60)  # Its place in the ring is stored by then.
    record = read_node(machine.disk, machine.config.data)
    assert record is not None
    cluster_id = bytes.fromhex(record.cluster_id)
    me = AcceptorId(bytes.fromhex(record.uuid), record.store)
    true = Hello(PROTOCOL_MAX, cluster_id, STRANGER, 1)
    refusals = []
    for method, params in requests(true, me):
        try:
            await cluster.ask(machine, method, *params)
        except GossipKVError as error:
            refusals.append(error)
    assert any(isinstance(error, Unauthorized) for error in refusals)
    told = " ".join(f"{error.message} {error.details}" for error in refusals)
    assert not any(
        secret in told for secret in (record.cluster_id, record.uuid, f"{record.store:x}", str(record.store))
    )
    for claim in (invented(me), msgpack.packb([[OTHER, 1, 9, 9, 9, 16 * b"w"], [*me, 1, 1, 1]])):
        try:
            await cluster.ask(
                machine, "register", encode_request(RegisterRequest(RequestKind.READ, 2 * cluster_id, me, 1)), claim
            )
        except GossipKVError as error:
            assert "without proof of membership" in error.message
        else:
            raise AssertionError("who has more of a store than it has written counts its answers")
    for _ in range(2):
        await trio.sleep(60)
        await made(cluster, machine, "carts")
        assert await state_of(cluster, machine) == "open"
        for uuid in (STRANGER, OTHER):
            answer = await cluster.ask(machine, "hello", true._replace(uuid=uuid).to_map())
            assert set(seen_of(answer)) == {me.node}
        after = read_node(machine.disk, machine.config.data)
        assert after is not None
        assert after._replace(epoch=0, life=0) == record._replace(epoch=0, life=0)
        await machine.stop()
        await machine.start()


@simulated(3)
async def test_members_are_believed_that_were_dialled_and_nobody_else(cluster: SimulatedCluster) -> None:
    """Without keys, members that have met believe each other, and an older copy learns of its state."""
    believed: dict[bytes, list[bool]] = {}
    original = Words.counts

    def counted(self: Words, seen: bytes) -> bool:
        counts = original(self, seen)
        believed.setdefault(msgpack.unpackb(seen)[0][0], []).append(counts)
        return counts

    a, b, _ = cluster.machines
    with patch.object(Words, "counts", counted):
        await begin(cluster)
        await made(cluster, a, "carts")
        await trio.sleep(60)
        believed.clear()
        await made(cluster, b, "baskets")
        await trio.sleep(60)
        assert len(believed) >= 2
        assert {said for several in believed.values() for said in several} == {True}
        await b.stop()
        older = b.disk.copied()
        await b.start()
        await made(cluster, a, "since")
        await trio.sleep(60)
        await b.stop()
        b.disk = older
        await b.start()

        async def is_closed() -> bool:
            return await state_of(cluster, b) == "closed"

        await cluster.until(is_closed, within_s=60)


def test_the_table_has_all_that_needs_no_right() -> None:
    """The page has a row for each open method and command, field of hello and kind of packet."""
    section = PAGE.read_text(encoding="utf-8").split("\n## What lasts of what strangers send\n")[1].split("\n## ")[0]
    rows = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^- (`.+?`): ", section, re.MULTILINE)))
    packets = {"gossip": [*oracle.HEADS, *oracle.PARTS]}
    expected = [*OPEN_METHODS, *(f"hello: {field}" for field in Hello._fields)]
    expected += [f"gossip: {kind}" for kind in packets["gossip"]] + [f"resp: {command}" for command in OPEN_COMMANDS]
    assert sorted(rows) == sorted(expected)
