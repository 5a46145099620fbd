"""How the memory of a build is divided: between the processes of its lanes, and in each between reading and sorting."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.formats.reading import MAX_VALUE_BYTES, Reading
from gossipkv.dataset.lanes import builders_bytes, fitting_lanes, useful_lanes
from gossipkv.dataset.remote import REMOTE_BYTES
from gossipkv.errors import ConfigError
from gossipkv.storage.builder import MIN_MEMORY_BYTES

if TYPE_CHECKING:
    from gossipkv.dataset.build_job import BuildJob

# What a reader holds beside blocks and values: chunks, batches.
READER_BYTES = 4 << 20
# What the allocator keeps for itself, and the manifest.
SLACK_BYTES = 4 << 20
# A block that says it becomes more than a thousand times its file is refused; but zstd wants a window of 8 MiB read.
MOST_EXPANSION = 1_000
LEAST_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Division:
    """What each part of a build gets."""

    lanes: int
    builders_bytes: int  # of all lanes together
    reading: Reading


def divide(job: BuildJob, memory_bytes: int, *, process_bytes: int, most_lanes: int = 1) -> Division:
    """So that all processes of a build stay within `memory_bytes`; a process takes `process_bytes` for itself.

    Raises:
        ConfigError: nothing useful is left.
    """
    reading = limits(job, memory_bytes)
    costs = {"process_bytes": process_bytes, "reading_bytes": reader_bytes(job, reading) + SLACK_BYTES}
    useful = useful_lanes([file.size_bytes for file in job.files], most_lanes)
    lanes = fitting_lanes(memory_bytes, most=useful, **costs)
    left = builders_bytes(memory_bytes, lanes=lanes, **costs)
    if left < MIN_MEMORY_BYTES:
        enough = range(memory_bytes, 1 << 40)
        needed = enough[bisect.bisect_left(enough, MIN_MEMORY_BYTES, key=lambda most: _left(job, most, process_bytes))]
        raise ConfigError(
            f"build_memory of {memory_bytes:,} bytes is too little: this build needs at least {needed:,}",
            {"limit": memory_bytes, "needed_bytes": needed},
        )
    return Division(lanes, left, reading)


def _left(job: BuildJob, memory_bytes: int, process_bytes: int) -> int:
    """For the builder of one lane: of each byte more, at most a quarter goes to reading."""
    return memory_bytes - process_bytes - reader_bytes(job, limits(job, memory_bytes)) - SLACK_BYTES


def limits(job: BuildJob, memory_bytes: int) -> Reading:
    """How the job is to be read: the longest value and the largest block are an eighth of the memory.

    Else a process of 64 MiB would have to keep half of it free for a value that hardly any source has.  Nothing in a
    small file is taken for large: what says that it expands a thousandfold is a bomb.
    """
    largest = max((file.size_bytes for file in job.files), default=0)
    most = min(memory_bytes // 8, max(LEAST_BLOCK_BYTES, largest * MOST_EXPANSION))
    return replace(job.reading, max_value_bytes=min(MAX_VALUE_BYTES, most), max_block_bytes=most)


def reader_bytes(job: BuildJob, reading: Reading) -> int:
    """What reading holds beside the builder: a block or the longest value, and what it was made from."""
    longest = max(reading.max_block_bytes, reading.max_value_bytes)
    largest = max((file.size_bytes for file in job.files), default=0)
    remote = REMOTE_BYTES if job.remote is not None else 0
    return READER_BYTES + longest + min(longest, largest) + remote
