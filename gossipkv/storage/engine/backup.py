"""Backups: copies of a running store, which are restored as a new store.

A backup is a store's directory. Runs are hard-linked, so they take no room, or copied if the file systems differ. Log
that is not in runs yet is copied, since segments are reused. Linked files are those of the store: against the loss of
its disk, copy the backup to another disk.

A restored store has another id: a reader of the old one would otherwise meet its positions a second time.

Everything here blocks, and raises the system's OSError.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import StorageError
from gossipkv.storage.directories import make_directory
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import NEXT
from gossipkv.storage.engine.manifest import (
    LOG,
    MANIFEST,
    RUNS,
    SegmentName,
    StoreManifest,
    read_manifest,
    segment_path,
    write_manifest,
)
from gossipkv.storage.engine.recovery import recover
from gossipkv.storage.engine.segments import SegmentHeader, make_segment, next_payload, read_segment, write_frames

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine._engine import Frame
    from gossipkv.storage.engine.segments import Segment

_CHUNK_BYTES: Final = 1 << 20

# These errors mean that the target cannot be linked: another file system, or one without hard links.
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class BackedUp(NamedTuple):
    """A completed backup."""

    directory: str
    linked_bytes: int  # Still on the store's own disk.
    copied_bytes: int
    position: int  # The last position in the backup.


def back_up(
    files: Files, directory: PurePath, manifest: StoreManifest, log: Sequence[Segment], target: PurePath
) -> BackedUp:
    """Copy a store to `target`, which is made; its manifest comes last, so a partial backup does not open.

    Requires: nobody removes or reuses a file of the store meanwhile.

    Raises:
        StorageError: `target` is not empty.
        Corrupt: a segment of the log is damaged.
        OSError: the system refused; the partial backup has no manifest.
    """
    _make_empty(files, target)
    unmerged = [segment for segment in log if segment.name.number >= manifest.recovery_floor.number]
    copied = 0
    for segment in unmerged:
        for _ in read_segment(files, directory, segment.name, manifest.store, end=segment.end):
            pass  # Reading to the end checks the segment.
        path = segment_path(directory, segment.name.number)
        copied += _copy(files, path, segment_path(target, segment.name.number), segment.end, segment.size_bytes)
    files.sync_directory(target / LOG)
    linked, also = _take_runs(files, directory, manifest, target)
    lives = tuple(end for end in manifest.lives if end.number > manifest.recovery_floor.number)
    write_manifest(files, target, replace(manifest, log_floor=manifest.recovery_floor, lives=lives, kept=()))
    position = unmerged[-1].last if unmerged else 0
    return BackedUp(str(target), linked, copied + also, position)


def restore(
    files: Files, backup: PurePath, directory: PurePath, random: random.Random, *, segment_bytes: int
) -> StoreManifest:
    """Make a store in `directory` with the content of a backup, a new id, and life 1.

    Raises:
        StorageError: `directory` is not empty, or there is no backup at `backup`.
        Corrupt, UnsupportedFormat: the backup is damaged; nothing that opens as a store was made.
        OSError: the system refused; nothing that opens as a store was made.
    """
    try:
        old = read_manifest(files, backup)
    except FileNotFoundError:
        raise StorageError(
            f"{backup / MANIFEST}: there is no backup here, or one that was not finished", {"file": str(backup)}
        ) from None
    works.open_runs(files, backup, tuple(old.run_files))
    found = recover(files, backup, old, lambda _segment, _position, _payload: None)
    _make_empty(files, directory)
    store = random.getrandbits(64) or 1
    segments = (*found.segments, found.cut)
    names = [SegmentName(number, random.getrandbits(64)) for number in range(1, len(segments) + 1)]
    for place, (segment, name) in enumerate(zip(segments, names, strict=True)):
        size_bytes = max(segment_bytes, segment.size_bytes)
        header = SegmentHeader(store, *name, life=1, size_bytes=size_bytes)
        frames = _renamed(read_segment(files, backup, segment.name, old.store, end=segment.end), names[place + 1 :])
        make_segment(files, directory, header, fill=partial(write_frames, files, salt=name.salt, frames=frames))
    _take_runs(files, backup, old, directory)
    manifest = replace(old, store=store, life=1, recovery_floor=names[0], log_floor=names[0], lives=(), kept=())
    write_manifest(files, directory, manifest)
    return manifest


def _renamed(frames: Iterable[Frame], following: Sequence[SegmentName]) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield frames whose `next` frame names the new segment; without a following segment it is dropped."""
    for frame in frames:
        payload = frame.payload
        if frame.kind == NEXT:
            if not following:
                return
            payload = next_payload(following[0])
        yield frame.kind, frame.position, frame.synced, payload


def _make_empty(files: Files, target: PurePath) -> None:
    with contextlib.suppress(FileNotFoundError):
        if files.list_directory(target):
            raise StorageError(f"{target}: is not empty; name a directory that is not there yet", {"file": str(target)})
    for place in (target / LOG, target / RUNS):
        make_directory(files, place)


def _take_runs(files: Files, source: PurePath, manifest: StoreManifest, target: PurePath) -> tuple[int, int]:
    """Link or copy every file of the runs to `target`; returns the bytes linked, and copied."""
    linked = copied = 0
    for file in manifest.run_files:
        here, there = source / RUNS / file.name, target / RUNS / file.name
        try:
            files.link(here, there)
            linked += file.size_bytes
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            copied += _copy(files, here, there, file.size_bytes)
    files.sync_directory(target / RUNS)
    return linked, copied


def _copy(files: Files, source: PurePath, target: PurePath, size_bytes: int, room_bytes: int = 0) -> int:
    """Copy the start of a file, synced, to a file with at least `room_bytes`; the caller syncs its directory."""
    reading, writing = files.open(source), -1
    try:
        writing = files.open(target, WRITE_NEW)
        files.allocate(writing, 0, max(size_bytes, room_bytes))
        for offset in range(0, size_bytes, _CHUNK_BYTES):
            files.pwrite(writing, files.pread(reading, min(_CHUNK_BYTES, size_bytes - offset), offset), offset)
        files.sync(writing)
    finally:
        files.close(reading)
        if writing >= 0:
            files.close(writing)
    return size_bytes
