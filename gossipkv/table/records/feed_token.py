"""Tokens of change feeds: the place of a feed in each partition, opaque to clients.

    token    [format 1][body, compressed][CRC-32C u32, of the cluster's id and all before it]
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

from gossipkv.errors import BadRequest, GossipKVError
from gossipkv.replication.changes.places import FeedPlace, decode_place
from gossipkv.storage.checksum import crc32c
from gossipkv.wire.opaque import OpaqueLimits, unpack

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from gossipkv.table.records.router import PartitionRoute

FORMAT: Final = b"\1"
CHECKSUM_BYTES: Final = 4
FAST: Final = 1  # Ids of assignments are random, so more effort would gain little.
MAX_PARTITIONS: Final = 1 << 14  # A token has about 100 bytes of each.
LIMITS: Final = OpaqueLimits(8 << 20, max_elements=4 + 9 * MAX_PARTITIONS, max_depth=3, max_unzipped=16 << 20)
ID_BYTES: Final = 16


class FeedToken(NamedTuple):
    """The places of a feed, in the order of keys."""

    table: bytes
    prefix: bytes
    config: int
    places: list[FeedPlace]


def encode(token: FeedToken, cluster: bytes) -> bytes:
    """Encode a token for a client."""
    body = msgpack.packb([token.table, token.prefix, [place.encode() for place in token.places], token.config])
    covered = FORMAT + zlib.compress(body, FAST)
    return covered + crc32c(cluster + covered).to_bytes(CHECKSUM_BYTES, "big")


def decode(data: bytes, cluster: bytes) -> FeedToken:
    """Decode a token. Raises BadRequest: it is damaged, or of another cluster."""
    covered = data[:-CHECKSUM_BYTES]
    if covered[:1] != FORMAT or crc32c(cluster + covered).to_bytes(CHECKSUM_BYTES, "big") != data[-CHECKSUM_BYTES:]:
        raise _refused()
    try:
        match unpack(covered[1:], LIMITS):
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
