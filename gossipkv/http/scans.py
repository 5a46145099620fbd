"""The answer to `POST /<db>/_scan`: records in key order as JSON lines, and a last line with the outcome.

    {"prefix": "pa", "limit": 1000}      ->      {"key": "paris", "value": "..."}
                                                 ...
                                                 {"cursor": null, "version": "2"}

Pages of the wire follow each other until the records end or `limit` is reached, so memory holds one page.  All come
from the version of the first, but a table has none.  The client's right to read is checked before each page.  A status
is sent before the first record.  A later error is the last line, `{"error": code, "message": ...}`, and an answer that
lacks both lines was cut off.  To a session that showed its token, the last line gives the one after a table's records.
"""

from __future__ import annotations

import difflib
from base64 import b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.access.rights import Right
from gossipkv.errors import BadRequest, GossipKVError, ProtocolError
from gossipkv.http import json_lines, media
from gossipkv.http.answers import HttpAnswer
from gossipkv.http.media import Media
from gossipkv.http.read_options import SHOWN
from gossipkv.http.reads import checked_origin, read_from
from gossipkv.wire.json_form import json_form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gossipkv.http.reads import DataRequest
    from gossipkv.wire.rpc import Value

_KEYS: Final = ("start", "end", "prefix", "cursor")
_KNOWN: Final = (*_KEYS, "reverse", "limit")
_MOST: Final = 2**63 - 1  # The largest integer that the wire encodes simply; no database has so many records.
_IN_HEADERS: Final = {
    "version": "the header X-Sequins-Version",
    "min_version": "the header X-GossipKV-Min-Version",
    "timeout_ms": "the header X-GossipKV-Timeout-Ms",
    "local": "?proxy=true",
}


class _Page(NamedTuple):
    records: list[tuple[bytes, bytes]]
    cursor: bytes | None
    origin: str | bytes  # The version of a dataset, or a table's token.


async def scan(request: DataRequest) -> HttpAnswer:
    """Return the answer to a scan."""
    media.given(request.http.headers, (Media.JSON,))
    media.wanted(request.http.headers, (Media.LINES,), usual=Media.LINES)
    bounds = _bounds(request.http.body)
    page = await _page(request, {**request.options.wire, **bounds})
    about = read_from(request.context, request.database, page.origin)
    return HttpAnswer(200, [(b"Content-Type", Media.LINES.value), *about], _lines(request, page, bounds))


async def _lines(request: DataRequest, page: _Page, bounds: dict[str, Value]) -> AsyncIterator[bytes]:
    # The cursor pins the version of the later pages.
    wire = {name: value for name, value in request.options.wire.items() if name != "min_version"} | bounds
    left, permissions = bounds.get("limit"), request.context.permissions
    is_of_session = SHOWN in request.http.headers
    while True:
        for piece in json_lines.pieces(_records(page)):
            yield piece
        if isinstance(left, int):
            left -= len(page.records)
        if page.cursor is None or left == 0:
            about: dict[str, Value] = {"version": page.origin} if isinstance(page.origin, str) else {}
            if is_of_session and isinstance(page.origin, bytes):
                about = {"token": b64encode(page.origin).decode()}
            yield json_lines.line({"cursor": json_form(page.cursor), **about})
            return
        wire |= {"cursor": page.cursor, "limit": left}
        origin = page.origin
        if is_of_session and isinstance(origin, bytes):
            wire["token"] = origin  # Each page is read by a session that has seen the pages before.
        try:
            if permissions is not None:
                await permissions.check(request.http, (Right.READ, request.database))
            page = await _page(request, wire)
            if isinstance(origin, str) and page.origin != origin:
                raise ProtocolError(f"the scan began in version {origin}, but its next page came from {page.origin!r}")
        except GossipKVError as error:
            yield json_lines.line({"error": error.code, "message": error.message})
            return


def _records(page: _Page) -> Iterator[bytes]:
    return (json_lines.record(key, value) for key, value in page.records)


async def _page(request: DataRequest, wire: dict[str, Value]) -> _Page:
    params: list[Value] = [wire] if wire else []
    limit = wire.get("limit")
    match await request.call("scan", *params):
        case [[*pairs], bytes() | None as cursor, origin]:
            records = [(key, value) for key, value in map(_record, pairs)]
            if (not isinstance(limit, int) or len(records) <= limit) and (records or cursor is None):
                return _Page(records, cursor, checked_origin(origin))
    raise ProtocolError("the node answered scan in an unknown form; expected records, a cursor and a version")


def _record(pair: object) -> tuple[bytes, bytes]:
    match pair:
        case [bytes(key), bytes(value)]:
            return key, value
    raise ProtocolError("the node answered scan with a record of unknown form; expected a key and a value")


def _bounds(body: bytes) -> dict[str, Value]:
    """Return the options of a scan in the wire's form; an empty body has none."""
    options = json_lines.parse(body, "the body") if body.strip() else {}
    if not isinstance(options, dict):
        raise BadRequest('the body must be a JSON object of options, such as {"prefix": "pa"}')
    bounds: dict[str, Value] = {}
    for name, value in options.items():
        if name not in _KNOWN:
            raise _unknown(name)
        if value is None:
            continue
        if name in _KEYS:
            bounds[name] = json_lines.key_of(value, name)
        elif name == "reverse" and not isinstance(value, bool):
            raise BadRequest("reverse must be true or false")
        elif name == "limit" and (type(value) is not int or not 0 < value <= _MOST):
            raise BadRequest(f"limit must be a whole number from 1 to {_MOST}")
        else:
            bounds[name] = value
    return bounds


def _unknown(name: str) -> BadRequest:
    if name in _IN_HEADERS:
        return BadRequest(f"{name} cannot stand in the body; send {_IN_HEADERS[name]} instead", {"option": name})
    near = difflib.get_close_matches(name[:60], _KNOWN, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known options are {', '.join(_KNOWN)}"
    return BadRequest(f"unknown option {name[:60]!r}; {hint}", {"option": name[:60]})
