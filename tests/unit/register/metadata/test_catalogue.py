"""The catalogue is founded once and grows while in use; tables are made once and dropped for good."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import trio

from gossipkv.errors import BadRequest, Conflict, GossipKVError, Unavailable, Unknown, UnknownDatabase
from gossipkv.register.metadata.catalogue import WantedTable, keys_of
from gossipkv.register.metadata.head import LAST_HEADS
from gossipkv.register.metadata.ledger import MAX_LENT
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import OperationOutcome
from gossipkv.register.metadata.partitions import HASH, RANGE, shard_key
from gossipkv.register.space import MAP
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


def wanted(name="t", replication=1):
    return WantedTable(name, HASH, replication, [shard_key(0)])


async def test_founded_once(autojump_clock):
    """A second founding changes nothing, another node knows of none, and a restart finds the catalogue."""
    async with quiet("ab") as nodes:
        await nodes["a"].catalogue.found()
        before = nodes["a"].metadata.known[CATALOGUE]
        await nodes["a"].catalogue.found()
        await nodes.restart("a")
        await nodes["a"].catalogue.found()
        assert nodes["a"].metadata.known[CATALOGUE] == before
        assert nodes["b"].catalogue.tables() == {}
        with pytest.raises(Unavailable):
            await nodes["b"].metadata.quorum_read(CATALOGUE)


async def test_it_grows_under_load(autojump_clock):
    """From 1 to 3 to 5 servers, no operation is lost or refused."""
    async with quiet("abcde") as nodes:
        await nodes["a"].catalogue.found()
        first = nodes["a"].metadata.known[CATALOGUE]
        outcomes = Counter()

        async def load():
            while True:
                base = nodes["a"].metadata.known[CATALOGUE].config
                operation = Operation(nodes.random.randbytes(20), base, "remove_table", 1, (b"none", bytes(16)))
                (answer,) = await nodes["a"].metadata.transact(CATALOGUE, [operation], 10)
                outcomes[answer.outcome] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            with trio.fail_after(10):
                for size in (3, 5):
                    assert await nodes["a"].catalogue.grow()
                    await nodes["a"].metadata.quorum_read(CATALOGUE)
                    assert len(nodes["a"].metadata.known[CATALOGUE].acceptors.new) == size
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        assert not await nodes["a"].catalogue.grow()
        assert set(outcomes) == {OperationOutcome.DONE}
        assert outcomes[OperationOutcome.DONE] > 10
        for letter in "bcde":
            known = await nodes[letter].metadata.quorum_read(CATALOGUE, first.acceptors)
            assert len(known.acceptors.new) == 5


async def test_a_newcomer_gets_a_map_that_changes_on_and_on(autojump_clock, monkeypatch):
    """A newcomer that answers late finds the promised pages despite many requests for newer ones."""
    async with quiet("abc") as nodes:
        await nodes["a"].catalogue.found()
        metadata, catalogue = nodes["a"].metadata, nodes["a"].catalogue
        ask, late = catalogue._ask, []

        async def ask_late(node, method, params, timeout_s):
            if method == "metadata_hold" and not late:
                late.append(node)
                for _ in range(LAST_HEADS + MAX_LENT + 1):
                    base = metadata.known[CATALOGUE].config
                    operation = Operation(nodes.random.randbytes(20), base, "remove_table", 1, (b"none", bytes(16)))
                    await metadata.transact(CATALOGUE, [operation], 10)
                    known = await metadata.quorum_read(CATALOGUE)
                    metadata.pages(CATALOGUE, [known.head.root])
                    await trio.sleep(0.1)
            return await ask(node, method, params, timeout_s)

        monkeypatch.setattr(catalogue, "_ask", ask_late)
        assert await catalogue.grow()
        assert late


async def test_two_creators_of_one_name(autojump_clock):
    """One gets the table, the other CONFLICT; a repetition under the first id gets the same table."""
    async with quiet() as nodes:
        await nodes.found()
        told = {}

        async def create(letter):
            try:
                told[letter] = await nodes[letter].catalogue.create(wanted(), 20 * letter.encode())
            except Conflict as error:
                told[letter] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create, "a")
            nursery.start_soon(create, "b")
        (winner,) = [letter for letter in "ab" if not isinstance(told[letter], Conflict)]
        assert await nodes["c"].catalogue.create(wanted(), 20 * winner.encode()) == told[winner]
        assert nodes["c"].catalogue.tables() == {"t": told[winner]}


@pytest.mark.parametrize("step", ["nothing", "the register is ended", "all"])
async def test_a_drop_that_stops_after_a_step(autojump_clock, step):
    """Any node finishes the drop; only the terminal record of the table remains."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        if step == "the register is ended":
            await nodes["a"].catalogue._end(table, bytes(20), 5.0)
            nodes.nodes["a"].stop()
        elif step == "all":
            await nodes["a"].catalogue.drop("t", bytes(20))
        await nodes["b"].metadata.quorum_read(CATALOGUE)
        if "t" in nodes["b"].catalogue.tables():
            await nodes["b"].catalogue.tend_table("t")
        assert ("t" in nodes["b"].catalogue.tables()) is (step == "nothing")
        await nodes["b"].catalogue.tend()
        records = nodes["b"].store.disk.records
        assert any(key.startswith(MAP + table.id) for key in records) is (step == "nothing")
        assert b"a" + table.id in records


