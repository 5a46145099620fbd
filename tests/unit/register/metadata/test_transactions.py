"""Three servers gather operations, detect conflicts by partition, and find outcomes by id."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import trio

from gossipkv.errors import NotReady, Unavailable, UnknownDatabase
from gossipkv.register.edits import MAX_TAIL_BYTES, decode_value
from gossipkv.register.metadata import partitions
from gossipkv.register.metadata.catalogue import WantedTable
from gossipkv.register.metadata.known import config_id
from gossipkv.register.metadata.operations import MAX_RECORD_BYTES, UNSUPPORTED, Edits
from gossipkv.register.metadata.partitions import RANGE, decode_partition
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


async def test_a_thousand_divisions_take_two_transactions(autojump_clock):
    """Up to 512 operations, or 256 KiB of edits, share a ballot, and each is answered."""
    async with quiet(founded="abc") as nodes:
        keys = [b"", *(b"%016d" % number for number in range(1, 1000))]
        table = await nodes["a"].catalogue.create(WantedTable("t", RANGE, 3, keys), bytes(20))
        before = await nodes.metadata("a").quorum_read(table.id)
        draw = partial(nodes.random.getrandbits, 63)
        divisions = []
        for entry in before.view.scan():
            parent = decode_partition(entry.record)
            children = tuple(
                (first, draw(), tuple(draw() for _ in parent.assignments)) for first in (entry.key, entry.key + b"\0")
            )
            divisions.append(nodes.operation("a", table.id, "divide", entry.key, parent.id, children))
        chain = nodes.witness.chain(table.id)
        ballots = len(chain.values)
        answers = await nodes.metadata("a").transact(table.id, divisions, 30)
        assert [answer.operation for answer in answers] == [operation.id for operation in divisions]
        assert Counter(answer.outcome.name for answer in answers) == {"DONE": 1000}
        after = await nodes.metadata("b").quorum_read(table.id)
        assert (after.sequence - before.sequence, len(after.view)) == (2, 2000)
        assert len(chain.values) - ballots <= 3


async def test_conflicts_go_by_partition(autojump_clock):
    """Operations on different partitions are re-based; the second on the same one conflicts, at any server."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        first, same, other = nodes.assign("a", table), nodes.assign("a", table), nodes.assign("a", table, shard=1)
        told = [await nodes.ask(*of) for of in (("a", table.id, first), ("b", table.id, same), ("c", table.id, other))]
        assert told == ["DONE", "CONFLICT", "DONE"]
        assert await nodes.ask("b", table.id, first) == "DONE", "a repetition"


@pytest.mark.parametrize("lost", ["the answers", "the questions"])
async def test_an_unknown_transaction_is_found_by_its_operations(autojump_clock, lost):
    """A server is cut off during accept; all later requests see the same outcome."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        operation = nodes.assign("a", table)
        with nodes.cut_at_accept("a", "bc", answers=lost == "the answers"):
            assert await nodes.ask("a", table.id, operation, timeout_s=4) == "UNKNOWN"
        before = nodes.known("a", table.id).sequence
        asked = await nodes.metadata("b").outcome(table.id, operation.id, operation.base)
        assert asked.name == ("DONE" if lost == "the answers" else "UNKNOWN")
        nodes.hush("")
        assert await nodes.ask("c", table.id, operation) == "DONE"
        after = await nodes.metadata("a").quorum_read(table.id)
        assert after.sequence == before + 1, "it is done once"


async def test_no_server_accepts_a_transaction_without_the_map_before_it(autojump_clock):
    """Therefore a majority has the map of every decided value."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table(shards=4)
        nodes.hush("c")
        for shard in range(3):
            assert await nodes.ask("a", table.id, nodes.assign("a", table, shard)) == "DONE"
        nodes.hush("b")
        nodes.deaf = {("a", "map_changes"), ("a", "map_page")}
        before = nodes.metadata("c").registers.record(table.id).accepted
        assert await nodes.ask("a", table.id, nodes.assign("a", table, shard=3), timeout_s=4) == "UNKNOWN"
        assert nodes.metadata("c").registers.record(table.id).accepted == before
        nodes.deaf.clear()
        assert await nodes.ask("a", table.id, nodes.assign("a", table, shard=3)) in {"DONE", "CONFLICT"}


