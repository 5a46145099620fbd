"""The answer to `POST /<db>/_mget`: the values of many keys, of a dataset all from one version.

In JSON lines a body has one key per line, "text" or {"base64": "..."}.  Its answer has `{"key": ..., "value": ...}` per
line, in the order asked, with null for a missing value.  In MessagePack both are arrays: of bin (a str counts as its
UTF-8), and of bin or nil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgpack

from gossipkv.errors import BadRequest, ProtocolError, TooLarge
from gossipkv.http import json_lines, media
from gossipkv.http.answers import HttpAnswer
from gossipkv.http.media import Media
from gossipkv.http.reads import checked_origin, read_from
from gossipkv.wire.opaque import OpaqueLimits, unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gossipkv.http.reads import DataRequest
    from gossipkv.wire.rpc import Value

MAX_KEYS: Final = 10_000  # Our clients put as many into one frame; a node takes 16,000.
MAX_BODY_ELEMENTS: Final = 4 * MAX_KEYS  # A body of somewhat more keys is told how many it may have.

KNOWN: Final = (Media.LINES, Media.MESSAGEPACK)


async def read_many(request: DataRequest) -> HttpAnswer:
    """Return the answer to a request for many keys."""
    headers, body = request.http.headers, request.http.body
    sent = media.given(headers, KNOWN)
    wanted = media.wanted(headers, KNOWN, usual=sent)
    keys = _packed_keys(body) if sent is Media.MESSAGEPACK else list(_keys_in_lines(body))
    values, origin = _values(await request.call("get_many", [*keys], *request.said()), len(keys))
    about = [(b"Content-Type", wanted.value), *read_from(request.context, request.database, origin)]
    if wanted is Media.MESSAGEPACK:
        return HttpAnswer(200, about, msgpack.packb(values))
    pieces = json_lines.pieces(json_lines.record(key, value) for key, value in zip(keys, values, strict=True))
    if sum(map(len, keys)) + sum(len(value or b"") for value in values) <= json_lines.PIECE_BYTES:
        return HttpAnswer(200, about, b"".join(pieces))
    return HttpAnswer(200, about, _one_by_one(pieces))


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def lines_of(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Iterate over the lines of a body that are not empty, each with its place.  Raises TooLarge."""
    lines = body.rstrip().split(b"\n", MAX_KEYS)  # Empty lines count as well, since each takes time.
    if len(lines) > MAX_KEYS:
        raise too_many()
    for number, line in enumerate(lines, start=1):
        if stripped := line.strip():
            yield f"line {number} of the body", stripped


def _keys_in_lines(body: bytes) -> Iterator[bytes]:
    return (json_lines.key_of(json_lines.parse(line, where), where) for where, line in lines_of(body))


def packed_array(body: bytes, what: str, *, depth: int) -> list[Value]:
    """Return the array of a body in MessagePack; `depth` is 2 for an array of arrays.  Raises BadRequest."""
    try:
        found = unpack(body, OpaqueLimits(len(body), MAX_BODY_ELEMENTS, depth), raw=True)
    except ValueError as error:
        raise BadRequest(f"the body cannot be decoded as {what} in MessagePack: {error}") from None
    if not isinstance(found, list):
        raise BadRequest(f"the body must be {what} in MessagePack")
    if len(found) > MAX_KEYS:
        raise too_many()
    return found


def _packed_keys(body: bytes) -> list[bytes]:
    keys: list[bytes] = []
    for number, key in enumerate(packed_array(body, "an array of keys", depth=1)):
        if not isinstance(key, bytes):
            raise BadRequest(f"key {number} of the body must be bin or str")
        keys.append(key)
    return keys


def too_many() -> TooLarge:
    """Return the error for a body with too many keys."""
    return TooLarge(f"the body has more than {MAX_KEYS} keys; send them in several requests", {"limit": MAX_KEYS})


def _values(result: object, count: int) -> tuple[list[bytes | None], str | bytes]:
    match result:
        case [[*values], origin] if len(values) == count:
            found = [value for value in values if value is None or isinstance(value, bytes)]
            if len(found) == count:
                return found, checked_origin(origin)
    raise ProtocolError(f"the node answered get_many in an unknown form; expected {count} values and a version")
