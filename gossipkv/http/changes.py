"""The answer to `GET /<table>/` with `Accept: text/event-stream`: changes of a table as server-sent events.

    data: {"key": "a", "value": "1", "expires_at": null}
                                                                an empty line ends each event
    id: AeJyc...                                                the last one of a page has the feed's token, in Base64
    data: {"key": "b", "value": null, "expires_at": null}

`?prefix=` and `?start=snapshot` are options of the feed.  A browser that reconnects sends the last id as
`Last-Event-ID`, and the feed goes on there; `?token=` is the same for other clients.  A poll without changes sends the
id alone behind a comment, which no program sees.  An error is the last event, of the type `error`; a client may
reconnect.  When the gateway drains, its streams end with their id.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from gossipkv.access.rights import Right
from gossipkv.errors import BadRequest, GossipKVError, ProtocolError
from gossipkv.http import json_lines
from gossipkv.http.answers import HttpAnswer
from gossipkv.http.media import qualities
from gossipkv.http.reads import NOT_KEPT, check_name
from gossipkv.http.reads import refused as refused_data
from gossipkv.wire.json_form import json_form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from gossipkv.http.answers import HttpRequest
    from gossipkv.http.reads import ReadContext
    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value

EVENTS: Final = b"text/event-stream"
WAIT_MS: Final = 10_000  # Proxies end a connection on which nothing was sent for a minute or less.
TIMEOUT_MS: Final = 4_000  # Time for an answer beyond the wait: something is sent at least each 15 s.
_KNOWN: Final = ("prefix", "start", "token")


def wants_changes(request: HttpRequest, target: RequestTarget) -> bool:
    """Return True if a request is for the changes of a table."""
    is_of_events = EVENTS in qualities(request.headers.get(b"accept", b""))
    return is_of_events and request.method == b"GET" and target.database is not None and target.key == b""


async def changes(context: ReadContext, request: HttpRequest, target: RequestTarget) -> HttpAnswer:
    """Return the answer to a request for changes; the first poll tells if they can be followed."""
    assert target.database is not None, target
    try:
        check_name(target.database)
        options = _options(request, target)
        page = await _poll(context, target.database, {**options, "wait_ms": 0})
        context.streams.check(request.peer.address)
    except GossipKVError as error:
        return refused_data(error, None)
    events = _events(context, request, target.database, options, page)
    return HttpAnswer(200, [(b"Content-Type", EVENTS), NOT_KEPT], events)


async def _events(
    context: ReadContext, request: HttpRequest, table: str, options: dict[str, Value], page: tuple[list[Value], bytes]
) -> AsyncIterator[bytes]:
    permissions, streams = context.permissions, context.streams
    follow = {name: value for name, value in {**options, "wait_ms": WAIT_MS}.items() if name in {"prefix", "wait_ms"}}
    with streams.counted(request.peer.address):
        while True:
            rows, token = page
            try:
                for piece in json_lines.pieces(_lines(rows, token)):
                    yield piece
                if permissions is not None:
                    await permissions.check(request, (Right.READ, table))
                next_page = await streams.wait(_poll(context, table, {**follow, "token": token}))
            except GossipKVError as error:
                line = json_lines.line({"error": error.code, "message": error.message})
                yield b"event: error\ndata: %b\n" % line
                return
            if next_page is None:
                yield b"".join(_lines([], token))
                return
            page = next_page


def _lines(rows: Iterable[Value], token: bytes) -> Iterator[bytes]:
    """Yield events, the last one with the token; without events a comment and the token."""
    event = b""
    for row in rows:
        match row:
            case [bytes(key), bytes() | None as value, int() | None as expires_at]:
                yield event
                told: dict[str, Value] = {"key": json_form(key), "value": json_form(value), "expires_at": expires_at}
                event = b"data: %b\n" % json_lines.line(told)
            case _:
                raise ProtocolError("a node answered with what is no change")
    yield b"%bid: %b\n%b" % (b"" if event else b":\n", b64encode(token), event or b"\n")


async def _poll(context: ReadContext, table: str, options: dict[str, Value]) -> tuple[list[Value], bytes]:
    wait_ms = options["wait_ms"]
    assert isinstance(wait_ms, int)
    match await context.ask.call("changes", table, options, timeout_ms=wait_ms + TIMEOUT_MS):
        case [list(rows), bytes(token)]:
            return rows, token
    raise ProtocolError("the answer to changes is not changes and a token")


def _options(request: HttpRequest, target: RequestTarget) -> dict[str, Value]:
    """Return the options of the feed in the wire's form. Raises BadRequest."""
    for name in target.options:
        if name not in _KNOWN:
            raise BadRequest(f"unknown option {name[:60]!r} after the ?; a feed has {', '.join(_KNOWN)}")
    given: dict[str, Value] = {name: value for name, value in target.options.items() if value and name != "token"}
    packed = request.headers.get(b"last-event-id") or target.options.get("token", "").encode()
    if packed:
        given.pop("start", None)  # A browser reconnects to the same address.
        try:
            given["token"] = b64decode(packed, validate=True)
        except (ValueError, binascii.Error) as error:
            raise BadRequest(f"the token is not base64, as the ids of events are: {error}") from None
    return given
