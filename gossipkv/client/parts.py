"""A `get_many` and a `put_many` of any size, in parts that fit into frames; shared by both clients, without any I/O.

A shell drives a generator: it asks each request that it is given, and sends the answer in or throws the error.

A part of a `get_many` has at most so many keys and bytes; when the node finds it or its answer TOO_LARGE, half of it
is asked for again, down to one key, and parts grow again as they succeed.  Of a dataset all parts are from one version:
the first that is answered names it, the others ask for exactly that one.  If a node says that it has that version no
more (it was retired, or the connection went over to a node that never had it), everything is asked anew, a few times at
most.  Then, or if the caller had named the version, `UnknownVersion` is raised.

A part of a `put_many` is never sent twice.

Parts are asked for one after the other: each is large enough that a round trip does not matter, and other requests on
the same connection get their turn in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.client import reads, tables
from gossipkv.client._client import get_many_request
from gossipkv.errors import GossipKVError, ProtocolError, TooLarge, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from gossipkv.client._client import Request
    from gossipkv.client.reads import Key, Stamp
    from gossipkv.wire.rpc import Value

PART_KEYS: Final = 10_000  # A node takes 16,384 elements a frame; some 1.5 ms of one core, so that others get a turn.
PART_RECORDS: Final = 300  # Three elements each; of a request that is not answered at once a node takes 1,024.
PART_BYTES: Final = 1 << 20  # Of keys and values: far below the longest frame, and of the order of the answer.
OVERHEAD_BYTES: Final = 5  # The head of a key or a value.
ATTEMPTS: Final = 4  # A version is retired once; that it happens four times in one request has another cause.

Values = list[bytes | None]
Many = tuple[Values, "Stamp"]


def reading(
    database: bytes, keys: Iterable[Key], options: bytes | None, version: str | None = None
) -> Generator[Request[Many], Many, Many]:
    """The values of `keys`, and what they are from; of `version`, if `options` name one."""
    asked = list(reads.several(keys))
    most = PART_KEYS
    request = whole(database, asked, options)
    if request is not None:
        try:
            return (yield request)
        except TooLarge:
            if len(asked) == 1:
                raise
            most = len(asked) // 2
    return (yield from in_parts(database, asked, options, version, most=most))


def whole(database: bytes, keys: Sequence[Key], options: bytes | None) -> Request[Many] | None:
    """One request for all of `keys`, if that can be; it can nearly always."""
    if len(keys) > PART_KEYS:
        return None
    request = get_many_request(database, keys, options)
    return request if request.size_bytes <= PART_BYTES else None


def in_parts(
    database: bytes, keys: Sequence[Key], options: bytes | None, version: str | None = None, *, most: int = PART_KEYS
) -> Generator[Request[Many], Many, Many]:
    """`reading`, of which the first part has at most `most` keys."""
    asked = [reads.key_bytes(key) for key in keys]
    for _ in range(ATTEMPTS - 1):
        try:
            return (yield from _one_version(database, asked, options, version, most))
        except UnknownVersion:
            if version is not None:
                raise
    return (yield from _one_version(database, asked, options, version, most))


def _one_version(
    database: bytes, keys: list[bytes], options: bytes | None, version: str | None, most: int
) -> Generator[Request[Many], Many, Many]:
    values: Values = []
    stamp: Stamp = ""
    sizes = [len(key) + OVERHEAD_BYTES for key in keys]
    while len(values) < len(keys):
        assert most > 0, most
        part = keys[len(values) : _end(sizes, len(values), most)]
        try:
            found, stamp = yield get_many_request(database, part, options)
        except TooLarge:
            if len(part) == 1:
                raise
            most = len(part) // 2
            continue
        if version is not None and stamp != version:
            raise ProtocolError(f"get_many of version {version} was answered from {stamp!r}")
        if isinstance(stamp, str) and version is None:
            version = stamp
            options = reads.read_options(version, None)
        assert len(found) == len(part), (len(found), len(part))  # The session compares what came with what was asked.
        values += found
        most = min(most + most // 4 + 1, PART_KEYS)  # Not doubled: every second one would be too large again.
    return values, stamp


def writing(
    table: str, records: Iterable[tuple[Key, bytes]], options: dict[str, Value]
) -> Generator[Request[Value], Value, None]:
    """Put `records`, in their order.  Of an error `details` tell what is known of the parts before and after."""
    pairs = [(reads.key_bytes(key), tables.value_bytes(value)) for key, value in records]
    sizes = [len(key) + len(value) + 2 * OVERHEAD_BYTES for key, value in pairs]
    begin = 0
    while True:
        end = _end(sizes, begin, PART_RECORDS) if pairs else 0
        try:
            answer = yield tables.put_many(table, pairs[begin:end], options)
            tables.token_of("put_many", answer)
        except GossipKVError as error:
            if end - begin < len(pairs):
                unsent = len(pairs) - end
                error.message += f" (of {len(pairs)} records the first {begin} are put, the last {unsent} not sent)"
                error.details.update(put=begin, unsent=unsent)
            raise
        begin = end
        if begin == len(pairs):
            return


def _end(sizes: list[int], begin: int, most: int) -> int:
    """Where the part that starts at `begin` ends: after one key or record at least."""
    end = begin
    size_bytes = 0
    while end < len(sizes) and end - begin < most:
        size_bytes += sizes[end]
        if size_bytes > PART_BYTES and end > begin:
            break
        end += 1
    assert end > begin, (begin, end)
    return end
