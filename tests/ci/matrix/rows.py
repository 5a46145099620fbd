"""The rows of the matrix for records: each action at each size, with the documented answer.

A size is none, one, the limit or one more. What makes no sense is in `SENSELESS`, with the reason.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ci.matrix.doors import Database

RECORDS = {b"key%05d" % number: b"value %d" % number for number in range(1_100)}
KINDS = ("dataset", "hash", "range", "expiring")
READS = ("get", "get_many", "scan", "changes")
WRITES = ("put", "delete", "put_many", "delete_many", "delete_range")
CLIENTS = ("blocking", "aio", "trio")
LIFETIME_MS = 7_200_000  # The table of expiring records has this lifetime.
HOUR_MS = 3_600_000
EXPIRES_MS = (int(time.time()) + 3_600) * 1000

LONGEST_KEY = 65_522  # The limit of a table; a dataset has 65,535.
LONGEST_VALUE = 16_711_616
LONGEST_BODY = 2 << 20
LONGEST_TARGET = 8 << 10
PAGE = 1_000  # `scan_limit`, and the changes of a poll.
FRAME_ELEMENTS = 16_384
ELEMENTS = 1_024  # The limit of a request that is not answered at once.
ENVELOPE = 9  # The elements of a request with one option that are no keys or values.

SENSELESS = {
    ("changes", "none"): "a feed without changes does not end; `one` shows that nothing comes before the one",
    ("changes", "resp"): "Redis's protocol has no change feeds",
    ("delete_range", "resp"): "Redis's protocol deletes keys",
    ("delete_many", "http"): "HTTP deletes one key",
    ("delete_range", "http"): "HTTP deletes one key",
    ("get_many", "more", "resp"): "any number of keys that fits into a frame is taken",
    ("put_many", "more", "resp"): "any number of keys that fits into a frame is taken",
    ("delete_many", "more", "resp"): "any number of keys that fits into a frame is taken",
    **{(method, "more", client): "clients divide what is too large" for client in CLIENTS
       for method in ("get_many", "put_many", "delete_many")},
}  # fmt: skip


class Refusal(NamedTuple):
    """A documented error."""

    code: str


class Row(NamedTuple):
    """One action: the answer, and the records before and after it at another node."""

    size: str
    args: tuple[object, ...]
    answer: object = None
    lifetime: dict[str, int] = {}  # noqa: RUF012  # Defaults that are never changed.
    before: dict[bytes, bytes] = {}  # noqa: RUF012  # No row changes it.
    after: dict[bytes, bytes | None] = {}  # noqa: RUF012  # No row changes it.


def is_sensible(method: str, door: str, size: str) -> bool:
    return not {(method, size), (method, door), (method, size, door)} & SENSELESS.keys()


def rows_of(method: str, door: str, database: Database, tag: bytes) -> Iterator[Row]:
    """Generate the rows of one method at one door; keys of writes begin with `tag`."""
    rows = ROWS[method](door, database, tag + b"/") if method in ROWS else ()
    for row in rows:
        if is_sensible(method, door, row.size.split()[0]):
            # Redis counts words, and HTTP its limits, before the database is known.
            is_known_first = row.answer == Refusal("ERR") or (door == "http" and isinstance(row.answer, Refusal))
            is_refused = _is_of_tables(method, database) and not is_known_first
            yield row._replace(answer=_refusal(method, door), before={}, after={}) if is_refused else row


def _is_of_tables(method: str, database: Database) -> bool:
    return database.kind == "dataset" and (method in WRITES or method == "changes")


def _refusal(method: str, door: str) -> Refusal:
    if door != "http":
        return Refusal("BAD_REQUEST")
    return Refusal("405 BAD_REQUEST" if method in WRITES else "400 BAD_REQUEST")


def _longest_key(door: str, database: Database) -> tuple[int, Refusal]:
    if door == "http":
        return LONGEST_TARGET - len(f"/{database.name}/"), Refusal("414")
    return (65_535 if database.kind == "dataset" else LONGEST_KEY), Refusal("BAD_REQUEST")


def _most(method: str, door: str, lifetime: dict[str, int], width: int) -> tuple[int, Refusal]:
    """Return how many keys or records a request takes, and the refusal of one more."""
    if door == "http":
        return 10_000, Refusal("413 TOO_LARGE")
    if door == "resp":
        return {"get_many": 8_000, "put_many": 2_000, "delete_many": 2_000}[method], Refusal("")
    if door != "wire":  # More than two parts.
        return {"get_many": 20_001, "put_many": 700, "delete_many": 1_900}[method], Refusal("")
    most = (FRAME_ELEMENTS if method == "get_many" else ELEMENTS) - ENVELOPE - 2 * len(lifetime)
    return most // width, Refusal("BAD_REQUEST")


def _get(door: str, database: Database, _tag: bytes) -> Iterator[Row]:
    length, refusal = _longest_key(door, database)
    yield Row("none", (b"absent",))
    if door != "http":  # There, the path without a key is a page.
        yield Row("none, empty key", (b"",))
    yield Row("one", (database.keys[0],), RECORDS[database.keys[0]])
    yield Row("limit", (b"k" * length,))
    yield Row("more", (b"k" * (length + 1),), refusal)


def _get_many(door: str, database: Database, _tag: bytes) -> Iterator[Row]:
    most, refusal = _most("get_many", door, {}, 1)
    keys = (database.keys * (most // len(database.keys) + 2))[: most + 1]
    yield Row("none", ([],), Refusal("ERR") if door == "resp" else [])
    yield Row("one", (keys[:1],), [RECORDS[keys[0]]])
    yield Row("one of two", ([b"absent", keys[0]],), [None, RECORDS[keys[0]]])
    yield Row("limit", (keys[:most],), [RECORDS[key] for key in keys[:most]])
    yield Row("more", (keys,), refusal)


def _scan(_door: str, _database: Database, _tag: bytes) -> Iterator[Row]:
    records = sorted(RECORDS.items())
    yield Row("none", (b"zz", 10), [])
    for size, count in (("one", 1), ("limit", PAGE), ("more", PAGE + 1)):
        yield Row(size, (b"key", count), records[:count])


def _changes(_door: str, _database: Database, tag: bytes) -> Iterator[Row]:
    records = sorted(RECORDS.items())
    yield Row("one", (tag, 1), [(tag + b"1", b"v")], before={tag + b"1": b"v"})
    yield Row("limit", (b"key00", PAGE), records[:PAGE])
    yield Row("more", (b"key0", len(records)), records)


def _put(door: str, database: Database, tag: bytes) -> Iterator[Row]:
    length, refusal = _longest_key(door, database)
    lifetime = {"ttl_ms": HOUR_MS} if database.kind == "expiring" else {}
    longest, value = (tag * length)[:length], tag * 20
    yield Row("none", (tag + b"empty", b""), lifetime=lifetime, after={tag + b"empty": b""})
    yield Row("one", (tag + b"1", b"v"), lifetime=lifetime, after={tag + b"1": b"v"})
    yield Row("limit", (longest, value), lifetime=lifetime, after={longest: value})
    yield Row("more", (longest + b"k", value), refusal, lifetime)
    # The same way for all kinds and clients. RESP allows a second, which is too little on a busy machine.
    if database.kind == "hash" and door in {"wire", "http"}:
        most = LONGEST_BODY if door == "http" else LONGEST_VALUE
        large = (tag * most)[: most + 1]
        yield Row("limit of value", (tag + b"2", large[:most]), after={tag + b"2": large[:most]})
        yield Row("more of value", (tag + b"3", large), Refusal("413" if door == "http" else "TOO_LARGE"))


def _delete(door: str, database: Database, tag: bytes) -> Iterator[Row]:
    length, refusal = _longest_key(door, database)
    yield Row("none", (tag + b"absent",), after={tag + b"absent": None})
    yield Row("one", (tag + b"1",), before={tag + b"1": b"v"}, after={tag + b"1": None})
    yield Row("limit", (b"k" * length,))
    yield Row("more", (b"k" * (length + 1),), refusal)


def _put_many(door: str, database: Database, tag: bytes) -> Iterator[Row]:
    expires = database.kind == "expiring"
    own = (EXPIRES_MS,) if expires and door not in {"http", "resp"} else ()
    lifetime = {"ttl_ms": HOUR_MS} if expires and door != "resp" else {}
    most, refusal = _most("put_many", door, lifetime, 4 if own else 3)
    records = [(tag + b"%d" % number, b"v%d" % number, *own) for number in range(most + 1)]
    yield Row("none", ([],), Refusal("ERR") if door == "resp" else None, lifetime)
    for size, part in (("one", records[:1]), ("limit", records[:most])):
        yield Row(size, (part,), lifetime=lifetime, after={key: value for key, value, *_ in (part[0], part[-1])})
    yield Row("more", (records,), refusal, lifetime)


def _delete_many(door: str, _database: Database, tag: bytes) -> Iterator[Row]:
    most, refusal = _most("delete_many", door, {}, 1)
    keys = [tag + b"%d" % number for number in range(most + 1)]
    yield Row("none", ([],), Refusal("ERR") if door == "resp" else None)
    for size, part in (("one", keys[:1]), ("limit", keys[1:most])):
        ends = {part[0], part[-1]}
        yield Row(size, (part,), before=dict.fromkeys(ends, b"v"), after=dict.fromkeys(ends))
    yield Row("more", (keys,), refusal)


def _delete_range(_door: str, _database: Database, tag: bytes) -> Iterator[Row]:
    yield Row("none", (tag + b"absent",), 0)
    yield Row("more, everything", (b"",), Refusal("BAD_REQUEST"))
    for size, count in (("one", 1), ("limit", PAGE), ("more", PAGE + 1)):
        prefix = tag + size.encode() + b"/"
        keys = [prefix + b"%d" % number for number in range(count)]
        yield Row(size, (prefix,), count, before=dict.fromkeys(keys, b"v"), after=dict.fromkeys(keys[-1:]))


ROWS = {
    "get": _get, "get_many": _get_many, "scan": _scan, "changes": _changes, "put": _put, "delete": _delete,
    "put_many": _put_many, "delete_many": _delete_many, "delete_range": _delete_range,
}  # fmt: skip
