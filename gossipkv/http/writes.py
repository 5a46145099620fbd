"""Writes to tables: PUT and DELETE of a key, and `POST /<table>/_mput` of many records.

A body of `_mput` has `{"key": ..., "value": ...}` per line, as `_mget` answers, or is an array of `[key, value]` in
MessagePack.  It is written in requests of `PART_RECORDS`, one after the other, so a failure may leave a part of it
written.  The answer has no body.  Its `GossipKV-Token` is that of a session that has seen the write.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from gossipkv.client.parts import PART_RECORDS
from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, Unauthorized
from gossipkv.http import json_lines, media
from gossipkv.http.answers import HttpAnswer, text
from gossipkv.http.batches import MAX_KEYS, lines_of, packed_array, too_many
from gossipkv.http.media import BadMedia, Media
from gossipkv.http.permissions import is_of_its_origin
from gossipkv.http.read_options import write_options
from gossipkv.http.reads import TOKEN, allowed, check_name, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.http.answers import HttpRequest
    from gossipkv.http.read_options import ReadOptions
    from gossipkv.http.reads import ReadContext
    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value

WRITTEN: Final = frozenset({b"PUT", b"DELETE"})

_KNOWN: Final = (Media.LINES, Media.MESSAGEPACK)
_UNCONDITIONAL: Final = (
    "nothing is written on a condition here yet: leave the header away, or read the key, and write without it"
)


async def write_one(context: ReadContext, request: HttpRequest, target: RequestTarget) -> HttpAnswer:
    """Return the answer to PUT or DELETE of a key."""
    database, key = target.database, target.key
    assert request.method in WRITTEN and database and key, request  # noqa: PT018  # The site has looked.
    try:
        options = _options(request, target, database)
        if request.method == b"PUT":
            token = await _write(context, options, "put", database, key, request.body)
        elif request.body:
            raise BadRequest("DELETE has no body here")
        else:
            token = await _write(context, options, "delete", database, key)
    except _Conditional as conditional:
        return conditional.answer
    except GossipKVError as error:
        return _refused(error, target)
    return _written([token])


async def write_many(context: ReadContext, request: HttpRequest, target: RequestTarget) -> HttpAnswer:
    """Return the answer to `_mput`."""
    database, done, tokens = target.database, 0, list[bytes | None]()
    assert database, request
    if not is_of_its_origin(request):  # Browsers send a POST from any page, while PUT and DELETE ask first.
        return text(403, "this came from a page of another site, which does not write here", Unauthorized.code)
    try:
        options = _options(request, target, database)
        packed = media.given(request.headers, _KNOWN) is Media.MESSAGEPACK
        rows: list[Value] = _packed_rows(request.body) if packed else [*_rows_in_lines(request.body)]
        for done in range(0, len(rows), PART_RECORDS):
            tokens.append(await _write(context, options, "put_many", database, rows[done : done + PART_RECORDS]))
    except BadMedia as unspoken:
        return unspoken.answer
    except _Conditional as conditional:
        return conditional.answer
    except GossipKVError as error:
        if done:
            error.message = f"the first {done} records were written, and then: {error.message}"
        return _refused(error, target)
    return _written(tokens)


class _Conditional(Exception):
    """A write with a condition, or of a part of a value; `answer` refuses it."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.body)
        self.answer = answer


def _options(request: HttpRequest, target: RequestTarget, database: str) -> ReadOptions:
    check_name(database)
    conditions = [name for name in request.headers if name.startswith(b"if-") or name == b"if"]
    if conditions:
        raise _Conditional(text(501, f"{conditions[0].decode('latin-1')}: {_UNCONDITIONAL}"))
    if b"content-range" in request.headers:
        raise BadRequest("Content-Range: a part of a value is not written here; send all of it")
    return write_options(request.headers, target)


async def _write(context: ReadContext, options: ReadOptions, method: str, *params: Value) -> bytes | None:
    """Return the token, or None if the write was accepted for later.  Raises GossipKVError."""
    wire: list[Value] = [options.wire] if options.wire else []
    match await context.ask.call(method, *params, *wire, timeout_ms=options.timeout_ms):
        case bytes() as token:
            return token
        case {"accepted": True}:
            return None
    raise ProtocolError(f"{method} was answered with something else than a token")


def _written(tokens: list[bytes | None]) -> HttpAnswer:
    """Return the answer to writes: done, or accepted for later, which no session depends on."""
    if None in tokens:
        return HttpAnswer(202)
    token = b"".join(dict.fromkeys(token for token in tokens if token))
    return HttpAnswer(204, [(TOKEN, b64encode(token))] if token else [])


def _refused(error: GossipKVError, target: RequestTarget) -> HttpAnswer:
    if isinstance(error, BadRequest) and "database" in error.details:  # It is a dataset.
        refusal = text(405, error.message, error.code)
        return HttpAnswer(405, [*refusal.headers, allowed(target)], refusal.body)
    return refused(error, None)


def _rows_in_lines(body: bytes) -> Iterator[list[Value]]:
    for where, line in lines_of(body):
        match json_lines.parse(line, where):
            case {"key": key, "value": value, **others} if not others:
                yield [json_lines.key_of(key, f"the key in {where}"), json_lines.key_of(value, f"the value in {where}")]
            case _:
                raise BadRequest(f'{where} must be {{"key": ..., "value": ...}}')


def _packed_rows(body: bytes) -> list[Value]:
    rows = packed_array(body, "an array of [key, value]", depth=2)
    if len(rows) > MAX_KEYS:
        raise too_many()
    for number, row in enumerate(rows):
        match row:
            case [bytes(), bytes()]:
                pass
            case _:
                raise BadRequest(f"record {number} of the body must be [key, value], each bin or str")
    return rows
