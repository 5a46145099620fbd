"""Tokens of change feeds: the place of a feed in each partition, opaque to clients.

    token    [format 3][body, compressed][seal of all before it (`replication.replica.token_keys`)]
    body     [table, prefix, [place, ...], config]    as MessagePack

By the table's map with that config id, a place is of the partition that begins at its first key, up to the first key of
the next place. After a split, each child begins at its parent's place. A range that took the place of retired ones
begins with a snapshot.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, TooOld
from gossipkv.replication.changes.places import FeedPlace, decode_place
from gossipkv.replication.replica.token_keys import SEAL_BYTES
from gossipkv.wire.opaque import OpaqueLimits, unpack

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from gossipkv.replication.replica.token_keys import TokenKeys
    from gossipkv.table.records.router import PartitionRoute

FORMAT: Final = b"\3"  # Other than that of a session's token, which has the same keys.
FAST: Final = 1  # Ids of assignments are random, so more effort would gain little.
MAX_PARTITIONS: Final = 1 << 14  # A token has about 100 bytes of each.
LIMITS: Final = OpaqueLimits(8 << 20, max_elements=4 + 9 * MAX_PARTITIONS, max_depth=3, max_unzipped=16 << 20)
ID_BYTES: Final = 16
ANEW: Final = 'call `changes` with start="snapshot", which gives all present records and goes on from there'


class FeedToken(NamedTuple):
    """The places of a feed, in the order of keys."""

    table: bytes
    prefix: bytes
    config: int
    places: list[FeedPlace]


def encode(token: FeedToken, keys: TokenKeys) -> bytes:
    """Encode a token for a client."""
    body = msgpack.packb([token.table, token.prefix, [place.encode() for place in token.places], token.config])
    return keys.seal(FORMAT + zlib.compress(body, FAST))


def check(data: bytes, keys: TokenKeys) -> None:
    """Check the seal of a token.

    Raises:
        BadRequest: the token was changed, or is of another cluster.
        TooOld: its key was removed.
    """
    if keys.is_sealed(data):
        return
    if data[:1] == FORMAT and keys.lacks_key(data):
        raise TooOld(f"the key that sealed the token is in no key ring of this node any more; {ANEW}")
    raise _refused()


def decode(data: bytes) -> FeedToken:
    """Decode a token that was checked. Raises BadRequest: it is none of a feed."""
    if data[:1] != FORMAT:
        raise _refused()
    try:
        match unpack(data[1:-SEAL_BYTES], LIMITS):
            case [bytes(table), bytes(prefix), list(rows), int(config)] if len(table) == ID_BYTES:
                return FeedToken(table, prefix, config, [*map(decode_place, rows)])
    except (ValueError, GossipKVError) as error:
        raise _refused() from error
    raise _refused()


def digest_of(token: bytes) -> bytes:
    """Return the key under which a feed is kept; no token gives none."""
    return sha256(token).digest() if token else b""


def places_by(
    partitions: Iterable[PartitionRoute], places: Sequence[FeedPlace], over: Container[bytes] = ()
) -> Iterator[FeedPlace]:
    """Yield the place in each partition by a map that is at least as new as that of the places.

    Those of a split range begin at the place of their parent. A partition with keys of several places has replaced
    retired ranges, and so has a new one whose time is over; `over` has the first keys of such. Either begins anew.
    """
    firsts = [place.first for place in places]
    for partition in partitions:
        number, first = bisect_right(firsts, partition.first) - 1, partition.first
        last = len(firsts) if partition.end is None else bisect_right(firsts, partition.end)
        is_joined = number < 0 or any(inner != partition.end for inner in firsts[number + 1 : last])
        is_new = first in over and places[number].config > 0 and places[number].partition != partition.partition
        if is_joined or is_new:
            yield FeedPlace(partition.partition, first, cursor=b"")
        else:
            yield replace(places[number], partition=partition.partition, first=first)


def _refused() -> BadRequest:
    return BadRequest("the token was not given by `changes` of this cluster, or is damaged", {"option": "token"})
