"""A `get_many`, `put_many` or `delete_many` of any size, in parts that fit into frames; without any I/O.

A shell drives a generator: it sends each request that it gets, and passes the answer or the error back.  Parts are sent
one after the other: each is so large that the round trip hardly matters, and other requests get their turns in between.

A part of a `get_many` has limits for keys and bytes.  If the node finds it or its answer TOO_LARGE, half of it is asked
for again, down to one key; parts grow again as they succeed.  All parts of a dataset are from one version: the first
answer names it, and the others ask for it.  If a node no longer has that version (it was retired, or the connection
went over to a node that never had it), the read begins anew, a few times at most.  After that, or if the caller named
the version, `UnknownVersion` is raised.  A part of a write is never sent twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from gossipkv.client import reads, tables
from gossipkv.client._client import Column, call_request, get_many_request, joined
from gossipkv.errors import GossipKVError, ProtocolError, TooLarge, Unknown, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Literal, TypeVar

    from gossipkv.client._client import Request
    from gossipkv.client.range_deletion import DeletionPages
    from gossipkv.client.reads import Key, Keys, Stamp
    from gossipkv.wire.rpc import Value

    _Yield = TypeVar("_Yield")
    _Send = TypeVar("_Send")
    _Result = TypeVar("_Result")
    _Whole = TypeVar("_Whole")

    Row = tuple[Key, bytes] | tuple[Key, bytes, int]
    Writing = Generator[Request[Value], Value, None]

PART_KEYS: Final = 10_000  # A node takes 16,384 elements a frame; this is 1.5 ms of a core, so others get a turn.
PART_DELETES: Final = 900  # One element each, of those 1,024.
PART_RECORDS: Final = 300  # Three elements each; a node takes 1,024 in a request that is not answered at once.
PART_EXPIRING: Final = 240  # Records with an expiry of their own have four elements.
PART_BYTES: Final = 1 << 20  # Bytes of keys and values: far below the longest frame, and of the order of the answer.
OVERHEAD_BYTES: Final = 5  # The head of a key or a value.
ATTEMPTS: Final = 4  # A version is retired once; four times within one request would have another cause.

WRITES: Final = {"put_many": ("records", "put"), "delete_many": ("keys", "deleted")}  # Words of their errors.

Values = list[bytes | None] | Column
Many = tuple[Values, "Stamp"]


def reading(
    database: bytes,
    keys: Keys,
    options: dict[str, Value],
    saw: Callable[[Many], object] = lambda _: None,
    *,
    into: Literal["arrow"] | None = None,
    as_text: bool = False,
    most: int = PART_KEYS,
) -> Generator[Request[Many], Many, Many]:
    """Return the values of `keys` and their stamp; the first part has at most `most`, mostly all.

    The values are a list, or with `into` a column, `as_text` of texts.  Each answer is passed to `saw`.

    Raises:
        BadRequest: `into` or `as_text` is not valid, or a value is no text.
    """
    columns, several = reads.into_columns(into, as_text=as_text), reads.several(keys)
    asked = several if isinstance(several, (list, tuple)) else list(several)
    answer: Many | None = None
    if len(asked) <= most:
        request = get_many_request(database, asked, reads.packed(options), columns=columns)
        if request.size_bytes <= PART_BYTES:
            try:
                answer = yield request
                saw(answer)
            except TooLarge:
                asked = request.keys()  # The caller's list may have changed.
                if len(asked) == 1:
                    raise
                most = len(asked) // 2
    attempts = ATTEMPTS
    while answer is None:
        attempts -= 1
        try:
            whole = [*map(reads.key_bytes, asked)]
            answer = yield from _one_version(database, whole, options, saw, most, columns=columns)
        except UnknownVersion:
            if "version" in options or not attempts:
                raise
    found, stamp = answer
    return found.as_text() if as_text and isinstance(found, Column) else found, stamp


def finished(
    steps: Generator[_Yield, _Send, _Result], finish: Callable[[_Result], _Whole]
) -> Generator[_Yield, _Send, _Whole]:
    """Return the same steps, and `finish` of their result."""
    return finish((yield from steps))


def _one_version(
    database: bytes,
    keys: list[bytes],
    options: dict[str, Value],
    saw: Callable[[Many], object],
    most: int,
    *,
    columns: bool,
) -> Generator[Request[Many], Many, Many]:
    found: list[Values] = []
    stamp: Stamp = ""
    version: Value = options.get("version")
    sizes = [len(key) + OVERHEAD_BYTES for key in keys]
    begin = 0
    while begin < len(keys):
        assert most > 0, most
        part = keys[begin : _end(sizes, begin, most)]
        try:
            values, stamp = answer = yield get_many_request(database, part, reads.packed(options), columns=columns)
            saw(answer)
        except TooLarge:
            if len(part) == 1:
                raise
            most = len(part) // 2
            continue
        if version is not None and stamp != version:
            raise ProtocolError(f"the node answered get_many for version {version!r} from version {stamp!r}")
        if isinstance(stamp, str) and version is None:
            version, options = stamp, {"version": stamp}
        assert len(values) == len(part), (len(values), len(part))  # The session has compared them.
        found.append(values)
        begin += len(part)
        most = min(most + most // 4 + 1, PART_KEYS)  # Doubling would make every second part too large.
    if columns:
        return joined(cast("list[Column]", found)), stamp
    return [value for values in cast("list[list[bytes | None]]", found) for value in values], stamp


def writing(table: str, records: Iterable[Row], options: dict[str, Value], saw: Callable[[bytes], object]) -> Writing:
    """Put `records` in their order.  The `details` of an error have the outcome of the other parts."""
    rows = [_row(record) for record in reads.several(records, "records")]
    sizes = [len(key) + len(value) + 2 * OVERHEAD_BYTES for key, value, _ in rows]
    most = PART_EXPIRING if any(own for _, _, own in rows) else PART_RECORDS
    items: list[Value] = [[key, value, *own] for key, value, own in rows]
    yield from _writes(("put_many", table, items, options), sizes, most, saw)


def _row(record: Row) -> tuple[bytes, bytes, list[int]]:
    """Return the key, the value and perhaps the expiry of a record.  Raises TypeError."""
    try:
        key, value, *own = record
    except (TypeError, ValueError):  # It is no tuple, or too short.
        own = [0, 0]
    if len(own) > 1:
        raise TypeError(f"a record must be (key, value) or (key, value, expires_at), not {record!r:.80}")
    return reads.key_bytes(key), tables.value_bytes(value), own


def deleting(table: str, keys: Keys, options: dict[str, Value], saw: Callable[[bytes], object]) -> Writing:
    """Delete `keys`.  The `details` of an error have the outcome of the other parts."""
    whole = [*map(reads.key_bytes, reads.several(keys))]
    sizes = [len(key) + OVERHEAD_BYTES for key in whole]
    yield from _writes(("delete_many", table, [*whole], options), sizes, PART_DELETES, saw)


def _writes(
    call: tuple[str, str, list[Value], dict[str, Value]], sizes: list[int], most: int, saw: Callable[[bytes], object]
) -> Writing:
    method, table, items, options = call
    begin, count, (kind, done) = 0, len(items), WRITES[method]
    while True:
        end = _end(sizes, begin, most) if sizes else 0
        try:
            saw(tables.token_of(method, (yield call_request(method, [table, items[begin:end], options]))))
        except GossipKVError as error:
            if end - begin < count:
                unsent = count - end
                error.message += f" (of {count} {kind}, the first {begin} were {done} and the last {unsent} not sent)"
                error.details.update({done: begin, "unsent": unsent})
            raise
        begin = end
        if begin == count:
            return


def deleting_range(deletion: DeletionPages, saw: Callable[[bytes], object]) -> Generator[Request[Value], Value, int]:
    """Delete a range; return the number of deleted records, which the `details` of an error have as well."""
    while (call := deletion.next_call()) is not None:
        method, *params = call
        try:
            saw(deletion.take((yield call_request(method, params))))
        except GossipKVError as error:
            if isinstance(error, Unknown):
                deletion.take_unknown(error)
            error.details["deleted"] = deletion.deleted
            raise
    return deletion.deleted


def _end(sizes: list[int], begin: int, most: int) -> int:
    """Return the end of the part that starts at `begin`: at least one key or record."""
    end = begin
    size_bytes = 0
    while end < len(sizes) and end - begin < most:
        size_bytes += sizes[end]
        if size_bytes > PART_BYTES and end > begin:
            break
        end += 1
    assert end > begin, (begin, end)
    return end
