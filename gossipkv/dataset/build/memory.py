"""Division of a build's memory: between its lanes, and within each lane between reading and sorting.

Lines and blocks have a fixed part of the memory.  A library that reads columns gets half of what the program leaves;
a file that needs more of it is read again with as little memory for sorting as suffices (`share_for_columns`).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.build.lanes import useful_lanes
from gossipkv.dataset.formats import sequence_file
from gossipkv.dataset.formats.reading import BLOCKS_IN_MEMORY, COLUMN_FORMATS, MAX_VALUE_BYTES, FileReading
from gossipkv.dataset.source.remote import REMOTE_BYTES
from gossipkv.errors import ConfigError
from gossipkv.storage.builder import MIN_MEMORY_BYTES

if TYPE_CHECKING:
    from gossipkv.dataset.build.job import BuildJob

# A reader needs this much beside blocks and values: chunks, batches.
READER_BYTES = 4 << 20
# The least that a library for columns works with; the package itself is loaded when memory is measured.
MIN_COLUMNS_BYTES = 32 << 20
# The allocator itself and the manifest need this much.
SLACK_BYTES = 4 << 20
# A block that claims to expand to more than a thousand times its file is refused.  The longest value may still be
# uniform bytes that compress to some hundred bytes, so the limit is at least `MIN_BLOCK_BYTES`.
MAX_EXPANSION = 1_000
MIN_BLOCK_BYTES = MAX_VALUE_BYTES + (1 << 20)


@dataclass(frozen=True, slots=True)
class Share:
    """The memory that a number of lanes use."""

    lanes: int
    builders_bytes: int  # All lanes share this.
    reading: FileReading


def share_of_one(job: BuildJob, memory_bytes: int, *, process_bytes: int) -> Share:
    """Divide the memory for a build in one lane, by a process that takes `process_bytes` for itself.

    Raises:
        ConfigError: nothing useful is left.
    """
    left = _left(job, memory_bytes, process_bytes)
    if left < MIN_MEMORY_BYTES:
        enough = range(memory_bytes, 1 << 40)
        needed = enough[bisect.bisect_left(enough, MIN_MEMORY_BYTES, key=lambda most: _left(job, most, process_bytes))]
        raise ConfigError(
            f"build_memory is {memory_bytes:,} bytes; this build needs at least {needed:,} bytes",
            {"limit": memory_bytes, "needed_bytes": needed},
        )
    return Share(1, left, limits(job, memory_bytes, _columns_bytes(job, memory_bytes - process_bytes)))


def share_for_columns(job: BuildJob, memory_bytes: int, *, process_bytes: int, columns_bytes: int) -> Share | None:
    """Divide the memory for columns that need so many bytes; None if too little is left for sorting."""
    reading = limits(job, memory_bytes, columns_bytes)
    left = memory_bytes - process_bytes - reader_bytes(job, reading) - SLACK_BYTES
    return Share(1, left, reading) if left >= MIN_MEMORY_BYTES else None


def share_of_lanes(job: BuildJob, memory_bytes: int, *, process_bytes: int, most_lanes: int) -> Share | None:
    """Divide the memory for as many lanes as help; None if one is enough, or memory is too small for two.

    A lane reserves less for long values and blocks than a lane alone does.  Few sources have any, and a source that
    does is built in one lane.
    """
    for count in range(useful_lanes([file.size_bytes for file in job.files], most_lanes), 1, -1):
        columns_bytes = _columns_bytes(job, (memory_bytes - process_bytes) // count)
        reading = limits(job, memory_bytes // (2 * count), columns_bytes)
        left = memory_bytes - process_bytes - count * (SLACK_BYTES + reader_bytes(job, reading))
        if left // count >= MIN_MEMORY_BYTES:
            return Share(count, left, reading)
    return None


def _left(job: BuildJob, memory_bytes: int, process_bytes: int) -> int:
    """Return the bytes left for the builder of one lane; at most half of each additional byte goes to reading."""
    reading = limits(job, memory_bytes, _columns_bytes(job, memory_bytes - process_bytes))
    return memory_bytes - process_bytes - reader_bytes(job, reading) - SLACK_BYTES


def _columns_bytes(job: BuildJob, free_bytes: int) -> int:
    """Return the part for columns of what a lane has for itself."""
    return max(MIN_COLUMNS_BYTES, (free_bytes - SLACK_BYTES - _remote_bytes(job)) // 2)


def _remote_bytes(job: BuildJob) -> int:
    return REMOTE_BYTES if job.remote is not None else 0


def limits(job: BuildJob, memory_bytes: int, columns_bytes: int = MIN_COLUMNS_BYTES) -> FileReading:
    """Return the reading limits of the job: the longest value and the largest block are a twelfth of the memory.

    Otherwise a process of 64 MiB would reserve half of it for a value that hardly any source has.  Blocks are also
    limited by the largest file: a file that claims to expand a thousandfold is a bomb.
    """
    largest = max((file.size_bytes for file in job.files), default=0)
    most = min(memory_bytes // BLOCKS_IN_MEMORY, max(MIN_BLOCK_BYTES, largest * MAX_EXPANSION))
    return replace(
        job.reading,
        max_value_bytes=min(MAX_VALUE_BYTES, most),
        max_block_bytes=most,
        max_columns_bytes=columns_bytes,
    )


def reader_bytes(job: BuildJob, reading: FileReading) -> int:
    """Return the bytes that reading holds beside the builder: a block or the longest value, and its input."""
    remote = _remote_bytes(job)
    if job.format in COLUMN_FORMATS:
        return reading.max_columns_bytes + remote
    if job.format == "sequence":
        return sequence_file.memory_bytes(reading) + remote
    longest = max(reading.max_block_bytes, reading.max_value_bytes)
    largest = max((file.size_bytes for file in job.files), default=0)
    return READER_BYTES + longest + min(longest, largest) + remote
