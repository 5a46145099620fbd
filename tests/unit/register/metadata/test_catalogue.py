"""The catalogue is founded once and grows while in use; tables are made once and dropped permanently."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.metadata.catalogue import keys_of
from gossipkv.register.metadata.known import sequence_of
from gossipkv.register.metadata.operations import LIFE
from gossipkv.register.metadata.partitions import HASH, RANGE, decode_table, shard_key
from gossipkv.register.space import RECORD
from tests.unit.register.metadata.quiet_nodes import quiet, wanted
from tests.world.metadata.deciding_node import CATALOGUE

# -- founding and growth -----------------------------------------------------------------------------------------------


async def test_founded_once(autojump_clock):
    """A second founding changes nothing, another node knows of none, and a restart finds the catalogue."""
    async with quiet("ab") as nodes:
        await nodes["a"].catalogue.found()
        before = nodes.known("a").config
        await nodes["a"].catalogue.found()
        await nodes.restart("a")
        await nodes["a"].catalogue.found()
        assert (nodes.known("a").config, nodes["b"].catalogue.tables()) == (before, {})
        with pytest.raises(Unavailable):
            await nodes.metadata("b").quorum_read(CATALOGUE)


async def test_it_grows_under_load(autojump_clock):
    """From 1 to 3 to 5 servers, no operation is lost or refused."""
    async with quiet("abcde", founded="a") as nodes:
        outcomes = Counter()

        async def load():
            while True:
                outcomes[await nodes.on("a", CATALOGUE, "remove_table", b"none", bytes(16))] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            with trio.fail_after(10):
                for size in (3, 5):
                    assert await nodes["a"].catalogue.grow()
                    await nodes.read(letters="a")
                    assert len(nodes.deciders()) == size
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        assert not await nodes["a"].catalogue.grow()
        assert [*outcomes] == ["DONE"]
        assert outcomes["DONE"] > 10
        await nodes.read()
        assert {nodes.deciders(of=letter) for letter in "abcde"} == {"abcde"}


async def test_a_newcomer_gets_a_map_that_changes_on_and_on(autojump_clock, monkeypatch):
    """The pages that it reads are of different moments, and the edits since the first one make them one map."""
    monkeypatch.setattr("gossipkv.register.snapshot.MAX_PAGE_BYTES", 50)
    async with quiet() as nodes, trio.open_nursery() as nursery:
        await nodes["a"].catalogue.found()

        async def change():
            while True:
                await nodes.idle()
                await trio.sleep(0.002)

        nursery.start_soon(change)
        await trio.sleep(0.1)
        assert await nodes["a"].catalogue.grow()
        nursery.cancel_scope.cancel()
        assert nodes.times("map_page") > 4
        await nodes.read(hint=nodes.known("a").acceptors)
        assert nodes.deciders(of="c") == "abc"


async def test_a_sick_node_does_not_keep_the_catalogue_from_growing(autojump_clock):
    """The place of the sick node does not matter."""
    async with quiet("abcd", founded="a") as nodes:

        def on_ask(letter, method):
            if (letter, method) == ("b", "metadata_invite"):
                raise Unavailable("its disk is full")

        nodes.on_ask = on_ask
        assert await nodes["a"].catalogue.grow()
        assert nodes.deciders() == "acd"


async def test_servers_leave(autojump_clock):
    """A repetition changes nothing, an empty set is refused, and the remaining servers go on."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        members = [nodes.metadata(letter).me for letter in "ab"]
        for _ in range(2):
            await nodes["a"].catalogue.reconfigure(table.id, members)
            assert nodes.deciders(table.id) == "ab"
        await nodes["a"].catalogue.reconfigure(table.id, members[:1])
        with pytest.raises(BadRequest):
            await nodes["a"].catalogue.reconfigure(table.id, [])
        (answer,) = await nodes["c"].catalogue.transact(table.id, [nodes.nothing("a", table)])
        assert answer.outcome.name == "DONE"


# -- creation ----------------------------------------------------------------------------------------------------------


async def made(nodes, asked):
    """Create tables at the same time, each asked for by (letter, table, id); return the results in order."""
    told = {}

    async def create(number, letter, table, id_):
        try:
            told[number] = await nodes[letter].catalogue.create(table, id_)
        except Conflict as error:
            told[number] = error.message

    async with trio.open_nursery() as nursery:
        for number, of in enumerate(asked):
            nursery.start_soon(create, number, *of)
    await nodes.read()
    return [told[number] for number in range(len(told))]


async def test_two_creators_of_one_name(autojump_clock):
    """One gets the table, the other CONFLICT; a repetition under the first id gets the same table."""
    async with quiet(founded="abc") as nodes:
        told = await made(nodes, [(letter, wanted(), 20 * letter.encode()) for letter in "ab"])
        (winner,) = [number for number in range(2) if not isinstance(told[number], str)]
        assert await nodes["c"].catalogue.create(wanted(), 20 * b"ab"[winner : winner + 1]) == told[winner]
        assert nodes["c"].catalogue.tables() == {"t": told[winner]}
        records = len(nodes["b"].store.disk.records)
        for number in range(5):
            with pytest.raises(Conflict):
                await nodes["c"].catalogue.create(wanted(), bytes([number]) * 20)
        assert len(nodes["b"].store.disk.records) <= records, "a taken name costs nothing"


