"""A node holds all maps: it refuses values without their maps, and keeps what is decided through forces and ends."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, ProtocolError, UnknownDatabase
from gossipkv.register.ballot import ZERO, Ballot
from gossipkv.register.configuration import Acceptors, Value
from gossipkv.register.edits import MAX_MAP_BYTES, MapValue
from gossipkv.register.maps import MAX_SNAPSHOT_BYTES
from gossipkv.register.messages import AcceptorVerdict, RegisterRequest, RequestKind, decode_reply, encode_request
from gossipkv.register.metadata.catalogue import ended_by
from gossipkv.register.metadata.known import generation_of
from gossipkv.register.metadata.operations import LIFE
from gossipkv.register.metadata.server import MAX_UNNAMED
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.space import RECORD
from gossipkv.register.state import first_value
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE

OTHER = b"r" * 16
FIRST = first_value([(b"key", b"record")])


async def verdict(life, kind, value, ballot=ZERO, register=OTHER):
    """Return the acceptor's verdict on a creation, on an acceptance, or on a newcomer's prepare."""
    whole = Value(Acceptors.of([life.metadata.me]), value.encode())
    told = {"holding": whole} if kind is RequestKind.PREPARE else {"value": whole}
    request = RegisterRequest(kind, register, life.metadata.me, 1, ballot, **told)
    return decode_reply(await life.metadata.answer(encode_request(request))).verdict


async def test_a_value_is_refused_without_the_map_before_it(autojump_clock):
    """A newcomer neither accepts nor promises it until the map is here."""
    async with quiet("a") as nodes:
        beyond = MapValue(2, bytes(32), 2)
        for kind, ballot in ((RequestKind.CREATE, ZERO), (RequestKind.PREPARE, Ballot(0, 0, 1, 1))):
            with trio.fail_after(3):
                assert await verdict(nodes["a"], kind, beyond, ballot) is AcceptorVerdict.MISSING
        assert await verdict(nodes["a"], RequestKind.CREATE, FIRST) is AcceptorVerdict.OK
        with trio.fail_after(3):
            assert await verdict(nodes["a"], RequestKind.ACCEPT, beyond, Ballot(0, 0, 2, 1)) is AcceptorVerdict.MISSING


async def test_strangers_begin_few_maps(autojump_clock):
    """Maps of unknown tables are refused beyond a bound, and known ones go on."""
    async with quiet("a", founded="a") as nodes:
        for number in range(MAX_UNNAMED):
            register = b"%016d" % number
            assert await verdict(nodes["a"], RequestKind.CREATE, FIRST, register=register) is AcceptorVerdict.OK
        with pytest.raises(Overloaded, match="maps of unknown tables"):
            await verdict(nodes["a"], RequestKind.CREATE, FIRST)
        assert await verdict(nodes["a"], RequestKind.CREATE, FIRST, register=b"%016d" % 0) is not None
        await nodes.idle()


async def test_what_is_known_is_there_in_the_dark(autojump_clock):
    """After a restart without peers, the map is read as before."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        shown = [*nodes.metadata("c").view(table.id).scan()]
        nodes.hush("c")
        await nodes.restart("c")
        assert [*nodes.metadata("c").view(table.id).scan()] == shown
        assert {*nodes["c"].catalogue.tables()} == {"t"}


