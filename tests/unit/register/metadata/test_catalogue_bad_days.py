"""The catalogue survives sick nodes, lost answers and repeated requests."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, Unavailable, Unknown
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import OperationOutcome
from gossipkv.register.metadata.partitions import decode_table, shard_key
from tests.unit.register.metadata.few_nodes import CATALOGUE, FakeBatch, FewNodes, founded


@pytest.fixture(autouse=True)
def batches():
    """Use batches that a store in memory can read."""
    with patch("gossipkv.register.space.Batch", FakeBatch):
        yield


def wanted(name: str = "t", replication: int = 2) -> WantedTable:
    return WantedTable(name, "hash", replication, [shard_key(0), shard_key(1)])


async def with_stranger(world: FewNodes, ask) -> list[OperationOutcome]:
    """Return the outcomes of an operation at a node that is no server and reaches other nodes by `ask`."""
    stranger = world["d"]
    await stranger.metadata.quorum_read(CATALOGUE, world["a"].metadata.known[CATALOGUE].acceptors)
    stranger.catalogue._ask = ask
    at = stranger.metadata.known[CATALOGUE].head.config
    operation = Operation(world.random.randbytes(20), at, "remove_table", 1, (b"t", b"i" * 16))
    return [answer.outcome for answer in await stranger.catalogue.transact(CATALOGUE, [operation])]


async def test_another_server_is_asked_where_one_does_not_answer(autojump_clock):
    """The next server knows an operation by its id; a lost outcome is never reported as "not done"."""
    world = FewNodes("abcd")
    async with world.running():
        await founded(FewNodesOf(world, "abc"))
        asked = []

        async def first_is_silent(node, method, params, timeout_s):
            asked.append(node)
            if len(asked) == 1:
                raise Unknown("silent")
            return await world["d"].ask(node, method, params, timeout_s)

        async def all_are_silent(node, method, params, timeout_s):
            raise Unknown("silent") if node == world["b"].uuid else Unavailable("not reached")

        async def none_is_reached(node, method, params, timeout_s):
            raise Unavailable("not reached")

        assert await with_stranger(world, first_is_silent) == [OperationOutcome.DONE]
        assert len(asked) == 2
        with pytest.raises(Unknown):
            await with_stranger(world, all_are_silent)
        with pytest.raises(Unavailable):
            await with_stranger(world, none_is_reached)


class FewNodesOf:
    def __init__(self, world: FewNodes, letters: str) -> None:
        self.nodes = {world[letter].uuid: world[letter] for letter in letters}


async def test_a_sick_node_does_not_keep_the_catalogue_from_growing(autojump_clock):
    """The place of the sick node does not matter."""
    world = FewNodes("abcd")
    async with world.running():
        await world["a"].catalogue.found()
        hint = world["a"].metadata.known[CATALOGUE].acceptors
        for letter in "cd":
            await world[letter].metadata.quorum_read(CATALOGUE, hint)

        def on_ask(node: bytes, method: str) -> None:
            if node == world["b"].uuid and method == "metadata_invite":
                raise Unavailable("its disk is full")

        world.on_ask = on_ask
        assert await world["a"].catalogue.grow()
        members = [one.node for one in world["a"].metadata.known[CATALOGUE].acceptors.new]
        assert members == [world[letter].uuid for letter in "acd"]


async def test_a_table_that_is_asked_for_twice_is_one(autojump_clock):
    """A repetition under the same id returns the table that was made."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        first = await world["a"].catalogue.create(wanted(), b"o" * 20)
        again = await world["b"].catalogue.create(wanted(), b"o" * 20)
        assert again == first
        with pytest.raises(Conflict):
            await world["b"].catalogue.create(wanted(), b"p" * 20)
        assert again == world["b"].catalogue.table("t")


