"""A server holds a root only when it has the pages, and strangers cannot fill it."""

from __future__ import annotations

import contextlib
from unittest.mock import patch

import pytest
import trio

from gossipkv.errors import BadRequest, GossipKVError, NotReady, UnknownDatabase
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata.ledger import Offer
from gossipkv.register.metadata.operations import Operation, judge
from gossipkv.register.metadata.pages import MissingPage, OperationOutcome, config_id
from gossipkv.register.metadata.tables import CATALOGUE as KIND
from gossipkv.register.metadata.tables import OPERATIONS
from gossipkv.register.metadata.tree import ChangedPages, MapTree
from tests.unit.register.metadata.few_nodes import CATALOGUE, FakeBatch, FewNodes, founded


@pytest.fixture(autouse=True)
def batches():
    """Use batches that a store in memory can read."""
    with patch("gossipkv.register.space.Batch", FakeBatch):
        yield


async def test_what_is_collected_meanwhile_is_not_said_to_be_held(autojump_clock):
    """The root of a late transaction is collected while it is being written."""
    world = FewNodes("a")
    async with world.running():
        await founded(world)
        metadata = world["a"].metadata
        known = await metadata.quorum_read(CATALOGUE)
        tree = metadata.tree(CATALOGUE)
        late = tree.edit(config_id(0, 2)).finish()
        world["a"].store.gate = trio.Event()
        async with trio.open_nursery() as nursery:

            async def hold() -> None:
                await metadata.hold(CATALOGUE, Offer(b"x" * 16, known.head.root, late, config_id(0, 2)))
                assert metadata._map(CATALOGUE).ledger.holds(late.root)

            nursery.start_soon(hold)
            await trio.sleep(0.01)
            head = known.head._replace(config=config_id(0, 3))
            nursery.start_soon(metadata._map(CATALOGUE).ledger.collect, head.config, head.roots)
            await trio.sleep(0.01)
            world["a"].store.gate.set()


async def test_what_comes_while_a_map_is_let_go_of_stays_nowhere(autojump_clock):
    """Pages of a released map are refused, since they could never be released again."""
    world = FewNodes("ab")
    async with world.running():
        await founded(world)
        metadata, register = world["b"].metadata, b"r" * 16
        ledger = metadata._map(register).ledger
        await metadata._forget(register)
        first = MapTree.empty(KIND.name).edit(config_id(0, 1)).finish()
        with contextlib.suppress(MissingPage):
            await ledger.pin(first.root, config_id(0, 1), first.pages)
        assert [key for key in world["b"].store.records if register in key] == []


async def test_a_config_id_that_is_not_the_roots_is_refused(autojump_clock):
    """One false config id would keep pages for ever, whatever their source."""
    world = FewNodes("ab")
    async with world.running():
        await founded(world)
        first = MapTree.empty(KIND.name).edit(config_id(0, 9)).finish()
        only_root = ChangedPages(first.root, {})
        await world["b"].metadata._map(CATALOGUE).ledger.pin(first.root, config_id(0, 9), first.pages)
        offer = Offer(world["b"].uuid, b"?" * 32, only_root, config_id(0, 1 << 40))
        with pytest.raises(BadRequest):
            await world["a"].metadata.hold(CATALOGUE, offer)
        assert not world["a"].metadata._map(CATALOGUE).ledger.holds(first.root)


async def test_questions_about_what_nobody_knows_leave_nothing_behind(autojump_clock):
    """Any number of invented registers leaves no state."""
    world = FewNodes("a")
    async with world.running():
        await founded(world)
        metadata = world["a"].metadata
        for number in range(10):
            register = bytes([number]) * 16
            with pytest.raises((NotReady, UnknownDatabase)):
                await metadata.quorum_read(register)
            with pytest.raises((NotReady, UnknownDatabase)):
                await metadata.transact(register, [Operation(b"o" * 20, 1, "assign", 1, ())], 1)
            assert metadata.pages(register, [b"p" * 32]) == [None]
            assert not metadata._holds(register, metadata.known[CATALOGUE].head.encode())
        assert list(metadata._maps) == [CATALOGUE]
        assert list(metadata.registers._proposers) == [CATALOGUE]


