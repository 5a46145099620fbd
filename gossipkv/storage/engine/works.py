"""Work besides writing the log, as values, and its execution on a disk.

The core returns each `Work` and is told of its end; a shell performs it, in a worker thread or at once. All of them
block, and raise the system's OSError.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from gossipkv.errors import Corrupt
from gossipkv.storage.engine.manifest import RESERVE, RUNS, RunFile, StoreManifest, segment_path, write_manifest
from gossipkv.storage.engine.segments import WRITE, SegmentHeader, make_segment
from gossipkv.storage.label import FOOTER_BYTES, look_at_seal
from gossipkv.storage.sorted_file import SortedFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.merge import MergeOrder


@final
@dataclass(frozen=True, slots=True)
class MakeSegment:
    """Allocate the next segment, or reuse an old file."""

    header: SegmentHeader
    recycled: int | None  # Number of a segment that nothing needs any more.


@final
@dataclass(frozen=True, slots=True)
class Switch:
    """Replace the manifest."""

    manifest: StoreManifest
    opens: tuple[RunFile, ...]  # Files that only the new manifest names.


@final
@dataclass(frozen=True, slots=True)
class Remove:
    """Remove files that nothing names any more."""

    paths: tuple[PurePath, ...]


@final
@dataclass(frozen=True, slots=True)
class Reserve:
    """Set the size of the reserve on the disk."""

    size_bytes: int


@final
@dataclass(frozen=True, slots=True)
class RunningMerge:
    """Run a merge, which takes long."""

    order: MergeOrder

    @property
    def is_flush(self) -> bool:
        """True if it merges segments of the log, for which writers may wait."""
        return bool(self.order.log)


Short = MakeSegment | Switch | Remove | Reserve
Work = Short | RunningMerge
Done = int | dict[str, SortedFile] | None


def perform(files: Files, directory: PurePath, work: Short) -> Done:
    """Perform one `Work`; returns its result for the core. Raises as its function."""
    match work:
        case MakeSegment():
            return make(files, directory, work)
        case Switch():
            return switch(files, directory, work)
        case Remove(paths):
            remove(files, paths)
            return None
        case Reserve(size_bytes):
            reserve(files, directory, size_bytes)
            return None


def make(files: Files, directory: PurePath, work: MakeSegment) -> int:
    """Make a segment; returns a descriptor to write to it."""
    make_segment(files, directory, work.header, work.recycled)
    return files.open(segment_path(directory, work.header.number), WRITE)


def switch(files: Files, directory: PurePath, work: Switch) -> dict[str, SortedFile]:
    """Write the manifest after checking the files that it newly names; returns those files, open.

    Raises:
        Corrupt, UnsupportedFormat, StorageError: a file differs from the manifest; nothing has changed.
        OSError: the system refused; the old manifest remains, or (if the last step failed) the new one.
    """
    opened = open_runs(files, directory, work.opens)
    for file in work.opens:
        _check_ends(directory, file, opened[file.name])
    write_manifest(files, directory, work.manifest)
    return opened


def open_runs(files: Files, directory: PurePath, named: tuple[RunFile, ...]) -> dict[str, SortedFile]:
    """Open files of runs by their names.

    Raises:
        Corrupt: a file is missing, damaged, or not the one that was written.
        UnsupportedFormat, StorageError: a file cannot be opened.
    """
    opened: dict[str, SortedFile] = {}
    for file in named:
        path = directory / RUNS / file.name
        try:
            files.stat(path)
        except FileNotFoundError as error:
            raise Corrupt(str(path), 0, "the file of a run is missing") from error
        found = SortedFile(path, files=files)
        size_bytes, seal = look_at_seal(files, path)
        if (size_bytes, seal, len(found)) != (file.size_bytes, file.seal, file.records):
            expected = f"{file.size_bytes} bytes, seal {file.seal}, {file.records} records"
            got = f"{size_bytes} bytes, seal {seal}, {len(found)} records"
            reason = "the manifest names another file"
            raise Corrupt(str(path), max(0, size_bytes - FOOTER_BYTES), reason, expected=expected, got=got)
        opened[file.name] = found
    return opened


def _check_ends(directory: PurePath, named: RunFile, opened: SortedFile) -> None:
    """Raise `Corrupt` unless a file has the recorded first and last keys, by which lookups find it."""
    for reverse, expected in ((False, named.first), (True, named.last)):
        got = next((key for key, _ in opened.scan(reverse=reverse, limit=1)), b"")
        if got != expected:
            path = str(directory / RUNS / named.name)
            raise Corrupt(path, 0, "the file has other keys than written", expected=expected.hex(), got=got.hex())


def reserve(files: Files, directory: PurePath, size_bytes: int) -> None:
    """Set the size of the reserve."""
    path = directory / RESERVE
    if size_bytes < reserved_bytes(files, directory):
        remove(files, [path])
    if not size_bytes:
        return
    descriptor = files.open(path, WRITE | os.O_CREAT)
    try:
        files.allocate(descriptor, 0, size_bytes)
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def reserved_bytes(files: Files, directory: PurePath) -> int:
    """Return the size of the reserve."""
    try:
        return files.stat(directory / RESERVE).size_bytes
    except FileNotFoundError:
        return 0


def remove(files: Files, paths: Iterable[PurePath]) -> None:
    """Remove all files; missing ones are fine. A failure does not stop the others, and is raised at the end."""
    refused: OSError | None = None
    for path in paths:
        try:
            files.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            refused = error
    if refused is not None:
        raise refused
