"""Puts that other nodes accepted, as hosts originate them: under the time of their acceptance (insert smearing).

It comes late, and maybe again, at another host: an answer was lost.  So it is written only where it wins, and wins over
nothing that it had not won over when it was accepted:

* A host that has something of the same time or a later one writes nothing; what it has is waited for in its place.
* A tombstone is kept for an hour (`maintenance.tombstone_gc`), and what was accepted more than half of that ago is
  originated under
  the host's own time, as a new write: the tombstone of a later delete may be gone.
* So is what was accepted by a clock that is too far ahead: it would win over all that is written until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.replication.replica.hlc import MAX_TIME, ms_of
from gossipkv.replication.replica.keys import TIME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.replication.replica.replica import Read, RecordWrite, Replica

LATEST_MS: Final = 30 * 60 * 1000  # Later than that it has a new time.
KEEPS_MS: Final = 2 * LATEST_MS  # Tombstones stay so long: half is for clocks, and for what is on its way to others.
_ID_BYTES: Final = 8


def sift(
    copy: Replica, writes: Iterable[RecordWrite], read: Read, now_ms: int, most_ahead_ms: float
) -> tuple[list[RecordWrite], set[int]]:
    """Those of what was accepted that are to be written here, and the origins of what the others lose to.

    Of each key one is written, the latest.
    """
    left: dict[bytes, RecordWrite] = {}
    origins: set[int] = set()
    for write in writes:
        is_lately = -most_ahead_ms <= now_ms - ms_of(write.time) <= LATEST_MS
        one = write if is_lately else write._replace(time=0)
        order = copy.order_of(one.key, read)
        if one.time and order is not None and one.time <= int.from_bytes(order[:TIME_BYTES], "big"):
            origins.add(int.from_bytes(order[TIME_BYTES : TIME_BYTES + _ID_BYTES], "big"))
        elif (other := left.get(one.key)) is None or (other.time or MAX_TIME) < (one.time or MAX_TIME):
            left[one.key] = one
    return [*left.values()], origins