async def test_an_older_read_changes_nothing(autojump_clock):
    """A read that began before a newer one may end after it, also across a restart."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        older = await nodes.metadata("a").registers.read(table.id, timeout_s=3)
        assert await nodes.ask("a", table.id, nodes.assign("a", table)) == "DONE"
        newer = await nodes.metadata("a").quorum_read(table.id)
        nodes.metadata("a").maps.decided(table.id, older.value, older.ballot)
        await trio.sleep(1)
        assert nodes.known("a", table.id) is newer
        await nodes.restart("a")
        assert nodes.known("a", table.id).config == newer.config


async def test_a_newer_map_is_taken_from_the_node_that_uses_it(autojump_clock):
    """No quorum is asked, unless the node does not answer or has no news."""
    async with quiet("abcd", founded="abc") as nodes:
        await nodes.idle("a")
        await nodes.read(letters="a")
        await trio.sleep(1)  # The other acceptors have asked whether their value is decided.
        nodes.asked.clear()
        found = await nodes.metadata("d").look(CATALOGUE, nodes["a"].node)
        assert (found.config, nodes.times("register")) == (nodes.known("a").config, 0)
        await nodes.metadata("d").look(CATALOGUE, nodes["a"].node)
        assert nodes.times("register") > 0
        await nodes.idle("b")
        nodes.hush("a")
        assert (await nodes.metadata("d").look(CATALOGUE, nodes["a"].node)).config > found.config


LIES = {
    "another digest": lambda row: [*row[:3], bytes(32), *row[4:]],
    "a hole": lambda row: [row[0], row[1], row[2] + 9, *row[3:7], [[row[2] + 9, [], row[3]]]],
    "no edits": lambda row: [*row[:7], [[row[2], None, row[3]]]],
    "nothing": lambda row: None,
}


@pytest.mark.parametrize("lie", LIES)
async def test_false_news_of_a_map_change_nothing(autojump_clock, lie):
    """The map is taken from another node, and is the decided one."""
    async with quiet("abcd", founded="abc") as nodes:
        before = nodes.known("d")
        await nodes.idle("a")
        await nodes.read(letters="ab")
        maps = nodes.metadata("a").maps
        tell = maps.changes

        async def lying(positions, wait_s):
            return [LIES[lie](row) for row in await tell(positions, wait_s)]

        maps.changes = lying
        with pytest.raises(GossipKVError):
            await nodes.metadata("d").maps.pull(CATALOGUE, nodes["a"].node)
        assert nodes.known("d") is before
        nodes.hush("a")
        assert (await nodes.metadata("d").quorum_read(CATALOGUE)).config == nodes.known("b").config


async def test_a_snapshot_that_never_ends_is_given_up(autojump_clock, monkeypatch):
    """The sum of the pages is bounded, and nothing of them is kept."""
    monkeypatch.setattr("gossipkv.register.maps.MAX_SNAPSHOT_BYTES", 1 << 20)
    async with quiet("abcd", founded="abc") as nodes:
        asked = []

        def page(register, start):
            asked.append(start)
            keys = [b"%08d" % (len(asked) * 2 + at) for at in range(2)]
            return [0, 9, [[keys[0], bytes(150_000)]], keys[1]]

        await nodes.table()
        await nodes.restart("d", disk=nodes.fresh_disk("d"))
        maps = nodes.metadata("a").maps
        maps.page = page
        with pytest.raises(ProtocolError, match="larger than a map can be"):
            await nodes.metadata("d").maps.pull(CATALOGUE, nodes["a"].node)
        assert (len(asked), nodes.maps("d")) == (7, set())


async def test_a_full_map_is_read_by_a_newcomer(autojump_clock, monkeypatch):
    """It takes no growth, but outcomes, so it may be larger than the limit."""
    monkeypatch.setattr("gossipkv.register.metadata.operations.MAX_MAP_BYTES", 20_000)
    monkeypatch.setattr("gossipkv.register.maps.MAX_SNAPSHOT_BYTES", MAX_SNAPSHOT_BYTES // MAX_MAP_BYTES * 20_000)
    async with quiet("abcd", founded="abc") as nodes:
        for number in range(200):
            add = nodes.operation("a", CATALOGUE, "set_node", b"%016d" % number, "n" * 60, "g" * 60, 1, None, 0)
            if (outcome := await nodes.ask("a", CATALOGUE, add)) != "DONE":
                break
            await nodes.read(letters="a")
        assert (outcome, number) == ("REFUSED", 102)
        for _ in range(20):
            await nodes.idle()
        await nodes.read(letters="a")
        assert nodes.metadata("a").maps.known[CATALOGUE].size_bytes > 20_000
        await nodes.restart("d", disk=nodes.fresh_disk("d"))
        assert len((await nodes.metadata("d").quorum_read(CATALOGUE, nodes.known("a").acceptors)).view) == number


async def test_a_forced_map_goes_on(autojump_clock):
    """Operations based on the map before the force die with its generation; later ones are done."""
    async with quiet(founded="abc") as nodes:
        await nodes.idle()
        lost = nodes.operation("a", CATALOGUE, "remove_table", b"none", bytes(16))
        nodes.hush("bc")
        metadata = nodes.metadata("a")
        assert (await metadata.registers.force(CATALOGUE, [metadata.me])).end is ChangeEnd.DONE
        await nodes.read()
        assert generation_of(nodes.known("a").config) == 1
        assert await nodes.ask("a", CATALOGUE, lost) == "REFUSED"
        await nodes.idle()


async def test_a_forced_map_replaces_a_higher_one_that_the_survivors_never_saw(autojump_clock):
    """Survivors continue their own last map, and a node with the lost one takes theirs."""
    async with quiet(founded="abc") as nodes:
        nodes.hush("b")
        for _ in range(3):
            await nodes.idle("a")
        await nodes.read()
        lost, survivor = nodes.known("a"), nodes.metadata("b")
        nodes.hush("ac")
        assert (await survivor.registers.force(CATALOGUE, [survivor.me])).end is ChangeEnd.DONE
        after = await survivor.quorum_read(CATALOGUE)
        assert (after.generation, after.acceptors) == (1, Acceptors.of([survivor.me]))
        assert after.sequence < lost.sequence
        nodes.hush("")
        assert (await nodes.metadata("a").look(CATALOGUE, nodes["b"].node)).config == after.config


async def ended(nodes, letter, table):
    outcome = await nodes.metadata(letter).registers.change(table.id, lambda *of: ended_by(bytes(20), *of), timeout_s=5)
    assert outcome.end is ChangeEnd.DONE


async def test_the_register_of_a_dropped_table_goes_on(autojump_clock):
    """The map is gone from memory and disks, but rounds still tell that the table was dropped."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        await nodes["a"].catalogue.drop("t", b"o" * 20)
        for letter in "abc":
            with pytest.raises(UnknownDatabase):
                await nodes.metadata(letter).quorum_read(table.id)
            for _ in range(2):
                await nodes[letter].catalogue.tend()
                assert [key for key in nodes[letter].store.disk.records if table.id in key] == [RECORD + table.id]
            assert table.id not in nodes.metadata(letter).known
        await ended(nodes, "b", table)


