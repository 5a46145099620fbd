"""Under Trio, every wait on a register ends by a quorum, a closed store or a deadline."""

from __future__ import annotations

from functools import partial

import msgpack
import pytest
import trio

from gossipkv.errors import ProtocolError, Unavailable
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import RegisterRequest, RequestKind, encode_request
from gossipkv.register.metadata.catalogue import ended_by
from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.metadata.quiet_nodes import quiet
from tests.world.metadata.deciding_node import CATALOGUE

end = partial(ended_by, bytes(20))


async def test_changes_and_reads(autojump_clock):
    """Any node that knows an acceptor can change and read, and all see one order."""
    async with quiet("abcd") as nodes:
        await nodes.found()
        read = await nodes["d"].metadata.registers.read(CATALOGUE, timeout_s=3)
        done = await nodes["b"].metadata.registers.change(CATALOGUE, end, timeout_s=3)
        again = await nodes["d"].metadata.registers.read(CATALOGUE, timeout_s=3)
        assert {read.end, done.end, again.end} == {ChangeEnd.DONE}
        assert again.value == done.value != read.value


async def test_what_nobody_knows(autojump_clock):
    """A register without acceptors and an acceptor of a lost store are refused."""
    async with quiet("a") as nodes:
        registers = nodes["a"].metadata.registers
        assert (await registers.read(CATALOGUE, timeout_s=1)).end is ChangeEnd.REFUSED
        other = AcceptorId(nodes["a"].node, 12345)
        with pytest.raises(ProtocolError, match="its store was lost"):
            await registers.answer(encode_request(RegisterRequest(RequestKind.READ, CATALOGUE, other, 1)))


@pytest.mark.parametrize("cut", ["nobody hears", "nobody answers"])
async def test_without_a_majority(autojump_clock, cut):
    """The first change may be under way; the next is refused, since no accept was sent."""
    async with quiet() as nodes:
        await nodes.found()
        here = nodes["a"].node
        others = [node.uuid for node in nodes.nodes.values() if node.uuid != here]
        nodes.network.cuts |= {(here, other) if cut == "nobody hears" else (other, here) for other in others}
        for ends in ({ChangeEnd.UNKNOWN, ChangeEnd.REFUSED}, {ChangeEnd.REFUSED}):
            with trio.fail_after(2.5):
                outcome = await nodes["a"].metadata.registers.change(CATALOGUE, end, timeout_s=2)
            assert outcome.end in ends
        with trio.fail_after(2.5):
            outcome = await nodes["b"].metadata.registers.read(CATALOGUE, timeout_s=2)
        assert outcome.end is ChangeEnd.DONE


async def test_one_acceptor_is_gone(autojump_clock):
    """The others go on within a second."""
    async with quiet() as nodes:
        await nodes.found()
        nodes.nodes["c"].stop()
        for letter in "ab":
            with trio.fail_after(1):
                outcome = await nodes[letter].metadata.registers.read(CATALOGUE, timeout_s=3)
            assert outcome.end is ChangeEnd.DONE


async def test_a_store_that_closes(autojump_clock):
    """Waiters here fail, this acceptor answers no request, and the others go on."""
    async with quiet() as nodes:
        await nodes.found()
        nodes.nodes["a"].mood.fails = True
        registers = nodes["a"].metadata.registers
        with trio.fail_after(10):
            outcome = await registers.change(CATALOGUE, end, timeout_s=3)
        assert outcome.end in (ChangeEnd.DONE, ChangeEnd.UNKNOWN)  # The other two may do it.
        for wait in (registers.read(CATALOGUE, timeout_s=3), registers.force(CATALOGUE, [registers.me])):
            with pytest.raises(Unavailable, match="the disk failed"):
                await wait
        with pytest.raises(Unavailable, match="the disk failed"):
            await registers.answer(encode_request(RegisterRequest(RequestKind.READ, CATALOGUE, registers.me, 1)))
        assert (await nodes["b"].metadata.registers.read(CATALOGUE, timeout_s=3)).end is ChangeEnd.DONE


async def test_what_was_promised_outlives_a_crash(autojump_clock):
    """After a restart of all nodes the value is the same."""
    async with quiet() as nodes:
        await nodes.found()
        before = await nodes["a"].metadata.registers.read(CATALOGUE, timeout_s=3)
        async with trio.open_nursery() as restarting:
            for letter in "abc":
                restarting.start_soon(nodes.restart, letter)
        after = await nodes["c"].metadata.registers.read(CATALOGUE, timeout_s=3)
        assert after.value == before.value