async def test_a_table_that_is_asked_for_twice_at_once_is_one(autojump_clock):
    """Repetitions by way of other nodes return one table, and no second one is drawn."""
    async with quiet(founded="abc") as nodes:
        told = await made(nodes, [(letter, wanted(), b"o" * 20) for letter in "abc"])
        assert told == [nodes["a"].catalogue.table("t")] * 3


async def test_an_id_that_is_used_for_many_tables_makes_one(autojump_clock):
    """Concurrent and later requests under one id make one table; the others get a conflict."""
    async with quiet(founded="abc") as nodes:
        asked = [("abc"[at % 3], wanted(f"t{at % 12}", 1 + at // 12), b"o" * 20) for at in range(24)]
        told = await made(nodes, asked)
        ((name, table),) = nodes["a"].catalogue.tables().items()
        assert told.count(table) == 1
        assert sum((b"o" * 20).hex() in str(one) for one in told) == 23
        assert name == asked[told.index(table)][1].name
        again, other = await made(nodes, [("b", asked[told.index(table)][1], b"o" * 20), ("b", wanted("x"), b"o" * 20)])
        assert again == table
        assert "used before, for another table" in other


async def test_a_large_first_map_is_written_in_parts(autojump_clock):
    """A part whose answers are lost is not added twice, and the table is named once it is whole."""
    async with quiet(founded="abc") as nodes:
        async with trio.open_nursery() as nursery:

            async def cut():
                with nodes.cut_at_accept("a", "bc", answers=True):
                    await trio.sleep(1)
                nodes.hush("")

            nursery.start_soon(cut)
            table = await nodes["a"].catalogue.create(wanted(shards=8000, replication=3), bytes(20), 30)
        assert sequence_of(table.config) == 3
        await nodes.read(table.id, letters="b", hint=nodes.known("a", table.id).acceptors)
        view = nodes.metadata("b").view(table.id)
        assert (len(view), view.config) == (8000, table.config)


async def test_a_creation_that_is_lost_is_forgotten(autojump_clock):
    """Its map goes once no operation can name it any more, and not before."""
    async with quiet(founded="abc") as nodes:
        nodes.deaf.add(("c", "register"))
        with pytest.raises(Unavailable, match="storing the first map"):
            await nodes["a"].catalogue.create(wanted(), bytes(20), 3)
        nodes.deaf.clear()

        def lost(letter):
            return {key[1:] for key in nodes[letter].store.disk.records if key[:1] == RECORD} - {CATALOGUE}

        (register,) = set.union(*map(lost, "abc"))
        for done in range(2 * LIFE + 2):
            if done in {0, 1, LIFE, 2 * LIFE + 1}:
                await nodes.read()
                for letter in "abc":
                    await nodes[letter].catalogue.tend()
                here = any(nodes.metadata(letter).maps.has(register) for letter in "abc")
                assert here == (done <= LIFE), done
            await nodes.idle()
            await nodes.read(letters="a")
        assert not any(register in nodes.maps(letter) for letter in "abc")
        assert nodes["b"].catalogue.tables() == {}


async def test_a_table_that_cannot_be_is_refused_in_words(autojump_clock):
    """Too many replicas are the caller's error."""
    async with quiet("abcdefghij", founded="a") as nodes:
        with pytest.raises(BadRequest):
            await nodes["a"].catalogue.create(wanted(replication=10), b"o" * 20)


async def test_a_restored_table_has_as_many_replicas_as_there_are_members(autojump_clock):
    """A hidden table of three replicas fits on two nodes, of which one is dead, only with a majority."""
    async with quiet("ab", founded="a") as nodes:
        present = {nodes[letter].node: (letter, True) for letter in "ab"}
        nodes["a"].present = lambda: present
        nodes.hush("b")
        with pytest.raises(Unavailable, match="needs 2 nodes, and 1 take part: b: "):
            await nodes["a"].catalogue.create(wanted(".t", replication=3), b"o" * 20)
        nodes.hush("")
        table = await nodes["a"].catalogue.create(wanted(".t", replication=3), b"p" * 20)
        assert decode_table(nodes.metadata("a").view(table.id).meta).replication == 2


async def test_a_node_that_does_not_describe_itself_holds_nothing(autojump_clock):
    async with quiet(founded="abc") as nodes:
        describe, silent = nodes["a"].describe, nodes["b"].node

        async def described(node):
            if node == silent:
                raise Unavailable("it does not say")
            return await describe(node)

        nodes["a"].describe = described
        table = await nodes["a"].catalogue.create(wanted(replication=2), b"o" * 20)
        await nodes.read(table.id, letters="a")
        named = nodes["a"].catalogue.nodes.named()
        assert [*named] == [nodes[letter].node for letter in "ac"]
        assert await nodes["a"].catalogue.nodes.holders() <= {*named}


# -- drops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["nothing", "the register is ended", "all"])
async def test_a_drop_that_stops_after_a_step(autojump_clock, step):
    """Any node finishes the drop; only the acceptor's record of the table remains."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        if step == "the register is ended":
            await nodes["a"].catalogue._end(table, bytes(20), 5.0)
            nodes.hush("a")
        elif step == "all":
            await nodes["a"].catalogue.drop("t", bytes(20))
        await nodes.read(letters="b")
        if "t" in nodes["b"].catalogue.tables():
            await nodes["b"].catalogue.tend_table("t")
        assert ("t" in nodes["b"].catalogue.tables()) is (step == "nothing")
        await nodes["b"].catalogue.tend()
        assert (table.id in nodes.maps("b")) is (step == "nothing")
        assert RECORD + table.id in nodes["b"].store.disk.records


async def test_what_is_dropped_twice_is_dropped_once(autojump_clock):
    """Only one of many concurrent drops ends the table; its repetition gets the same answer."""
    async with quiet(founded="abc") as nodes:
        table, told = await nodes.table(), {}

        async def drop(letter, number):
            with contextlib.suppress(UnknownDatabase):
                told[letter, number] = await nodes[letter].catalogue.drop("t", 20 * bytes([number]))

        async with trio.open_nursery() as nursery:
            for number, letter in enumerate("abcabc"):
                nursery.start_soon(drop, letter, number)
        assert {dropped.table for dropped in told.values()} == {table}
        assert [dropped.before for dropped in told.values()].count(False) == 1
        second = await nodes.table("c")  # The name is free again.
        assert second.id != table.id
        for number, letter in enumerate("abca"):  # The same operation again is the one that dropped it.
            assert await nodes[letter].catalogue._end(second, 20 * b"oopo"[number : number + 1], 5.0) is (number == 2)


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_a_decision_has_one_deadline(autojump_clock):
    """With two of three servers silent, every call ends within its time limit."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        nodes.cut("a", "bc")
        catalogue = nodes["a"].catalogue
        for timeout_s in (0.2, 1.0, 4.0):
            for ask in (
                lambda limit_s: catalogue.create(wanted("u"), nodes.random.randbytes(20), limit_s),
                lambda limit_s: catalogue.drop("t", nodes.random.randbytes(20), limit_s),
                lambda limit_s: catalogue.transact(table.id, [nodes.nothing("a", table)], limit_s),
            ):
                begun_s = trio.current_time()
                with contextlib.suppress(Unavailable, Unknown):
                    (answer,) = await ask(timeout_s)
                    assert answer.outcome.name == "UNKNOWN"
                assert trio.current_time() - begun_s <= timeout_s + 0.05


async def test_an_answer_that_is_lost_is_unknown(autojump_clock):
    """A repetition returns the table that was made."""
    async with quiet("abcd", founded="abc") as nodes:
        ask = nodes.network.ask

        async def lose(source, to, question):
            answer = await ask(source, to, question)
            if question.method == "metadata_transact":
                raise Unknown("the connection broke")
            return answer

        nodes.network.ask = lose
        with pytest.raises(Unknown):
            await nodes["d"].catalogue.create(wanted(), bytes(20))
        nodes.network.ask = ask
        table = await nodes["d"].catalogue.create(wanted(), bytes(20))
        assert nodes["d"].catalogue.tables() == {"t": table}
        assert nodes["d"].catalogue.tables() is nodes["d"].catalogue.tables(), "a map is read once"


@pytest.mark.parametrize(("errors", "expected"), [
    ([Unknown], "DONE"), ([Unavailable, Unknown, Unavailable], Unknown), ([Unavailable] * 3, Unavailable),
])  # fmt: skip
async def test_another_server_is_asked_where_one_does_not_answer(autojump_clock, errors, expected):
    """A lost outcome is never reported as "not done"."""
    async with quiet("abcd", founded="abc") as nodes:
        failures = [*errors]

        def on_ask(letter, method):
            if method == "metadata_transact" and failures:
                raise failures.pop()("no answer")

        nodes.on_ask = on_ask
        operation = nodes.operation("d", CATALOGUE, "remove_table", b"t", b"i" * 16)
        try:
            (answer,) = await nodes["d"].catalogue.transact(CATALOGUE, [operation])
        except GossipKVError as error:
            assert (type(error), failures) == (expected, [])
        else:
            assert answer.outcome.name == expected


@pytest.mark.parametrize(("kind", "shards", "bounds", "expected"), [
    (HASH, 3, [], [shard_key(0), shard_key(1), shard_key(2)]),
    (RANGE, 1, [], [b""]),
    (RANGE, 1, [b"g", b"p"], [b"", b"g", b"p"]),
    (HASH, 3, [b"g"], None),
    (RANGE, 1, [b"p", b"g"], None),
    (RANGE, 1, [b""], None),
])  # fmt: skip
def test_first_keys(kind, shards, bounds, expected):
    """Shards are keyed by number, ranges by their first key; keys that do not tile are refused."""
    if expected is None:
        with pytest.raises(BadRequest):
            keys_of(kind, shards, bounds)
    else:
        assert keys_of(kind, shards, bounds) == expected