async def test_a_long_tail_is_decided_before_another_transaction_joins_it(autojump_clock, monkeypatch):
    """So the undecided part of a value stays small while servers fail in a row."""
    fill = {("fill", 1): lambda view, argument: Edits({argument[0]: bytes(MAX_RECORD_BYTES)})}
    monkeypatch.setattr(partitions, "OPERATIONS", partitions.OPERATIONS | fill)
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()

        def filling(letter):
            keys = [b"%s%02d" % (letter.encode(), number) for number in range(12)]
            return [nodes.operation(letter, table.id, "fill", key) for key in keys]

        with nodes.cut_at_accept("a", "bc"):  # It alone accepts the transaction.
            await nodes.metadata("a").transact(table.id, filling("a"), 4)
        nodes.hush("c")
        answers = await nodes.metadata("b").transact(table.id, filling("b"), 10)
        assert {answer.outcome.name for answer in answers} == {"DONE"}
        values = [decode_value(value.payload) for value in nodes.witness.chain(table.id).values.values()]
        sizes = [[len(edits_of(one)) for one in value.tail if one.sequence > value.decided] for value in values]
        assert [*map(len, sizes)] == [1] * len(sizes), sizes
        assert max(sizes)[0] > MAX_TAIL_BYTES
        await nodes.read(table.id)
        assert [entry.key for entry in nodes.metadata("a").view(table.id).scan(b"a")] == [
            one.argument[0] for letter in "ab" for one in filling(letter)
        ]


def edits_of(transaction):
    return b"".join(key + (record or b"") for key, record in transaction.edits)


async def test_an_operation_that_one_server_does_not_know_is_done_by_another(autojump_clock, monkeypatch):
    """A server of an older program answers UNSUPPORTED and records nothing; if all do, so is the answer."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        operation = nodes.operation("a", table.id, "burn", b"key")
        before = nodes.known("a", table.id).config
        (answer,) = await nodes["a"].catalogue.transact(table.id, [operation])
        assert (answer.outcome.name, answer.code) == ("UNKNOWN", UNSUPPORTED)
        await nodes.read(table.id)
        assert nodes.known("a", table.id).config == before
        with monkeypatch.context() as newer:
            burn = {("burn", 1): lambda view, argument: Edits({argument[0]: b""})}
            newer.setattr(partitions, "OPERATIONS", partitions.OPERATIONS | burn)
            await nodes.restart("c")
            await nodes.read(table.id)
            assert await nodes.ask("c", table.id, nodes.nothing("c", table)) == "DONE"
        (answer,) = await nodes["a"].catalogue.transact(table.id, [operation])
        assert answer.outcome.name == "DONE"
        await nodes.read(table.id)
        assert nodes.metadata("a").view(table.id).get(b"key") is not None
        (answer,) = await nodes.metadata("a").transact(table.id, [operation], 5)
        assert answer.outcome.name == "DONE", "the outcome stands in the map"


async def test_a_stream_asks_each_other_server_once(autojump_clock):
    """The edits go along with the request, so no server fetches them."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table(shards=3)
        await trio.sleep(1)  # Acceptors ask whether the table's creation is decided.
        for shard in range(3):
            nodes.asked.clear()
            assert await nodes.ask("a", table.id, nodes.assign("a", table, shard)) == "DONE"
            await trio.sleep(0.15)  # A majority is enough, so the last request may still be on its way.
        assert sorted(nodes.asked) == [("b", "register"), ("c", "register")]


