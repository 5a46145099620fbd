"""Clearing: what copies have left in spaces that others share is deleted, by pages.

A copy that leaves a space with others in it, for it has loaded into one of its own or is dropped, leaves its records
there.  They go by batches of deletes, which are no entries of the log: nobody is told of them.  What is left is noted
in the space, so a later life goes on; where nothing else lies any more the space goes with all that is left.

What the log names that was divided is forgotten here, too, once it does not reach back to that any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import DIVIDED, LEFT, TIME_BYTES, TOMBSTONE
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.spaces import Spaces
    from gossipkv.replication.snapshot.rate_limit import RateLimit

PAGE_RECORDS: Final = 512


@final
class RangeCleanup:
    """Goes through what was left, a page at a time."""

    def __init__(self, spaces: Spaces, outside: ReplicationPorts, pace: RateLimit) -> None:
        self._spaces = spaces
        self._outside = outside
        self._position = 0  # Of the last batch: a page is read when all of it is synced.
        self._at: dict[tuple[int, bytes], bytes] = {}  # Where the next page begins.
        self.pace = pace

    def look(self) -> None:
        """Delete a page, if it is time to.  What fails is done another time."""
        is_time = self._outside.synced() >= self._position and not self.pace.wait_s(self._outside.now())
        if self._spaces.left and is_time:
            space, suffix = next(iter(self._spaces.left))
            if self._outside.get(space, LEFT + suffix) is not None:  # Else it is not synced yet that it was left.
                if self._spaces.is_empty(space):
                    self._drop(space)
                else:
                    self._clear(space, suffix)

    def _drop(self, space: int) -> None:
        batch = Batch()
        batch.drop_space(space)
        try:
            self._position = self._outside.append(batch, lambda: None)
        except (Overloaded, StorageError):
            return
        self._spaces.is_dropped(space)
        self._at = {place: start for place, start in self._at.items() if place[0] != space}

    def _clear(self, space: int, suffix: bytes) -> None:
        start, end = self._spaces.left[space, suffix].records
        start = self._at.get((space, suffix), start)  # Before it are deletes, which a scan would go through again.
        found, more = self._outside.scan(space, start, end, reverse=False, limit=PAGE_RECORDS)
        batch = Batch()
        for key, data in found:
            batch.delete(space, key)
            if record.is_deleted(data):
                batch.delete(space, TOMBSTONE + data[:TIME_BYTES] + key[1:])
        if more is None:
            batch.delete(space, LEFT + suffix)
        if batch.count:  # A page of very many deletes has no record.
            try:
                self._position = self._outside.append(batch, lambda: None)
            except (Overloaded, StorageError):
                return
        size_bytes = sum(len(key) + len(data) for key, data in found)
        self.pace.took(size_bytes, self._outside.now())
        if more is None:
            del self._spaces.left[space, suffix]
            self._at.pop((space, suffix), None)
        else:
            self._at[space, suffix] = more

    def forget_divided(self, floor: int) -> None:
        """The log begins there: forget what it does not name any more."""
        for space, divided in [*self._spaces.divided.items()]:
            gone = [suffix for suffix, one in divided.items() if one.position <= floor]
            batch = Batch()
            for suffix in gone:
                batch.delete(space, DIVIDED + suffix)
            if gone:
                try:
                    self._outside.append(batch, lambda: None)
                except (Overloaded, StorageError):
                    return
                self._spaces.forget_divided(space, gone)
