"""Reading the log while or after it is written: batches for who follows it.

Every frame is checked whenever it is read.  Whoever follows the log reads batches in order, a page at a time, and goes
on where the last page ended; of what lies before it only the segments' first positions are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import Corrupt
from gossipkv.storage.engine._log import BATCH, HEADER_BYTES, NEXT, Frame
from gossipkv.storage.engine.manifest import segment_path
from gossipkv.storage.engine.segments import Segment, SegmentReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

    from gossipkv.environment.seam import Files


class Place(NamedTuple):
    """Where a reader goes on."""

    number: int  # The segment.
    offset: int  # Where the next frame begins in it.
    position: int  # Of the frame before.


@final
class LogReader:
    """Whole batches of a store's log, in order, for one who follows it."""

    def __init__(self, files: Files, directory: PurePath, store: int) -> None:
        self._files = files
        self._directory = directory
        self._store = store
        self._place = Place(0, HEADER_BYTES, 0)

    def read(self, segments: Sequence[Segment], position: int, synced: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """Return the batches above `position`, with theirs, up to `synced`: about `most_bytes` of them, at least one.

        `segments` follow each other as the log does, and the first one begins at `position` + 1 or below.

        Raises:
            Corrupt: a frame does not hold, or the segments do not follow each other.
            OSError: the system refused.
        """
        if position < self._place.position or not self._place.position:
            self._place = Place(0, HEADER_BYTES, 0)
        page = _Page(position, synced, most_bytes)
        for segment, after in zip_longest(segments, segments[1:]):
            if segment.name.number < self._place.number or (after and 0 < after.first <= position + 1):
                continue
            if segment.name.number > self._place.number:
                self._place = Place(segment.name.number, HEADER_BYTES, segment.first - 1 if segment.first else 0)
            if not self._read(segment, after, page):
                break
        return page.batches

    def _read(self, segment: Segment, after: Segment | None, page: _Page) -> bool:
        """Whether to go on in the segment after this one."""
        path = segment_path(self._directory, segment.name.number)
        with SegmentReader(self._files, path, self._place.offset, self._place.position) as reader:
            reader.expect(segment.name, self._store)
            for frame in reader.frames():
                if not page.take(frame):
                    return False
                if frame.kind == NEXT:
                    if after is not None:
                        self._place = Place(after.name.number, HEADER_BYTES, frame.position)
                    return True
                self._place = Place(segment.name.number, frame.end, frame.position)
            if after is not None or reader.position < page.synced:
                raise Corrupt(reader.name, reader.offset, "a frame of the log does not hold")
        return False


@dataclass(slots=True)
class _Page:
    """What one answer has."""

    position: int
    synced: int
    most_bytes: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    bytes: int = 0

    def take(self, frame: Frame) -> bool:
        """Whether the next frame may be asked for, after this one."""
        if frame.position > self.synced:
            return False
        if frame.kind == BATCH and frame.position > self.position:
            if self.batches and self.bytes + len(frame.payload) > self.most_bytes:
                return False
            self.batches.append((frame.position, frame.payload))
            self.bytes += len(frame.payload)
        return True
