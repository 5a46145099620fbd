"""Connections of HTTP on their way from the serving loop to the gateway's child.

The loop answers plain reads itself. A connection that wants more is *detached*: the descriptor and the bytes read from
it come here, and go over a socket pair (`processes.passing`) to the child, which serves the connection to its end.

    taken ──> waits ── a child lives, and its socket has room ──> in the socket ── received ──> the child's
                │  ^                                                    │
                │  └── the child has ended, or the node is to end ──────┘
                └── waited too long, too many wait, the node is to end ──> 503, closed

The receiving end is open here as well, so connections that a child has not received go to the next child. A child that
is killed costs only the connections that it had received.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.http.order import GatewayPeer
from gossipkv.log import Log
from gossipkv.processes import passing

if TYPE_CHECKING:
    from collections.abc import Iterator

# A child that ended by accident is back in less than a second. A client that would wait longer than this is better
# sent to another node.
PATIENCE_S: Final = 5.0
MAX_WAITING: Final = 1024  # Each takes a descriptor and the bytes read from it: 72 KiB at most.

MAX_IN_SOCKET: Final = 2048  # A socket never holds more: each message takes at least half a KiB of its buffer.

REPORT_PERIOD_S: Final = 60.0  # Each reason is logged at most once a minute.

_LINE: Final = b"the gateway of this node takes no further request at the moment; ask again, or another node\n"
_HEAD: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"X-GossipKV-Error: NOT_READY\r\n"
    b"Retry-After: 1\r\n"
    b"Content-Length: %d\r\n"
    b"Connection: close\r\n"
    b"\r\n"
) % len(_LINE)


class _DetachedConnection(NamedTuple):
    descriptor: int
    peer: GatewayPeer
    begun: bytes  # The bytes read from it.
    due: float  # End of its patience, by Trio's clock.


@final
class DetachedConnections:
    """All connections on their way to a child."""

    def __init__(self) -> None:
        self._log = Log("gossipkv.node")
        self._waiting: deque[_DetachedConnection] = deque()
        self._ends: tuple[socket.socket, socket.socket] | None = None  # To send and to receive, while a child lives.
        self._sent: deque[float] = deque(maxlen=MAX_IN_SOCKET)  # Due times of the connections sent to this child.
        self._changed = trio.Event()
        self._is_over = False
        self._taken = 0
        self._unserved = 0
        self._troubles: Counter[str] = Counter()

    def take(self, descriptor: int, begun: bytes, peer: GatewayPeer) -> None:
        """Pass a connection and the bytes read from it to a child; the descriptor is closed here. Raises nothing.

        Requires: a connected stream socket; `peer` and `begun` have `passing.MAX_BYTES` at most.
        """
        self._taken += 1
        connection = _DetachedConnection(descriptor, peer, begun, trio.current_time() + PATIENCE_S)
        if self._is_over:
            self._refuse(connection, "unserved_at_the_end")
        elif len(self._waiting) >= MAX_WAITING:
            self._refuse(connection, "unserved_too_many")
        else:
            self._waiting.append(connection)
            self._wake()

    def counters(self) -> dict[str, int]:
        """Return all counters by name."""
        return {"http_detached": self._taken, "http_unserved": self._unserved}

    @contextlib.contextmanager
    def to_child(self) -> Iterator[int]:
        """Open the way to a child that lives as long as the block; yield the descriptor at which the child receives.

        Raises:
            OSError: no descriptors are free.
        """
        assert self._ends is None, "one child at a time"
        self._ends = sender, receiver = passing.pair()
        self._sent.clear()
        self._wake()
        try:
            yield receiver.fileno()
        finally:
            self._take_back(receiver)
            self._ends = None
            trio.lowlevel.notify_closing(sender)
            sender.close()
            receiver.close()
            self._wake()

    async def run(self) -> None:
        """Hand over connections until cancelled; refuse those that are left then, or come later."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report)
                while True:
                    self._hand_over()
                    await self._wait_for_work()
        finally:
            self.end()
            self._tell()

    def end(self) -> None:
        """Refuse all connections that no child has received yet, and all that come from now on."""
        self._is_over = True
        if self._ends is not None:
            self._take_back(self._ends[1])
        while self._waiting:
            self._refuse(self._waiting.popleft(), "unserved_at_the_end")

    def _hand_over(self) -> None:
        """Send connections in their order as far as there is room; refuse those that waited too long."""
        now = trio.current_time()
        while self._waiting:
            connection = self._waiting[0]
            if connection.due <= now:
                self._refuse(connection, "unserved_waited")
            elif self._ends is None:
                return
            else:
                try:
                    passing.send(self._ends[0], connection.descriptor, connection.peer.before(connection.begun))
                except BlockingIOError:
                    return
                except OSError:
                    self._refuse(connection, "unserved_not_sent")
                else:
                    os.close(connection.descriptor)
                    self._sent.append(connection.due)
            self._waiting.popleft()

    async def _wait_for_work(self) -> None:
        """Return when a connection can be sent, has waited too long, or comes."""
        with trio.CancelScope(deadline=self._waiting[0].due if self._waiting else inf):
            if self._waiting and self._ends is not None:
                with contextlib.suppress(trio.ClosedResourceError):  # The child has ended.
                    await trio.lowlevel.wait_writable(self._ends[0])
            else:
                await self._changed.wait()

    def _take_back(self, receiver: socket.socket) -> None:
        """Put the connections that the child has not received back in front of the queue."""
        back: list[passing.Passed] = []
        with contextlib.suppress(BlockingIOError):
            while (passed := passing.receive(receiver)) is not None:
                back.append(passed)
        dues = list(self._sent)[len(self._sent) - len(back) :]
        for (descriptor, data), due in reversed(list(zip(back, dues, strict=True))):
            if descriptor is None:
                self._count("unserved_no_descriptor")
            else:
                self._waiting.appendleft(_DetachedConnection(descriptor, *GatewayPeer.of(data), due))

    def _refuse(self, connection: _DetachedConnection, reason: str) -> None:
        """Answer 503 and close, without waiting: a client whose socket has no room for the answer gets none."""
        self._count(reason)
        with contextlib.suppress(OSError), socket.socket(fileno=connection.descriptor) as client:
            client.settimeout(0)
            client.send(_HEAD if connection.begun.startswith(b"HEAD ") else _HEAD + _LINE)
            # The kernel sends a reset if input was left unread; this end of stream must come first.
            client.shutdown(socket.SHUT_WR)

    def _count(self, reason: str) -> None:
        self._unserved += 1
        self._troubles[reason] += 1

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _report(self) -> None:
        while True:
            await trio.sleep(REPORT_PERIOD_S)
            self._tell()

    def _tell(self) -> None:
        """Log each reason for which connections were not served, with their number."""
        troubles, self._troubles = self._troubles, Counter()
        for reason, count in troubles.items():
            self._log.warning("http_trouble", reason=reason, count=count)
