"""The network as a process sees it: addresses, names, datagrams and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES
from tests.unit.world.nodes.wire import A, B, on_network
from tests.world.nodes.sockets import DATAGRAM_OVERHEAD_BYTES, RECEIVE_BUFFER_BYTES, SimulatedSockets

if TYPE_CHECKING:
    from tests.world.nodes.network import SimulatedNetwork
    from tests.world.nodes.sockets import SimulatedDatagrams

FROM, TO = Address(A, 7070), Address(B, 7070)


def pair(network: SimulatedNetwork) -> tuple[SimulatedDatagrams, SimulatedDatagrams, SimulatedSockets]:
    """Return a socket on each machine, and the sockets by which the receiver waits."""
    there = SimulatedSockets(network, B)
    return SimulatedSockets(network, A).datagrams(*FROM), there.datagrams(*TO), there


async def hear(sockets: SimulatedSockets, datagrams: SimulatedDatagrams, for_s: float = 60) -> list[bytes]:
    heard = []
    with trio.move_on_after(for_s):
        while True:
            await sockets.wait_readable(datagrams)
            packet, source = datagrams.receive()
            assert source == FROM
            heard.append(packet)
    return heard


def test_a_datagram_arrives() -> None:
    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, sockets = pair(network)
        sender.send(b"hello", TO)
        with pytest.raises(BlockingIOError):
            receiver.receive()
        assert await hear(sockets, receiver) == [b"hello"]
        with pytest.raises(BlockingIOError):
            receiver.receive()

    on_network(check)


def test_what_waits_is_readable_until_it_is_received() -> None:
    """The socket stays readable when only a part has been received."""

    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, sockets = pair(network)
        for number in range(3):
            sender.send(bytes([number]), TO)
        await trio.sleep(1)
        for _ in range(3):
            with trio.fail_after(1):
                await sockets.wait_readable(receiver)
            receiver.receive()
        with trio.move_on_after(1) as nothing:
            await sockets.wait_readable(receiver)
        assert nothing.cancelled_caught

    on_network(check)


@pytest.mark.parametrize("fault", ["loss", "duplicate", "reorder", "corrupt", "heavy_delay"])
def test_a_fault_strikes_and_is_counted(fault: str) -> None:
    """About as many of a thousand datagrams are struck as the fault's probability says."""
    sent = [number.to_bytes(2, "big") for number in range(1000)]

    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, sockets = pair(network)
        setattr(network.usual, fault, 0.3)
        for packet in sent:
            sender.send(packet, TO)
            await trio.sleep(0.01)
        heard = await hear(sockets, receiver)
        struck = network.struck[fault]
        assert 200 < struck < 400
        assert set(network.struck) == {fault}
        assert len(heard) == 1000 + {"loss": -struck, "duplicate": struck}.get(fault, 0)
        assert (set(heard) <= set(sent)) == (fault != "corrupt")
        if fault in {"reorder", "heavy_delay"}:
            assert sorted(heard) == sent != heard

    on_network(check)


def test_cuts_sizes_and_clogs() -> None:
    """A one-way cut, a cut of datagrams, an oversized datagram and a clog each hold up the right datagrams."""

    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, sockets = pair(network)
        network.partition([B], [A], one_way=True)
        sender.send(b"other way", TO)
        network.partition([A], [B], datagrams_only=True)
        sender.send(b"cut", TO)
        network.heal()
        sender.send(bytes(1473), TO)
        assert await hear(sockets, receiver) == [b"other way"]
        assert (network.struck["cut"], network.struck["mtu"]) == (1, 1)
        network.link(A, B).clogged_until_us = int((trio.current_time() + 100) * 1e6)
        sender.send(b"clogged", TO)
        assert await hear(sockets, receiver, 99) == []
        assert await hear(sockets, receiver, 2) == [b"clogged"]

    on_network(check)


def test_a_full_buffer_loses_what_comes() -> None:
    """The loss is counted, as the system does; a datagram that is too long is truncated."""

    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, _ = pair(network)
        network.usual.mtu_bytes = 1 << 16
        room = RECEIVE_BUFFER_BYTES // (MAX_DATAGRAM_BYTES + 1 + DATAGRAM_OVERHEAD_BYTES)
        for _ in range(room + 5):
            sender.send(bytes(MAX_DATAGRAM_BYTES + 1), TO)
        await trio.sleep(1)
        assert receiver.lost == 5
        received = [receiver.receive()[0] for _ in range(room)]
        assert {len(packet) for packet in received} == {MAX_DATAGRAM_BYTES}

    on_network(check)


def test_nobody_hears_what_comes_to_a_closed_socket() -> None:
    """Datagrams that an ended process has sent are not delivered either."""

    async def check(network: SimulatedNetwork) -> None:
        sender, receiver, sockets = pair(network)
        sender.send(b"on its way", TO)
        sockets.end(silently=True)
        await trio.sleep(1)
        with pytest.raises(BlockingIOError):
            receiver.receive()
        again = sockets.datagrams(*TO)
        sender.close()
        sender.send(b"from nowhere", TO)
        assert await hear(sockets, again) == []

    on_network(check)


def test_addresses() -> None:
    """Only a free address of this machine can be bound; port 0 chooses a free port."""

    async def check(network: SimulatedNetwork) -> None:
        sockets = SimulatedSockets(network, A)
        sockets.listen(*FROM, 5)
        sockets.datagrams(*FROM)
        with pytest.raises(OSError, match="in use"):
            sockets.listen("0.0.0.0", FROM.port, 5)
        with pytest.raises(OSError, match="in use"):
            sockets.datagrams(*FROM)
        with pytest.raises(OSError, match="assign"):
            sockets.listen(B, 1, 5)
        names = {sockets.listen(A, 0, 5).getsockname() for _ in range(3)}
        assert len(names) == 3
        assert sockets.source_towards(TO) == A
        await trio.lowlevel.checkpoint()

    on_network(check)


def test_names() -> None:
    async def check(network: SimulatedNetwork) -> None:
        sockets = SimulatedSockets(network, A)
        with pytest.raises(OSError, match="nobody knows cluster"):
            await sockets.resolve(Address("cluster", 7))
        network.names["cluster"] = (A, B)
        assert await sockets.resolve(Address("cluster", 7)) == [Address(A, 7), Address(B, 7)]
        assert await sockets.resolve(TO) == [TO]

    on_network(check)
