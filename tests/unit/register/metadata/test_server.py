"""A node serves all maps, and refuses heads without pages, lies and older reads."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import pytest
import trio

from gossipkv.errors import BadRequest, NotReady, Unavailable
from gossipkv.register.ballot import ZERO, Ballot
from gossipkv.register.configuration import Acceptors, Value
from gossipkv.register.messages import AcceptorVerdict, RegisterRequest, RequestKind, decode_reply, encode_request
from gossipkv.register.metadata.head import MapHead
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.pages import OperationOutcome, config_id
from gossipkv.register.metadata.tables import CATALOGUE as OF_TABLES
from gossipkv.register.metadata.tree import ChangedPages, MapTree
from gossipkv.register.space import MAP
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE, LIE, Heard


async def ask(life, kind, head, ballot):
    """Return the acceptor's verdict on a newcomer's prepare or an accept."""
    acceptors = Acceptors.of([life.metadata.me])
    value = Value(acceptors, head.encode()) if kind is not RequestKind.PREPARE else None
    holding = head.encode() if kind is RequestKind.PREPARE else None
    request = RegisterRequest(kind, b"r" * 16, life.metadata.me, 1, ballot, value, holding=holding)
    return decode_reply(await life.metadata.answer(encode_request(request))).verdict


@pytest.mark.parametrize("kind", [RequestKind.CREATE, RequestKind.PREPARE])
async def test_no_head_without_its_pages(autojump_clock, kind):
    """A newcomer neither accepts nor promises a head until its pages are synced."""
    async with quiet("a") as nodes:
        life = nodes["a"]
        first = MapTree.empty("partitions").edit(1).finish()
        head = MapHead(1, bytes(16), first.root)
        ballot = ZERO if kind is RequestKind.CREATE else Ballot(0, 0, 1, 1)
        assert await ask(life, kind, head, ballot) is AcceptorVerdict.MISSING
        await life.metadata.pin(b"r" * 16, first, 1)
        assert await ask(life, kind, head, ballot) is AcceptorVerdict.OK


async def test_a_value_without_pages_is_not_accepted(autojump_clock):
    """An acceptor refuses a head without pages, except the ended head."""
    async with quiet("a") as nodes:
        life = nodes["a"]
        first = MapTree.empty("partitions").edit(1).finish()
        await life.metadata.pin(b"r" * 16, first, 1)
        head = MapHead(1, bytes(16), first.root)
        assert await ask(life, RequestKind.CREATE, head, ZERO) is AcceptorVerdict.OK
        other = head.followed_by(2, b"2" * 16, b"nowhere" + bytes(25))
        with trio.fail_after(3):
            assert await ask(life, RequestKind.ACCEPT, other, Ballot(0, 0, 1, 1)) is AcceptorVerdict.MISSING
        assert await ask(life, RequestKind.ACCEPT, other._replace(ended=True), Ballot(0, 0, 1, 1)) is AcceptorVerdict.OK


async def test_a_hint_that_lies(autojump_clock):
    """A sequence of 2^48 causes a quorum read, is neither shown nor kept, and the next change is known."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        before = nodes["b"].metadata.known[table.id]
        for place in ((0, LIE), (65535, config_id(65535, LIE))):
            nodes["b"]._said.setdefault(table.id, {})[nodes["a"].node] = Heard(place, before.acceptors)
            nodes.asked.clear()
            nodes["b"]._heed()
            await trio.sleep(2)
            assert nodes.times("register") > 0
            assert nodes["b"].metadata.known[table.id] == before
        await nodes.restart("b")
        assert nodes["b"].metadata.known[table.id] == before
        await nodes["a"].metadata.transact(table.id, [nodes.assign("a", table)], 5)
        after = await nodes["b"].metadata.quorum_read(table.id)
        assert after.head.config == before.head.config + 1


async def test_what_is_known_is_there_in_the_dark(autojump_clock):
    """After a restart without peers, the map is read as before."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        shown = [*nodes["c"].metadata.tree(table.id).scan()]
        nodes.network.cuts |= {(nodes["c"].node, nodes[letter].node) for letter in "ab"}
        await nodes.restart("c")
        assert [*nodes["c"].metadata.tree(table.id).scan()] == shown
        assert set(nodes["c"].catalogue.tables()) == {"t"}


async def test_nothing_goes_that_a_swap_may_name(autojump_clock):
    """A body whose swap failed stays until a later head is chosen, since another node may finish the swap."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table(shards=4)
        for shard in range(2):  # From then on the proposer needs no promise.
            await nodes["a"].metadata.transact(table.id, [nodes.assign("a", table, shard=shard)], 4)
        metadata = nodes["b"].metadata
        known = await metadata.quorum_read(table.id)

        def pinned():
            prefix = MAP + table.id + b"\0"
            return {key[len(prefix) :] for key in nodes["b"].store.disk.records if key.startswith(prefix)}

        with ExitStack() as stack:
            for letter in "bc":  # These nodes take the offers of requests, and nothing more.
                stack.enter_context(patch.object(nodes[letter].metadata, "answer", side_effect=Unavailable("busy")))
            (answer,) = await nodes["a"].metadata.transact(table.id, [nodes.assign("a", table, shard=2)], 4)
            assert answer.outcome is OperationOutcome.UNKNOWN
            await trio.sleep(5)  # Wait until the swap is given up.
        before = pinned()
        assert len(before - known.head.roots) == 1
        await metadata._settle(table.id, known)  # The same happens when another detail of the head is new.
        assert pinned() == before
        await metadata.transact(table.id, [nodes.assign("b", table, shard=3)], 5)
        known = await metadata.quorum_read(table.id)
        await trio.sleep(1)  # Wait until the head is on the disk.
        assert known.head.root in pinned() <= known.head.roots


async def test_what_is_no_change(autojump_clock):
    """A false change of a held map is refused; missing pages make the node not ready."""
    async with quiet("ab") as nodes:
        await nodes.found("ab")
        metadata = nodes["a"].metadata
        base = metadata.known[CATALOGUE].head.root
        page = MapTree.empty(OF_TABLES.name).edit(9).finish()
        with pytest.raises(BadRequest, match="does not fit the map"):
            await metadata.hold(CATALOGUE, Offer(nodes["b"].node, base, page, 2))
        with pytest.raises(NotReady):
            await metadata.hold(CATALOGUE, Offer(nodes["b"].node, base, ChangedPages(bytes(32), {}), 2))
        assert metadata.pages(b"x" * 16, [bytes(32)]) == [None]


async def test_an_older_look_changes_nothing(autojump_clock):
    """A read that began before a newer one may end after it."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        metadata = nodes["a"].metadata
        older = await metadata._map(table.id).transactions.read()
        await metadata.transact(table.id, [nodes.assign("a", table)], 5)
        newer = await metadata.quorum_read(table.id)
        assert newer.head.config > older.head.config
        assert await metadata.learn(table.id, older) == newer
        await trio.sleep(1)
        assert metadata.known[table.id] == newer
        await nodes.restart("a")
        assert nodes["a"].metadata.known[table.id] == newer