def test_an_operation_that_may_have_been_done_long_ago_is_not_refused():
    """Outcomes are kept for 4,096 sequences; beyond that an operation may have been done."""
    tree = MapTree.empty(KIND.name)
    operation = Operation(b"o" * 20, config_id(0, 100), "remove_table", 1, (b"t", b"i" * 16))
    for sequence, outcome in (
        (164, OperationOutcome.DONE),
        (165, OperationOutcome.REFUSED),
        (4198, OperationOutcome.REFUSED),
        (4199, OperationOutcome.UNKNOWN),
    ):
        (answer,) = judge(tree, [operation], config_id(0, sequence), OPERATIONS).answers
        assert answer.outcome is outcome, sequence


async def test_who_is_behind_what_a_full_round_has_shown_answers_nothing_about_placement(autojump_clock):
    """If the pages of a newer head cannot be found, the known map stays for reads alone."""
    world = FewNodes("ab")
    async with world.running():
        await founded(world)
        metadata = world["b"].metadata
        await metadata.quorum_read(CATALOGUE)
        assert not metadata.is_behind(CATALOGUE)
        await world["a"].on(CATALOGUE, "remove_table", b"t", b"i" * 16)
        before = metadata.known[CATALOGUE]
        ledger = metadata._map(CATALOGUE).ledger
        with (
            patch.object(ledger, "fetch", side_effect=MissingPage(b"p" * 32)),
            patch.object(ledger, "has", return_value=False),
            pytest.raises(NotReady),
        ):
            await metadata.quorum_read(CATALOGUE)
        assert metadata.known[CATALOGUE] == before
        assert metadata.is_behind(CATALOGUE)
        await metadata.quorum_read(CATALOGUE)
        assert not metadata.is_behind(CATALOGUE)


async def test_a_hint_of_other_acceptors_is_followed(autojump_clock):
    """The known acceptors are gone for good; others took their place."""
    world = FewNodes("abcd")
    async with world.running():
        await world["a"].catalogue.found()
        old = world["a"].metadata.known[CATALOGUE].acceptors
        for letter in "bcd":
            await world[letter].metadata.quorum_read(CATALOGUE, old)
        await world["a"].catalogue.reconfigure(CATALOGUE, [world[letter].metadata.me for letter in "bc"])
        world.silent.add(world["a"].uuid)
        hint = Acceptors.of(world[letter].metadata.me for letter in "bc")
        assert (await world["d"].metadata.quorum_read(CATALOGUE, hint)).acceptors == hint
        lie = Acceptors.of([world["d"].metadata.me])
        assert (await world["d"].metadata.quorum_read(CATALOGUE, lie)).acceptors == hint


async def test_the_acceptor_here_gets_the_pages_that_a_round_from_here_needs(autojump_clock):
    """The acceptor was cut off when the head was written, and is needed for a majority now."""
    world = FewNodes()
    async with world.running():
        await founded(world)
        node = world["a"].metadata
        before = node.known[CATALOGUE]
        world.silent.add(node.me.node)
        await world["b"].on(CATALOGUE, "remove_table", b"t", b"i" * 16)
        head = (await world["b"].metadata.quorum_read(CATALOGUE)).head
        world.silent = {world["c"].uuid}
        node._map(CATALOGUE).ledger.sources = [world["c"].uuid]
        with trio.fail_after(30):
            while node.known[CATALOGUE] == before:
                await trio.sleep(0.1)
                with contextlib.suppress(GossipKVError):
                    await node.quorum_read(CATALOGUE)
        assert node.known[CATALOGUE].head == head
