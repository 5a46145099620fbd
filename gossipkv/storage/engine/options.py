"""How a store is set up, by the sizes of its parts, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gossipkv.storage.engine._engine import BATCH_LIMIT, HEADER_BYTES
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


@final
@dataclass(slots=True)
class Counts:
    """Numbers that only rise."""

    batches: int = 0  # Applied.
    records: int = 0  # In them.
    user_bytes: int = 0  # Of them.
    groups: int = 0  # Writes of the log.
    syncs: int = 0
    sync_ns: int = 0  # All of them together, writing included.
    log_bytes: int = 0
    merged_bytes: int = 0  # Written by merges.
    switches: int = 0
    refused: int = 0  # Batches for which there was no room.
    put_off: int = 0  # Works that could not be done when they were tried.

    def count_sync(self, took_ns: int) -> None:
        """Count a group that was written and synced."""
        self.syncs += 1
        self.sync_ns += took_ns
