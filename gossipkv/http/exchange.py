"""One connection of HTTP/1.1 without I/O: from bytes to requests, from answers to bytes.

    exchange.receive(data), next_request()       input (b"" ends it); a Request, a Refusal, NEED_DATA or CLOSED
    exchange.head(), body(piece), end()          an answer's status and headers, and its body in one or more pieces
    exchange.is_closing                          close the connection after sending all this

h11 judges each request with a fresh machine, which takes a third less time than its full cycle; nothing is read ahead.
Headers that h11 has accepted behind a plain request line are not judged again.  Refused before h11: heads over
`max_head` or `max_fields`, bare CR or LF, folded headers, two lengths, and no HTTP at all.  Chunk sizes are read here,
as h11 reports none before a chunk is complete.  A body of a method without one stays unread, and its request is the
last.  Requests may be taken ahead; their answers follow in order.  The caller receives only on NEED_DATA, to bound
memory.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, final

import h11

from gossipkv.http.answers import NOBODY, HttpRequest, RefusedRequest, text
from gossipkv.http.target import MAX_TARGET_BYTES, too_long
from gossipkv.wire import http_date

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.http.answers import HttpAnswer
    from gossipkv.http.order import GatewayPeer

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# The phrases of RFC 9110, as Python has them from 3.13 on: a node's answers do not depend on its Python.
_NEW_PHRASES: Final = {413: "Content Too Large", 416: "Range Not Satisfiable"}
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, _NEW_PHRASES.get(status, status.phrase).encode())
    for status in HTTPStatus
}
_WITHOUT_BODY: Final = frozenset({204, 304})

# In every answer, values included: a stored value is never a page of this origin, whatever its claimed type.
_NO_SNIFFING: Final = b"X-Content-Type-Options: nosniff\r\n"
_POLICY: Final = b"Content-Security-Policy"
# The status page has its own policy.  Browsers show an image by a style of their own.
_USUAL_POLICY: Final = b"%b: default-src 'none'; style-src 'unsafe-inline'; sandbox\r\n" % _POLICY

_LINE_SLACK: Final = 64  # A method and a version around the longest target.
_FOLD: Final = re.compile(rb"\n[ \t]")
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,20}")
# These methods are answered, so the error concerns the body.
_NEVER_WITH_BODY: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_WITH_BODY: Final = frozenset({b"POST", b"PUT", b"DELETE"})  # DELETE with one is refused where it is answered.

# A request line that h11 accepts in front of any headers that it has accepted behind such a line.
_PLAIN_LINE: Final = re.compile(rb"(GET|HEAD) ([!-~]+) HTTP/1\.1")
_MAX_KNOWN_BYTES: Final = 2048  # The most bytes of headers that a connection remembers; a browser's are hardly more.

_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")

_FIRST_SHOWN: Final = 0x21
_LAST_SHOWN: Final = 0x7E  # A method consists of printable ASCII.
_TLS_HANDSHAKE: Final = 0x16
_MESSAGEPACK_ARRAYS: Final = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_HERE: Final = "this port speaks HTTP/1.1 without TLS"


class NoRequest(enum.Enum):
    """The results without a request."""

    NEED_DATA = enum.auto()  # Receive more data.
    CLOSED = enum.auto()  # No further request comes: the peer has ended, or the last request said so.


NEED_DATA: Final = NoRequest.NEED_DATA
CLOSED: Final = NoRequest.CLOSED


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request.

    Attributes:
        max_head: Bytes of the request line and the headers.
        max_fields: Headers; each costs h11 about 2 µs, which delay all other clients.
        max_body: Bytes of a body.
        max_pieces: Chunks, or receives, of a body; each costs about 5 µs.
    """

    max_head: int = 32 * 1024
    max_fields: int = 100
    max_body: int = 2 * 1024 * 1024
    max_pieces: int = 4096


class HttpRefusal(NamedTuple):
    """A request that cannot be served; the connection closes after its answer."""

    answer: HttpAnswer


class _Owed(NamedTuple):
    """The properties of a request that its answer depends on."""

    request: HttpRequest | None
    is_old: bool  # HTTP/1.0 knows no chunks.
    is_last: bool


class _Chunks:
    """Follows a chunked body to read the sizes of chunks; h11 checks that they are well-formed."""

    def __init__(self) -> None:
        self.size_bytes = 0  # The full sizes of all chunks that have begun.
        self._left = 0  # Bytes left of a chunk and the line end behind it.
        self._line = b""
        self._is_over = False

    def follow(self, data: bytes) -> None:
        at = 0
        while not self._is_over and at < len(data):
            skipped = min(self._left, len(data) - at)
            self._left -= skipped
            at += skipped
            end = data.find(b"\n", at) + 1
            self._line += data[at : end or len(data)]
            at = end or len(data)
            if end:
                found = _CHUNK_SIZE.match(self._line)
                size = 0 if found is None else int(found[0], 16)
                self._is_over = not size  # Trailers follow, or h11 refuses the line.
                self._line, self._left = b"", size + 2
                self.size_bytes += size


