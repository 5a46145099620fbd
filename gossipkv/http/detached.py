"""Where the connections of a node's gateway come from: the node has read something of each, and wants it served.

Each is a message on a socket of the node's (`processes.passing`): a descriptor, who is at its other end (`order.Peer`),
and the bytes that were read, which the connection's stream gives before all others.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import final

import trio

from gossipkv.http.order import Peer
from gossipkv.processes import passing


@final
class DetachedListener(trio.abc.Listener[trio.abc.Stream]):
    """Receives connections at this socket, which is its own."""

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver

    async def accept(self) -> trio.abc.Stream:
        """Return the next one.

        Raises:
            OSError: no descriptors are free.
        """
        while True:
            await trio.lowlevel.wait_readable(self._receiver)
            _check_that_one_is_free(self._receiver)
            try:
                passed = passing.receive(self._receiver)
            except BlockingIOError:  # The node has taken it back.
                continue
            if passed is None:  # The node has ended, and with it, in a moment, this process.
                await trio.sleep_forever()
            elif passed.descriptor is None:
                raise OSError(errno.EMFILE, "a connection was lost for want of a descriptor")
            else:
                connection = trio.socket.from_stdlib_socket(socket.socket(fileno=passed.descriptor))
                peer, begun = Peer.of(passed.data)
                return BegunStream(begun, trio.SocketStream(connection), peer)

    async def aclose(self) -> None:
        """Receive no more: the node has what waits."""
        trio.lowlevel.notify_closing(self._receiver)
        self._receiver.close()
        await trio.lowlevel.checkpoint()


@final
class BegunStream(trio.abc.HalfCloseableStream):
    """A stream of which a part was read before: that part comes first; `peer` is at its other end."""

    def __init__(self, begun: bytes, stream: trio.abc.HalfCloseableStream, peer: Peer) -> None:
        self.peer = peer
        self._begun = begun
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """What came first, so much of it at a time; then as the stream has it."""
        if not self._begun:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        begun, self._begun = self._begun[:max_bytes], b"" if max_bytes is None else self._begun[max_bytes:]
        return begun

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As the stream does."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream does."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As the stream does."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """As the stream does."""
        await self._stream.aclose()


def _check_that_one_is_free(open_one: socket.socket) -> None:
    """Raise OSError if no descriptor is: what is received then would be lost, and so it waits."""
    os.close(os.dup(open_one.fileno()))