async def test_a_store_that_is_behind_decides_nothing(autojump_clock):
    """The store learns of its state with the next request and refuses for good; the others go on."""
    async with quiet() as nodes:
        await nodes.found()
        b = nodes.nodes["b"]
        copy = dict(b.disk.records)
        await nodes.table()
        nodes.witness.lost.add(nodes["b"].metadata.me)
        nodes.witness.put_back.add(nodes["b"].metadata.me)
        b.disk.records = copy
        await nodes.restart("b")
        assert not nodes["b"].metadata.registers.behind
        assert (await nodes["a"].metadata.registers.read(CATALOGUE, timeout_s=3)).end is ChangeEnd.DONE
        for _ in range(2):
            await trio.sleep(0.1)
            registers = nodes["b"].metadata.registers
            assert "an older copy of the store" in registers.behind
            for wait in (
                registers.read(CATALOGUE, timeout_s=3),
                registers.answer(encode_request(RegisterRequest(RequestKind.READ, CATALOGUE, registers.me, 1))),
            ):
                with pytest.raises(Unavailable, match="an older copy of the store"):
                    await wait
            nodes.network.cuts |= {(nodes[letter].node, b.uuid) for letter in "ac"}
            await nodes.restart("b")
        assert (await nodes["c"].metadata.registers.change(CATALOGUE, end, timeout_s=3)).end is ChangeEnd.DONE


async def test_what_was_promised_by_another_life_counts_no_more(autojump_clock):
    """A lasting proposer skips the prepare until it hears of another life of a promising store."""
    async with quiet() as nodes:
        await nodes.found()
        registers, rounds = nodes["a"].metadata.registers, []
        for number in range(4):
            if number == 3:
                other = [*nodes["b"].metadata.me, 7, 7, 7]
                registers.hear(msgpack.packb([[*nodes["c"].metadata.me, 1, 1, 0], other]))
            before = nodes.times("register")
            assert (await registers.change(CATALOGUE, end, timeout_s=3)).end is ChangeEnd.DONE
            await trio.sleep(1)
            rounds.append((nodes.times("register") - before) / 2)
        assert rounds[2:] == [1, 2]


async def test_what_was_seen_of_stores_has_a_form(autojump_clock):
    """Malformed positions are an error and change nothing; a request without positions is answered."""
    async with quiet() as nodes:
        await nodes.found()
        registers = nodes["a"].metadata.registers
        request = encode_request(RegisterRequest(RequestKind.READ, CATALOGUE, registers.me, 1))
        with pytest.raises(ProtocolError, match="seen positions"):
            await registers.answer(request, b"\xc1")
        seen = nodes["b"].metadata.registers.tell(CATALOGUE)
        assert await registers.answer(request) == await registers.answer(request, seen)


TROUBLES = ("is let go of", "wakes nobody", "has no room")


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("path", ["a change", "a read", "a force"])
async def test_a_deadline_ends_every_wait(autojump_clock, path, trouble):
    """The deadline holds whatever happens to the register, in a round or in the pause between rounds."""
    async with quiet() as nodes:
        await nodes.found()
        registers, here = nodes["a"].metadata.registers, nodes["a"].node
        others = [node.uuid for node in nodes.nodes.values() if node.uuid != here]
        nodes.network.cuts |= {(here, other) for other in others}
        waits = {
            "a change": lambda: registers.change(CATALOGUE, end, timeout_s=2),
            "a read": lambda: registers.read(CATALOGUE, timeout_s=2),
            "a force": lambda: registers.force(CATALOGUE, [registers.me, AcceptorId(others[0], ord("b"))]),
        }
        ends = []

        async def wait():
            ends.append((await waits[path]()).end)

        nodes.nodes["a"].mood.is_full = trouble == "has no room"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.7)
            if trouble == "is let go of":
                registers.forget(CATALOGUE)
                await trio.sleep(0.01)
                assert ends or path == "a force"
            elif trouble == "wakes nobody":
                nodes["a"].metadata._nursery.cancel_scope.cancel()
            await trio.sleep(21 if path == "a force" else 0.6)
            nursery.cancel_scope.cancel()
        assert set(ends) & {ChangeEnd.UNKNOWN, ChangeEnd.REFUSED}
