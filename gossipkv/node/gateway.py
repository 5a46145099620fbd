"""The node's gateway: a child process that answers HTTP (`gossipkv.http.gateway_child`), as the node sees it.

Busy Python beside the serving loop would worsen the tail latency of reads. So HTTP requests that the loop does not
answer itself go to a process of their own, which asks this node like any other client. The loop owns the listening
socket, and each connection until it wants more than a plain read (`detached`). Connections wait while there is no
child.

    started ── ends, for any reason ── a line in the log, a pause ── started again
       └── drain: it gets no more, answers what it has, and ends

The end of the child never ends the node; the end of the node always ends the child.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.http.order import HIDING, GatewayLimits, GatewayOrder, GatewayWord, Types
from gossipkv.log import Log
from gossipkv.node.detached import DetachedConnections
from gossipkv.processes import child
from gossipkv.processes.program import ProgramLines, how_it_ended, order_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.address import Address
    from gossipkv.http.order import GatewayPeer
    from gossipkv.serving.loop import Caller
    from gossipkv.settings.config import Config
    from gossipkv.settings.databases import DatabaseSettings

MODULE: Final = "gossipkv.http.gateway_child"

# Pause before a child that ended is started again; doubled each time, until a child has lived for `STEADY_S`.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
STEADY_S: Final = 60.0

LEVELS: Final = frozenset({"debug", "info", "warning", "error"})


def limits_of(config: Config) -> GatewayLimits:
    """Return the limits of the gateway by the settings."""
    max_streams = min(config.max_feeds, config.max_in_flight // 2)
    return GatewayLimits(
        max_connections=config.http_max_connections,
        held_bytes=config.max_queued_total,
        request_timeout_ms=config.frame_timeout,
        output_timeout_ms=config.output_timeout,
        idle_timeout_ms=config.idle_timeout,
        max_streams_of_address=max(1, max_streams // 2) if config.connections_per_address else 0,
    )


def types_of(usual: str, databases: Mapping[str, DatabaseSettings]) -> Types:
    """Return the content types of values by the settings of the node and of the databases."""
    by_database = {name: found.content_type for name, found in databases.items() if found.content_type is not None}
    return Types(usual, by_database)


@final
class GatewayProcess:
    """Keeps the child running, passes connections to it, and tells it changes; `address`: where HTTP clients connect.

    `peer_of` returns the address and user at the other end of a connection.
    """

    def __init__(
        self, config: Config, address: Address, *, node: Address, name: str, peer_of: Callable[[Caller], GatewayPeer]
    ) -> None:
        self.address = address
        self._config = config
        self._detached = DetachedConnections()
        self._node = node
        self._name, self._peer_of = name, peer_of
        self._log = Log("gossipkv.node")
        self._types = types_of(config.content_type, config.databases)
        self._drain_by: float | None = None
        self._changed = trio.Event()
        self._ended = trio.Event()
        self._hidden: set[str] = set()

    def take(self, descriptor: int, begun: bytes, caller: Caller) -> None:
        """Serve a connection, of which `begun` was read, as `DetachedConnections.take` says."""
        self._detached.take(descriptor, begun, self._peer_of(caller))

    def counters(self) -> dict[str, int]:
        """Return all counters by name."""
        return self._detached.counters()

    async def run(self, serve: Callable[[int], object]) -> None:
        """Keep a child running until it is drained; `serve` gets the node's end of a socket pair for each child."""
        self._serve = serve
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._detached.run)
            await self._keep()
            nursery.cancel_scope.cancel()
        self._ended.set()

    async def _keep(self) -> None:
        """Start a child, and again when it has ended, until drained."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = trio.current_time()
            reason = await self._live()
            if self._is_ending():
                return
            if trio.current_time() - began >= STEADY_S:
                pause_s = FIRST_PAUSE_S
            self._log.error("http_ended", reason=reason, again_ms=round(pause_s * 1000))
            await self._rest(pause_s)
            if self._is_ending():
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def reconfigure(self, databases: Mapping[str, DatabaseSettings]) -> None:
        """Use these settings of databases from now on."""
        self._types = types_of(self._config.content_type, databases)
        self._wake()

    def look_for_hidden(self, is_known: Callable[[str], bool]) -> None:
        """Warn once of each database whose name is a path of the gateway itself."""
        for name, path in HIDING.items():
            if name not in self._hidden and is_known(name):
                self._hidden.add(name)
                self._log.warning("http_hidden", database=name, path=path)

    def drain(self, timeout_s: float) -> None:
        """Refuse new requests from now on, and end once those in progress are answered, or when the time is over."""
        if self._drain_by is None:
            self._drain_by = trio.current_time() + timeout_s
            self._detached.end()
            self._wake()

    async def ended(self) -> None:
        """Return when the gateway has drained, or its time for that is over."""
        assert self._drain_by is not None, "it is to end"
        with trio.CancelScope(deadline=self._drain_by):
            await self._ended.wait()

    async def _live(self) -> str:
        """Run one child until it ends; return in words how it ended."""
        errors: list[bytes] = []
        try:
            with self._detached.to_child() as descriptor, self._connected() as connection:
                async with (
                    child.running(MODULE, descriptors=(descriptor, connection.fileno())) as (process, worn),
                    trio.open_nursery() as nursery,
                ):
                    order = self._order(connection.fileno(), descriptor, worn)
                    connection.close()  # Only the child has this end now, so the pair ends with the child.
                    nursery.start_soon(child.collect_errors, process, errors)
                    nursery.start_soon(self._instruct, process, order)
                    await self._hear(process)
                    await process.wait()
                    nursery.cancel_scope.cancel()
        except OSError as error:
            return f"the process cannot be started: {error.strerror or error}"
        return f"the process {how_it_ended(process.returncode)}{child.last_line(errors)}"

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        """Yield the child's end of a new socket pair, of which the node serves the other end."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._serve(ours.detach())
            yield theirs

    def _order(self, connection: int, detached: int, worn: int) -> GatewayOrder:
        return GatewayOrder(
            self._node,
            connection,
            self._name,
            self.address,
            detached=detached,
            leash=worn,
            types=self._types,
            limits=limits_of(self._config),
            hosts=self._config.expected_hosts,
            is_secured=self._config.tls_certificate is not None and "http_listen" in self._config.tls_listeners,
        )

    async def _instruct(self, process: trio.Process, order: GatewayOrder) -> None:
        assert process.stdin is not None
        last = GatewayWord(self._types)
        with contextlib.suppress(trio.BrokenResourceError):  # The child is gone, which `_live` sees as well.
            await process.stdin.send_all(order_line(order))
            while True:
                changed = self._changed
                word = GatewayWord(self._types, self._left_ms())
                if word.types != last.types or (word.drain_ms is not None and last.drain_ms is None):
                    last = word
                    await process.stdin.send_all(order_line(word))
                await changed.wait()

    async def _hear(self, process: trio.Process) -> None:
        """Write the child's log lines into this node's log, until its output ends."""
        assert process.stdout is not None
        lines = ProgramLines()
        async for part in process.stdout:
            for line in lines.feed(bytes(part)):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):  # The line is the output of a stray print, not ours.
                    continue
                match entry:
                    case [str(level), str(event), dict(fields)] if level in LEVELS:
                        getattr(self._log, level)(event, **fields)

    async def _rest(self, pause_s: float) -> None:
        """Wait for the pause, or until the gateway drains."""
        due = trio.current_time() + pause_s
        while not self._is_ending() and trio.current_time() < due:
            with trio.CancelScope(deadline=due):
                await self._changed.wait()

    def _is_ending(self) -> bool:
        return self._drain_by is not None

    def _left_ms(self) -> int | None:
        return None if self._drain_by is None else max(0, round((self._drain_by - trio.current_time()) * 1000))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
