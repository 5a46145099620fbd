"""One blocking connection to one node: a socket and the session on it.

Several callers may have requests open on one link (a pipeline, and a plain `get` inside its loop): whoever waits
receives for all, and answers that are not its own lie ready in `_arrived`.

A link never recovers.  Whatever goes wrong while bytes are moving closes it (a half-sent request cannot be taken
back), and the one who holds it dials anew.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from gossipkv.client.session import Session
from gossipkv.errors import ProtocolError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Response, Value

RECEIVE_BYTES: Final = 65_536  # Half a usual socket buffer; larger blocks cost a page fault each.
TIMEOUT_SLACK: Final = 0.99  # Setting a socket's timeout is a system call: one that is 1 % too long may stay.


class LinkError(Exception):
    """The connection ended before the answer came; the text says how.  For the one who fails over, not for users."""


def _dial(address: Address, deadline: float) -> socket.socket:
    """A connection to the first of the addresses that a name stands for; all of them share the time."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure: OSError = TimeoutError()
    for position, (family, kind, protocol, _, where) in enumerate(found):
        remaining_s = deadline - monotonic()
        if remaining_s <= 0:
            break
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(remaining_s / (len(found) - position))
            connection.connect(where)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failure


@final
class Link:
    """A connection to the node at `address`.

    Raises:
        OSError: the node cannot be reached within `timeout_s`.
    """

    __slots__ = ("_arrived", "_session", "_socket", "_timeout_s", "address", "is_open")

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._socket = _dial(address, monotonic() + timeout_s)
        with contextlib.suppress(OSError):  # A connection that is gone already says so at the first request.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Nothing is gained by waiting for more.
        self._timeout_s = 0.0  # Of the socket; set before the first wait.
        self._session = Session()
        self._arrived: dict[int, Response] = {}
        self.is_open = True

    def ask(self, method: str, params: Sequence[Value], deadline: float) -> Response:
        """Send one request and wait for its answer.

        Raises:
            LinkError: the connection ended first.
            TimedOut: the deadline (of `time.monotonic`) passed first.
            ProtocolError: the node does not speak the protocol.
            BadRequest: the parameters cannot be encoded; the link is as before.
        """
        message_id, frame = self._session.request(method, params)
        try:
            if self._session.in_flight == 1:
                # Nothing else is on its way, so the node is not blocked on us and will read all of this.
                self._limit_waiting(deadline)
                self._socket.sendall(frame)
            else:
                self._send_receiving(frame, deadline)
            return self._wait(message_id, deadline)
        except BaseException as error:
            self.close()
            self._explain(error, method)
            raise

    def send(self, method: str, batch: Sequence[Sequence[Value]], deadline: float) -> list[int]:
        """Send several requests at once, and return their ids; `wait` brings the answers.  Raises as `ask` does."""
        message_ids = []
        frames = []
        try:
            for params in batch:
                message_id, frame = self._session.request(method, params)
                message_ids.append(message_id)
                frames.append(frame)
            self._send_receiving(b"".join(frames), deadline)
        except BaseException as error:
            self.close()
            self._explain(error, method)
            raise
        return message_ids

    def wait(self, message_id: int, method: str, deadline: float) -> Response:
        """The answer to a request sent before.  Raises as `ask` does."""
        answer = self._arrived.pop(message_id, None)  # Also after a close: what came is there.
        if answer is not None:
            return answer
        try:
            return self._wait(message_id, deadline)
        except BaseException as error:
            self.close()
            self._explain(error, method)
            raise

    def abandon(self, message_id: int) -> None:
        """Nobody waits for this answer any more."""
        if self._arrived.pop(message_id, None) is None and self.is_open:
            try:
                self._session.abandon(message_id)
            except ProtocolError:
                self.close()  # A node that owes that much is left.

    def close(self) -> None:
        """End the connection; what had arrived before can still be taken."""
        self.is_open = False
        self._socket.close()

    def _wait(self, message_id: int, deadline: float) -> Response:
        arrived = self._arrived
        while message_id not in arrived:
            self._limit_waiting(deadline)
            data = self._socket.recv(RECEIVE_BYTES)
            self._take(data)
        return arrived.pop(message_id)

    def _take(self, data: bytes) -> None:
        if not data:
            raise LinkError("the node closed the connection" + ("" if self._session.is_clean else " amid an answer"))
        for answer in self._session.receive(data):
            self._arrived[answer.msgid] = answer

    def _limit_waiting(self, deadline: float) -> None:
        if not self.is_open:
            raise LinkError("the connection was given up")
        remaining_s = deadline - monotonic()
        if not self._timeout_s * TIMEOUT_SLACK <= remaining_s <= self._timeout_s:
            if remaining_s <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining_s)
            self._timeout_s = remaining_s

    def _send_receiving(self, data: bytes, deadline: float) -> None:
        """Send while taking what arrives: a node whose answers are not read stops reading, and both would wait."""
        self._limit_waiting(deadline)
        view = memoryview(data)
        self._socket.settimeout(0)
        try:
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    self._receive_or_drain(deadline)
        finally:
            if self._socket.fileno() >= 0:
                self._socket.settimeout(self._timeout_s)

    def _receive_or_drain(self, deadline: float) -> None:
        remaining_s = deadline - monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
            events = selector.select(remaining_s)
        if any(mask & selectors.EVENT_READ for _, mask in events):
            self._take(self._socket.recv(RECEIVE_BYTES))

    def _explain(self, error: BaseException, method: str) -> None:
        """Raise what the caller understands in place of what the system said."""
        match error:
            case TimeoutError():
                raise TimedOut(
                    f"{self.address} did not answer {method} in time", {"address": str(self.address)}
                ) from None
            case OSError():
                raise LinkError(error.strerror or str(error)) from error
            case ProtocolError():
                raise ProtocolError(f"{self.address}: {error.message}", error.details) from error
