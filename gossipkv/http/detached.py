"""Connections passed from the node to its gateway, after the node has read part of each.

Each is a message on a socket of the node (`processes.passing`): a descriptor, the peer at its other end
(`order.GatewayPeer`), and the bytes already read, which the connection's stream returns first.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import TYPE_CHECKING, final

import trio

from gossipkv.access.users import ANONYMOUS
from gossipkv.http.answers import NOBODY
from gossipkv.http.order import GatewayPeer
from gossipkv.processes import passing

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class DetachedListener(trio.abc.Listener[trio.abc.Stream]):
    """Receives connections from this socket, which it owns."""

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver

    async def accept(self) -> trio.abc.Stream:
        """Return the next connection.

        Raises:
            OSError: no descriptors are free.
        """
        while True:
            await trio.lowlevel.wait_readable(self._receiver)
            _check_that_one_is_free(self._receiver)
            try:
                passed = passing.receive(self._receiver)
            except BlockingIOError:  # The node has taken the connection back.
                continue
            if passed is None:  # The node has ended, and this process will end in a moment.
                await trio.sleep_forever()
            elif passed.descriptor is None:
                raise OSError(
                    errno.EMFILE, "a passed connection was lost, because the process has no free file descriptor"
                )
            else:
                connection = trio.socket.from_stdlib_socket(socket.socket(fileno=passed.descriptor))
                peer, begun = GatewayPeer.of(passed.data)
                stream = trio.SocketStream(connection)
                return trio.StapledStream(stream, BegunInput(begun, stream, peer))

    async def aclose(self) -> None:
        """Receive no more connections; waiting ones stay with the node."""
        trio.lowlevel.notify_closing(self._receiver)
        self._receiver.close()
        await trio.lowlevel.checkpoint()


@final
class BegunInput(trio.abc.ReceiveStream):
    """Bytes that were read before, and behind them those of a stream; `peer` is at its other end."""

    def __init__(self, begun: bytes, stream: trio.abc.ReceiveStream, peer: GatewayPeer) -> None:
        self.peer = peer
        self._begun = begun
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return up to `max_bytes` of the earlier bytes, then the stream's own."""
        if not self._begun:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        begun, self._begun = self._begun[:max_bytes], b"" if max_bytes is None else self._begun[max_bytes:]
        return begun

    async def aclose(self) -> None:
        await self._stream.aclose()


def _check_that_one_is_free(open_one: socket.socket) -> None:
    """Raise OSError if no descriptor is free: a connection received now would be lost, so it waits."""
    os.close(os.dup(open_one.fileno()))


def peer_of(stream: trio.abc.Stream) -> GatewayPeer:
    """Return the client at the other end of a stream."""
    if isinstance(stream, trio.StapledStream) and isinstance(stream.receive_stream, BegunInput):
        return stream.receive_stream.peer
    return GatewayPeer(stream.socket.getpeername()[0], ANONYMOUS) if isinstance(stream, trio.SocketStream) else NOBODY


def ended_streams(streams: Iterable[trio.abc.Stream]) -> list[trio.abc.Stream]:
    """Return the streams whose clients have ended or reset the connection, also behind unread data."""
    poll, by_descriptor = select.poll(), dict[int, trio.abc.Stream]()
    for stream in streams:
        inner = stream.send_stream if isinstance(stream, trio.StapledStream) else stream
        if isinstance(inner, trio.SocketStream) and (descriptor := inner.socket.fileno()) >= 0:
            by_descriptor[descriptor] = stream
            poll.register(descriptor, select.POLLRDHUP)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(0)]