@pytest.mark.parametrize("heard", [True, False])
async def test_a_table_that_was_forgotten_after_a_force_does_not_come_back(autojump_clock, heard):
    """Two acceptors outside the force still agree on the earlier map, and one has since seen the end."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        a, c = nodes.metadata("a"), nodes.metadata("c")
        nodes.hush("ab")
        assert (await c.registers.force(table.id, [c.me])).end is ChangeEnd.DONE
        nodes.hush("b")  # This node never hears of the force: with it, a is a quorum of the lost part.
        if heard:
            assert (await a.quorum_read(table.id, Acceptors.of([c.me]))).generation == 1
        await ended(nodes, "c", table)
        assert await nodes.on("a", CATALOGUE, "remove_table", b"t", table.id) == "DONE"
        await nodes.read(letters="a")
        await a.let_go(frozenset(), nodes.known("a").config)
        nodes.hush("c")
        for _ in range(2):
            with pytest.raises((NotReady, UnknownDatabase)):
                await a.outcome(table.id, b"o" * 20, 1)
            with pytest.raises(UnknownDatabase):
                await a.quorum_read(table.id, Acceptors.of([a.me, nodes.metadata("b").me]))
        await nodes.restart("a")
        await trio.sleep(1)
        assert nodes.known("a", table.id).ended


async def test_a_table_that_was_named_once_is_kept_while_its_register_lives(autojump_clock):
    """A forced catalogue may have lost the name, and then the map is all that is left."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        nodes.hush("bc")
        metadata = nodes.metadata("a")
        assert (await metadata.registers.force(CATALOGUE, [metadata.me])).end is ChangeEnd.DONE
        await nodes.read()
        assert await nodes.on("a", CATALOGUE, "remove_table", b"t", table.id) == "DONE"
        for number in range(2 * LIFE + 2):
            if number in {0, 2 * LIFE + 1}:
                await metadata.let_go(frozenset(), nodes.known("a").config)
            await nodes.idle()
            await nodes.read()
        assert len(metadata.view(table.id)) == 2


async def test_a_drop_that_was_begun_is_finished_by_any_node(autojump_clock):
    """The register is ended while the catalogue still names it."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        await ended(nodes, "b", table)
        await nodes["b"].catalogue.tend_table("t")
        assert nodes["b"].catalogue.tables() == {}
