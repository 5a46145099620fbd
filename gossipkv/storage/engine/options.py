"""Options of a store, by the sizes of its parts, and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gossipkv.storage.engine._engine import BATCH_LIMIT, HEADER_BYTES
from gossipkv.storage.engine.segments import RESERVED_BYTES

# Estimated memtable cost of a record besides its bytes: a place in a node, slack of nodes, the filter.
RECORD_COST_BYTES: Final = 64

# A batch is extended up to this size: a reader of the log holds all of it, and a message to another node, too.
MAX_OPEN_BYTES: Final = 32 << 10

# Written at once. A disk takes some milliseconds for this much, which bounds the wait for the next group.
MAX_GROUP_BYTES: Final = 4 << 20

# Appended and not written yet: one group under way and the next ones. More would only delay every answer.
MAX_WAITING_BYTES: Final = 16 << 20


@final
@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Sizes of a store's parts, in bytes."""

    segment_bytes: int = 64 << 20
    table_log: int = 1 << 30  # Bytes of the log that are kept for its readers, at least.
    file_bytes: int = 64 << 20  # Size of a file of a run, about at most.
    stretch_bytes: int = 1 << 30  # Output of one merge of a compaction, about, if there is room.
    # Memory budget of a merge child. Records that exceed it are written twice; by default all fit.
    merge_memory: int = 192 << 20

    @property
    def memtable_bytes(self) -> int:
        """The size of a memtable, about at most: a full segment of records that are not tiny."""
        return self.segment_bytes + self.segment_bytes // 2

    @property
    def reserve_bytes(self) -> int:
        """The size of the reserve: a segment, two flushes, and a compaction's shortest stretch, two files.

        So deletes, and a merge that frees their room, succeed even if nothing else is free.
        """
        return 3 * self.segment_bytes + 2 * self.file_bytes

    @property
    def margin_bytes(self) -> int:
        """The room left free beside a merge: the reserve, the next segment, and the flush of this segment."""
        return self.reserve_bytes + 2 * self.segment_bytes

    @property
    def most_batch_bytes(self) -> int:
        return min(self.segment_bytes - HEADER_BYTES - RESERVED_BYTES, BATCH_LIMIT)


@final
@dataclass(slots=True)
class EngineCounts:
    """Counters, which only rise."""

    batches: int = 0  # Applied batches.
    records: int = 0  # Records in them.
    user_bytes: int = 0  # Bytes of them.
    groups: int = 0  # Number of writes of the log.
    syncs: int = 0
    sync_ns: int = 0  # Total duration, including writing.
    log_bytes: int = 0
    merged_bytes: int = 0  # Bytes written by merges.
    switches: int = 0
    refused: int = 0  # Batches refused for lack of room.
    put_off: int = 0  # Failed attempts at work.

    def count_sync(self, took_ns: int) -> None:
        self.syncs += 1
        self.sync_ns += took_ns
