"""Sockets: connecting and sending; `aio_link` has only their settings from here.

Connecting is a generator of waits, so that one loop serves a new connection beside others.  All sockets have a timeout
or do not wait, so the system's side never waits, and `send_now` uses that.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from gossipkv import name_service
from gossipkv.client.link import NodeLink, Opening

if TYPE_CHECKING:
    from collections.abc import Generator

    from gossipkv.address import Address
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.dispatcher import Dispatcher

    # A socket, what to wait for (`selectors`), and the time from which TimeoutError is thrown instead.
    Wait = tuple[socket.socket, int, float]

_Result = TypeVar("_Result")

RECEIVE_BYTES: Final = 65_536  # Half a usual socket buffer; larger blocks cost a page fault each.
# A connection whose other machine is gone ends within a minute, also while nothing is asked.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_BEGUN: Final = {errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", 0)} - {0}


def tune(connection: socket.socket) -> None:
    """Send requests without a delay, and probe a quiet connection, as far as the system can."""
    options = {socket.TCP_NODELAY: 1}
    options |= {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
    with suppress(OSError):  # A connection that is gone reports so at the first request.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


if os.name == "posix":

    def send_now(connection: socket.socket, data: bytes | memoryview) -> int:
        """Send what the network takes at once; return the number of bytes.  Raises OSError."""
        return os.write(connection.fileno(), data)  # `send` would wait first, and let go of the interpreter for it.

else:

    def send_now(connection: socket.socket, data: bytes | memoryview) -> int:
        """Send what the network takes at once; return the number of bytes.  Raises OSError."""
        timeout_s = connection.gettimeout()
        connection.settimeout(0)
        try:
            return connection.send(data)
        finally:
            connection.settimeout(timeout_s)


def connecting(address: Address, due: float) -> Generator[Wait, None, socket.socket]:
    """Connect to the first address that answers for a name, each within its share of the time.  Raises OSError."""
    found = name_service.addresses(address, due)
    failure: OSError = TimeoutError()
    for position, (family, kind, protocol, _, where) in enumerate(found):
        remaining_s = due - monotonic()
        if remaining_s <= 0:
            break
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(0)
            code = connection.connect_ex(where)
            if code in _BEGUN:
                yield connection, selectors.EVENT_WRITE, due - remaining_s * (1 - 1 / (len(found) - position))
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            failure = OSError(code, os.strerror(code))
        except OSError as error:
            code, failure = -1, error
        except BaseException:
            connection.close()
            raise
        if code:
            connection.close()
        else:
            tune(connection)
            return connection
    raise failure


def waited(steps: Generator[Wait, None, _Result]) -> _Result:
    """Return the result of the steps, waiting as each says."""
    try:
        wait = next(steps)
        while True:
            connection, mask, until = wait
            with selectors.DefaultSelector() as selector:
                selector.register(connection, mask)
                is_ready = bool(selector.select(max(0.0, until - monotonic())))
            wait = next(steps) if is_ready else steps.throw(TimeoutError())
    except StopIteration as end:
        result: _Result = end.value
        return result


def open_socket(address: Address, deadline: float) -> socket.socket:
    """Return a connection whose timeout is the time left.  Raises OSError."""
    connection = waited(connecting(address, deadline))
    connection.settimeout(max(0.001, deadline - monotonic()))
    return connection


def opened(connection: socket.socket, opening: Opening, until: float) -> Generator[Wait, None, None]:
    """Begin a connection.  Raises OSError; Unauthorized, RequestError: the node refuses the token."""
    try:
        output = memoryview(opening.take(None))
        while output or not opening.is_done:
            try:
                while output:
                    output = output[send_now(connection, output) :]
                if not opening.is_done:
                    yield connection, selectors.EVENT_READ, until
                    output = memoryview(opening.take(connection.recv(RECEIVE_BYTES)))
            except BlockingIOError:
                yield connection, selectors.EVENT_WRITE if output else selectors.EVENT_READ, until
    except OSError as error:
        raise opening.failure(error) from error


def dialling(
    address: Address, host: str, credentials: Credentials, until: float
) -> Generator[Wait, None, tuple[socket.socket, Opening]]:
    """Connect to a node, whose certificate has the name `host`.  Raises as `opened`."""
    opening = Opening(credentials.tls(host), credentials.greeting())
    connection = yield from connecting(address, until)
    try:
        yield from opened(connection, opening, until)
    except BaseException:
        connection.close()
        raise
    return connection, opening


class SocketLink(NodeLink):
    """A connection over a socket that does not wait to send."""

    __slots__ = ("_rest", "_socket")

    def __init__(self, address: Address, connection: socket.socket, opening: Opening, dispatcher: Dispatcher) -> None:
        super().__init__(address, opening, dispatcher)
        self._socket = connection
        self._rest = memoryview(b"")  # Bytes taken from the session that are not sent yet, in the form to send.

    def received(self) -> bytes | memoryview:
        """Return received bytes; those of a long answer are already in their place.  Raises OSError."""
        room = self.session.room() if self._tls is None else None
        return self._socket.recv(RECEIVE_BYTES) if room is None else room[: self._socket.recv_into(room)]

    def flush(self) -> bool:
        """Send what the network takes at once; return True if all went out.  Raises OSError."""
        session = self.session
        while self._rest or session.unsent_bytes:
            output = self._rest
            if not output:
                data = session.take_output()
                if self._tls is not None:
                    session.sent(len(data))  # A partly sent record cannot be attributed to requests: all has begun.
                    data = self._tls.seal(data)
                self._rest = output = memoryview(data)
            try:
                count = send_now(self._socket, output)
            except BlockingIOError:
                return False
            if self._tls is None:
                session.sent(count)
            self._rest = output[count:]
        return True

    def _end(self, farewell: bytes) -> None:
        if farewell:
            with suppress(OSError):
                send_now(self._socket, farewell)
