"""Registers under Trio: who waits is told, by a quorum, by a closed store, or by its deadline."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import BadRequest, ProtocolError, Unavailable
from gossipkv.register.changes import Change
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import Kind, Request, encode_request
from gossipkv.register.metadata.head import drop
from gossipkv.register.proposer import End
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE


async def test_changes_and_reads(autojump_clock):
    """From any node that knows an acceptor; all see one order."""
    async with quiet("abcd") as nodes:
        await nodes.found()
        read = await nodes["d"].metadata.registers.read(CATALOGUE, timeout_s=3)
        done = await nodes["b"].metadata.registers.change(CATALOGUE, drop(bytes(20)), timeout_s=3)
        again = await nodes["d"].metadata.registers.read(CATALOGUE, timeout_s=3)
        assert {read.end, done.end, again.end} == {End.DONE}
        assert again.value == done.value != read.value


async def test_what_nobody_knows(autojump_clock):
    """A change without a function, and a register without an acceptor."""
    async with quiet("a") as nodes:
        registers = nodes["a"].metadata.registers
        with pytest.raises(BadRequest, match="no change 'burn' of version 3"):
            await registers.change(CATALOGUE, Change("burn", 3), timeout_s=1)
        assert (await registers.read(CATALOGUE, timeout_s=1)).end is End.REFUSED
        other = AcceptorId(nodes["a"].node, 12345)
        with pytest.raises(ProtocolError, match="its store was lost"):
            await registers.answer(encode_request(Request(Kind.READ, CATALOGUE, other, 1)))


@pytest.mark.parametrize("cut", ["nobody hears", "nobody answers"])
async def test_without_a_majority(autojump_clock, cut):
    """The first change may be under way; the next is refused, as nobody was asked to accept it; the others go on."""
    async with quiet() as nodes:
        await nodes.found()
        here = nodes["a"].node
        others = [node.uuid for node in nodes.nodes.values() if node.uuid != here]
        nodes.network.cuts |= {(here, other) if cut == "nobody hears" else (other, here) for other in others}
        for ends in ({End.UNKNOWN, End.REFUSED}, {End.REFUSED}):
            with trio.fail_after(2.5):
                outcome = await nodes["a"].metadata.registers.change(CATALOGUE, drop(bytes(20)), timeout_s=2)
            assert outcome.end in ends
        with trio.fail_after(2.5):
            outcome = await nodes["b"].metadata.registers.read(CATALOGUE, timeout_s=2)
        assert outcome.end is End.DONE


async def test_one_acceptor_is_gone(autojump_clock):
    """The others go on within a second."""
    async with quiet() as nodes:
        await nodes.found()
        nodes.nodes["c"].stop()
        for letter in "ab":
            with trio.fail_after(1):
                outcome = await nodes[letter].metadata.registers.read(CATALOGUE, timeout_s=3)
            assert outcome.end is End.DONE


async def test_a_store_that_closes(autojump_clock):
    """Who waits here hears it, nobody is answered by this acceptor, and the others go on."""
    async with quiet() as nodes:
        await nodes.found()
        nodes.nodes["a"].mood.fails = True
        registers = nodes["a"].metadata.registers
        with trio.fail_after(10):
            outcome = await registers.change(CATALOGUE, drop(bytes(20)), timeout_s=3)
        assert outcome.end in (End.DONE, End.UNKNOWN)  # The other two may do it.
        for wait in (registers.read(CATALOGUE, timeout_s=3), registers.force(CATALOGUE, [registers.me])):
            with pytest.raises(Unavailable, match="the disk failed"):
                await wait
        with pytest.raises(Unavailable, match="the disk failed"):
            await registers.answer(encode_request(Request(Kind.READ, CATALOGUE, registers.me, 1)))
        assert (await nodes["b"].metadata.registers.read(CATALOGUE, timeout_s=3)).end is End.DONE


async def test_what_was_promised_outlives_a_crash(autojump_clock):
    """All restart at once: the value is the same."""
    async with quiet() as nodes:
        await nodes.found()
        before = await nodes["a"].metadata.registers.read(CATALOGUE, timeout_s=3)
        async with trio.open_nursery() as restarting:
            for letter in "abc":
                restarting.start_soon(nodes.restart, letter)
        after = await nodes["c"].metadata.registers.read(CATALOGUE, timeout_s=3)
        assert after.value == before.value
