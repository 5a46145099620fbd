"""A connection to a node without any I/O: its beginning (TLS and the token), and its answers and end.

The links of the shells (`trio_link`, `aio_link`, `channel`) move the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.client._client import Session
from gossipkv.client.credentials import REFUSALS
from gossipkv.client.route import reason_of
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.dispatcher import Dispatcher
    from gossipkv.client.tls import ClientTls
    from gossipkv.wire.rpc import Value

CLOSED: Final = "the node closed the connection"


@final
class Opening:
    """The beginning of a connection: the TLS handshake, if there is TLS, and the `greeting`, which shows the token."""

    __slots__ = ("_greeting", "is_done", "session", "tls")

    def __init__(self, tls: ClientTls | None = None, greeting: Request[Value] | None = None) -> None:
        self.session = Session()
        self.tls = tls
        self._greeting = greeting
        self.is_done = False

    def take(self, data: bytes | None) -> bytes:
        """Take received bytes, at first None; return bytes to send.

        Raises:
            OSError: this is no such node, or another one may do better.
            Unauthorized, RequestError: the node refuses the token.
        """
        session, tls, greeting, output = self.session, self.tls, self._greeting, b""
        if tls is not None and self._is_shaking():
            output = tls.shake(data)
            if self._is_shaking():
                return output
            data = None
        if greeting is None:
            self.is_done = True
        elif data is None:
            session.send(greeting)
            text = session.take_output()
            session.sent(len(text))
            output += text if tls is None else tls.seal(text)
        else:
            session.receive(tls.open(data) if tls is not None and data else data)
            if session.failure is not None:
                raise OSError(session.failure.message)
            if greeting.is_done:
                self._check(greeting)
            elif not data or (tls is not None and tls.has_ended):
                raise OSError(f"{CLOSED} without an answer to the token")
        return output

    def _check(self, greeting: Request[Value]) -> None:
        try:
            greeting.take()
        except REFUSALS:
            raise
        except GossipKVError as error:  # Another node may do better.
            raise OSError(error.message) from error
        self.is_done = True

    def _is_shaking(self) -> bool:
        return self.tls is not None and not self.tls.is_shaken

    def failure(self, error: OSError) -> OSError:
        """Return the error of a connection that broke, or was silent, meanwhile."""
        if isinstance(error, TimeoutError):
            return OSError(f"no answer to the {'TLS handshake' if self._is_shaking() else 'token'} in time")
        if self._is_shaking() and isinstance(error, ConnectionError):
            return OSError(f"{reason_of(error)} (during the TLS handshake)")
        return error


class NodeLink:
    """A connection to the node at `address`."""

    __slots__ = ("_dispatcher", "_is_quiet", "_tls", "_wake", "address", "is_closed", "session")

    def __init__(self, address: Address, opening: Opening, dispatcher: Dispatcher) -> None:
        self.address = address
        self.session = opening.session
        self.is_closed = False
        self._tls = opening.tls
        self._dispatcher = dispatcher
        self._wake = dispatcher.shell.wake
        self._is_quiet = True  # The last answers woke at most one task; for several, one write is cheaper.

    def take(self, data: bytes | memoryview) -> None:
        """Take received bytes, none if the node closed the connection: wake the tasks whose answers they complete."""
        session, tls, dispatcher, has_ended = self.session, self._tls, self._dispatcher, not data
        if tls is not None and data:
            try:
                data = tls.open(bytes(data))
            except OSError as error:
                return self.break_off(reason_of(error))
            has_ended = tls.has_ended
            if not data and not has_ended:  # A part of a record.
                return None
        if data:
            self._answer(session.receive(data))
            if session.failure is not None:
                return self.break_off(session.failure.message)
        if has_ended:
            return self.break_off(CLOSED + ("" if session.is_clean else " in the middle of an answer"))
        return dispatcher.on_received(self)

    def _answer(self, done: list[Request[object]]) -> None:
        self._is_quiet = len(done) <= 1
        others = []
        for request in done:
            if request.error is not None or request.is_inner:
                others.append(request)
            elif (owner := request.owner) is not None:
                request.owner = None
                self._wake(owner)
        if others:
            self._dispatcher.on_answered(self, others, self._dispatcher.shell.now())

    def break_off(self, reason: str) -> None:
        """End a connection that the node, the network or an invalid answer broke."""
        if not self.is_closed:
            self._dispatcher.on_broken(self, reason, self._dispatcher.shell.now())
            self.close()

    def close(self) -> None:
        """End the connection, without a call of `Dispatcher.on_broken`."""
        if not self.is_closed:
            self.is_closed = True
            # TLS can only end between records.
            self._end(b"" if self._tls is None or self.session.in_flight else self._tls.farewell())

    def send(self, request: Request[object]) -> None:
        """Put the request into the session, and make its bytes go out."""
        raise NotImplementedError

    def _end(self, farewell: bytes) -> None:
        """End the connection, if possible after its last bytes."""
        raise NotImplementedError