class _Body:
    def __init__(self, judge: h11.Connection, head: h11.Request, headers: dict[bytes, bytes]) -> None:
        self.judge = judge
        self.head = head
        self.headers = headers
        self.chunks = _Chunks() if b"transfer-encoding" in headers else None
        self.data = bytearray()
        self.pieces = 0


@final
class Dates:
    """The `Date` of answers, formatted once a second; `now` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second: int | None = None
        self._line = b""

    def line(self) -> bytes:
        """Return the header as it is sent."""
        second = int(self._now())
        if second != self._second:
            self._second = second
            self._line = b"Date: %b\r\n" % http_date.write(second)
        return self._line


@final
class HttpExchange:
    """The requests and answers of one connection; `dates` gives each answer its time, `peer` is the client."""

    def __init__(self, limits: RequestLimits, *, dates: Dates | None = None, peer: GatewayPeer = NOBODY) -> None:
        self._limits = limits
        self._peer = peer
        self._dates = dates
        self._buffer = bytearray()
        self._searched = 0
        self._has_skipped = False  # An empty line before the next request was skipped.
        self._body: _Body | None = None
        self._known_fields = b""  # The headers of an earlier request without a body, as received.
        self._known: dict[bytes, bytes] = {}  # The same headers by name.
        self._owed: deque[_Owed] = deque()
        self._has_ended = False  # The peer sends no more.
        self._is_last = False  # No further request is taken.
        self.left_unread = False  # The last request has an unread body.
        self._interim = b""
        self._is_chunked = False
        self._is_bodiless = False
        self._is_answering = False

    @property
    def is_closing(self) -> bool:
        """True if all requests taken are answered, and no more will be taken."""
        return self._is_last and not self._owed and not self._is_answering

    @property
    def has_begun(self) -> bool:
        """True if part of a request has arrived: the peer owes the rest."""
        return bool(self._buffer) or self._body is not None

    def receive(self, data: bytes) -> None:
        """Take received data; b"" is the end of the stream."""
        if not data:
            self._has_ended = True
        elif not self._is_last:
            self._buffer += data

    def finish(self) -> None:
        """Take no further request; the next answer announces the end."""
        self._is_last = True
        self._forget_input()

    def refuse(self, answer: HttpAnswer) -> HttpRefusal:
        """Take no further request, and send this answer instead, such as after a timeout.

        Requires: all requests taken are answered.
        """
        assert not self._owed, self._owed
        self.finish()
        self._owed.append(_Owed(None, is_old=False, is_last=True))
        return HttpRefusal(answer)

    def interim(self) -> bytes:
        """Return bytes to send before any answer: a peer may wait for them with its body."""
        interim, self._interim = self._interim, b""
        return interim

    def next_request(self) -> HttpRequest | HttpRefusal | NoRequest:
        """Return the next request, its refusal, or the reason why there is none."""
        if self._is_last:
            return CLOSED
        try:
            found = self._next_head() if self._body is None else self._next_body(self._body)
        except RefusedRequest as refused:
            self.finish()
            self._owed.append(_Owed(None, is_old=False, is_last=True))
            return HttpRefusal(refused.answer)
        if found is None:
            if not self._has_ended:
                return NEED_DATA
            self.finish()
            return CLOSED
        return found

    def head(self, request: HttpRequest | None, answer: HttpAnswer) -> bytes:
        """Return status and headers of the answer to the oldest unanswered request; None for a refusal."""
        owed = self._owed.popleft()
        assert owed.request is None or owed.request is request, (owed.request, request)
        self._is_answering = not isinstance(answer.body, bytes)
        self._is_bodiless = answer.status in _WITHOUT_BODY or (request is not None and request.method == b"HEAD")
        self._is_chunked = False
        lines = [_STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d \r\n" % answer.status]
        if self._dates is not None:
            lines.append(self._dates.line())
        lines.append(_NO_SNIFFING)
        if all(name != _POLICY for name, _ in answer.headers):
            lines.append(_USUAL_POLICY)
        lines += [b"%b: %b\r\n" % header for header in answer.headers]
        is_last = owed.is_last or (self._is_last and not self._owed)
        if isinstance(answer.body, bytes):
            if answer.status not in _WITHOUT_BODY:
                lines.append(b"Content-Length: %d\r\n" % len(answer.body))
        elif not owed.is_old:
            self._is_chunked = not self._is_bodiless
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if is_last:
            lines.append(b"Connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        assert head.count(b"\n") == len(lines) == head.count(b"\r\n"), head
        return head

    def body(self, piece: bytes) -> bytes:
        """Return a piece of the body as it is sent."""
        if self._is_bodiless or not piece:
            return b""
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece

    def end(self) -> bytes:
        """Return the end of the answer; without it, a peer sees that a body in pieces was cut off."""
        self._is_answering = False
        return b"0\r\n\r\n" if self._is_chunked else b""

    def whole(self, request: HttpRequest | None, answer: HttpAnswer) -> bytes:
        """Return a complete answer whose body is one piece."""
        assert isinstance(answer.body, bytes), answer
        return b"".join((self.head(request, answer), self.body(answer.body), self.end()))

    def _next_head(self) -> HttpRequest | None:
        buffer = self._buffer
        # Some clients send an empty line behind a body (RFC 9112, 2.2).
        if not self._has_skipped and buffer.startswith(b"\r\n"):
            del buffer[:2]
            self._searched = 0
            self._has_skipped = True
        if not buffer or (buffer == b"\r" and not self._has_skipped):
            return None
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3))
        if end < 0:
            self._judge_begun(buffer)
            self._searched = len(buffer)
            return None
        head = bytes(buffer[: end + 4])
        self._judge_head(head)
        del buffer[: end + 4]
        self._searched = 0
        self._has_skipped = False
        return self._read_head(head)

    def _judge_begun(self, buffer: bytearray) -> None:
        """Refuse an incomplete head that cannot become valid."""
        _judge_first(buffer[0])
        if (bare := _BARE_LINE_FEED.search(buffer, max(0, self._searched - 1))) is not None:
            raise _refused(
                400, f"the line that ends at byte {bare.start()} ends with LF alone; end each line with CR LF"
            )
        line_end = buffer.find(b"\r\n", 0, MAX_TARGET_BYTES + _LINE_SLACK + 2)
        if line_end < 0 and len(buffer) > MAX_TARGET_BYTES + _LINE_SLACK:
            raise RefusedRequest(too_long())
        if len(buffer) > self._limits.max_head:
            raise _refused(431, f"the headers have more than {self._limits.max_head} bytes")

    def _judge_head(self, head: bytes) -> None:
        """Refuse a complete head that is slow to judge, or that h11 accepts while other parsers read it differently."""
        _judge_first(head[0])
        if head.find(b"\r\n") > MAX_TARGET_BYTES + _LINE_SLACK:
            raise RefusedRequest(too_long())
        if len(head) > self._limits.max_head:
            raise _refused(431, f"the headers have more than {self._limits.max_head} bytes")
        lines = head.count(b"\r\n")
        if lines != head.count(b"\n") or lines != head.count(b"\r"):
            raise _refused(400, "a line contains CR or LF alone; end each line with CR LF")
        if lines > self._limits.max_fields + 2:
            raise _refused(431, f"the request has more than {self._limits.max_fields} headers")
        if _FOLD.search(head) is not None:
            raise _refused(
                400, "a header continues on a second line, which HTTP no longer allows; write each header on one line"
            )

    def _read_head(self, head: bytes) -> HttpRequest | None:
        line, _, fields = head.partition(b"\r\n")
        if fields == self._known_fields and (plain := _PLAIN_LINE.fullmatch(line)) is not None:
            return self._taken(
                HttpRequest(plain[1], plain[2], self._known, peer=self._peer), is_old=False, is_last=False
            )
        judge = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.max_head)
        judge.receive_data(_in_ascii(head))
        event = _next_event(judge)
        assert isinstance(event, h11.Request), event
        headers = _headers(event)
        _judge_request(event, headers)
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            is_last = is_old = _is_old(event)
            if b"connection" in headers or b"upgrade" in headers:
                # After the end of a message without a body, h11 reports the meaning of these headers.
                _next_event(judge)
                is_last = _is_last(judge)
            # After a last request no other comes.
            if event.http_version == b"1.1" and len(fields) <= _MAX_KNOWN_BYTES:
                self._known_fields, self._known = fields, headers
            return self._taken(
                HttpRequest(event.method, event.target, headers, peer=self._peer), is_old=is_old, is_last=is_last
            )
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise _refused(400, "the request has both Content-Length and Transfer-Encoding; send only one of them")
        body = _Body(judge, event, headers)
        length = int(headers[b"content-length"]) if b"content-length" in headers else None
        if length != 0 and event.method in _NEVER_WITH_BODY:
            raise _refused(400, f"a {event.method.decode()} request must have no body; only POST and PUT may have one")
        if length != 0 and event.method not in _WITH_BODY:
            self.left_unread = True
            return self._taken(
                HttpRequest(event.method, event.target, headers, peer=self._peer), is_old=_is_old(event), is_last=True
            )
        if length is not None and length > self._limits.max_body:
            raise self._too_long(length)
        self._body = body
        found = self._next_body(body)
        if found is None and b"expect" in headers and not _is_old(event) and not body.data:
            self._interim = CONTINUE
        return found

    def _next_body(self, body: _Body) -> HttpRequest | None:
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            if body.chunks is not None:
                body.chunks.follow(data)
                if body.chunks.size_bytes > self._limits.max_body:
                    raise self._too_long(body.chunks.size_bytes)
            body.judge.receive_data(data)
        while True:
            event = _next_event(body.judge)
            if isinstance(event, h11.Data):
                body.data += event.data
                body.pieces += 1
                if len(body.data) > self._limits.max_body:
                    raise self._too_long(len(body.data))
                if body.pieces > self._limits.max_pieces:
                    raise _refused(413, f"the body has more than {self._limits.max_pieces} chunks; send larger chunks")
            elif isinstance(event, h11.EndOfMessage):
                self._body = None
                self._buffer += body.judge.trailing_data[0]
                self._searched = 0
                request = HttpRequest(body.head.method, body.head.target, body.headers, bytes(body.data), self._peer)
                return self._taken(request, is_old=_is_old(body.head), is_last=_is_last(body.judge))
            else:
                return None

    def _too_long(self, size: int) -> RefusedRequest:
        return _refused(413, f"the body has {size} bytes or more; the limit is {self._limits.max_body}")

    def _taken(self, request: HttpRequest, *, is_old: bool, is_last: bool) -> HttpRequest:
        """Note that a request is owed its answer, and whether it is the last."""
        if is_last:
            self.finish()
        self._owed.append(_Owed(request, is_old=is_old, is_last=is_last))
        return request

    def _forget_input(self) -> None:
        self._buffer.clear()
        self._searched = 0
        self._body = None
        self._interim = b""


def _judge_first(first: int) -> None:
    """Refuse a first byte that begins no request, and name the protocol of this port."""
    if _FIRST_SHOWN <= first <= _LAST_SHOWN:
        return
    if first == _TLS_HANDSHAKE:
        raise _refused(400, f"{_HERE}; use http:// instead of https://")
    if first in _MESSAGEPACK_ARRAYS:
        raise _refused(400, f"{_HERE}; for MessagePack-RPC, use the port of the node's setting `listen`")
    raise _refused(400, f"{_HERE}; an HTTP request cannot begin with the byte 0x{first:02x}")


def _refused(status: int, line: str) -> RefusedRequest:
    return RefusedRequest(text(status, line))


def _in_ascii(head: bytes) -> bytes:
    """Escape the target's bytes beyond ASCII: curl sends them as they were typed."""
    if head.isascii():
        return head
    line, end, rest = head.partition(b"\r\n")
    return _BEYOND_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + end + rest


