"""Recovery of the log: what counts of it after a crash, and the cut segment written anew.

Frames are taken until one does not hold.  Then there are two cases, and all that tells one from the other is what
other frames say.  The place was synced when any whole frame says so that lies behind it, in the same segment or in one
with a higher number, or when a life ended behind it: then something took bytes away that were on the disk, and the
store is not opened (`Corrupt`).  Else a crash came before the sync, and the tail counts for nothing.

A tail that was synced, but of which nothing later says so, is taken for torn when it is damaged: this is what lies
behind the last mark, so at most what was written in the last second before the crash.

What does count is not yet safe.  After a kill the last frames may be in the system's cache alone, and a frame may lie
behind the torn one that holds: were the segment continued, a new frame as long as the torn one would revive it.  So the
last segment with a frame in it is cut: its frames are written into a fresh segment, with a new salt, and synced
(`rewrite`).  Then the manifest records it (`LifeEnd`), and from then on the cut file is nobody's.  Only after that may
anything that was recovered be shown.  Until the manifest is switched everything stands as it did, and recovery begins
again: the fresh file is nobody's, and removed.

Log that is kept for its readers alone is held to less: where a segment of it is missing or does not hold, the log
begins behind it.

What a place's position was is known from the frame before it, for the first place of all from the segment before the
floor of recovery, or from the end of a life: so the floor moves to a segment only while one before it is kept, or once
a frame of it is synced.  Where nothing says it, whatever claims a sync makes a torn frame damage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.engine._engine import HEADER_BYTES, NEXT
from gossipkv.storage.engine.manifest import LOG, MANIFEST, Manifest, SegmentName, segment_path
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
    """A frame of which only a part is there."""

    file: str
    offset: int


@final
@dataclass(frozen=True, slots=True)
class Recovered:
    """What there is of the log."""

    kept: tuple[Segment, ...]  # From the floor of the log to that of recovery: only their first frames were read.
    damage: str | None  # For which of those the older ones are not among them.
    segments: tuple[Segment, ...]  # From there on; without the cut one.
    cut: Segment  # Whose frames are to be written anew, up to its end; of the last segment, when none has a frame.
    position: int  # Of the last frame that counts: where the life ended.
    last_position: int  # The highest that any frame took, whether it counts or not: positions above were never used.
    synced_position: int  # The highest that is known to be synced.
    next_number: int  # Above those of all segments that are or were.
    torn: Torn | None  # What the last frame left, when it was torn.
    strangers: tuple[PurePath, ...]  # Files in the log's directory that nobody names.
    outlived: tuple[PurePath, ...]  # Those that nobody names once the manifest has the end of the life.


def recover(
    files: Files, directory: PurePath, manifest: Manifest, on_batch: Callable[[SegmentName, int, bytes], None]
) -> Recovered:
    """Read the log from the floor of recovery on, and give each batch, with its segment and position, to `on_batch`.

    Nothing is changed.  What `on_batch` was given counts only when this returns, and may be shown only when the cut
    segment was written anew and the manifest says so.

    Raises:
        Corrupt: something was synced and does not hold; names the file and where.
        UnsupportedFormat: a newer program wrote a segment.
        OSError: the system refused.
    """
    return _Recovery(files, directory, manifest).run(on_batch)


def rewrite(files: Files, directory: PurePath, recovered: Recovered, header: SegmentHeader) -> Segment:
    """Write the frames of the cut segment that count into the fresh one that `header` describes, and sync all of it.

    Frames stay where they were and say what they said, under the new salt: none says that more is synced than was.
    The segment is longer than `header` says when they would leave no room in it.

    Raises:
        Corrupt: the cut segment is not what it was when it was recovered.
        OSError: the system refused; what was begun is removed, as far as the system lets it.
    """
    cut = recovered.cut
    header = header._replace(size_bytes=max(header.size_bytes, -(-(cut.end + RESERVED_BYTES) // 4096) * 4096))

    def fill(descriptor: int) -> None:
        with SegmentReader(files, segment_path(directory, cut.name.number)) as reader:
            reader.expect(cut.name, header.store)
            kept = takewhile(lambda frame: frame.end <= cut.end, reader.frames() if cut.last else ())
            told = ((frame.kind, frame.position, frame.synced, frame.payload) for frame in kept)
            end = write_frames(files, descriptor, header.salt, told)
            if end != cut.end:
                raise Corrupt(reader.name, end, "the segment is not what it was a moment ago")

    make_segment(files, directory, header, fill=fill)
    name = SegmentName(header.number, header.salt)
    return Segment(name, cut.first, cut.last, cut.end, header.size_bytes)


@final
class _Recovery:
    """One walk along the segments."""

    def __init__(self, files: Files, directory: PurePath, manifest: Manifest) -> None:
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
        self._lost: list[int] = []  # Segments that were kept up to one that is damaged.
        self._damage: Corrupt | OSError | None = None
        self._least = 0  # A position below the floor of recovery.
        self._position = 0  # Of the last frame.
        self._synced = self._lived = max((end.position for end in manifest.lives), default=0)

    def run(self, on_batch: Callable[[SegmentName, int, bytes], None]) -> Recovered:
        """Walk, and say what was found."""
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
        segments = tuple(one.segment for one in walked)
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
        """What comes after a segment; its number is higher, or what names it is wrong."""
        if walked.named is None:
            return None
        if walked.named.number <= walked.segment.name.number:
            raise Corrupt(
                reader.name,
                walked.alone.end,
                "the segment names one that is not newer",
                got=walked.named.number,
            )
        return self._resolved(walked.named)

    def _resolved(self, name: SegmentName) -> SegmentName:
        """Where the log goes on for whoever comes to a segment: in what continues it, when a life ended there."""
        while (end := self._manifest.ended(name.number)) is not None:
            if end.continued.number <= name.number:
                raise Corrupt(
                    str(self._directory / MANIFEST),
                    0,
                    "a life goes on in a segment that is not newer",
                    got=repr(end),
                )
            name = end.continued
        return name

    def _keep(self) -> None:
        """Find the segments that are there for readers of the log only: those above the newest that is damaged.

        Nothing else needs them, so damage there keeps no store closed: the log begins later.
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
        """The segment, by its header and its first frame."""
        with SegmentReader(self._files, segment_path(self._directory, name.number)) as reader:
            reader.expect(name, self._manifest.store)
            first = next(reader.frames(), None)
            if first is None:
                raise Corrupt(reader.name, reader.offset, "the first frame of the segment does not hold")
            return Segment(name, first.position, 0, 0, reader.header.size_bytes)

    def _lose(self, number: int, error: Corrupt | OSError) -> None:
        """Keep nothing for readers up to a segment, for its damage.  Raises the error, when it is none."""
        if not is_damage(error):
            raise error
        self._lost += [*(segment.name.number for segment in self._kept), number]
        self._kept.clear()
        self._damage = error

    def _before(self) -> int:
        """The last position below the floor of recovery, when nothing above it holds one.

        Where that is lost: one that is lower by less than a life begins above it, and makes a torn frame damage sooner.
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
        """The position of the frame that ends a segment, all of which is read."""
        with SegmentReader(self._files, segment_path(self._directory, number)) as reader:
            last = None
            for frame in reader.frames():
                last = frame
                self._least = frame.position
            if last is None or last.kind != NEXT:
                raise Corrupt(reader.name, reader.offset, "a frame of the log does not hold")
            return last.position

    def _judge(self, reader: SegmentReader) -> None:
        """Refuse when the frame that does not hold was synced."""
        least = self._position + 1
        claimed = max(self._lived, reader.claims(least))
        for number in sorted(self._present):
            if number > reader.header.number and claimed < least:
                claimed = self._claims_of(number, least)
        if claimed >= least:
            raise Corrupt(
                reader.name,
                reader.offset,
                f"the frame of position {least} does not hold, and all up to position {claimed} were synced",
            )

    def _claims_of(self, number: int, least: int) -> int:
        """What the frames of a segment say, whether anything names it or not."""
        try:
            with SegmentReader(self._files, self._present[number]) as reader:
                if (reader.header.store, reader.header.number) != (self._manifest.store, number):
                    return 0
                return reader.claims(least)
        except (Corrupt, UnsupportedFormat):  # It was never finished; were it named, the walk would have come to it.
            return 0


class _Walked(NamedTuple):
    """A segment that the walk came to."""

    segment: Segment
    alone: Segment  # The same without the frame that names the next one.
    named: SegmentName | None


def _cut(walked: list[_Walked]) -> tuple[Segment, list[Segment]]:
    """Take the last segment with a frame off the walk, and the empty ones behind it: the cut one, and all of them."""
    cut = walked.pop().segment
    outlived = [cut]
    while not cut.last and walked:
        cut = walked.pop().alone
        outlived.append(cut)
    return cut, outlived
