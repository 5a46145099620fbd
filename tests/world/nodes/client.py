"""What a client asks a node over the simulated network: one request, or many on one connection."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import trio

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.wire import rpc
from gossipkv.wire.frames import FrameReader
from tests.world.nodes.network import connect
from tests.world.nodes.sockets import SimulatedStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Response, Value
    from tests.world.nodes.network import SimulatedNetwork


@final
class Connection:
    """A client's connection."""

    def __init__(self, stream: SimulatedStream, address: Address) -> None:
        self._stream = stream
        self._address = address
        self._reader = FrameReader()
        self.sent = 0

    async def send(self, method: str, *params: Value) -> None:
        """A request; its answer is read later."""
        self.sent += 1
        await self._stream.send_all(rpc.request(self.sent, method, params))

    async def read(self) -> Response:
        """The next answer.

        Raises:
            Unavailable: the connection ended before it.
            OSError: the connection broke.
        """
        while True:
            for frame in self._reader:
                return rpc.decode_response(frame)
            data = await self._stream.receive_some(65_536)
            if not data:
                raise Unavailable(f"{self._address}: the connection ended before the answer")
            self._reader.feed(data)


@asynccontextmanager
async def connected(network: SimulatedNetwork, host: str, address: Address) -> AsyncIterator[Connection]:
    """A connection from the machine `host`.

    Raises:
        OSError: it cannot be had.
    """
    stream = SimulatedStream(await connect(network, host, address))
    try:
        yield Connection(stream, address)
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()


async def ask(
    network: SimulatedNetwork, host: str, address: Address, method: str, *params: Value, timeout_s: float = 10.0
) -> Value:
    """What the node at `address` answers to the machine `host`.

    Raises:
        GossipKVError: the node's, or that it cannot be reached, or not in time.
    """
    try:
        with trio.fail_after(timeout_s):
            async with connected(network, host, address) as connection:
                await connection.send(method, *params)
                response = await connection.read()
    except trio.TooSlowError:
        raise TimedOut(f"{address}: no answer within {timeout_s} s") from None
    except OSError as error:
        raise Unavailable(f"{address}: {error.strerror}") from error
    if response.error is not None:
        raise response.error
    return response.result
