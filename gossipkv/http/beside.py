"""The node's gateway, in a process of its own beside it (`child`).

    standard input    one line: the order (`order.Order`); later lines: words (`order.Word`)
    a socket          connections that the node has begun to read (`detached`)
    another           the connection to the node, on which it asks: plain, and in the node's own process at once
    standard output   one line for each line of the log: ["info", "http", {...}]
    the leash         a pipe that nobody writes to, and whose other end only the node holds

It asks its own node and nobody else, so what one address answers never steps back.  It ends when it is drained, when
its standard input ends, when there is no connection to the node any more, or, at once, when the node is gone however
that came (`processes.leash`).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, final

import trio

from gossipkv.client.trio_client import Client
from gossipkv.client.trio_link import Dialled
from gossipkv.http.detached import DetachedListener
from gossipkv.http.gateway import Gateway
from gossipkv.http.order import Order, Word
from gossipkv.http.permissions import Permissions
from gossipkv.http.reads import ReadContext
from gossipkv.http.site import site_of
from gossipkv.log import Log
from gossipkv.processes import leash, logs
from gossipkv.processes.program import Lines

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.client.credentials import Credentials
    from gossipkv.http.order import Types

READ_BYTES = 1 << 16


def _as_message(record: logging.LogRecord) -> str:
    """Return a line of the log for the node, which writes it into its own."""
    return json.dumps([record.levelname.lower(), record.msg, logs.told(record)], default=repr)


@final
class _Words:
    """Standard input: the order, then words."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._waiting: list[bytes] = []

    def order(self) -> Order:
        """Return the order; waits for it.

        Raises:
            EOFError: it never came.
        """
        while not self._waiting:
            part = os.read(0, READ_BYTES)
            if not part:
                raise EOFError("the order ends before its line does")
            self._waiting += self._lines.feed(part)
        return Order.from_line(self._waiting.pop(0))

    async def obey(self, obeying: _Child) -> None:
        """Pass on each word until there are no more."""
        async with trio.lowlevel.FdStream(os.dup(0)) as stream:
            while True:
                for line in self._waiting:
                    obeying.hear(Word.from_line(line))
                part = await stream.receive_some(READ_BYTES)
                if not part:
                    return
                self._waiting = self._lines.feed(bytes(part))


@final
class _Connection(socket.socket):
    """The connection to the node, of which there is one; `on_close` is called when the client gives it up."""

    def __init__(self, descriptor: int, on_close: Callable[[], object]) -> None:
        super().__init__(fileno=descriptor)
        self._on_close = on_close

    def close(self) -> None:
        super().close()
        self._on_close()


@final
class _Child:
    """The gateway of one node."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._types: Types = order.types
        self._drain_ms: int | None = None
        self._to_drain = trio.Event()
        self._connection: int | None = order.connection
        self._lost = trio.Event()

    def hear(self, word: Word) -> None:
        """Do what the node says."""
        self._types = word.types
        if word.drain_ms is not None:
            self._drain_ms = word.drain_ms
            self._to_drain.set()

    async def run(self, words: _Words) -> int:
        """Answer until drained, or until the node says no more: 0; 1 without a connection to it."""
        order = self._order
        asking = Client([order.node], patient=True, stays=True, dial=self._dial)
        async with asking as client, trio.open_nursery() as nursery:
            permissions = Permissions(client, trio.current_time, is_secured=order.is_secured)
            context = ReadContext(client, order.name, self._type_of, permissions=permissions)
            site, pages = site_of(context, client)
            gateway = Gateway(site, order.limits)
            await nursery.start(pages.run)
            nursery.start_soon(self._listen, words, nursery.cancel_scope)
            nursery.start_soon(self._drain, gateway)
            nursery.start_soon(self._end_alone, nursery.cancel_scope)
            log = Log("gossipkv.http")
            log.info("http", address=str(order.address), process=os.getpid())
            await gateway.run(DetachedListener(socket.socket(fileno=order.detached)))
            nursery.cancel_scope.cancel()
        return int(self._lost.is_set())

    def _type_of(self, database: str) -> bytes:
        return self._types.of(database)

    async def _listen(self, words: _Words, everything: trio.CancelScope) -> None:
        await words.obey(self)
        everything.cancel()

    async def _dial(self, _address: Address, _timeout_s: float, _credentials: Credentials) -> Dialled:
        await trio.lowlevel.checkpoint()
        if self._connection is None:
            raise ConnectionResetError(errno.ECONNRESET, "the node has closed the connection")
        connection, self._connection = self._connection, None
        return Dialled.plainly(_Connection(connection, self._lost.set))

    async def _end_alone(self, everything: trio.CancelScope) -> None:
        """End when there is nobody to ask any more: the next process gets another connection."""
        await self._lost.wait()
        sys.stderr.write("the node has closed the connection\n")
        everything.cancel()

    async def _drain(self, gateway: Gateway) -> None:
        await self._to_drain.wait()
        await gateway.drain((self._drain_ms or 0) / 1000)


def main() -> int:
    """Answer as standard input orders; 0 when it has ended as it was told, else 1."""
    words = _Words()
    order = words.order()
    leash.wear(order.leash)
    logs.write_to(1, _as_message)
    return trio.run(_run, order, words)


async def _run(order: Order, words: _Words) -> int:
    return await _Child(order).run(words)
