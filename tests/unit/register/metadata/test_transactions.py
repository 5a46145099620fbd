"""Three servers batch operations, detect conflicts by partition, and find outcomes by id."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import trio

from gossipkv.errors import NotReady, Overloaded, Unavailable, UnknownDatabase
from gossipkv.register.messages import RequestKind, decode_request
from gossipkv.register.metadata.head import decode_head
from gossipkv.register.metadata.ledger import MAX_PINS
from gossipkv.register.metadata.pages import OperationOutcome, config_id, sequence_of
from gossipkv.register.metadata.tree import MapTree
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


async def one(nodes, letter, table, operation, timeout_s=10):
    """Return the outcome of one operation at a server."""
    (answer,) = await nodes[letter].metadata.transact(table.id, [operation], timeout_s)
    return answer.outcome


async def test_a_burst(autojump_clock):
    """A thousand operations need about 21 transactions, and each is answered."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        before = sequence_of(nodes["a"].metadata.known[table.id].config)
        wanted = [nodes.nothing("a", table) for _ in range(1000)]
        answers = await nodes["a"].metadata.transact(table.id, wanted, 30)
        assert [answer.operation for answer in answers] == [operation.id for operation in wanted]
        assert Counter(answer.outcome for answer in answers) == {OperationOutcome.DONE: 1000}
        known = await nodes["b"].metadata.quorum_read(table.id)
        assert 21 <= sequence_of(known.config) - before <= 25


async def test_conflicts_go_by_partition(autojump_clock):
    """Operations on different partitions are re-based; the second on the same one conflicts, at any server."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        first, same, other = nodes.assign("a", table), nodes.assign("a", table), nodes.assign("a", table, shard=1)
        assert await one(nodes, "a", table, first) is OperationOutcome.DONE
        assert await one(nodes, "b", table, same) is OperationOutcome.CONFLICT
        assert await one(nodes, "c", table, other) is OperationOutcome.DONE
        assert await one(nodes, "b", table, first) is OperationOutcome.DONE  # A repetition.


@pytest.mark.parametrize("lost", ["the answers", "the questions"])
async def test_an_unknown_swap_is_found_by_its_id(autojump_clock, lost):
    """A coordinator is cut off during accept; all later requests see the same outcome."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        operation = nodes.assign("a", table)
        here, others = nodes["a"].node, [nodes[letter].node for letter in "bc"]
        tell = nodes.network.tell

        def cut(source, to, question, told):
            is_accept = question.method == "register" and decode_request(question.params[0]).kind is RequestKind.ACCEPT
            if source.node == here and is_accept:
                ways = {(other, here) for other in others}
                nodes.network.cuts |= ways if lost == "the answers" else {(to, source) for source, to in ways}
            tell(source, to, question, told)

        nodes.network.tell = cut
        assert await one(nodes, "a", table, operation, timeout_s=4) is OperationOutcome.UNKNOWN
        nodes.network.tell = tell
        known = nodes["a"].metadata.known[table.id]
        asked = await nodes["b"].metadata.outcome(table.id, operation.id, operation.base)
        assert asked is (OperationOutcome.DONE if lost == "the answers" else OperationOutcome.UNKNOWN)
        nodes.network.cuts.clear()
        assert await one(nodes, "c", table, operation) is OperationOutcome.DONE
        looked = await nodes["a"].metadata.quorum_read(table.id)
        assert sequence_of(looked.config) == sequence_of(known.config) + 1, "it is done once"


async def test_nobody_accepts_a_head_without_its_pages(autojump_clock):
    """Therefore a majority has the map of every chosen head."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        nodes.hide("b", "c")
        before = nodes["a"].metadata.known[table.id].head
        assert await one(nodes, "a", table, nodes.assign("a", table), timeout_s=4) is OperationOutcome.UNKNOWN
        for letter in "bc":
            record = nodes[letter].metadata.registers.record(table.id)
            assert decode_head(record.value.payload) == before
        nodes.show()
        assert await one(nodes, "a", table, nodes.assign("a", table, shard=1)) is OperationOutcome.DONE


async def test_who_has_written_last_asks_each_other_server_once(autojump_clock):
    """Pages of the new head go along with the request, and no server fetches them."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table(shards=3)
        for shard in range(2):
            assert await one(nodes, "a", table, nodes.assign("a", table, shard=shard)) is OperationOutcome.DONE
        await trio.sleep(1)  # A majority is enough for a transaction, so its last request may still be on its way.
        nodes.asked.clear()
        assert await one(nodes, "a", table, nodes.assign("a", table, shard=2)) is OperationOutcome.DONE
        await trio.sleep(1)
        assert sorted(nodes.asked) == [("b", "register"), ("c", "register")]