def _next_event(judge: h11.Connection) -> object:
    try:
        return judge.next_event()
    except h11.RemoteProtocolError as error:
        raise _refused(error.error_status_hint, f"the request is not valid HTTP/1.1: {_shown(error)}") from None


def _headers(event: h11.Request) -> dict[bytes, bytes]:
    """Return the headers by name; repeated ones are joined."""
    fields = list(event.headers)  # Convert once, since h11 makes each item anew.
    headers = dict(fields)
    if len(headers) != len(fields):
        headers = {}
        for name, value in fields:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _judge_request(event: h11.Request, headers: dict[bytes, bytes]) -> None:
    """Refuse requests that h11 accepts and no path answers."""
    if not event.http_version.startswith(b"1."):
        version = event.http_version.decode()
        raise _refused(505, f"{_HERE}, but the request is HTTP/{version}")
    if event.method == b"CONNECT":
        raise _refused(400, "this server is no proxy, so it does not support CONNECT")
    if b"expect" in headers and headers[b"expect"].lower() != b"100-continue":
        raise _refused(417, "the header Expect has an unsupported value; only 100-continue is supported")


def _is_old(event: h11.Request) -> bool:
    """True for HTTP/1.0, which knows no chunks and no second request."""
    return event.http_version == b"1.0"


def _is_last(judge: h11.Connection) -> bool:
    """True if the client sends no further request: it says so, or wants another protocol."""
    return judge.their_state is not h11.DONE


def _shown(error: Exception) -> str:
    message = str(error)
    return message if len(message) <= len("x" * 200) else message[:200] + "..."
