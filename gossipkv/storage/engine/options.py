"""How a store is set up: the sizes of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gossipkv.storage.engine._log import BATCH_LIMIT, HEADER_BYTES
from gossipkv.storage.engine.segments import RESERVED_BYTES

# What a record costs in a memtable beside its own bytes, about: a place in a node, what nodes leave free, the filter.
RECORD_COST_BYTES: Final = 64

# Written at once: so much takes a disk a few milliseconds, and who comes meanwhile waits for no more.
MOST_GROUP_BYTES: Final = 4 << 20

# Appended and not written yet: one group under way and the next ones; more only makes everybody's answer later.
MOST_WAITING_BYTES: Final = 16 << 20


@final
@dataclass(frozen=True, slots=True)
class Options:
    """Sizes of a store's parts, in bytes."""

    segment_bytes: int = 64 << 20
    table_log: int = 1 << 30  # Of the log, what is kept at least for those who read it.
    file_bytes: int = 64 << 20  # Of a file of a run, at most about.
    stretch_bytes: int = 1 << 30  # What one merge of a compaction writes, about, where there is room.
    # Of a child that merges: what it sorts and indexes by default fits, else it is written twice.
    merge_memory: int = 192 << 20

    @property
    def memtable_bytes(self) -> int:
        """What a memtable takes, at most about: a full segment of records that are not tiny."""
        return self.segment_bytes + self.segment_bytes // 2

    @property
    def reserve_bytes(self) -> int:
        """What is kept of the disk: a segment, two flushes, and a compaction's shortest stretch, two files.

        So deletes get through when nothing else is free, and a merge that makes good for them.
        """
        return 3 * self.segment_bytes + 2 * self.file_bytes

    @property
    def margin_bytes(self) -> int:
        """What is left free beside what a merge needs: the reserve, the next segment, and the flush of this one."""
        return self.reserve_bytes + 2 * self.segment_bytes

    @property
    def most_batch_bytes(self) -> int:
        """The longest frame of a batch."""
        return min(self.segment_bytes - HEADER_BYTES - RESERVED_BYTES, BATCH_LIMIT)
