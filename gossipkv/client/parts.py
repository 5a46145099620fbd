"""A `get_many` of any number of keys, in parts that fit into frames; shared by both clients, without any I/O.

A part has at most so many keys and bytes; when the node finds it or its answer TOO_LARGE, half of it is asked for
again, down to one key, and parts grow again as they succeed.  All parts are from one version: the first that is
answered names it, the others ask for exactly that one.  If a node says that it has that version no more (it was
retired, or the connection went over to a node that never had it), everything is asked anew, a few times at most.  Then,
or if the caller had named the version, `UnknownVersion` is raised.

Parts are asked for one after the other: each is large enough that a round trip does not matter, and other requests on
the same connection get their turn in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.client import reads
from gossipkv.client._requests import get_many_request
from gossipkv.errors import ProtocolError, TooLarge, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from gossipkv.client._requests import Request
    from gossipkv.client.reads import Key

PART_KEYS: Final = 10_000  # A node takes 16,384 elements a frame; some 1.5 ms of one core, so that others get a turn.
PART_BYTES: Final = 1 << 20  # Of keys: far below the longest frame, and of the order of the answer.
KEY_OVERHEAD_BYTES: Final = 5
ATTEMPTS: Final = 4  # A version is retired once; that it happens four times in one request has another cause.

Values = list[bytes | None]
Many = tuple[Values, str]


def whole(database: bytes, keys: Sequence[Key], options: bytes | None) -> Request[Many] | None:
    """One request for all of `keys`, if that can be; it can nearly always."""
    if len(keys) > PART_KEYS:
        return None
    request = get_many_request(database, keys, options)
    return request if request.size_bytes <= PART_BYTES else None


def in_parts(
    database: bytes, keys: Sequence[Key], version: str | None, min_version: str | None, *, most: int = PART_KEYS
) -> Generator[Request[Many], None, Many]:
    """Yields requests, each of which is done when the generator goes on; returns the values and their version.

    The first part has at most `most` keys.
    """
    asked = [reads.key_bytes(key) for key in keys]
    for _ in range(ATTEMPTS - 1):
        try:
            return (yield from _one_version(database, asked, version, min_version, most))
        except UnknownVersion:
            if version is not None:
                raise
    return (yield from _one_version(database, asked, version, min_version, most))


def _one_version(
    database: bytes, keys: list[bytes], version: str | None, min_version: str | None, most: int
) -> Generator[Request[Many], None, Many]:
    values: Values = []
    options = reads.read_options(version, min_version)
    while len(values) < len(keys):
        assert most > 0, most
        part = keys[len(values) : _end(keys, len(values), most)]
        request = get_many_request(database, part, options)
        yield request
        if isinstance(request.error, TooLarge) and len(part) > 1:
            most = len(part) // 2
            continue
        found, answering = request.take()
        if version is None:
            options = reads.read_options(answering, None)
        elif answering != version:
            raise ProtocolError(f"get_many of version {version} was answered from {answering}")
        version = answering
        assert len(found) == len(part), (len(found), len(part))  # The session compares what came with what was asked.
        values += found
        most = min(most + most // 4 + 1, PART_KEYS)  # Not doubled: every second one would be too large again.
    assert version is not None
    return values, version


def _end(keys: list[bytes], begin: int, most: int) -> int:
    """Where the part that starts at `begin` ends: after one key at least."""
    end = begin
    size_bytes = 0
    while end < len(keys) and end - begin < most:
        size_bytes += len(keys[end]) + KEY_OVERHEAD_BYTES
        if size_bytes > PART_BYTES and end > begin:
            break
        end += 1
    assert end > begin, (begin, end)
    return end
