"""One request to another node over a connection of its own: the MessagePack-RPC method `gossip`.

A connection for each is the point: it is also the probe of whether TCP reaches the other at all, it is rare, and
nothing is left behind when either end goes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Protocol

import trio

from gossipkv.errors import ProtocolError
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.wire.frames import FrameReader
from gossipkv.wire.rpc import decode_response, request

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.environment.seam import Stream

METHOD: Final = "gossip"
RECEIVE_BYTES: Final = 65_536

# The largest message, which compressing may make larger by one in 255, its envelope, and MessagePack-RPC around it.
MAX_REPLY_BYTES: Final = MAX_UNPACKED_BYTES + MAX_UNPACKED_BYTES // 128


class Dial(Protocol):
    """A connection to another node, as whoever asks may dial one."""

    async def __call__(self, to: Address, /) -> Stream:
        """Dial that address.  Raises OSError, GossipKVError."""
        ...


async def ask(dial: Dial, to: Address, question: bytes) -> bytes:
    """The reply of the node at `to`.

    Raises:
        OSError: nobody answers there.
        GossipKVError: what answers refuses, or is no node of ours.
    """
    stream = await dial(to)
    try:
        await stream.send_all(request(0, METHOD, [question]))
        return await _reply(stream, to)
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()


async def _reply(stream: Stream, to: Address) -> bytes:
    reader = FrameReader(MAX_REPLY_BYTES)
    while True:
        received = await stream.receive_some(RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "closed without an answer")
        reader.feed(received)
        for frame in reader:
            response = decode_response(frame)
            if response.error is not None:
                raise response.error
            if not isinstance(response.result, bytes):
                raise ProtocolError(f"{to} answers `{METHOD}` with something else than bytes")
            return response.result
