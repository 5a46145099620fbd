"""The node's gateway: a child process that answers HTTP (`gossipkv.http.gateway_child`), as the node sees it.

Python that is busy beside the serving loop costs reads their tail; so what the loop does not answer of HTTP itself has
a process of its own, which asks this node as any other client does.  The listening socket is the loop's, and so is each
connection until it wants more than a plain read (`detached`); when the child ends, those wait for the next one.

    started ── it ends, however ── a line in the log, a pause ── started again
       └── drain: it gets no more, answers what it has, and ends

Its end is never the node's; the node's end is always its own.
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
from gossipkv.processes.program import ProgramLines, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gossipkv.address import Address
    from gossipkv.http.order import GatewayPeer
    from gossipkv.serving.loop import Caller
    from gossipkv.settings.config import Config
    from gossipkv.settings.databases import DatabaseSettings

MODULE: Final = "gossipkv.http.gateway_child"

# Before a child that ended is started again; doubled each time, until one has lived for a while.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
STEADY_S: Final = 60.0

LEVELS: Final = frozenset({"debug", "info", "warning", "error"})


def limits_of(config: Config) -> GatewayLimits:
    """The limits that the settings name."""
    return GatewayLimits(
        max_connections=config.http_max_connections,
        held_bytes=config.max_queued_total,
        request_timeout_ms=config.frame_timeout,
        output_timeout_ms=config.output_timeout,
        idle_timeout_ms=config.idle_timeout,
    )


def types_of(usual: str, databases: Mapping[str, DatabaseSettings]) -> Types:
    """What values are, by the settings of the node and of the databases."""
    said = {name: found.content_type for name, found in databases.items() if found.content_type is not None}
    return Types(usual, said)


@final
class GatewayProcess:
    """Keeps the child running, passes it connections, and tells it what changes; `address`: where the node listens.

    `peer_of` says of each connection who is at its other end.
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
        """Serve a connection of which so much was read, as `DetachedConnections.take` says."""
        self._detached.take(descriptor, begun, self._peer_of(caller))

    def counters(self) -> dict[str, int]:
        """Return all counters by name."""
        return self._detached.counters()

    async def run(self, serve: Callable[[int], object]) -> None:
        """Have a child run until it is drained; the node is to `serve` it at one end of a socket pair for each."""
        self._serve = serve
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._detached.run)
            await self._keep()
            nursery.cancel_scope.cancel()
        self._ended.set()

    async def _keep(self) -> None:
        """Start a child, and again when it has ended, until it is drained."""
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
        """Take these settings of databases from now on."""
        self._types = types_of(self._config.content_type, databases)
        self._wake()

    def look_for_hidden(self, known: Callable[[str], bool]) -> None:
        """Warn, once, of each database whose name is a path of the gateway's own."""
        for name, path in HIDING.items():
            if name not in self._hidden and known(name):
                self._hidden.add(name)
                self._log.warning("http_hidden", database=name, path=path)

    def drain(self, timeout_s: float) -> None:
        """End politely: newcomers are refused from now on; what has been asked is answered within the time."""
        if self._drain_by is None:
            self._drain_by = trio.current_time() + timeout_s
            self._detached.end()
            self._wake()

    async def ended(self) -> None:
        """Return when it is drained, or the time for that is over."""
        assert self._drain_by is not None, "it is to end"
        with trio.CancelScope(deadline=self._drain_by):
            await self._ended.wait()

    async def _live(self) -> str:
        """Run one child until it ends; how it ended, in words."""
        errors: list[bytes] = []
        try:
            with self._detached.to_child() as descriptor, self._connected() as connection:
                async with (
                    child.running(MODULE, descriptors=(descriptor, connection.fileno())) as (process, worn),
                    trio.open_nursery() as nursery,
                ):
                    order = self._order(connection.fileno(), descriptor, worn)
                    connection.close()  # So its other end ends with the child.
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
        """The end for a child of a connection that the node serves: another one for each."""
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
            is_secured=self._config.tls_certificate is not None and "http_listen" in self._config.tls_listeners,
        )

    async def _instruct(self, process: trio.Process, order: GatewayOrder) -> None:
        assert process.stdin is not None
        told = GatewayWord(self._types)
        with contextlib.suppress(trio.BrokenResourceError):  # It is gone, which is seen elsewhere.
            await process.stdin.send_all(order.to_line())
            while True:
                changed = self._changed
                word = GatewayWord(self._types, self._left_ms())
                if word.types != told.types or (word.drain_ms is not None and told.drain_ms is None):
                    told = word
                    await process.stdin.send_all(word.to_line())
                await changed.wait()

    async def _hear(self, process: trio.Process) -> None:
        """Write what it logs into this node's log, until it says no more."""
        assert process.stdout is not None
        lines = ProgramLines()
        async for part in process.stdout:
            for line in lines.feed(bytes(part)):
                try:
                    said = json.loads(line)
                except (ValueError, RecursionError):  # Not from us: something in the child has printed.
                    continue
                match said:
                    case [str(level), str(event), dict(fields)] if level in LEVELS:
                        getattr(self._log, level)(event, **fields)

    async def _rest(self, pause_s: float) -> None:
        """Wait for so long, or until it is to end."""
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
