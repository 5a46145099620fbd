"""Smeared puts: a host originates puts that other nodes accepted, under the time of acceptance (insert smearing).

A smeared put arrives late, and perhaps again at another host after a lost answer. So it is written only where it wins,
and it wins only over records over which it would have won when it was accepted:

* A host with a record of the same or a later time writes nothing and waits for that record instead.
* A tombstone is kept for an hour (`maintenance.tombstone_gc`). A put accepted over half an hour ago becomes a new
  write under the host's time, since the tombstone of a later delete may be gone.
* A put from a clock too far ahead becomes a new write, too: it would win over all writes until that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.replication.replica.hlc import MAX_TIME, ms_of
from gossipkv.replication.replica.keys import ID_BYTES, TIME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Read, Replica

LATEST_MS: Final = 30 * 60 * 1000  # A put that arrives later than this gets a new time.
KEEPS_MS: Final = 2 * LATEST_MS  # Tombstones stay this long: half of it covers clock skew and the way to other nodes.


def sift(
    replica: Replica, writes: Iterable[RecordWrite], read: Read, now_ms: int, most_ahead_ms: float
) -> tuple[list[RecordWrite], set[int]]:
    """Return the accepted puts to write here, and the origins of the records to which other puts lose.

    Only the latest put of each key is written.
    """
    left: dict[bytes, RecordWrite] = {}
    origins: set[int] = set()
    for write in writes:
        is_lately = -most_ahead_ms <= now_ms - ms_of(write.time) <= LATEST_MS
        put = write if is_lately else write._replace(time=0)
        order = replica.order_of(put.key, read)
        if put.time and order is not None and put.time <= int.from_bytes(order[:TIME_BYTES], "big"):
            origins.add(int.from_bytes(order[TIME_BYTES : TIME_BYTES + ID_BYTES], "big"))
        elif (other := left.get(put.key)) is None or (other.time or MAX_TIME) < (put.time or MAX_TIME):
            left[put.key] = put
    return [*left.values()], origins
