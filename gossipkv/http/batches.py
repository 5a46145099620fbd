"""The answer to `POST /<db>/_mget`: the values of many keys, of a dataset all from one version.

In JSON lines a body has one key per line, "text" or {"base64": "..."}.  Its answer has `{"key": ..., "value": ...}` per
line, in the order asked, with null for a missing value.  In MessagePack both are arrays: of bin (a str counts as its
UTF-8), and of bin or nil.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, TooLarge
from gossipkv.http import json_lines, media
from gossipkv.http.answers import HttpAnswer
from gossipkv.http.media import BadMedia, Media
from gossipkv.http.read_options import read_options
from gossipkv.http.reads import check_name, checked_origin, read_from, refused, unanswered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gossipkv.http.answers import HttpRequest
    from gossipkv.http.reads import ReadContext
    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value

MAX_KEYS: Final = 10_000  # Our clients put as many into one frame; a node takes 16,000.

_KNOWN: Final = (Media.LINES, Media.MESSAGEPACK)


async def read_many(context: ReadContext, request: HttpRequest, target: RequestTarget) -> HttpAnswer:
    """Return the answer to a request for many keys."""
    database = target.database
    if request.method != b"POST" or database is None:
        return unanswered(request, target)
    options = None
    try:
        check_name(database)
        sent = media.given(request.headers, _KNOWN)
        wanted = media.wanted(request.headers, _KNOWN, usual=sent)
        options = read_options(request.headers, target, database, alone=context.alone, session=context.session)
        keys = _packed_keys(request.body) if sent is Media.MESSAGEPACK else list(_keys_in_lines(request.body))
        wire: list[Value] = [options.wire] if options.wire else []
        result = await context.ask.call("get_many", database, [*keys], *wire, timeout_ms=options.timeout_ms)
        values, origin = _values(result, len(keys))
    except BadMedia as unspoken:
        return unspoken.answer
    except GossipKVError as error:
        return refused(error, options)
    headers = [(b"Content-Type", wanted.value), *read_from(context, database, origin)]
    if wanted is Media.MESSAGEPACK:
        return HttpAnswer(200, headers, msgpack.packb(values))
    pieces = json_lines.pieces(json_lines.record(key, value) for key, value in zip(keys, values, strict=True))
    if sum(map(len, keys)) + sum(len(value or b"") for value in values) <= json_lines.PIECE_BYTES:
        return HttpAnswer(200, headers, b"".join(pieces))
    return HttpAnswer(200, headers, _one_by_one(pieces))


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _keys_in_lines(body: bytes) -> Iterator[bytes]:
    lines = body.rstrip().split(b"\n", MAX_KEYS)  # Empty lines count as well, since each takes time.
    if len(lines) > MAX_KEYS:
        raise _too_many()
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            continue
        where = f"line {number} of the body"
        yield json_lines.key_of(json_lines.parse(stripped, where), where)


def _packed_keys(body: bytes) -> list[bytes]:
    is_nested = False

    def end_list(found: list[Value]) -> list[Value]:
        nonlocal is_nested
        if is_nested:
            raise ValueError("an array is in another")
        is_nested = True
        return found

    try:
        keys = msgpack.unpackb(body, raw=True, max_array_len=2 * MAX_KEYS, max_map_len=0, list_hook=end_list)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadRequest(f"the body is no array of keys in MessagePack: {str(error) or type(error).__name__}") from None
    if not isinstance(keys, list):
        raise BadRequest("the body must be an array of keys in MessagePack")
    if len(keys) > MAX_KEYS:
        raise _too_many()
    for number, key in enumerate(keys):
        if not isinstance(key, bytes):
            raise BadRequest(f"key {number} of the body must be bin or str")
    return keys


def _too_many() -> TooLarge:
    return TooLarge(f"the body has more than {MAX_KEYS} keys; ask for them in several requests", {"limit": MAX_KEYS})


def _values(result: object, count: int) -> tuple[list[bytes | None], str | bytes]:
    match result:
        case [[*values], origin] if len(values) == count:
            found = [value for value in values if value is None or isinstance(value, bytes)]
            if len(found) == count:
                return found, checked_origin(origin)
    raise ProtocolError(f"get_many was answered with something else than {count} values and a version")
