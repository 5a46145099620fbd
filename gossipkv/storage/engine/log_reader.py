"""Reading the log while it is written or later, in batches, for followers.

Each follower has a cursor, which holds its position. It gets one slice of a segment at a time. The store plans slices
and accepts the results (`LogReader`); `Slice.read` may block and runs anywhere. So a follower takes the memory of one
slice, whatever its lag, and followers do not wait for each other.

Every frame is checked at each read. Some slice ends are remembered as marks, shared by all cursors of a store: a new
cursor reads from the mark before its position, and not from the start of the segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Corrupt
from gossipkv.storage.engine._engine import HEADER_BYTES
from gossipkv.storage.engine.manifest import segment_path
from gossipkv.storage.engine.segments import Segment, SegmentReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

Operations = list[tuple[int, int, bytes, bytes]]

# Read at once, unless a single frame is longer. Decoding this much holds the GIL for a millisecond.
SLICE_BYTES: Final = 128 << 10
# A slice this short at the written end of a segment is read in place. The system has it in memory, as a rule, and a hop
# to another thread would take longer.
SHORT_BYTES: Final = 16 << 10
# Distance of two marks in a segment: the most that a new cursor reads in vain, behind other cursors.
MARK_BYTES: Final = 1 << 20


class LogPlace(NamedTuple):
    """A reader's place in the log."""

    position: int  # Position of the frame before.
    number: int  # Segment, or the next existing one above that number.
    offset: int  # Offset of the next frame in the segment.


@final
@dataclass(eq=False, slots=True)
class LogCursor:
    """A follower's cursor in the log: the spaces it wants, and its place."""

    spaces: frozenset[int]
    position: int  # The follower has everything up to here.
    place: LogPlace | None = None  # Possibly before the position; None: nothing was read yet.


class Read(NamedTuple):
    """The result of reading a slice."""

    batches: list[tuple[int, Operations]]
    place: LogPlace  # End of the slice.
    trouble: Corrupt | OSError | None = None  # With trouble, `batches` is empty.


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """The next part of the log to read for a cursor."""

    path: PurePath
    segment: Segment
    store: int
    place: LogPlace
    spaces: frozenset[int]
    after: int  # Only batches above this position are wanted.
    synced: int
    most_bytes: int

    @property
    def is_short(self) -> bool:
        """True if reading cannot block for long: the slice is the end of the most recent write."""
        return 0 < self.segment.end <= self.place.offset + SHORT_BYTES

    def read(self, files: Files) -> Read:
        """Read the slice. Blocks; may run in any thread."""
        try:
            with SegmentReader(files, self.path, self.place.offset, self.place.position) as reader:
                reader.expect(self.segment.name, self.store)
                batches, has_ended = reader.batches(
                    self.spaces, self.after, self.synced, most_bytes=self.most_bytes, end=self.segment.end
                )
        except (Corrupt, OSError) as trouble:
            return Read([], self.place, trouble)
        if has_ended:
            return Read(batches, LogPlace(reader.position, self.place.number + 1, HEADER_BYTES))
        return Read(batches, LogPlace(reader.position, self.place.number, reader.offset))


@final
class LogReader:
    """A store's log for its followers, with marks."""

    def __init__(self, directory: PurePath, store: int) -> None:
        self._directory = directory
        self._store = store
        self._marks: list[LogPlace] = []  # Sorted by position.

    def next(self, cursor: LogCursor, segments: Sequence[Segment], synced: int, most_bytes: int) -> Slice | None:
        """Return the next slice for a cursor, up to the position `synced`; None: there is nothing.

        `segments` are consecutive, and the first one begins at the cursor's position + 1 or below.
        """
        if cursor.position >= synced:
            return None
        place = cursor.place or self._before(cursor.position, segments)
        at = bisect_left(segments, place.number, key=lambda segment: segment.name.number)
        if at == len(segments):
            return None
        segment = segments[at]
        if segment.name.number > place.number:
            place = LogPlace(place.position, segment.name.number, HEADER_BYTES)
        path = segment_path(self._directory, segment.name.number)
        return Slice(path, segment, self._store, place, cursor.spaces, cursor.position, synced, most_bytes)

    def _before(self, position: int, segments: Sequence[Segment]) -> LogPlace:
        """Return the last known place at or before a position."""
        at = bisect_right(segments, position + 1, key=lambda segment: segment.first) - 1
        start = LogPlace(segments[at].first - 1, segments[at].name.number, HEADER_BYTES)
        mark = bisect_left(self._marks, LogPlace(position + 1, 0, 0))
        return max(start, self._marks[mark - 1]) if mark else start

    def advance(self, cursor: LogCursor, place: LogPlace, floor: int) -> bool:
        """Move a cursor to the end of a slice; returns True if that lies behind its position.

        `floor`: nobody reads the log before that position any more.
        """
        cursor.place = place
        is_new, cursor.position = place.position > cursor.position, max(place.position, cursor.position)
        marks = self._marks
        del marks[: bisect_left(marks, LogPlace(floor, 0, 0))]
        at = bisect_left(marks, place)
        near = (mark for mark in marks[max(0, at - 1) : at + 1] if mark.number == place.number)
        if all(abs(mark.offset - place.offset) >= MARK_BYTES for mark in near):
            marks.insert(at, place)
        return is_new
