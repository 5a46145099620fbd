"""Reading the log while or after it is written: batches for whoever follows it.

Each follower has a cursor of its own, which says where it goes on.  What it is given at a time is a slice of a segment:
planned and taken in where the store is (`LogReader`), read wherever it may block (`Slice.read`).  So a follower takes
the memory of a slice, however far it is behind, and none waits for another.

Every frame is checked whenever it is read.  Where slices ended is marked now and then, for all cursors of a store:
one that is made for a position walks from the mark before it, and not from where the segment begins.
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

# Read at once, and longer only when a frame is: what makes objects of it has the interpreter's lock for a millisecond.
SLICE_BYTES: Final = 128 << 10
# A slice that ends the segment, as far as it is written, and is no longer: the system has it in memory, as a rule, and
# another thread would take longer than reading it.
SHORT_BYTES: Final = 16 << 10
# Between two marks in a segment: what a new cursor walks at most, where others have been.
MARK_BYTES: Final = 1 << 20


class Place(NamedTuple):
    """Where a reader goes on."""

    position: int  # Of the frame before.
    number: int  # The segment, or where there is none of that number the next one in the log.
    offset: int  # Where the next frame begins in it.


@final
@dataclass(eq=False, slots=True)
class Cursor:
    """One who follows the log: what it wants, and where it goes on."""

    spaces: frozenset[int]
    position: int  # All up to it was given.
    place: Place | None = None  # Perhaps before the position, until it was come to; None: nothing was read yet.


class Read(NamedTuple):
    """What a slice had."""

    batches: list[tuple[int, Operations]]
    place: Place  # Where it ended.
    trouble: Corrupt | OSError | None = None  # Then there is nothing.


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """What is to be read next for a cursor."""

    path: PurePath
    segment: Segment
    store: int
    place: Place
    spaces: frozenset[int]
    after: int  # The position above which batches are wanted.
    synced: int
    most_bytes: int

    @property
    def is_short(self) -> bool:
        """Whether it may be read where nothing is to block: it is the end of what was written a moment ago."""
        return 0 < self.segment.end <= self.place.offset + SHORT_BYTES

    def read(self, files: Files) -> Read:
        """Read it: it blocks, and may be done in any thread."""
        try:
            with SegmentReader(files, self.path, self.place.offset, self.place.position) as reader:
                reader.expect(self.segment.name, self.store)
                batches, has_ended = reader.batches(
                    self.spaces, self.after, self.synced, most_bytes=self.most_bytes, end=self.segment.end
                )
        except (Corrupt, OSError) as trouble:
            return Read([], self.place, trouble)
        if has_ended:
            return Read(batches, Place(reader.position, self.place.number + 1, HEADER_BYTES))
        return Read(batches, Place(reader.position, self.place.number, reader.offset))


@final
class LogReader:
    """A store's log for those who follow it, with marks in it."""

    def __init__(self, directory: PurePath, store: int) -> None:
        self._directory = directory
        self._store = store
        self._marks: list[Place] = []  # In order.

    def next(self, cursor: Cursor, segments: Sequence[Segment], synced: int, most_bytes: int) -> Slice | None:
        """Return what is to be read next for a cursor, up to the position `synced`; None: nothing is there.

        `segments` follow each other as the log does, and the first one begins at the cursor's position + 1 or below.
        """
        if cursor.position >= synced:
            return None
        place = cursor.place or self._before(cursor.position, segments)
        at = bisect_left(segments, place.number, key=lambda segment: segment.name.number)
        if at == len(segments):
            return None
        segment = segments[at]
        if segment.name.number > place.number:
            place = Place(place.position, segment.name.number, HEADER_BYTES)
        path = segment_path(self._directory, segment.name.number)
        return Slice(path, segment, self._store, place, cursor.spaces, cursor.position, synced, most_bytes)

    def _before(self, position: int, segments: Sequence[Segment]) -> Place:
        """The last place at or before a position that is known."""
        at = bisect_right(segments, position + 1, key=lambda segment: segment.first) - 1
        start = Place(segments[at].first - 1, segments[at].name.number, HEADER_BYTES)
        mark = bisect_left(self._marks, Place(position + 1, 0, 0))
        return max(start, self._marks[mark - 1]) if mark else start

    def took(self, cursor: Cursor, place: Place, floor: int) -> bool:
        """Have a cursor go on behind what was read for it; whether that is behind its position.

        `floor`: nobody reads the log before that position any more.
        """
        cursor.place = place
        is_new, cursor.position = place.position > cursor.position, max(place.position, cursor.position)
        marks = self._marks
        del marks[: bisect_left(marks, Place(floor, 0, 0))]
        at = bisect_left(marks, place)
        near = (mark for mark in marks[max(0, at - 1) : at + 1] if mark.number == place.number)
        if all(abs(mark.offset - place.offset) >= MARK_BYTES for mark in near):
            marks.insert(at, place)
        return is_new
