"""Range cleanup: deletes, page by page, records that departed replicas left in shared spaces.

A replica that leaves a shared space, by a bulk load or a drop, leaves its records there. Batches of deletes remove
them; such batches are no log entries and reach no other node. A row in the space notes the rest, so a restarted node
continues. A space without other replicas is dropped whole.

Split parents that the log no longer reaches back to are forgotten here, too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Overloaded, StorageError
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import ABANDONED, DIVIDED, TIME_BYTES, TOMBSTONE
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from gossipkv.processes.pace import RateLimit
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.spaces import Spaces

PAGE_RECORDS: Final = 512


@final
class RangeCleanup:
    """Deletes abandoned records, a page at a time."""

    def __init__(self, spaces: Spaces, outside: ReplicationPorts, pace: RateLimit) -> None:
        self._spaces = spaces
        self._outside = outside
        self._position = 0  # Last batch; the next page is read once that is synced.
        self._at: dict[tuple[int, bytes], bytes] = {}  # Start of the next page by space and suffix.
        self.pace = pace

    def look(self) -> None:
        """Delete a page if one is due; a failed page is retried later."""
        is_time = self._outside.synced() >= self._position and not self.pace.wait_s(self._outside.now())
        if self._spaces.abandoned and is_time:
            space, suffix = next(iter(self._spaces.abandoned))
            if self._outside.get(space, ABANDONED + suffix) is not None:  # Otherwise the note is not synced yet.
                with contextlib.suppress(Overloaded, StorageError):
                    if self._spaces.is_empty(space):
                        self._drop(space)
                    else:
                        self._clear(space, suffix)

    def _drop(self, space: int) -> None:
        batch = Batch()
        batch.drop_space(space)
        self._position = self._outside.append(batch, lambda: None)
        self._spaces.forget(space)
        self._at = {place: start for place, start in self._at.items() if place[0] != space}

    def _clear(self, space: int, suffix: bytes) -> None:
        start, end = self._spaces.abandoned[space, suffix].records
        start = self._at.get((space, suffix), start)  # A scan from the first key would pass the earlier deletes again.
        found, more = self._outside.scan(space, start, end, reverse=False, limit=PAGE_RECORDS)
        batch = Batch()
        for key, data in found:
            batch.delete(space, key)
            if record.is_deleted(data):
                batch.delete(space, TOMBSTONE + data[:TIME_BYTES] + key[1:])
        if more is None:
            batch.delete(space, ABANDONED + suffix)
        if batch.count:  # A page that the scan spent on deletes has no records.
            self._position = self._outside.append(batch, lambda: None)
        size_bytes = sum(len(key) + len(data) for key, data in found)
        self.pace.took(size_bytes, self._outside.now())
        if more is None:
            del self._spaces.abandoned[space, suffix]
            self._at.pop((space, suffix), None)
        else:
            self._at[space, suffix] = more

    def forget_divided(self, floor: int) -> None:
        """Forget split parents that a log beginning at `floor` no longer names."""
        for space, divided in [*self._spaces.divided.items()]:
            gone = [suffix for suffix, parent in divided.items() if parent.position <= floor]
            batch = Batch()
            for suffix in gone:
                batch.delete(space, DIVIDED + suffix)
            if gone:
                with contextlib.suppress(Overloaded, StorageError):  # Retried later.
                    self._outside.append(batch, lambda: None)
                    self._spaces.forget_divided(space, gone)
