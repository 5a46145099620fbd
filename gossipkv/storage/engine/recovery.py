"""Recovery of the log: which frames count after a crash, and the rewriting of the cut segment.

Frames are read up to the first invalid one; only other frames tell whether its place was synced. It was if a later
valid frame says so, in the same segment or one with a higher number, or if a life ended behind it. Then the disk lost
synced bytes, and the store is not opened (`Corrupt`). Otherwise a crash preceded the sync, and the tail does not count.
A damaged tail that no later frame calls synced is treated as torn: at most the writes of the last second.

The last segment with a frame is cut: its frames are written into a fresh segment, with a new salt, and synced
(`rewrite`). Then the manifest records that (`LifeEnd`), and only then may recovered records be shown. After a kill the
last frames may be only in the system's cache, and a new frame of a torn one's length would revive frames behind it.

Segments kept only for readers are treated leniently: if one is missing or invalid, the log begins behind it. The
position at the recovery floor is known from the segment before it, or from the end of a life. So the floor moves to a
segment only while one before it is kept, or once a frame of it is synced. If the position is unknown, any claim of a
sync makes a torn frame count as damage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.engine._engine import HEADER_BYTES, NEXT
from gossipkv.storage.engine.manifest import LOG, MANIFEST, SegmentName, StoreManifest, segment_path
from gossipkv.storage.engine.segments import (
    RESERVED_BYTES,
    Segment,
    SegmentHeader,
    SegmentReader,
    is_damage,
    make_segment,
    next_name,
    write_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

_SEGMENT_FILE: Final = re.compile(r"([0-9]{16})\.log", re.ASCII)


class Torn(NamedTuple):
    """A frame of which only a part exists."""

    file: str
    offset: int


@final
@dataclass(frozen=True, slots=True)
class Recovered:
    """The usable part of the log."""

    kept: tuple[Segment, ...]  # Lie between the log's floor and the recovery floor; only first frames were read.
    damage: str | None  # Damage for which `kept` lacks the older segments.
    segments: tuple[Segment, ...]  # Follow the recovery floor; the cut segment is not among them.
    cut: Segment  # The last segment with a frame, or the first one if none has a frame: to be written anew.
    position: int  # Position of the last frame that counts: the end of the life.
    last_position: int  # The highest position of any frame, valid or not; higher ones were never used.
    synced_position: int  # The highest position known to be synced.
    next_number: int  # Higher than the number of any segment, present or past.
    torn: Torn | None  # The torn last frame.
    strangers: tuple[PurePath, ...]  # Files in the log's directory that nothing names.
    outlived: tuple[PurePath, ...]  # Files that nothing names once the manifest has the end of the life.


def recover(
    files: Files, directory: PurePath, manifest: StoreManifest, on_batch: Callable[[SegmentName, int, bytes], None]
) -> Recovered:
    """Read the log from the recovery floor on, and pass each batch, with segment and position, to `on_batch`.

    Nothing is changed. Batches count only once this returns, and may be shown only once the cut segment was written
    anew and the manifest records it.

    Raises:
        Corrupt: something synced is invalid; names the file and the offset.
        UnsupportedFormat: a newer program wrote a segment.
        OSError: the system refused.
    """
    return _Recovery(files, directory, manifest).run(on_batch)


def rewrite(files: Files, directory: PurePath, recovered: Recovered, header: SegmentHeader) -> Segment:
    """Write the valid frames of the cut segment into the fresh segment of `header`, and sync it.

    Frames keep their offsets and content, under the new salt; none claims more to be synced than was. The segment is
    longer than `header` says if they would leave no room in it.

    Raises:
        Corrupt: the cut segment has changed since it was recovered.
        OSError: the system refused; the partial file is removed if possible.
    """
    cut = recovered.cut
    header = header._replace(size_bytes=max(header.size_bytes, -(-(cut.end + RESERVED_BYTES) // 4096) * 4096))

    def fill(descriptor: int) -> None:
        with SegmentReader(files, segment_path(directory, cut.name.number)) as reader:
            reader.expect(cut.name, header.store)
            kept = takewhile(lambda frame: frame.end <= cut.end, reader.frames() if cut.last else ())
            frames = ((frame.kind, frame.position, frame.synced, frame.payload) for frame in kept)
            end = write_frames(files, descriptor, header.salt, frames)
            if end != cut.end:
                raise Corrupt(reader.name, end, "the segment changed during recovery")

    make_segment(files, directory, header, fill=fill)
    name = SegmentName(header.number, header.salt)
    return Segment(name, cut.first, cut.last, cut.end, header.size_bytes)


@final
class _Recovery:
    """One pass along the segments."""

    def __init__(self, files: Files, directory: PurePath, manifest: StoreManifest) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest
        self._present: dict[int, PurePath] = {}
        self._others: list[PurePath] = []
        for entry in files.list_directory(directory / LOG):
            match = _SEGMENT_FILE.fullmatch(entry.name)
            if match is not None and entry.kind == "file":
                self._present[int(match[1])] = directory / LOG / entry.name
            elif entry.kind == "file":
                self._others.append(directory / LOG / entry.name)
        self._kept: list[Segment] = []
        self._lost: list[int] = []  # Segments for readers, up to a damaged one.
        self._damage: Corrupt | OSError | None = None
        self._least = 0  # A lower bound of the last position below the recovery floor.
        self._position = 0  # Position of the last frame.
        self._synced = self._lived = max((end.position for end in manifest.lives), default=0)

    def run(self, on_batch: Callable[[SegmentName, int, bytes], None]) -> Recovered:
        """Read the segments, and return the result."""
        self._keep()
        walked: list[_Walked] = []
        name: SegmentName | None = self._resolved(self._manifest.recovery_floor)
        torn = None
        while name is not None:
            with SegmentReader(
                self._files, segment_path(self._directory, name.number), position=self._position
            ) as reader:
                reader.expect(name, self._manifest.store)
                walked.append(self._read(reader, name, on_batch))
                name = self._following(reader, walked[-1])
                if name is None:
                    if not self._position:
                        self._position = self._before()
                    self._judge(reader)
                    torn = Torn(reader.name, reader.offset) if reader.is_torn else None
        cut, outlived = _cut(walked)
        segments = tuple(walk.segment for walk in walked)
        position = cut.last or self._before()
        named = {segment.name.number for segment in (*self._kept, *segments, *outlived)} | {*self._lost}
        numbers = [*self._present, *named, self._manifest.log_floor.number, self._manifest.recovery_floor.number]
        numbers += [number for end in self._manifest.lives for number in (end.number, end.continued.number)]
        strangers = [path for number, path in self._present.items() if number not in named]
        return Recovered(
            kept=tuple(self._kept),
            damage=None if self._damage is None else str(self._damage),
            segments=segments,
            cut=cut,
            position=position,
            last_position=max(self._position, self._synced),
            synced_position=self._synced,
            next_number=1 + max(numbers),
            torn=torn,
            strangers=(*strangers, *self._others),
            outlived=tuple(
                segment_path(self._directory, number)
                for number in (*self._lost, *(segment.name.number for segment in outlived))
            ),
        )

    def _read(
        self, reader: SegmentReader, name: SegmentName, on_batch: Callable[[SegmentName, int, bytes], None]
    ) -> _Walked:
        size_bytes = reader.header.size_bytes
        for frame in reader.frames(on_batch):
            if frame.kind == NEXT:
                self._position, self._synced = frame.position, max(self._synced, reader.synced)
                whole = Segment(name, reader.first, frame.position, frame.end, size_bytes)
                alone = Segment(name, reader.first, frame.position - 1, frame.offset, size_bytes)
                if reader.first == frame.position:
                    alone = Segment(name, 0, 0, HEADER_BYTES, size_bytes)
                return _Walked(whole, alone, next_name(frame.payload))
        self._position, self._synced = reader.position, max(self._synced, reader.synced)
        segment = Segment(name, reader.first, reader.position if reader.first else 0, reader.offset, size_bytes)
        return _Walked(segment, segment, None)

    def _following(self, reader: SegmentReader, walked: _Walked) -> SegmentName | None:
        """Return the next segment; raises `Corrupt` unless its number is higher."""
        if walked.named is None:
            return None
        if walked.named.number <= walked.segment.name.number:
            reason = "the segment names a next segment that is not newer"
            raise Corrupt(reader.name, walked.alone.end, reason, got=walked.named.number)
        return self._resolved(walked.named)

    def _resolved(self, name: SegmentName) -> SegmentName:
        """Return the segment in which the log goes on: if a life ended in `name`, its continuation."""
        while (end := self._manifest.ended(name.number)) is not None:
            if end.continued.number <= name.number:
                reason = "a life continues in a segment that is not newer"
                raise Corrupt(str(self._directory / MANIFEST), 0, reason, got=repr(end))
            name = end.continued
        return name

    def _keep(self) -> None:
        """Find the segments kept only for readers of the log: those above the newest damaged one.

        Nothing else needs them, so damage does not keep the store closed: the log begins later.
        """
        for name in self._manifest.kept:
            try:
                segment = self._look(name)
            except (Corrupt, OSError) as error:
                self._lose(name.number, error)
            else:
                self._kept.append(segment)
                self._least = segment.first

    def _look(self, name: SegmentName) -> Segment:
        """Return the segment, with the position of its first frame."""
        with SegmentReader(self._files, segment_path(self._directory, name.number)) as reader:
            reader.expect(name, self._manifest.store)
            first = next(reader.frames(), None)
            if first is None:
                raise Corrupt(reader.name, reader.offset, "the first frame of the segment is damaged")
            return Segment(name, first.position, 0, 0, reader.header.size_bytes)

    def _lose(self, number: int, error: Corrupt | OSError) -> None:
        """Drop the kept segments up to a damaged one. Raises the error if it is no damage."""
        if not is_damage(error):
            raise error
        self._lost += [*(segment.name.number for segment in self._kept), number]
        self._kept.clear()
        self._damage = error

    def _before(self) -> int:
        """Return the last position below the recovery floor, when no frame above the floor tells it.

        If that is lost, return a lower one: by less than the gap between lives. It makes a torn frame count as damage
        sooner.
        """
        if self._kept:
            number = self._kept[-1].name.number
            try:
                self._least = self._last_of(number)
            except (Corrupt, OSError) as error:
                self._lose(number, error)
        if self._damage is not None and not max(self._least, self._lived):
            raise self._damage
        return max(self._least, self._lived)

    def _last_of(self, number: int) -> int:
        """Return the position of a segment's last frame, after reading all frames."""
        with SegmentReader(self._files, segment_path(self._directory, number)) as reader:
            last = None
            for frame in reader.frames():
                last = frame
                self._least = frame.position
            if last is None or last.kind != NEXT:
                raise Corrupt(reader.name, reader.offset, "a frame of the log is damaged")
            return last.position

    def _judge(self, reader: SegmentReader) -> None:
        """Raise `Corrupt` if the invalid frame was synced."""
        least = self._position + 1
        claimed = max(self._lived, reader.claims(least))
        for number in sorted(self._present):
            if number > reader.header.number and claimed < least:
                claimed = self._claims_of(number, least)
        if claimed >= least:
            reason = f"the frame of position {least} is damaged, and all frames up to position {claimed} were synced"
            raise Corrupt(reader.name, reader.offset, reason)

    def _claims_of(self, number: int, least: int) -> int:
        """Return the highest claim in a segment, whether or not anything names it."""
        try:
            with SegmentReader(self._files, self._present[number]) as reader:
                if (reader.header.store, reader.header.number) != (self._manifest.store, number):
                    return 0
                return reader.claims(least)
        except (Corrupt, UnsupportedFormat):  # The segment was never finished; a named one was read before.
            return 0


class _Walked(NamedTuple):
    """A segment that the pass has read."""

    segment: Segment
    alone: Segment  # The same, without the frame that names the next segment.
    named: SegmentName | None


def _cut(walked: list[_Walked]) -> tuple[Segment, list[Segment]]:
    """Remove the last segment with a frame, and the empty ones behind it; returns that segment, and all of them."""
    cut = walked.pop().segment
    outlived = [cut]
    while not cut.last and walked:
        cut = walked.pop().alone
        outlived.append(cut)
    return cut, outlived