async def test_a_server_whose_store_is_late_is_not_needed(autojump_clock):
    """A majority of the other servers has the map."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        nodes.nodes["a"].mood.slow_s = 6.0
        assert await nodes.ask("a", table.id, nodes.assign("a", table), timeout_s=4) == "DONE"
        nodes.cut("a", "bc")
        assert await nodes.ask("b", table.id, nodes.assign("b", table, shard=1)) == "DONE"


async def test_the_life_of_an_operation_ends(autojump_clock):
    """An operation is refused for good after 64 sequences; with a base above the map's it is unknown."""
    async with quiet("a", founded="a") as nodes:
        table = await nodes.table()
        old, metadata = nodes.assign("a", table), nodes.metadata("a")
        for _ in range(64):
            assert (await metadata.outcome(table.id, old.id, old.base)).name == "UNKNOWN"
            assert await nodes.ask("a", table.id, nodes.nothing("a", table)) == "DONE"
            await nodes.read(table.id)
        assert (await metadata.outcome(table.id, old.id, old.base)).name == "REFUSED"
        assert await nodes.ask("a", table.id, old) == "REFUSED"
        ahead = nodes.assign("a", table, base=config_id(0, 5000))
        assert await nodes.ask("a", table.id, ahead, timeout_s=1) == "UNKNOWN"


async def test_a_node_that_is_no_server_says_so(autojump_clock):
    """The refusal comes at once, also from a former server, and the catalogue finds the servers."""
    async with quiet("abcd", founded="abc") as nodes:
        table = await nodes.table()
        goes, *stay = nodes.deciders(table.id)
        (stranger,) = {*"abcd"} - {goes, *stay}
        operation = nodes.nothing(stranger, table)
        with trio.fail_after(1), pytest.raises(NotReady, match="not a metadata server"):
            await nodes.metadata(stranger).transact(table.id, [operation], 10)
        await nodes[stay[0]].catalogue.reconfigure(table.id, [nodes.metadata(letter).me for letter in stay])
        with trio.fail_after(2):
            (answer,) = await nodes[goes].catalogue.transact(table.id, [operation])
        assert answer.outcome.name == "DONE"


async def test_a_dropped_table(autojump_clock):
    """The caller gets UnknownDatabase, and no outcome."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        operation = nodes.nothing("b", table)
        await nodes["a"].catalogue.drop("t", bytes(20))
        with trio.fail_after(2), pytest.raises(UnknownDatabase):
            await nodes["b"].catalogue.transact(table.id, [operation])


async def test_a_store_that_closes_in_the_middle(autojump_clock):
    """A caller gets UNKNOWN, a reader the reason, no call hangs, and other servers go on."""
    async with quiet(founded="abc") as nodes:
        table = await nodes.table()
        nodes.nodes["a"].mood.fails = True
        with trio.fail_after(5):
            assert await nodes.ask("a", table.id, nodes.assign("a", table), timeout_s=3) == "UNKNOWN"
        with trio.fail_after(5), pytest.raises(Unavailable, match="the disk failed"):
            await nodes.metadata("a").quorum_read(CATALOGUE)
        assert await nodes.ask("b", table.id, nodes.assign("b", table, shard=1)) == "DONE"


async def test_an_operation_that_was_refused_is_not_done_later(autojump_clock):
    """The store closes while a round waits for a majority, which goes on with its own operations alone."""
    async with quiet(founded="abc") as nodes, trio.open_nursery() as nursery:
        first, later = (nodes.operation("a", CATALOGUE, "remove_table", b"none", bytes(16)) for _ in range(2))
        outcomes = []

        async def ask():
            outcomes.append(await nodes.ask("a", CATALOGUE, first))

        nodes.hush("a")
        nursery.start_soon(ask)
        await trio.sleep(0.1)
        nodes.nodes["a"].mood.fails = True
        while not outcomes:
            await trio.sleep(0.1)
        with pytest.raises(Unavailable):
            await nodes.ask("a", CATALOGUE, later)
        nodes.hush("")
        await trio.sleep(3)
        assert outcomes == ["UNKNOWN"]
        assert (await nodes.metadata("b").outcome(CATALOGUE, later.id, later.base)).name == "UNKNOWN"
