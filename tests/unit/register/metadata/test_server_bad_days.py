"""Maps survive closing stores, forces, drops and overlapping quorum reads."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import trio

from gossipkv.errors import GossipKVError, NotReady, UnknownDatabase
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.head import MapHead, drop
from gossipkv.register.metadata.known import KNOWN, KnownMap
from gossipkv.register.metadata.pages import OperationOutcome, generation_of
from gossipkv.register.metadata.partitions import shard_key
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.space import MAP, RECORD
from tests.unit.register.metadata.few_nodes import CATALOGUE, FakeBatch, FewNodes, OneNode, founded

if TYPE_CHECKING:
    from collections.abc import Awaitable


@pytest.fixture(autouse=True)
def batches():
    """Use batches that a store in memory can read."""
    with patch("gossipkv.register.space.Batch", FakeBatch):
        yield


def wanted(name: str = "t") -> WantedTable:
    return WantedTable(name, "hash", 2, [shard_key(0), shard_key(1)])


async def add(world: FewNodes, letter: str, name: str) -> OperationOutcome:
    """Add a table to the catalogue by name alone, without making it."""
    node = world[letter]
    table = world.random.randbytes(16)
    servers = tuple(tuple(one) for one in node.metadata.known[CATALOGUE].acceptors.new)
    answer = await node.on(CATALOGUE, "add_table", name.encode(), table, "hash", servers, 1)
    return answer.outcome


async def test_a_store_that_closes_in_a_transaction_ends_nothing_else(autojump_clock):
    """The caller gets UNKNOWN, and the tasks of the node go on."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        node = world["a"]
        node.store.closed = True
        with trio.fail_after(60):
            assert await add(world, "a", "t") is OperationOutcome.UNKNOWN
        assert node.metadata.space.closed is not None
        assert await add(world, "b", "u") is OperationOutcome.DONE


async def test_a_newer_map_is_taken_from_the_node_that_uses_it(autojump_clock):
    """No server is asked, unless the node does not answer or has no news."""
    world = FewNodes("abcd")
    async with world.running():
        await founded(world)
        server, stranger = world["a"], world["d"]
        await stranger.metadata.quorum_read(CATALOGUE, server.metadata.known[CATALOGUE].acceptors)
        assert await add(world, "a", "t") is OperationOutcome.DONE
        await trio.sleep(1)  # The server uses the map by then.
        asked = []
        world.on_ask = lambda _, method: asked.append(method)
        found = await stranger.metadata.look(CATALOGUE, server.uuid)
        assert found == stranger.metadata.known[CATALOGUE] == server.metadata.known[CATALOGUE]
        assert "register" not in asked
        await stranger.metadata.look(CATALOGUE, server.uuid)
        assert "register" in asked
        assert await add(world, "b", "u") is OperationOutcome.DONE
        world.silent.add(server.uuid)
        found = await stranger.metadata.look(CATALOGUE, server.uuid)
        assert found == stranger.metadata.known[CATALOGUE] == world["b"].metadata.known[CATALOGUE]


async def test_a_forced_map_goes_on(autojump_clock):
    """Operations based on the head before the force die with its generation; later ones are done."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        assert await add(world, "a", "before") is OperationOutcome.DONE
        world.silent |= {world["b"].uuid, world["c"].uuid}
        node = world["a"].metadata
        outcome = await node.registers.force(CATALOGUE, [node.me])
        assert outcome.end is ChangeEnd.DONE
        await node.quorum_read(CATALOGUE)
        for name in ("first", "again"):  # The first operation still waits for the lost nodes.
            await add(world, "a", name)
            await node.quorum_read(CATALOGUE)
        assert await add(world, "a", "second") is OperationOutcome.DONE
        assert generation_of((await node.quorum_read(CATALOGUE)).head.config) == 1


async def test_what_is_known_goes_by_the_generation(autojump_clock):
    """A forced head replaces one of a higher sequence that the survivors never saw."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        node = world["b"]
        known = await node.metadata.quorum_read(CATALOGUE)
        lost = MapHead(known.head.config + 5, b"t" * 16, known.head.root)
        await node.metadata.learn(CATALOGUE, KnownMap(lost, known.acceptors, 0))
        assert node.metadata.known[CATALOGUE].head == lost
        world.silent |= {world["a"].uuid, world["c"].uuid}
        assert (await node.metadata.registers.force(CATALOGUE, [node.metadata.me])).end is ChangeEnd.DONE
        after = await node.metadata.quorum_read(CATALOGUE)
        assert after.head == known.head
        assert after.acceptors == Acceptors.of([node.metadata.me])


async def test_what_is_known_never_falls(autojump_clock):
    """The older of two quorum reads may end or be written last."""
    for seed in range(20):
        world = FewNodes("a", seed)
        async with world.running():
            await founded(world)
            metadata = world["a"].metadata
            known = await metadata.quorum_read(CATALOGUE)
            heads = [MapHead(known.head.config + by, b"t" * 16, known.head.root) for by in (1, 2)]
            seen = []
            async with trio.open_nursery() as nursery:
                for head in heads if seed % 2 else reversed(heads):
                    nursery.start_soon(metadata.learn, CATALOGUE, KnownMap(head, known.acceptors, 0))
                for _ in range(20):
                    seen.append(metadata.known[CATALOGUE].head.config)
                    await trio.sleep(0.0003)
            seen.append(metadata.known[CATALOGUE].head.config)
            assert seen == sorted(seen)
            assert seen[-1] == heads[1].config
            assert heads[1].encode() in world["a"].store.records[KNOWN + CATALOGUE]


