"""The maps of nodes under Trio: what is decided shows soon, and what is damaged or forgotten does not."""

from __future__ import annotations

import trio

from gossipkv.register.maps import UNDECIDED_S
from gossipkv.register.metadata.catalogue import ended_by
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.space import MAP
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


async def test_a_decision_of_which_nobody_tells_is_read_soon(autojump_clock):
    """The acceptors of the last value ask a quorum whether it is decided: nobody follows anybody here."""
    async with quiet(founded="abc") as nodes:
        for _ in range(4):
            await trio.sleep(0.5)
            await nodes.idle()
            await trio.sleep(2 * UNDECIDED_S + 0.2)
            assert len({nodes.known(letter).config for letter in "abc"}) == 1


async def test_a_damaged_map_is_never_shown(autojump_clock):
    """It is checked at the start, even if it is not read; a quorum read replaces it."""
    async with quiet("abc", founded="abc") as nodes:
        table = await nodes.table(shards=3)
        disk = nodes.nodes["b"].disk
        key = max(key for key in disk.records if key.startswith(MAP + table.id + b"\0e"))
        disk.records[key] = disk.records[key][:-1] + bytes((disk.records[key][-1] ^ 1,))
        nodes.witness.damages(disk, table.id)
        await nodes.restart("b")
        metadata = nodes.metadata("b")
        assert CATALOGUE in metadata.known
        assert table.id not in metadata.known
        await nodes.read(table.id, letters="b")
        assert [*metadata.view(table.id).scan()] == [*nodes.metadata("a").view(table.id).scan()]
        assert nodes.witness.damaged == set()


async def test_a_map_that_is_forgotten_while_it_is_read_stays_away(autojump_clock):
    """Another node does not know that the table was dropped."""
    async with quiet("abcd", founded="abc") as nodes:
        table = await nodes.table()
        await nodes.restart("d", disk=nodes.fresh_disk("d"))
        maps = nodes.metadata("d").maps

        def forget(_letter, method):
            if method == "map_page":
                trio.lowlevel.spawn_system_task(maps.forget, table.id)

        nodes.on_ask = forget
        await maps.pull(table.id, nodes["a"].node)
        await trio.sleep(1)
        assert not maps.has(table.id)
        assert table.id not in nodes.maps("d")
        nodes.on_ask = lambda _letter, _method: None
        await maps.pull(table.id, nodes["a"].node)
        assert maps.has(table.id)


async def test_a_late_proposal_of_an_end_brings_no_map_back(autojump_clock):
    """An acceptor that has forgotten a dropped table takes its last value again, without the map."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        registers = nodes.metadata("a").registers
        end = nodes.random.randbytes(20)

        def ended(value, generation):
            return ended_by(end, value, generation)

        assert (await registers.change(table.id, ended, timeout_s=3)).end is ChangeEnd.DONE
        for letter in "bc":
            await nodes.metadata(letter).maps.forget(table.id)
        assert (await registers.change(table.id, ended, timeout_s=3)).end is ChangeEnd.DONE
        await trio.sleep(2)
        assert not any(nodes.metadata(letter).maps.has(table.id) for letter in "bc")
        assert not any(table.id in nodes.maps(letter) for letter in "bc")