async def test_an_operation_s_id_that_is_used_for_other_tables_makes_one(autojump_clock):
    """Concurrent and later requests under one id make one table; the others get a conflict."""
    world = FewNodes()
    told: dict[tuple[str, int], object] = {}
    async with world.running():
        await founded(world)

        async def create(letter, name, replication):
            try:
                told[name, replication] = await world[letter].catalogue.create(wanted(name, replication), b"o" * 20)
            except Conflict as error:
                told[name, replication] = error.message

        async with trio.open_nursery() as nursery:
            for at in range(24):
                nursery.start_soon(create, "abc"[at % 3], f"t{at % 12}", 1 + at // 12)
        made, *others = [key for key, table in told.items() if not isinstance(table, str)]
        assert others == []
        assert {made[0]: told[made]} == world["a"].catalogue.tables()
        assert sum((b"o" * 20).hex() in str(table) for table in told.values()) == 23
        await create("b", *made)
        assert {made[0]: told[made]} == world["c"].catalogue.tables()
        await create("b", "other", 1)
        assert "used before, for another table" in told["other", 1]


async def test_a_table_that_is_asked_for_twice_at_once_is_one(autojump_clock):
    """Impatient repetitions by way of other nodes return one table, and no second one is drawn."""
    world = FewNodes()
    told = []
    async with world.running():
        await founded(world)

        async def create(letter):
            told.append(await world[letter].catalogue.create(wanted(), b"o" * 20))

        async with trio.open_nursery() as nursery:
            for letter in "abc":
                nursery.start_soon(create, letter)
        assert told == [world["a"].catalogue.table("t")] * 3


async def test_a_name_that_is_taken_costs_no_pages(autojump_clock):
    """Repeated requests for a taken name fill no disk."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        await world["a"].catalogue.create(wanted(), b"o" * 20)
        before = len(world["b"].store.records)
        for number in range(5):
            with pytest.raises(Conflict):
                await world["a"].catalogue.create(wanted(), bytes([number]) * 20)
        assert len(world["b"].store.records) == before


async def test_a_table_that_cannot_be_is_refused_in_words(autojump_clock):
    """Too many replicas are the caller's error."""
    world = FewNodes("abcdefghij")
    async with world.running():
        await world["a"].catalogue.found()
        with pytest.raises(BadRequest):
            await world["a"].catalogue.create(wanted(replication=10), b"o" * 20)


async def test_a_restored_table_has_as_many_replicas_as_there_are_members(autojump_clock):
    """The hidden table of a backup of three replicas fits on two nodes, of which one is dead, only with a majority."""
    world = FewNodes("ab")
    async with world.running():
        await world["a"].catalogue.found()
        world.silent = {world["b"].uuid}
        with pytest.raises(Unavailable, match="needs 2 nodes, and 1 take part: b: the node is dead"):
            await world["a"].catalogue.create(wanted(".t", replication=3), b"o" * 20)
        world.silent = set()
        made = await world["a"].catalogue.create(wanted(".t", replication=3), b"p" * 20)
        assert decode_table(world["a"].metadata.tree(made.id).root.meta).replication == 2


async def test_the_catalogue_is_read_once_for_each_head(autojump_clock):
    """A node that follows the tree asks for all tables at every change."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        catalogue = world["a"].catalogue
        assert catalogue.tables() == {}
        table = await catalogue.create(wanted(), b"o" * 20)
        assert catalogue.tables() == {"t": table}
        assert catalogue.tables() is catalogue.tables()
        await catalogue.drop("t", b"p" * 20)
        assert catalogue.tables() == {}


async def test_who_does_not_say_what_it_is(autojump_clock, monkeypatch):
    """A node that does not name itself holds nothing."""
    world = FewNodes()
    describe = world.describe

    async def silent(node):
        if node == 16 * b"b":
            raise Unavailable("it does not say")
        return await describe(node)

    monkeypatch.setattr(world, "describe", silent)
    async with world.running():
        await founded(world)
        table = await world["a"].catalogue.create(wanted(), b"o" * 20)
        nodes = world["a"].catalogue.nodes
        assert [*nodes.named()] == [16 * b"a", 16 * b"c"]
        await world["a"].metadata.quorum_read(table.id)
        assert await nodes.holders() <= {*nodes.named()}
