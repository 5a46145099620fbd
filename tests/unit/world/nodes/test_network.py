"""Simulated connections deliver bytes in order and whole, and end with their machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.address import Address
from gossipkv.environment.seam import UNCONFIRMED_S
from tests.unit.world.nodes.wire import A, B, on_network
from tests.world.nodes.network import WINDOW_BYTES
from tests.world.nodes.sockets import SimulatedSockets, SimulatedStream

if TYPE_CHECKING:
    from tests.world.nodes.network import SimulatedNetwork, StreamEnd

THERE = Address(B, 7070)


class Pair:
    def __init__(self, network: SimulatedNetwork) -> None:
        self.here, self.there = SimulatedSockets(network, A), SimulatedSockets(network, B)
        self.listener = self.there.listen(*THERE, 10)

    async def connect(self) -> tuple[SimulatedStream, SimulatedStream]:
        client = await self.here.connect(THERE)
        return client, SimulatedStream(self.accept())

    def accept(self) -> StreamEnd:
        end = self.listener.accept()
        assert end is not None
        return end


async def read_all(stream: SimulatedStream) -> bytes:
    received = b""
    while data := await stream.receive_some(65_536):
        received += data
    return received


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_and_whole(seed: int) -> None:
    """A third of the segments are lost, others are late, and more than a window is coming in each direction."""
    sent = bytes(range(256)) * (3 * WINDOW_BYTES // 256)

    async def check(network: SimulatedNetwork) -> None:
        network.usual.loss, network.usual.heavy_delay = 0.3, 0.5
        client, server = await Pair(network).connect()
        received: dict[str, bytes] = {}

        async def send(stream: SimulatedStream) -> None:
            await stream.send_all(sent)
            await stream.aclose()

        async def receive(name: str, stream: SimulatedStream) -> None:
            received[name] = await read_all(stream)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, "client", client)
            nursery.start_soon(receive, "server", server)
            nursery.start_soon(client.send_all, sent)
            await server.send_all(b"hello")
            await trio.sleep(1000)
            await client.aclose()
            await server.aclose()
        assert received == {"client": b"hello", "server": sent}

    network = on_network(check, seed)
    assert network.struck["loss"] > 0
    assert network.struck["sent_again"] > 0


def test_a_sender_waits_for_a_reader() -> None:
    """A sender gets rid of one window; then of as much as is read."""

    async def check(network: SimulatedNetwork) -> None:
        client, server = await Pair(network).connect()
        with trio.move_on_after(100) as limit:
            await client.send_all(bytes(WINDOW_BYTES + 1))
        assert limit.cancelled_caught
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_all, b"more")
                assert len(await server.receive_some(1 << 20)) == WINDOW_BYTES

    on_network(check)


def test_a_cut_holds_bytes_up_and_loses_none() -> None:
    """Bytes arrive after the cut heals, when they are sent again, provided that the sender has not given up."""

    async def check(network: SimulatedNetwork) -> None:
        client, server = await Pair(network).connect()
        network.partition([A], [B])
        await client.send_all(b"late")
        with trio.move_on_after(UNCONFIRMED_S / 2) as limit:
            await server.receive_some(10)
        assert limit.cancelled_caught
        network.heal()
        with trio.fail_after(40):
            assert await server.receive_some(10) == b"late"

    assert on_network(check).struck["cut"] > 0


def test_a_cut_of_datagrams_lets_connections_pass() -> None:
    """This is how a firewall behaves that lets only TCP pass."""

    async def check(network: SimulatedNetwork) -> None:
        network.partition([A], [B], datagrams_only=True)
        client, server = await Pair(network).connect()
        await client.send_all(b"x")
        assert await server.receive_some(10) == b"x"

    on_network(check)


def test_nobody_listens() -> None:
    """A connect is refused at once, and a connection that waits in the queue of a closed listener is reset at once."""

    async def check(network: SimulatedNetwork) -> None:
        pair = Pair(network)
        waiting = await pair.here.connect(THERE)
        pair.listener.close()
        with trio.fail_after(1), pytest.raises(ConnectionRefusedError):
            await pair.here.connect(THERE)
        with trio.fail_after(1), pytest.raises(ConnectionResetError):
            await waiting.receive_some(10)

    on_network(check)


def test_nobody_answers() -> None:
    """A connect times out after two minutes."""

    async def check(network: SimulatedNetwork) -> None:
        pair = Pair(network)
        network.partition([B], [A], one_way=True)
        began = trio.current_time()
        with pytest.raises(TimeoutError):
            await pair.here.connect(THERE)
        assert 100 < trio.current_time() - began < 200

    on_network(check)


def test_the_peer_of_a_killed_process_is_told() -> None:
    """Bytes that had arrived can still be read before the reset."""

    async def check(network: SimulatedNetwork) -> None:
        pair = Pair(network)
        client, server = await pair.connect()
        await server.send_all(b"last words")
        await trio.sleep(1)
        pair.there.end(silently=False)
        await trio.sleep(1)
        assert await client.receive_some(100) == b"last words"
        with pytest.raises(ConnectionResetError):
            await client.receive_some(100)
        with pytest.raises(ConnectionResetError):
            await client.send_all(b"?")

    on_network(check)


def test_the_peer_of_a_machine_without_power_hears_nothing() -> None:
    """Only a send, after the machine is up again, finds that the connection is gone."""

    async def check(network: SimulatedNetwork) -> None:
        pair = Pair(network)
        client, _ = await pair.connect()
        network.running.discard(B)
        pair.there.end(silently=True)
        with trio.move_on_after(1000) as silence:
            await client.receive_some(10)
        assert silence.cancelled_caught
        await client.send_all(b"are you there?")
        with trio.move_on_after(UNCONFIRMED_S / 2) as silence:
            await client.receive_some(10)
        assert silence.cancelled_caught
        network.running.add(B)
        with trio.fail_after(200), pytest.raises(ConnectionResetError):
            await client.receive_some(10)

    on_network(check)


def test_a_full_queue_turns_newcomers_away() -> None:
    """Connections that wait in the queue are served."""

    async def check(network: SimulatedNetwork) -> None:
        pair = Pair(network)
        clients = [await pair.here.connect(THERE) for _ in range(11)]
        with trio.fail_after(1), pytest.raises(ConnectionResetError):
            await clients[10].receive_some(10)
        for client in clients[:10]:
            pair.accept().send(b"welcome")
            assert await client.receive_some(10) == b"welcome"
        assert pair.listener.accept() is None

    on_network(check)
