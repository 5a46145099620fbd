"""Register acceptors follow nodes that come and go for good, by growth and replacement."""

from __future__ import annotations

import contextlib
from unittest.mock import patch

import pytest
import trio

from gossipkv.errors import Conflict
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.metadata.catalogue import GROWN_S, WantedTable
from gossipkv.register.metadata.partitions import shard_key
from tests.unit.register.metadata.few_nodes import CATALOGUE, FakeBatch, FewNodes, OneNode


@pytest.fixture(autouse=True)
def batches():
    """Use batches that a store in memory can read."""
    with patch("gossipkv.register.space.Batch", FakeBatch):
        yield


async def begun(world: FewNodes, alive: str) -> list[bytes]:
    """Found a catalogue and two tables on the first node, grow to these nodes, and return the registers."""
    world.silent = world.nodes.keys() - {world["a"].uuid}
    await world["a"].catalogue.found()
    registers = [CATALOGUE]
    for name in "tu":
        table = await world["a"].catalogue.create(WantedTable(name, "hash", 1, [shard_key(0)]), name.encode() * 20)
        registers.append(table.id)
    assert deciders(world, registers) == "a"
    assert not await world["a"].catalogue.grow()
    world.silent = {node for letter, node in zip("abcde", world.nodes, strict=False) if letter not in alive}
    assert await world["a"].catalogue.grow()
    return registers


def deciders(world: FewNodes, registers: list[bytes], of: str = "a") -> str:
    """Return the acceptors of these registers as a node knows them; differing sets are listed apart."""
    sets = [world[of].metadata.known[register].acceptors.new for register in registers]
    return " ".join(sorted({"".join(chr(one.node[0]) for one in members) for members in sets}))


async def replace(world: FewNodes, registers: list[bytes], leaver: str, comer: AcceptorId) -> list[bool]:
    """Replace a member in each register; return for each whether it had to change."""
    return [
        await world["a"].catalogue.replace(register, 16 * leaver.encode(), comer) for register in registers
    ]  # fmt: skip


async def test_all_registers_grow_with_the_cluster(autojump_clock):
    """Tables made on one node get three acceptors with three nodes, and five with five."""
    world = FewNodes("abcde")
    async with world.running():
        registers = await begun(world, "abc")
        assert deciders(world, registers) == "abc"
        assert not await world["a"].catalogue.grow()
        world.silent = set()
        for register in registers:
            await world["b"].metadata.quorum_read(register, world["a"].metadata.known[register].acceptors)
        assert not await world["b"].catalogue.grow()  # The first of the acceptors does it.
        assert await world["a"].catalogue.grow()
        assert deciders(world, registers) == "abcde"
        table, members = registers[1], [world[letter].metadata.me for letter in "ab"]
        await world["a"].catalogue.reconfigure(table, members)
        await trio.sleep(GROWN_S)
        assert not await world["a"].catalogue.grow()  # A command has left it so.
        stale = world["a"].metadata.known[CATALOGUE].acceptors.new
        with contextlib.suppress(Conflict):  # A node with a stale view must not undo another node's command.
            await world["a"].catalogue.reconfigure(table, [*members, world["c"].metadata.me], stale)
        assert deciders(world, [table]) == "ab"


async def test_acceptors_on_removed_nodes_are_replaced(autojump_clock):
    """Another node takes the place; if there is none, the register shrinks to an odd size, and never to none."""
    world = FewNodes("abcde")
    async with world.running():
        registers = await begun(world, "abcde")
        for letter in "abcde":
            await world["a"].on(CATALOGUE, "set_node", world[letter].uuid, letter, "", 1, None, 0)
        while await world["a"].catalogue.grow():
            pass
        assert deciders(world, registers) == "abcde"

        async def remove(letter: str, *, is_gone: bool = False) -> list[str]:
            await world["a"].on(CATALOGUE, "remove_node", world[letter].uuid, is_gone, 1)
            hints = {register: world["a"].metadata.known[register].acceptors for register in registers}
            for _ in range(3):
                for other in "abc":
                    for register in registers:
                        await world[other].metadata.quorum_read(register, hints[register])
                    await world[other].catalogue.grow()
            for register in registers:
                await world["a"].metadata.quorum_read(register, hints[register])
            return [deciders(world, [register]) for register in registers]

        for register in await remove("d"):
            assert (len(register), "d" in register) == (3, False)
        world.silent = {world["d"].uuid, world["e"].uuid}
        assert await remove("e", is_gone=True) == ["abc"] * 3
        assert {*await remove("c")} <= {"a", "b"}


async def test_a_node_takes_the_place_of_another(autojump_clock):
    """Each register changes once; if the newcomer is a member already, another node takes the place or none can."""
    world = FewNodes("abcde")
    async with world.running():
        registers = await begun(world, "abc")
        world.silent = {world["c"].uuid, world["e"].uuid}
        comer = world["d"].metadata.me
        assert await replace(world, registers[:1], "c", comer) == [True]
        assert await replace(world, registers, "c", comer) == [False, True, True]
        assert await replace(world, registers, "c", comer) == [False] * 3
        assert deciders(world, registers) == "abd"
        world.silent = {world["b"].uuid, world["c"].uuid}
        await replace(world, registers, "b", comer)
        assert deciders(world, registers) == "ade"
        refused = ""
        try:
            await replace(world, registers, "e", comer)
        except Conflict as error:
            refused = error.message
        assert ("no other node can take the place" in refused, deciders(world, registers)) == (True, "ade")


async def test_a_node_whose_store_is_another_takes_its_own_place(autojump_clock):
    """The uuid stays and the store id changes; the old store's votes no longer count."""
    world = FewNodes("abc")
    async with world.running() as _, trio.open_nursery() as nursery:
        registers = await begun(world, "abc")
        world.nodes[world["c"].uuid] = anew = OneNode(world, "c", store_id=8)
        await nursery.start(anew.metadata.run)
        assert await replace(world, registers, "c", anew.metadata.me) == [True] * 3
        assert await replace(world, registers, "c", anew.metadata.me) == [False] * 3
        for register in registers:
            assert world["a"].metadata.known[register].acceptors.new[2] == AcceptorId(anew.uuid, 8)
            await anew.metadata.quorum_read(register, world["a"].metadata.known[register].acceptors)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stopped_at", range(1, 26, 3))
async def test_a_replacement_that_is_stopped_is_repeated(autojump_clock, stopped_at):
    """The replacement may stop at any request; a repetition completes it on all registers."""
    world = FewNodes("abcd")
    async with world.running():
        registers = await begun(world, "abc")
        world.silent = {world["c"].uuid}
        comer, asked = world["d"].metadata.me, 0
        with trio.CancelScope() as scope:

            def count(node: bytes, method: str) -> None:
                nonlocal asked
                del node, method
                asked += 1
                if asked == stopped_at:
                    scope.cancel()

            world.on_ask = count
            await replace(world, registers, "c", comer)
        assert scope.cancelled_caught
        await replace(world, registers, "c", comer)
        assert deciders(world, registers) == "abd"
        assert not any(world["a"].metadata.known[register].acceptors.joint for register in registers)
        assert await replace(world, registers, "c", comer) == [False] * 3