async def test_what_is_dropped_twice_is_dropped_once(autojump_clock):
    """Only one of many concurrent drops ends the table; its repetition gets the same answer."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        told = {}

        async def drop(letter, number):
            with contextlib.suppress(UnknownDatabase):
                told[letter, number] = await nodes[letter].catalogue.drop("t", 20 * bytes([number]))

        async with trio.open_nursery() as nursery:
            for number, letter in enumerate("abcabc"):
                nursery.start_soon(drop, letter, number)
        assert {dropped.table for dropped in told.values()} == {table}
        assert [dropped.before for dropped in told.values()].count(False) == 1
        second = await nodes.table()
        for number, letter in enumerate("abca"):  # The same operation again is the one that dropped it.
            assert await nodes[letter].catalogue._end(second, 20 * b"oopo"[number : number + 1], 5.0) is (number == 2)


async def test_a_decision_has_one_deadline(autojump_clock):
    """With two of three servers silent, every call ends within its time limit."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        nodes.network.cuts |= {(nodes["a"].node, nodes[letter].node) for letter in "bc"}
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
                    assert answer.outcome is OperationOutcome.UNKNOWN
                assert trio.current_time() - begun_s <= timeout_s + 0.05


async def test_a_name_is_used_again(autojump_clock):
    """The new table has a new id."""
    async with quiet() as nodes:
        await nodes.found()
        first = await nodes.table()
        assert (await nodes["b"].catalogue.drop("t", bytes(20))).table == first
        second = await nodes.table("c")
        assert second.id != first.id
        assert nodes["a"].metadata.known[second.id].head.config == 1


async def test_an_answer_that_is_lost_is_unknown(autojump_clock):
    """A repetition returns the table that was made."""
    async with quiet("abcd") as nodes:
        await nodes.found()
        here = nodes["d"].node
        ask = nodes.network.ask

        async def lose(source, to, question):
            answer = await ask(source, to, question)
            if question.method == "metadata_transact":
                raise Unknown("the connection broke")
            return answer

        nodes.network.ask = lose
        with pytest.raises(GossipKVError) as told:
            await nodes["d"].catalogue.create(wanted(), bytes(20))
        assert isinstance(told.value, Unknown)
        nodes.network.ask = ask
        assert here not in {one.node for one in nodes["d"].metadata.known[CATALOGUE].acceptors.new}
        made = await nodes["d"].catalogue.create(wanted(), bytes(20))
        assert nodes["d"].catalogue.tables() == {"t": made}


async def test_servers_leave(autojump_clock):
    """A repetition changes nothing, an empty set is refused, and the remaining servers go on."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        members = [nodes[letter].metadata.me for letter in "ab"]
        for _ in range(2):
            await nodes["a"].catalogue.reconfigure(table.id, members)
        assert nodes["a"].metadata.known[table.id].acceptors.new == tuple(members)
        await nodes["a"].catalogue.reconfigure(table.id, members[:1])
        with pytest.raises(BadRequest):
            await nodes["a"].catalogue.reconfigure(table.id, [])
        (answer,) = await nodes["c"].catalogue.transact(table.id, [nodes.nothing("a", table)])
        assert answer.outcome is OperationOutcome.DONE


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