async def made(world: FewNodes, name: str = "t") -> bytes:
    table = await world["a"].catalogue.create(wanted(name), world.random.randbytes(20))
    for node in world.nodes.values():
        await node.metadata.quorum_read(CATALOGUE)
        await node.metadata.quorum_read(table.id, Acceptors.of(table.acceptors))
    return table.id


async def test_the_register_of_a_dropped_table_goes_on(autojump_clock):
    """The pages are gone, but full rounds still work and report that the table was dropped."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        table = await made(world)
        await world["a"].catalogue.drop("t", b"o" * 20)
        for node in world.nodes.values():
            with pytest.raises(UnknownDatabase):
                await node.metadata.quorum_read(table)
        outcome = await world["b"].metadata.registers.change(table, drop(bytes(20)), timeout_s=5)
        assert outcome.end is ChangeEnd.DONE


async def test_nothing_but_the_terminal_record_stays_of_a_dropped_table(autojump_clock):
    """All nodes forget the table in memory and on disk, including those that did not drop it."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        table = await made(world)
        await world["a"].catalogue.drop("t", b"o" * 20)
        for node in world.nodes.values():
            await node.catalogue.tend()
            assert table not in node.metadata.known
            assert table not in node.metadata._maps
            kept = [key for key in node.store.records if table in key]
            assert kept == [RECORD + table]
            assert await node.catalogue.tend() is None  # A repetition changes nothing.


async def forced_and_ended(world: FewNodes, *, heard: bool) -> bytes:
    """Return a table that was forced to c alone, ended there and released by a, which `heard` of the force or not."""
    await founded(world)
    table = await made(world)
    a, c = world["a"], world["c"]
    world.silent |= {a.uuid, world["b"].uuid}
    assert (await c.metadata.registers.force(table, [c.metadata.me])).end is ChangeEnd.DONE
    world.silent = {world["b"].uuid}  # This node never hears: with it a is a quorum of the lost part.
    if heard:
        assert (await a.metadata.quorum_read(table, Acceptors.of([c.metadata.me]))).generation == 1
    assert (await c.metadata.registers.change(table, drop(bytes(20)), timeout_s=5)).end is ChangeEnd.DONE
    assert (await a.on(CATALOGUE, "remove_table", b"t", table)).outcome is OperationOutcome.DONE
    await a.metadata.quorum_read(CATALOGUE)
    await a.metadata.let_go(frozenset(), a.metadata.known[CATALOGUE].head.config)
    assert table not in a.metadata.known
    world.silent = {c.uuid}
    return table


async def refusal(wanted: Awaitable[object]) -> type[GossipKVError] | None:
    """Return the error type of a call, or None."""
    try:
        await wanted
    except GossipKVError as error:
        return type(error)
    return None


@pytest.mark.parametrize("heard", [True, False])
async def test_a_table_that_was_let_go_of_behind_a_force_does_not_come_back(autojump_clock, heard):
    """Two acceptors outside the force still agree on the earlier head, and one has since seen the end."""
    world = FewNodes()
    async with world.running():
        table = await forced_and_ended(world, heard=heard)
        node = world["a"].metadata
        assert await refusal(node.outcome(table, b"o" * 20, 1)) is NotReady
        assert (
            await refusal(node.quorum_read(table, Acceptors.of([node.me, world["b"].metadata.me]))) is UnknownDatabase
        )
        assert table not in node.known
        await node.let_go(frozenset(), node.known[CATALOGUE].head.config)
        assert not any(key.startswith(MAP + table) for key in world["a"].store.records)
        again = OneNode(world, "a", world["a"].store).metadata
        assert again.known[table].head.ended


async def test_a_table_that_was_named_once_is_not_let_go_while_its_register_lives(autojump_clock):
    """A forced catalogue may have lost the name, and then the map is all that is left."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        table = await made(world)
        node = world["a"]
        answer = await node.on(CATALOGUE, "remove_table", b"t", table)  # The catalogue looks as if forced back.
        assert answer.outcome is OperationOutcome.DONE
        for number in range(140):
            assert await add(world, "a", f"other{number}") is OperationOutcome.DONE
            await node.metadata.quorum_read(CATALOGUE)
            if not number:
                await node.metadata.let_go(frozenset(), node.metadata.known[CATALOGUE].head.config)
        await node.metadata.let_go(frozenset(), node.metadata.known[CATALOGUE].head.config)
        assert len(node.metadata.tree(table)) == 2


async def test_a_drop_that_was_begun_is_finished_by_whoever_looks(autojump_clock):
    """The register is ended while the catalogue still names it."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        node = world["b"]
        table = await made(world)
        assert (await node.metadata.registers.change(table, drop(bytes(20)), timeout_s=5)).end is ChangeEnd.DONE
        await node.catalogue.tend_table("t")
        assert node.catalogue.tables() == {}
