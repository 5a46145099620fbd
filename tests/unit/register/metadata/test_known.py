"""A node knows heads by its commits and reads, at bounded cost to other nodes."""

from __future__ import annotations

import contextlib

import pytest
import trio

from gossipkv.errors import GossipKVError, NotReady, UnknownDatabase
from gossipkv.register.configuration import Acceptors
from gossipkv.register.metadata import known, ledger, server
from gossipkv.register.metadata.head import LAST_HEADS
from gossipkv.register.metadata.pages import OperationOutcome
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE

SOON_S = 1.0
STREAM = 40


async def stream(nodes, table, count=STREAM):
    """Return the config id after transactions one after another at one server."""
    config = nodes["a"].metadata.known[table.id].config
    for _ in range(count):
        (answer,) = await nodes["a"].metadata.transact(table.id, [nodes.nothing("a", table, base=config)], 5)
        assert answer.outcome is OperationOutcome.DONE
        config += 1
    return config


async def test_what_a_node_commits_it_knows(autojump_clock):
    """A node knows the head soon after the answer without a hint, and also after a restart without peers."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        config = await stream(nodes, table)
        with trio.move_on_after(SOON_S):
            await nodes["a"].metadata.heads.reached(table.id, config)
        reached = nodes["a"].metadata.known[table.id]
        assert reached.config == config == nodes["a"].metadata.tree(table.id).root.config
        nodes.network.cuts |= {(nodes["a"].node, nodes[letter].node) for letter in "bc"}
        await nodes.restart("a")
        assert nodes["a"].metadata.known[table.id] == reached


async def test_pins_end_with_what_is_learned(autojump_clock, monkeypatch):
    """No server refuses a transaction after more of them than roots may be pinned."""
    monkeypatch.setattr(ledger, "MAX_PINS", 32)
    monkeypatch.setattr(server, "MANY_PINS", 16)
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        await stream(nodes, table)
        for letter in "abc":
            assert nodes[letter].metadata._map(table.id).ledger.pins <= 32, letter


async def test_what_is_known_ends_pins_before_there_are_many(autojump_clock):
    """The remaining pins are of the last heads and of the few roots that other nodes requested last."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        await stream(nodes, table, 40)
        await trio.sleep(1)
        assert nodes["a"].metadata._map(table.id).ledger.pins <= 1 + LAST_HEADS + ledger.MAX_LENT


async def test_who_holds_as_much_as_it_may_learns_all_the_same(autojump_clock, monkeypatch):
    """Unchosen pins are released to make room for the decided head."""
    monkeypatch.setattr(ledger, "MAX_PINS", 32)
    monkeypatch.setattr(server, "MANY_PINS", 1000)
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        for _ in range(4):
            config = await stream(nodes, table, 10)
            await nodes["a"].metadata.heads.reached(table.id, config)
            await nodes["b"].metadata.quorum_read(table.id)
        assert nodes["c"].metadata._map(table.id).ledger.pins == 32
        monkeypatch.setattr(server, "MANY_PINS", 16)
        with contextlib.suppress(GossipKVError):
            await nodes["c"].metadata.quorum_read(table.id)
        assert nodes["c"].metadata.known[table.id].config == config


async def test_a_stream_is_learned_in_strides(autojump_clock, monkeypatch):
    """The known head of a busy map is written now and then, and once more at the end."""
    monkeypatch.setattr(known, "PAUSE_S", 1.0)
    async with quiet("a") as nodes:
        await nodes.found("a")
        table = await nodes.table()
        kept = []
        write = nodes["a"].metadata.space.write

        async def noting(records, *told):
            kept.extend(key for key in records if key == known.KNOWN + table.id)
            await write(records, *told)

        monkeypatch.setattr(nodes["a"].metadata.space, "write", noting)
        config = await stream(nodes, table)
        assert len(kept) <= 2 + STREAM // 10
        await nodes["a"].metadata.heads.reached(table.id, config)


async def test_who_waits_is_told(autojump_clock):
    """A waiter returns when its config id is reached; for an unknown or dropped table it fails."""
    async with quiet() as nodes:
        await nodes.found()
        table = await nodes.table()
        found = nodes["a"].metadata.heads
        config = found.known[table.id].config
        told = []

        async def wait(wanted):
            told.append((await found.reached(table.id, wanted)).config)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, config + 2)
            await wait(config)
            for letter in "bc":
                await nodes[letter].metadata.transact(table.id, [nodes.nothing(letter, table)], 5)
                await nodes["a"].metadata.quorum_read(table.id)
            with pytest.raises(UnknownDatabase):
                await found.reached(b"x" * 16, 0)
        assert told == [config, config + 2]

        async def outlive():
            with pytest.raises(UnknownDatabase):
                await found.reached(table.id, config + 100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlive)
            await nodes["b"].catalogue.drop("t", b"o" * 20)
            with pytest.raises(UnknownDatabase):
                await nodes["a"].metadata.quorum_read(table.id)


async def test_a_head_that_cannot_be_held_is_tried_again(autojump_clock):
    """Without a source of pages a waiter gets an error, the known head stays, and the next read succeeds."""
    async with quiet("abcd") as nodes:
        await nodes.found("abcd")
        table = await nodes.table("a", replication=3)
        (other,) = [one for one in "abcd" if nodes[one].metadata.me not in table.acceptors]
        servers = [letter for letter in "abcd" if letter != other]
        stranger, hint = nodes[other].metadata, Acceptors.of(table.acceptors)
        before = await stranger.quorum_read(table.id, hint)
        await nodes[servers[0]].metadata.transact(table.id, [nodes.assign(servers[0], table)], 5)
        nodes.deaf |= {(letter, "metadata_pages") for letter in servers}
        with pytest.raises(NotReady):
            await stranger.quorum_read(table.id, hint)
        assert stranger.known[table.id] == before
        assert stranger.is_behind(table.id)
        nodes.deaf.clear()
        assert (await stranger.quorum_read(table.id, hint)).config == before.config + 1
        assert CATALOGUE in stranger.known
