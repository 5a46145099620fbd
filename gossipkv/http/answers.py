"""Requests, answers, and the interface for asking a node.

`docs/reference/errors.md` maps the errors of the wire to HTTP statuses.  An answer that is not a success is one line of
text, with the code of the wire in `X-GossipKV-Error`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from gossipkv.errors import Unauthorized
from gossipkv.http.order import GatewayPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

Header = tuple[bytes, bytes]
Body = bytes | AsyncIterator[bytes]

# HTTP statuses by the wire's code.  Sequins answers 404 if a database or a version does not exist, and 500 if a
# forwarded request meets a node without the partition.
STATUS_BY_CODE: Final = {
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "UNKNOWN_DATABASE": 404,
    "UNKNOWN_VERSION": 404,
    "CONFLICT": 409,
    "STALE_CONFIG": 409,
    "WRITE_LOST": 410,
    "TOO_OLD": 410,
    "TOO_LARGE": 413,
    "OVERLOADED": 429,
    "CORRUPT": 500,
    "INTERNAL": 500,
    "NOT_SERVED": 500,
    "UNKNOWN_METHOD": 501,
    "UNAVAILABLE": 502,
    "NOT_READY": 503,
    "TIMEOUT": 504,
    "UNKNOWN": 504,
}

NOBODY: Final = GatewayPeer("0.0.0.0", "anonymous")  # noqa: S104  # The peer of a request without a node's word on it.

TEXT: Final = (b"Content-Type", b"text/plain; charset=utf-8")
JSON: Final = (b"Content-Type", b"application/json")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A client's request.

    Attributes:
        method: As sent.
        target: The request target as sent, neither decoded nor normalised.
        headers: Values by lower-case name; repeated headers are joined by ", ".
        body: The complete body.
        peer: The client, as far as the connection identifies it.
    """

    method: bytes
    target: bytes
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    peer: GatewayPeer = NOBODY


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer: a status, headers without those of framing, and a body.

    A body of bytes has a `Content-Length`; a body in pieces is sent piece by piece.  The answer to HEAD has the headers
    of GET, and the exchange omits the body.
    """

    status: int
    headers: list[Header] = field(default_factory=list)
    body: Body = b""


class RefusedRequest(Exception):
    """A request that is not done; `answer` says why."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.body)
        self.answer = answer


class Asker(Protocol):
    """A client of the wire, which answers use to ask a node."""

    async def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Value:
        """Call a method and return its result.

        Raises:
            GossipKVError: the node's error, or no node answered.
        """
        ...


def text(status: int, line: str, code: str | None = None, *, headers: Sequence[Header] = ()) -> HttpAnswer:
    """Return one line of text, with the wire's code if there is one."""
    named = [] if code is None else [(b"X-GossipKV-Error", code.encode())]
    return HttpAnswer(status, [TEXT, *named, *headers], _one_line(line).encode() + b"\n")


def document(status: int, value: object) -> HttpAnswer:
    """Return a value as JSON, for programs."""
    return HttpAnswer(status, [JSON], json.dumps(value, ensure_ascii=False).encode() + b"\n")


def refusal(error: GossipKVError) -> HttpAnswer:
    """Return the answer for an error of the wire."""
    answer = text(STATUS_BY_CODE.get(error.code, 500), error.message, error.code)
    if isinstance(error, Unauthorized):
        answer.headers.append((b"WWW-Authenticate", b"Bearer"))
    return answer


def _one_line(line: str) -> str:
    return " ".join(line.split())