async def test_a_coordinator_whose_store_is_late_is_not_needed(autojump_clock):
    """A majority of the other servers has the map."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        nodes.nodes["a"].mood.slow_s = 6.0
        assert await one(nodes, "a", table, nodes.assign("a", table), timeout_s=4) is OperationOutcome.DONE
        nodes.network.cuts |= {(nodes["a"].node, nodes[letter].node) for letter in "bc"}
        assert await one(nodes, "b", table, nodes.assign("b", table, shard=1)) is OperationOutcome.DONE


async def test_a_coordinator_that_holds_too_many_maps_asks_nobody(autojump_clock):
    """None of these maps was chosen."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        before = nodes["b"].metadata.known[table.id].head
        await full(nodes, table)
        nodes.asked.clear()
        assert await one(nodes, "a", table, nodes.assign("a", table), timeout_s=4) is OperationOutcome.UNKNOWN
        looked = await nodes["b"].metadata.quorum_read(table.id)
        assert looked.head == before
        assert await one(nodes, "b", table, nodes.assign("b", table)) is OperationOutcome.DONE


async def full(nodes, table):
    """Fill a server with as many unchosen maps as it may hold."""
    above = nodes["a"].metadata.known[table.id].head.config + 1000
    with contextlib.suppress(Overloaded):
        for config in range(above, above + MAX_PINS):
            await nodes["a"].metadata.pin(table.id, MapTree.empty("partitions").edit(config).finish(), config)


async def test_its_life_ends(autojump_clock):
    """An operation is refused for good after 64 sequences; with a base above the head it is unknown."""
    async with quiet("a") as nodes:
        await nodes.found("a")
        table = await nodes.table()
        old = nodes.assign("a", table)
        for _ in range(64):
            assert await nodes["a"].metadata.outcome(table.id, old.id, old.base) is OperationOutcome.UNKNOWN
            assert await one(nodes, "a", table, nodes.nothing("a", table)) is OperationOutcome.DONE
            await nodes["a"].metadata.quorum_read(table.id)
        assert await nodes["a"].metadata.outcome(table.id, old.id, old.base) is OperationOutcome.REFUSED
        assert await one(nodes, "a", table, old) is OperationOutcome.REFUSED
        ahead = nodes.assign("a", table, base=config_id(0, 5000))
        assert await one(nodes, "a", table, ahead, timeout_s=1) is OperationOutcome.UNKNOWN


async def test_who_is_no_server_says_so(autojump_clock):
    """The refusal comes at once, also from a former server, and the catalogue finds the servers."""
    async with quiet("abcd") as nodes:
        await nodes.found()
        table = await nodes.table("a", replication=1)
        servers = [letter for letter in "abcd" if nodes[letter].metadata.me in table.acceptors]
        (stranger,) = set("abcd") - set(servers)
        goes, *stay = servers
        operation = nodes.nothing(stranger, table)
        with trio.fail_after(1), pytest.raises(NotReady, match="not a metadata server"):
            await nodes[stranger].metadata.transact(table.id, [operation], 10)
        left = [nodes[letter].metadata.me for letter in stay]
        await nodes[stay[0]].catalogue.reconfigure(table.id, left)
        assert nodes[goes].metadata.me in nodes[goes].metadata.known[table.id].acceptors.new
        with trio.fail_after(2):
            (answer,) = await nodes[goes].catalogue.transact(table.id, [operation])
        assert answer.outcome is OperationOutcome.DONE


async def test_a_dropped_table(autojump_clock):
    """The caller gets UnknownDatabase, and no outcome."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        operation = nodes.nothing("b", table)
        await nodes["a"].catalogue.drop("t", bytes(20))
        with trio.fail_after(2), pytest.raises(UnknownDatabase):
            await nodes["b"].catalogue.transact(table.id, [operation])


async def test_a_store_that_closes_in_the_middle(autojump_clock):
    """A caller gets UNKNOWN, a reader the reason, no call hangs, and other servers go on."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        nodes.nodes["a"].mood.fails = True
        with trio.fail_after(5):
            assert await one(nodes, "a", table, nodes.assign("a", table), timeout_s=3) is OperationOutcome.UNKNOWN
        with trio.fail_after(5), pytest.raises(Unavailable, match="the disk failed"):
            await nodes["a"].metadata.quorum_read(CATALOGUE)
        assert await one(nodes, "b", table, nodes.assign("b", table, shard=1)) is OperationOutcome.DONE
