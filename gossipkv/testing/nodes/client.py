"""What a client asks a node over the simulated network: one request on a connection of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.testing.nodes.sockets import SimulatedStream
from gossipkv.testing.nodes.streams import connect
from gossipkv.wire import rpc
from gossipkv.wire.frames import FrameReader

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.testing.nodes.network import Network
    from gossipkv.wire.rpc import Value


async def ask(
    network: Network, host: str, address: Address, method: str, *params: Value, timeout_s: float = 10.0
) -> Value:
    """What the node at `address` answers to the machine `host`.

    Raises:
        GossipKVError: the node's, or that it cannot be reached, or not in time.
    """
    try:
        with trio.fail_after(timeout_s):
            stream = SimulatedStream(await connect(network, host, address))
            try:
                await stream.send_all(rpc.request(1, method, params))
                return await _answer(stream, address)
            finally:
                with trio.CancelScope(shield=True):
                    await stream.aclose()
    except trio.TooSlowError:
        raise TimedOut(f"{address}: no answer within {timeout_s} s") from None
    except OSError as error:
        raise Unavailable(f"{address}: {error.strerror}") from error


async def _answer(stream: SimulatedStream, address: Address) -> Value:
    reader = FrameReader()
    while True:
        data = await stream.receive_some(65_536)
        if not data:
            raise Unavailable(f"{address}: the connection ended before the answer")
        reader.feed(data)
        for frame in reader:
            response = rpc.decode_response(frame)
            if response.error is not None:
                raise response.error
            return response.result
