"""Writes to tables: PUT and DELETE of a key, and `POST /<table>/_mput` of many records.

A body of `_mput` has `{"key": ..., "value": ...}` per line, as `_mget` answers, or is an array of `[key, value]` in
MessagePack.  It is written in requests of `PART_RECORDS`, one after the other, so a failure may leave a part of it
written.  The answer has no body.  Its `GossipKV-Token` is that of a session that has seen the write.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from gossipkv.client.parts import PART_RECORDS
from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, Unauthorized
from gossipkv.http import json_lines, media
from gossipkv.http.answers import HttpAnswer, RefusedRequest, text
from gossipkv.http.batches import KNOWN, MAX_KEYS, lines_of, packed_array, too_many
from gossipkv.http.media import Media
from gossipkv.http.permissions import is_of_its_origin
from gossipkv.http.reads import TOKEN, allow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.http.reads import DataRequest
    from gossipkv.wire.rpc import Value


async def put(request: DataRequest) -> HttpAnswer:
    """Return the answer to PUT of a key."""
    return _written([await _write(request, "put", request.key, request.http.body)])


async def delete(request: DataRequest) -> HttpAnswer:
    """Return the answer to DELETE of a key."""
    if request.http.body:
        raise BadRequest("a DELETE request must have no body")
    return _written([await _write(request, "delete", request.key)])


async def put_many(request: DataRequest) -> HttpAnswer:
    """Return the answer to `_mput`."""
    if not is_of_its_origin(request.http):  # Browsers send a POST from any page, while PUT and DELETE ask first.
        return text(
            403,
            "the request was sent from a page of another site, which may not write to this server",
            Unauthorized.code,
        )
    packed = media.given(request.http.headers, KNOWN) is Media.MESSAGEPACK
    rows: list[Value] = _packed_rows(request.http.body) if packed else [*_rows_in_lines(request.http.body)]
    tokens = list[bytes | None]()
    for done in range(0, max(1, len(rows)), PART_RECORDS):  # The node is asked without records, too: it may refuse.
        try:
            tokens.append(await _write(request, "put_many", rows[done : done + PART_RECORDS]))
        except GossipKVError as error:
            if done:
                error.message = f"the first {done} records were written; the next one failed: {error.message}"
            raise
    return _written(tokens)


async def _write(request: DataRequest, method: str, *params: Value) -> bytes | None:
    """Return the token, or None if the write was accepted for later."""
    try:
        result = await request.call(method, *params, *request.said())
    except BadRequest as error:
        if "database" not in error.details:
            raise
        allowed = allow(request.key, of_table=False)
        raise RefusedRequest(text(405, error.message, error.code, headers=[allowed])) from error
    match result:
        case bytes() as token:
            return token
        case {"accepted": True}:
            return None
    raise ProtocolError(f"the node answered {method} in an unknown form; expected a token")


def _written(tokens: list[bytes | None]) -> HttpAnswer:
    """Return the answer to writes: done, or accepted for later, which no session depends on."""
    if None in tokens:
        return HttpAnswer(202)
    token = b"".join(dict.fromkeys(token for token in tokens if token))
    return HttpAnswer(204, [(TOKEN, b64encode(token))] if token else [])


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
