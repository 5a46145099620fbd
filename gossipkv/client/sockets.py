"""Sockets of clients that wait for them: connecting, the TLS handshake, and what both need.

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

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    from gossipkv.address import Address
    from gossipkv.client.tls import ClientTls

    class Tunable(Protocol):
        """A socket of the system, or Trio's."""

        def setsockopt(self, level: int, option: int, value: int, /) -> object: ...

    # A socket, what to wait for (`selectors`), and the time from which TimeoutError is thrown instead.
    Wait = tuple[socket.socket, int, float]

_Result = TypeVar("_Result")

RECEIVE_BYTES: Final = 65_536  # Half a usual socket buffer; larger blocks cost a page fault each.
UNSHAKEN: Final = "no answer to the TLS handshake in time"
# A connection whose other machine is gone ends within a minute, also while nothing is asked.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_BEGUN: Final = {errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", 0)} - {0}


def tune(connection: Tunable) -> None:
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


def end_input(connection: socket.socket) -> None:
    """Make the connection end after the received bytes, as the node announced by TLS."""
    with suppress(OSError):  # The connection is gone.
        connection.shutdown(socket.SHUT_RD)


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


def shaking(connection: socket.socket, tls: ClientTls, until: float) -> Generator[Wait, None, None]:
    """Do the handshake.  Raises OSError."""
    data = None
    while not tls.is_shaken:
        output = memoryview(tls.shake(data))
        while output:
            try:
                output = output[send_now(connection, output) :]
            except BlockingIOError:
                yield connection, selectors.EVENT_WRITE, until
        if not tls.is_shaken:
            yield connection, selectors.EVENT_READ, until
            data = connection.recv(RECEIVE_BYTES)
