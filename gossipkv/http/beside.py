"""The node's gateway, in a process of its own beside it (`gateway_child`).

    standard input    one line: the order (`order.GatewayOrder`); later lines: words (`order.GatewayWord`)
    a socket          connections that the node has begun to read (`detached`)
    another socket    the plain connection on which the gateway asks the node
    standard output   one line for each line of the log: ["info", "http", {...}]
    the leash         a pipe without data; only the node holds its other end

The gateway asks only its own node, so the answers of one address never step back.  The gateway ends when it is drained,
when its standard input ends, or when it loses the connection to the node.  If the node is gone for any reason, the
gateway ends at once (`processes.leash`).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, final

import trio

from gossipkv.client.link import Opening
from gossipkv.client.trio_client import Client
from gossipkv.http.detached import DetachedListener
from gossipkv.http.gateway import HttpGateway
from gossipkv.http.order import GatewayOrder, GatewayWord
from gossipkv.http.permissions import HttpPermissions
from gossipkv.http.reads import EventStreams, ReadContext
from gossipkv.http.site import site_of
from gossipkv.log import Log
from gossipkv.processes import leash, logs
from gossipkv.processes.program import ProgramLines, read_order

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.client.credentials import Credentials
    from gossipkv.http.order import Types

READ_BYTES = 1 << 16


def _as_message(record: logging.LogRecord) -> str:
    """Encode a line of the log for the node, which writes it into its own log."""
    return json.dumps([record.levelname.lower(), record.msg, logs.all_fields(record)], default=repr)


@final
class _Words:
    """Lines of standard input: the order, then words."""

    def __init__(self) -> None:
        self._lines = ProgramLines()
        self._waiting: list[bytes] = []

    def order(self) -> GatewayOrder:
        """Wait for the order and return it.

        Raises:
            EOFError: standard input ended before.
        """
        while not self._waiting:
            part = os.read(0, READ_BYTES)
            if not part:
                raise EOFError("standard input ended within the order; the order must be one whole line")
            self._waiting += self._lines.feed(part)
        return read_order(self._waiting.pop(0), GatewayOrder)

    async def obey(self, obeying: _Child) -> None:
        """Pass on each word until standard input ends."""
        async with trio.lowlevel.FdStream(os.dup(0)) as stream:
            while True:
                for line in self._waiting:
                    obeying.hear(read_order(line, GatewayWord))
                part = await stream.receive_some(READ_BYTES)
                if not part:
                    return
                self._waiting = self._lines.feed(bytes(part))


@final
class _NodeConnection(socket.socket):
    """The only connection to the node; `on_close` is called when the client closes it."""

    def __init__(self, descriptor: int, on_close: Callable[[], object]) -> None:
        super().__init__(fileno=descriptor)
        self._on_close = on_close

    def close(self) -> None:
        super().close()
        self._on_close()


@final
class _Child:
    def __init__(self, order: GatewayOrder) -> None:
        self._order = order
        self._types: Types = order.types
        self._drain_ms: int | None = None
        self._to_drain = trio.Event()
        self._connection: int | None = order.connection
        self._lost = trio.Event()

    def hear(self, word: GatewayWord) -> None:
        """Apply a word of the node."""
        self._types = word.types
        if word.drain_ms is not None:
            self._drain_ms = word.drain_ms
            self._to_drain.set()

    async def run(self, words: _Words) -> int:
        """Answer until drained, or until the node's words end; return 1 if the connection to the node was lost."""
        order = self._order
        asking = Client([order.node], patient=True, stays=True)
        asking.dial = self._dial
        async with asking as client, trio.open_nursery() as nursery:
            permissions = HttpPermissions(client, trio.current_time, is_secured=order.is_secured)
            streams = EventStreams(order.limits.max_streams_of_address)
            context = ReadContext(
                *(client, order.name, self._type_of), permissions=permissions, hosts=order.hosts, streams=streams
            )
            site, pages = site_of(context, client)
            gateway = HttpGateway(site, order.limits)
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

    async def _dial(
        self, _address: Address, _host: str, _timeout_s: float, _credentials: Credentials
    ) -> tuple[socket.socket, Opening]:
        await trio.lowlevel.checkpoint()
        if self._connection is None:
            raise ConnectionResetError(errno.ECONNRESET, "the node closed the connection")
        connection, self._connection = self._connection, None
        return _NodeConnection(connection, self._lost.set), Opening()

    async def _end_alone(self, everything: trio.CancelScope) -> None:
        """End when the connection to the node is lost: the next process gets another one."""
        await self._lost.wait()
        sys.stderr.write("the node closed the connection\n")
        everything.cancel()

    async def _drain(self, gateway: HttpGateway) -> None:
        await self._to_drain.wait()
        await gateway.drain((self._drain_ms or 0) / 1000)


def main() -> int:
    """Answer as standard input orders; return 0 after an ordered end, else 1."""
    words = _Words()
    order = words.order()
    leash.wear(order.leash)
    logs.write_to(1, _as_message)
    return trio.run(_run, order, words)


async def _run(order: GatewayOrder, words: _Words) -> int:
    return await _Child(order).run(words)
