"""The Trio shell of the gateway: accepts connections, limits their resources, and ends them.

A connection is a task (`connection.py`).  This module has the limits of all connections together:

    connections      above `max_connections` the longest idle one is closed; if all are busy, the new one is refused
    times            one task periodically closes overdue connections
    memory           above `held_bytes` of requests and answers, the largest holder is closed
    clients          if a client leaves while the node is asked for its answer, the same task ends that wait
    the end          a drain: new connections are refused, idle ones closed, the others end after their answers

No other state of a client is kept.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections import Counter, OrderedDict
from math import inf
from typing import TYPE_CHECKING, Final, final

import trio
from trio.abc import Stream

from gossipkv.http.answers import text
from gossipkv.http.connection import Connection, ConnectionState, Times
from gossipkv.http.detached import ended_streams, peer_of
from gossipkv.http.exchange import Dates, HttpExchange, RequestLimits
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.http.answers import HttpAnswer, HttpRequest
    from gossipkv.http.order import GatewayLimits
    from gossipkv.http.site import Site

LONGEST_LOOK_S: Final = 0.4  # The longest period between two checks for overdue connections, and for clients that left.
LOOKS_A_TIMEOUT: Final = 4  # The least number of checks in the shortest time limit.

# Errors of accept(2) when the machine, not the client, lacks a resource.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
ACCEPT_PAUSE_S: Final = 0.1

REPORT_PERIOD_S: Final = 60.0  # The log gets at most one line in this time for each kind of trouble.


def times_of(limits: GatewayLimits) -> Times:
    """Return the time limits in seconds; disabled limits are infinite."""
    of = [limits.request_timeout_ms, limits.output_timeout_ms, limits.idle_timeout_ms]
    return Times(*(ms / 1000 if ms else inf for ms in of))


@final
class HttpGateway:
    """All connections of one listener."""

    def __init__(
        self,
        site: Site,
        limits: GatewayLimits,
        *,
        request_limits: RequestLimits | None = None,
        ended_streams: Callable[[Iterable[Stream]], Iterable[Stream]] = ended_streams,
    ) -> None:
        """`ended_streams` returns those of some streams whose clients send nothing more."""
        self.times = times_of(limits)
        self.is_draining = False
        self._site = site
        self._limits = limits
        self._request_limits = RequestLimits() if request_limits is None else request_limits
        self._ended_streams = ended_streams
        self._dates = Dates(time.time)
        self._connections: set[Connection] = set()
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # The longest idle connection is first.
        self._held_bytes = 0
        self._log = Log("gossipkv.http")
        self._troubles: Counter[str] = Counter()
        self._accepting = trio.CancelScope()
        self._closed = trio.Event()  # Set once the listener is closed.
        self._none_left = trio.Event()

    async def run(self, listener: trio.abc.Listener[trio.abc.Stream]) -> None:
        """Serve until drained or cancelled; the listener is closed by then."""
        async with trio.open_nursery() as nursery, listener:
            nursery.start_soon(self._look)
            nursery.start_soon(self._report)
            with self._accepting:
                await self._accept(listener, nursery)
            await listener.aclose()
            self._closed.set()
            if self._connections:
                await self._none_left.wait()
            nursery.cancel_scope.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Drain: refuse new connections and answer pending requests; cut off connections after `timeout_s`."""
        deadline = trio.current_time() + timeout_s
        self.is_draining = True
        self._site.drain()
        self._accepting.cancel()
        await self._closed.wait()  # A client that reconnects must be refused, not accepted and cut off.
        for connection in tuple(self._idle):
            connection.close()
        with trio.CancelScope(deadline=deadline):
            if self._connections:
                await self._none_left.wait()
        if self._connections:
            self._log.warning("http_cut", connections=len(self._connections), timeout_ms=round(timeout_s * 1000))
            for connection in self._connections:
                connection.close()

    async def converse(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until its end."""
        await self._serve(self._admit(stream))

    def _admit(self, stream: trio.abc.Stream) -> Connection:
        exchange = HttpExchange(self._request_limits, dates=self._dates, peer=peer_of(stream))
        connection = Connection(stream, exchange, self)
        self._connections.add(connection)
        return connection

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  # A defect costs only this connection.
            self._defect(error)
        finally:
            self._connections.discard(connection)
            if self.is_draining and not self._connections:
                self._none_left.set()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request; a defect costs only this request."""
        try:
            return await self._site.answer(request)
        except Exception as error:  # noqa: BLE001  # The defect is logged, and serving goes on.
            return text(
                500,
                f"the gateway failed because of a defect; the log has the traceback under {self._defect(error)}",
                "INTERNAL",
            )

    def broke(self, error: Exception) -> None:
        """Note that a defect has cut off a partly sent answer."""
        self._defect(error)

    def set_idle(self, connection: Connection, *, is_idle: bool) -> None:
        """Note that the connection waits for a request, or no longer does."""
        if is_idle:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def hold(self, connection: Connection, size_bytes: int) -> None:
        """Note the bytes held now; above the common limit, close the connection that holds most."""
        self._held_bytes += size_bytes - connection.held_bytes
        connection.held_bytes = size_bytes
        assert self._held_bytes >= 0, "each gives back what it took"
        if self._held_bytes > self._limits.held_bytes:
            most = max(self._connections, key=lambda connection: connection.held_bytes)
            self._troubles["closed_memory"] += 1
            self._held_bytes -= most.held_bytes
            most.held_bytes = 0
            most.close()

    async def _accept(self, listener: trio.abc.Listener[trio.abc.Stream], nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                self._troubles["accept_pauses"] += 1
                await trio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._connections) >= self._limits.max_connections and not self._make_room():
                self._troubles["connections_refused"] += 1
                await trio.aclose_forcefully(stream)
                continue
            nursery.start_soon(self._serve, self._admit(stream))

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; False if there is none."""
        if not self._idle:
            return False
        connection, _ = self._idle.popitem(last=False)
        self._troubles["closed_idle_for_others"] += 1
        connection.close()
        return True

    async def _look(self) -> None:
        period_s = min(
            LONGEST_LOOK_S, *(limit_s / LOOKS_A_TIMEOUT for limit_s in (self.times.request_s, self.times.output_s))
        )
        while True:
            await trio.sleep(period_s)
            now = trio.current_time()
            waiting = dict[Stream, Connection]()
            for connection in tuple(self._connections):
                if connection.due <= now:
                    if connection.state is not ConnectionState.WAITING:
                        self._troubles[f"closed_{connection.state.value}"] += 1
                    connection.close(is_late=True)
                # A client that has only ended its sending gets the answers that come within a period.
                elif connection.state is ConnectionState.ANSWERING and connection.waits_since <= now - period_s:
                    waiting[connection.stream] = connection
            for stream in self._ended_streams(waiting):
                waiting[stream].close()

    async def _report(self) -> None:
        """Log one line a minute for each kind of trouble that occurred."""
        while True:
            await trio.sleep(REPORT_PERIOD_S)
            troubles, self._troubles = self._troubles, Counter()
            for reason, count in troubles.items():
                self._log.warning("http_trouble", reason=reason, count=count)

    def _defect(self, error: Exception) -> str:
        """Log the error; return its id in the log."""
        name = secrets.token_hex(4)
        self._log.error("http_defect", id=name, exc_info=error)
        return name
