"""Tokens of change feeds: the place of a feed in each partition, opaque to clients.

    token    [format 1][body, compressed][CRC-32C u32, of the cluster's id and all before it]
    body     [table, prefix, [place, ...]]    as MessagePack

A place is of the partition that began at its first key, up to the first key of the next place. After a split, each
child begins at its parent's place.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, TooOld
from gossipkv.replication.changes.places import FeedPlace, decode_place
from gossipkv.storage.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.table.records.router import PartitionRoute

FORMAT: Final = b"\1"
CHECKSUM_BYTES: Final = 4
FAST: Final = 1  # Ids of assignments are random, so more effort would gain little.
MAX_BYTES: Final = 8 << 20  # A body of about 100,000 partitions.
ID_BYTES: Final = 16


class FeedToken(NamedTuple):
    """The places of a feed, in the order of keys."""

    table: bytes
    prefix: bytes
    places: list[FeedPlace]


def encode(token: FeedToken, cluster: bytes) -> bytes:
    """Encode a token for a client."""
    body = msgpack.packb([token.table, token.prefix, [place.encode() for place in token.places]])
    covered = FORMAT + zlib.compress(body, FAST)
    return covered + crc32c(cluster + covered).to_bytes(CHECKSUM_BYTES, "big")


def decode(data: bytes, cluster: bytes) -> FeedToken:
    """Decode a token. Raises BadRequest: it is damaged, or of another cluster."""
    covered = data[:-CHECKSUM_BYTES]
    if covered[:1] != FORMAT or crc32c(cluster + covered).to_bytes(CHECKSUM_BYTES, "big") != data[-CHECKSUM_BYTES:]:
        raise _refused()
    try:
        match msgpack.unpackb(zlib.decompressobj().decompress(covered[1:], MAX_BYTES), strict_map_key=True):
            case [bytes(table), bytes(prefix), list(rows)] if len(table) == ID_BYTES:
                return FeedToken(table, prefix, [*map(decode_place, rows)])
    except (ValueError, TypeError, zlib.error, msgpack.UnpackException, GossipKVError) as error:
        raise _refused() from error
    raise _refused()


def places_by(partitions: Iterable[PartitionRoute], places: Sequence[FeedPlace]) -> Iterator[FeedPlace]:
    """Yield the place in each partition: those of a split range begin at the place of their parent.

    Raises:
        TooOld: a partition has keys of several places, since it was re-created.
    """
    firsts = [place.first for place in places]
    for partition in partitions:
        number = bisect_right(firsts, partition.first) - 1
        last = len(firsts) if partition.end is None else bisect_right(firsts, partition.end)
        if number < 0 or any(first != partition.end for first in firsts[number + 1 : last]):
            raise TooOld("a partition was re-created since the token was given", {"partition": partition.partition})
        yield replace(places[number], partition=partition.partition, first=partition.first)


def _refused() -> BadRequest:
    return BadRequest("the token was not given by `changes` of this cluster, or is damaged", {"option": "token"})
