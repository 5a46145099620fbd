"""What a load generator must count of what a server says by HTTP: h11 and msgpack read it, in one pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import h11
import msgpack

OK, NOT_FOUND = 200, 404


@dataclass
class Counted:
    """What was counted, and whether the connection ends behind it."""

    answered: int = 0
    keys: int = 0
    wrong: int = 0
    misses: int = 0
    unchecked: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    is_ended: bool = False


def count(stream: bytes, asked: list[tuple[str, list[bytes | None], int]]) -> Counted:
    """`asked` has kind, expected values and limit of each request, in the order of sending."""
    counted = Counted()
    while stream and asked and not counted.is_ended:
        found = one(stream)
        if found is None:
            break
        response, body, stream = found
        headers = dict(response.headers)
        version = headers.get(b"x-sequins-version", b"").decode()
        counted.is_ended = headers.get(b"connection", b"").lower() == b"close" or response.http_version == b"1.0"
        kind, expected, limit = asked.pop(0)
        code = judge(counted, response.status_code, body, kind=kind, expected=expected, limit=limit, version=version)
        if code is None:
            counted.answered += 1
            counted.versions[version] += 1
        else:
            counted.errors[code or headers.get(b"x-gossipkv-error", b"HTTP_%d" % response.status_code).decode()] += 1
    return counted


def one(stream: bytes) -> tuple[h11.Response, bytes, bytes] | None:
    """The first response, its body, and what is behind it; None where more must come."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(stream)
    response, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert response is not None
            return response, body, connection.trailing_data[0]


def judge(
    counted: Counted, status: int, body: bytes, *, kind: str, expected: list[bytes | None], limit: int, version: str
) -> str | None:
    """Count an answer; of an error its code, empty where the head tells it."""
    if kind == "get" and status == NOT_FOUND and version:
        counted.keys, counted.misses = counted.keys + 1, counted.misses + 1
        counted.wrong += expected != [None]
        return None
    if status != OK:
        return ""
    if kind == "get":
        counted.keys += 1
        counted.wrong += expected != [body]
        return None
    if kind == "get_many":
        try:
            values = msgpack.unpackb(body)
        except ValueError:
            values = []
        counted.keys += len(expected)
        values = values if isinstance(values, list) else []
        counted.wrong += abs(len(expected) - len(values))
        counted.wrong += sum(got != right for got, right in zip(values, expected, strict=False))
        counted.misses += values[: len(expected)].count(None)
        return None
    lines = body.splitlines()
    if lines and lines[-1].startswith(b'{"error"'):
        return "SCAN_BROKEN_OFF"
    records = max(0, len(lines) - 1)
    counted.keys, counted.unchecked = counted.keys + records, counted.unchecked + records
    counted.wrong += not (lines and lines[-1].startswith(b'{"cursor"') and records <= limit)
    return None
