"""The counts of a load generator over HTTP answers, in one pass: h11 and msgpack read them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h11
import msgpack

from tests.oracle import load_truth

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, NOT_FOUND = 200, 404


@dataclass
class Counted:
    """The counts; `is_ended`: the connection ends after them."""

    answered: int = 0
    keys: int = 0
    wrong: int = 0
    misses: int = 0
    unchecked: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    is_ended: bool = False


@dataclass
class Asked:
    """A request: its kind and keys (of a scan its start), and the known contents of each version."""

    kind: str
    keys: Sequence[bytes]
    limit: int
    tables: load_truth.Tables
    others: Sequence[bytes] | None


def count(stream: bytes, asked: list[Asked]) -> Counted:
    """Count the answers in `stream`; `asked` has the requests in the order of sending."""
    counted = Counted()
    while stream and asked and not counted.is_ended:
        found = one(stream)
        if found is None:
            break
        response, body, stream = found
        headers = dict(response.headers)
        version = headers.get(b"x-sequins-version", b"").decode()
        counted.is_ended = headers.get(b"connection", b"").lower() == b"close" or response.http_version == b"1.0"
        code = judge(counted, response.status_code, body, asked.pop(0), version)
        if code is None:
            counted.answered += 1
            counted.versions[version] += 1
        else:
            counted.errors[code or headers.get(b"x-gossipkv-error", b"HTTP_%d" % response.status_code).decode()] += 1
    return counted


def one(stream: bytes) -> tuple[h11.Response, bytes, bytes] | None:
    """Return the first response, its body, and the rest; None if more bytes must come."""
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


def judge(counted: Counted, status: int, body: bytes, asked: Asked, version: str) -> str | None:
    """Count an answer; return the code of an error, empty if the head has the code."""
    is_miss = asked.kind == "get" and status == NOT_FOUND and version
    if status != OK and not is_miss:
        return ""
    if asked.kind == "scan":
        return judge_scan(counted, body, asked, version)
    values: list[bytes | None] = [None if is_miss else body]
    if asked.kind == "get_many":
        try:
            found = msgpack.unpackb(body)
        except ValueError:
            found = []
        values = found if isinstance(found, list) else []
    counted.keys += len(asked.keys)
    counted.wrong += abs(len(asked.keys) - len(values))
    keys = asked.keys[: len(values)]
    judged = load_truth.judge_values(asked.tables, keys, values[: len(keys)], version)
    counted.wrong += judged.wrong
    counted.misses += judged.misses
    counted.unchecked += judged.unchecked
    return None


def judge_scan(counted: Counted, body: bytes, asked: Asked, version: str) -> str | None:
    """Count the lines of a scan; return a code if the scan was broken off."""
    lines = body.removesuffix(b"\n").split(b"\n") if body else []
    if lines and lines[-1].startswith(b'{"error"'):
        return "SCAN_BROKEN_OFF"
    *told, last = lines or [b""]
    end = said(last)
    ends = isinstance(end, dict) and "cursor" in end
    records = [record for line in told if (record := record_of(line)) is not None]
    judged = load_truth.judge_scan(
        asked.tables,
        version,
        start=asked.keys[0],
        limit=len(records),
        records=records,
        cursor=end["cursor"] if ends else None,
        others=asked.others,
        ends=ends and (bool(records) or not told),
    )
    counted.keys += len(told)
    counted.unchecked += judged.unchecked
    counted.wrong += judged.wrong + len(told) - len(records) + max(0, len(told) - asked.limit) + (not ends)
    return None


def said(line: bytes) -> object:
    """Return the value of a line of JSON; None if the line is malformed."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def record_of(line: bytes) -> tuple[bytes, bytes] | None:
    """Return key and value, if a line has both in this order and nothing else."""
    record = said(line)
    if not isinstance(record, dict) or list(record) != ["key", "value"]:
        return None
    key, value = map(bytes_of, record.values())
    return None if key is None or value is None else (key, value)


def bytes_of(form: object) -> bytes | None:
    """Return the bytes of a string or of `{"base64": "..."}`."""
    try:
        if isinstance(form, str):
            return form.encode()
        if isinstance(form, dict) and list(form) == ["base64"] and isinstance(form["base64"], str):
            return base64.b64decode(form["base64"], validate=True)
    except ValueError:
        pass
    return None
