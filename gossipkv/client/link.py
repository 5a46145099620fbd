"""One blocking connection to one node: a socket and the session on it.

Several callers may have requests open on one link (a pipeline, and a plain `get` inside its loop): each waiting caller
receives for all, and each request holds its own answer.

A link never recovers.  Any error while bytes are moving closes it, since a half-sent request cannot be taken back; the
dialler then makes a new one.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from gossipkv import name_service
from gossipkv.client import forks
from gossipkv.client._client import Session
from gossipkv.client.route import no_answer, reason_of
from gossipkv.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.tls import ClientTls

RECEIVE_BYTES: Final = 65_536  # Half a usual socket buffer; larger blocks cost a page fault each.
UNSHAKEN: Final = "no answer to the TLS handshake in time"
TIMEOUT_SLACK: Final = 0.99  # Setting a socket's timeout is a system call: a timeout that is 1 % too long is kept.


def end_input(connection: socket.socket) -> None:
    """Make the connection end after the received bytes, as the node announced by TLS."""
    with contextlib.suppress(OSError):  # The connection is gone.
        connection.shutdown(socket.SHUT_RD)


def shake(connection: socket.socket, tls: ClientTls, limit: Callable[[], object]) -> None:
    """Do the handshake; `limit` is called before each wait.  Raises OSError."""
    data = None
    while not tls.is_shaken:
        output = tls.shake(data)
        limit()
        connection.sendall(output)
        if not tls.is_shaken:
            data = connection.recv(RECEIVE_BYTES)


class LinkError(Exception):
    """The connection ended before the answer came; the text says how.  Internal: the client fails over."""


def open_socket(address: Address, deadline: float) -> socket.socket:
    """Return a connection to the first address that answers for a name, within the deadline for all of them."""
    found = name_service.addresses(address, deadline)
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
class BlockingLink:
    """A connection to the node at `address`, already authenticated.

    Raises:
        OSError, LinkError: the node cannot be reached within `timeout_s`, or its certificate is wrong.
        GossipKVError: the node's answer to the token.
    """

    __slots__ = ("_generation", "_is_closed", "_session", "_socket", "_timeout_s", "_tls", "address")

    def __init__(self, address: Address, timeout_s: float, credentials: Credentials) -> None:
        deadline = monotonic() + timeout_s
        self.address = address
        self._generation = forks.generation
        self._socket = open_socket(address, deadline)
        with contextlib.suppress(OSError):  # A connection that is gone reports so at the first request.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Requests are written whole.
        self._timeout_s = 0.0  # The socket's timeout; set before the first wait.
        self._session = Session()
        self._is_closed = False
        self._tls: ClientTls | None = None
        try:
            self._tls = credentials.tls(address.host)
            if self._tls is not None:
                self._shake(self._tls, deadline)
            if (greeting := credentials.greeting()) is not None:
                self.ask(greeting, deadline)
                greeting.take()
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""
        return not self._is_closed and self._session.failure is None

    def ask(self, request: Request[object], deadline: float) -> None:
        """Send one request and wait until it is done.

        Raises:
            LinkError: the connection ended first.
            TimedOut: the deadline (of `time.monotonic`) passed first.
            ProtocolError: the node does not speak the protocol.
        """
        self._check()
        session = self._session
        session.send(request)
        try:
            output = session.take_output()
            if session.in_flight == 1:
                # Nothing else is in flight, so the node is not blocked on this client and reads all of the request.
                self._limit_waiting(deadline)
                session.sent(len(output))  # Counted before: after a failure the number of sent bytes is unknown.
                self._socket.sendall(output if self._tls is None else self._tls.seal(output))
            else:
                self._send_receiving(output, deadline)
            while not request.is_done:
                self._limit_waiting(deadline)
                self._take(self._socket.recv(RECEIVE_BYTES))
        except BaseException as error:
            self.close()
            self._explain(error, request)
            raise

    def send(self, batch: Sequence[Request[object]], deadline: float) -> None:
        """Send several requests at once; `wait` waits for each.  Raises as `ask`."""
        self._check()
        try:
            for request in batch:
                self._session.send(request)
            self._send_receiving(self._session.take_output(), deadline)
        except BaseException as error:
            self.close()
            self._explain(error, batch[0])
            raise

    def wait(self, request: Request[object], deadline: float) -> None:
        """Return when a request that was sent before is done.  Raises as `ask`."""
        if request.is_done:  # Also after `close`, for an answer that came before.
            return
        self._check()
        try:
            while not request.is_done:
                self._limit_waiting(deadline)
                self._take(self._socket.recv(RECEIVE_BYTES))
        except BaseException as error:
            self.close()
            self._explain(error, request)
            raise

    def has_begun(self, request: Request[object]) -> bool:
        """Return True if a byte of a request that was sent here was given to the network."""
        return self._session.has_begun(request)

    def has_ended(self) -> bool:
        """Return True if this machine knows that the node has closed the connection."""
        self._timeout_s = 0.0
        try:
            self._socket.settimeout(0)
            if self._tls is None:
                return not self._socket.recv(1, socket.MSG_PEEK)
            while True:  # The bytes may be a session ticket, or the end.
                self._take(self._socket.recv(RECEIVE_BYTES))
        except BlockingIOError:
            return False
        except (OSError, LinkError):
            return True

    def close(self) -> None:
        """End the connection; requests without an answer can be sent elsewhere."""
        if not self._is_closed:
            self._is_closed = True
            for request in self._session.outstanding():
                self._session.withdraw(request)
            # TLS can only end between records; and a forked child must not end its parent's connection.
            if self._tls is not None and not self._session.in_flight and self._generation == forks.generation:
                with contextlib.suppress(OSError):
                    self._socket.settimeout(0)
                    self._socket.send(self._tls.farewell())
            self._socket.close()

    def _shake(self, tls: ClientTls, deadline: float) -> None:
        try:
            shake(self._socket, tls, partial(self._limit_waiting, deadline))
        except TimeoutError:
            raise OSError(UNSHAKEN) from None
        except ConnectionError as error:
            raise OSError(f"{reason_of(error)} amid the TLS handshake") from error

    def _take(self, data: bytes) -> None:
        if not data:
            raise LinkError("the node closed the connection" + ("" if self._session.is_clean else " amid an answer"))
        if self._tls is not None:
            data = self._tls.open(data)
            if self._tls.has_ended:
                end_input(self._socket)
            if not data:
                return
        self._session.receive(data)

    def _check(self) -> None:
        if not self.is_open:
            raise LinkError("the connection was given up")

    def _limit_waiting(self, deadline: float) -> None:
        if self._session.failure is not None:
            raise self._session.failure
        remaining_s = deadline - monotonic()
        if not self._timeout_s * TIMEOUT_SLACK <= remaining_s <= self._timeout_s:
            if remaining_s <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining_s)
            self._timeout_s = remaining_s

    def _send_receiving(self, data: bytes, deadline: float) -> None:
        """Send while receiving: a node whose answers are not read stops reading, and both would wait."""
        self._limit_waiting(deadline)
        tls = self._tls
        if tls is not None:
            self._session.sent(len(data))  # Half a record cannot be attributed to requests.
            data = tls.seal(data)
        view = memoryview(data)
        self._socket.settimeout(0)
        try:
            while view:
                try:
                    count = self._socket.send(view)
                except BlockingIOError:
                    self._receive_or_drain(deadline)
                    if self._session.failure is not None:
                        raise self._session.failure from None
                else:
                    if tls is None:
                        self._session.sent(count)
                    view = view[count:]
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

    def _explain(self, error: BaseException, request: Request[object]) -> None:
        """Raise the error that callers expect in place of the system's."""
        match error:
            case TimeoutError():
                raise no_answer(request, self.address) from None
            case OSError():
                raise LinkError(error.strerror or str(error)) from error
            case ProtocolError():
                raise ProtocolError(f"{self.address}: {error.message}", error.details) from error
