"""Register acceptors follow nodes that come and go for good, by growth and replacement."""

from __future__ import annotations

import contextlib

import pytest
import trio

from gossipkv.errors import Conflict
from gossipkv.register.metadata.catalogue import GROWN_S
from tests.unit.register.metadata.quiet_nodes import quiet, wanted
from tests.world.metadata.deciding_node import CATALOGUE


async def begun(nodes, alive):
    """Found a catalogue and two tables on the first node, grow to these nodes, and return the registers."""
    nodes.hush("bcde")
    await nodes["a"].catalogue.found()
    tables = [await nodes["a"].catalogue.create(wanted(name), name.encode() * 20) for name in "tu"]
    registers = [CATALOGUE, *(table.id for table in tables)]
    assert deciders(nodes, registers) == "a"
    assert not await nodes["a"].catalogue.grow()
    nodes.hush("".join(sorted({*"bcde"}.difference(alive))))
    assert await nodes["a"].catalogue.grow()
    return registers


def deciders(nodes, registers, of="a"):
    """Return the acceptors of these registers as a node knows them; differing sets are listed apart."""
    return " ".join(sorted({nodes.deciders(register, of) for register in registers}))


async def replace(nodes, registers, leaver, comer):
    """Replace a member in each register; return for each whether it had to change."""
    return [await nodes["a"].catalogue.replace(register, 16 * leaver.encode(), comer) for register in registers]


async def test_all_registers_grow_with_the_cluster(autojump_clock):
    """Tables made on one node get three acceptors with three nodes, and five with five."""
    async with quiet("abcde") as nodes:
        registers = await begun(nodes, "abc")
        assert deciders(nodes, registers) == "abc"
        assert not await nodes["a"].catalogue.grow()
        nodes.hush("")
        for register in registers:
            await nodes.metadata("b").quorum_read(register, nodes.known("a", register).acceptors)
        assert not await nodes["b"].catalogue.grow()  # The first of the acceptors does it.
        assert await nodes["a"].catalogue.grow()
        assert deciders(nodes, registers) == "abcde"
        table, members = registers[1], [nodes.metadata(letter).me for letter in "ab"]
        await nodes["a"].catalogue.reconfigure(table, members)
        await trio.sleep(GROWN_S)
        assert not await nodes["a"].catalogue.grow()  # A command has left it so.
        stale = nodes.known("a", CATALOGUE).acceptors.new
        with contextlib.suppress(Conflict):  # A node with a stale view must not undo another node's command.
            await nodes["a"].catalogue.reconfigure(table, [*members, nodes.metadata("c").me], stale)
        assert deciders(nodes, [table]) == "ab"


async def test_acceptors_on_removed_nodes_are_replaced(autojump_clock):
    """Another node takes the place; if there is none, the register shrinks to an odd size, and never to none."""
    async with quiet("abcde") as nodes:
        registers = await begun(nodes, "abcde")
        for letter in "abcde":
            await nodes.on("a", CATALOGUE, "set_node", nodes[letter].node, letter, "", 1, None, 0)
        while await nodes["a"].catalogue.grow():
            pass
        assert deciders(nodes, registers) == "abcde"

        async def remove(letter: str, *, is_gone: bool = False) -> list[str]:
            await nodes.on("a", CATALOGUE, "remove_node", nodes[letter].node, is_gone, 1)
            hints = {register: nodes.known("a", register).acceptors for register in registers}
            for _ in range(3):
                for other in "abc":
                    for register in registers:
                        await nodes.metadata(other).quorum_read(register, hints[register])
                    await nodes[other].catalogue.grow()
            for register in registers:
                await nodes.metadata("a").quorum_read(register, hints[register])
            return [deciders(nodes, [register]) for register in registers]

        for register in await remove("d"):
            assert (len(register), "d" in register) == (3, False)
        nodes.hush("de")
        assert await remove("e", is_gone=True) == ["abc"] * 3
        assert {*await remove("c")} <= {"a", "b"}


async def test_a_node_takes_the_place_of_another(autojump_clock):
    """Each register changes once; if the newcomer is a member already, another node takes the place or none can."""
    async with quiet("abcde") as nodes:
        registers = await begun(nodes, "abc")
        nodes.hush("ce")
        comer = nodes.metadata("d").me
        assert await replace(nodes, registers[:1], "c", comer) == [True]
        assert await replace(nodes, registers, "c", comer) == [False, True, True]
        assert await replace(nodes, registers, "c", comer) == [False] * 3
        assert deciders(nodes, registers) == "abd"
        nodes.hush("bc")
        await replace(nodes, registers, "b", comer)
        assert deciders(nodes, registers) == "ade"
        refused = ""
        try:
            await replace(nodes, registers, "e", comer)
        except Conflict as error:
            refused = error.message
        assert ("no other node can take the place" in refused, deciders(nodes, registers)) == (True, "ade")


async def test_a_node_whose_store_is_another_takes_its_own_place(autojump_clock):
    """The uuid stays and the store id changes; the old store's votes no longer count."""
    async with quiet("abcde") as nodes:
        registers = await begun(nodes, "abc")
        await nodes.restart("c", disk=nodes.fresh_disk("c"))
        comer = nodes.metadata("c").me
        assert await replace(nodes, registers, "c", comer) == [True] * 3
        assert await replace(nodes, registers, "c", comer) == [False] * 3
        for register in registers:
            assert nodes.known("a", register).acceptors.new[2] == comer
            await nodes.metadata("c").quorum_read(register, nodes.known("a", register).acceptors)


@pytest.mark.parametrize("stopped_at", range(1, 26, 3))
async def test_a_replacement_that_is_stopped_is_repeated(autojump_clock, stopped_at):
    """The replacement may stop at any request; a repetition completes it on all registers."""
    async with quiet("abcde") as nodes:
        registers = await begun(nodes, "abc")
        nodes.hush("ce")
        comer, asked = nodes.metadata("d").me, 0
        with trio.CancelScope() as scope:

            def count(letter, method):
                nonlocal asked
                asked += 1
                if asked == stopped_at:
                    scope.cancel()

            nodes.on_ask = count
            await replace(nodes, registers, "c", comer)
        assert scope.cancelled_caught
        await replace(nodes, registers, "c", comer)
        assert deciders(nodes, registers) == "abd"
        assert not any(nodes.known("a", register).acceptors.joint for register in registers)
        assert await replace(nodes, registers, "c", comer) == [False] * 3
