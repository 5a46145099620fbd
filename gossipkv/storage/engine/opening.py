"""Opening of a store: locked, recovered, and in a new life that is durable before anything is shown.

Everything here blocks: call it in worker threads, or where blocking is harmless.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import Corrupt, DirectoryInUse, StorageError, UnsupportedFormat
from gossipkv.storage.directories import make_directory, storage_error
from gossipkv.storage.engine import works
from gossipkv.storage.engine._engine import HEADER_BYTES, MADE, Memtable, OpenSegment, space_changes
from gossipkv.storage.engine.engine import Engine, OpenedLog
from gossipkv.storage.engine.manifest import (
    LOCK,
    LOG,
    MANIFEST,
    RUNS,
    LifeEnd,
    SegmentName,
    StoreManifest,
    read_manifest,
    segment_path,
    write_manifest,
)
from gossipkv.storage.engine.recovery import recover, rewrite
from gossipkv.storage.engine.segments import WRITE, SegmentHeader, make_segment

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.options import EngineOptions
    from gossipkv.storage.engine.recovery import Recovered
    from gossipkv.storage.engine.segments import Segment

_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)

FIRST_SPACE: Final = 1


class Opened(NamedTuple):
    """An open store, and observations made while opening it."""

    engine: Engine
    lock: int  # A descriptor, closed by the closer of the store.
    removed: tuple[str, ...]  # Files that nothing named.
    torn: tuple[str, int] | None  # Place of a torn frame of the life before: file and offset.


def open_store(
    files: Files,
    directory: PurePath,
    options: EngineOptions,
    random: random.Random,
    *,
    expected: tuple[int, int] | None = None,
    create: bool = True,
) -> Opened:
    """Open the store in `directory`, or make one if there is none.

    `expected` is the id of the store and its last known life; with it, no store is made.

    Raises:
        DirectoryInUse: another process has it open.
        Corrupt: the store is damaged; names file and offset. Nothing has changed.
        UnsupportedFormat: not the expected store, or of a newer format.
        StorageError: the system refused, or there is no store.
    """
    try:
        if create and expected is None:
            for place in (directory / LOG, directory / RUNS):
                make_directory(files, place)
        lock = _take_lock(files, directory)
        opening = partial(
            _open, files, directory, options, random, lock, expected=expected, create=create and expected is None
        )
        try:
            try:
                return opening()
            except OSError as error:
                if error.errno != errno.ENOSPC or not works.reserved_bytes(files, directory):
                    raise
                works.reserve(files, directory, 0)
                return opening()
        except BaseException:
            files.close(lock)
            raise
    except OSError as error:
        raise storage_error(error, directory, "the store cannot be opened") from error


def _open(
    files: Files,
    directory: PurePath,
    options: EngineOptions,
    random: random.Random,
    lock: int,
    *,
    expected: tuple[int, int] | None,
    create: bool,
) -> Opened:
    try:
        manifest = read_manifest(files, directory)
    except FileNotFoundError:
        if not create:
            message = f"{directory / MANIFEST}: the file is missing, so this directory has no store"
            raise StorageError(message, {"file": str(directory)}) from None
        _refuse_remains(files, directory)
        manifest = _make(files, directory, options, random)
        log = _new_log(files, directory, options, manifest)
        return Opened(Engine(directory, options, random, manifest, log), lock, (), None)
    check_expected(directory, manifest, expected)
    # A kill may have come before this sync: a power loss would then revert the manifest, but not its consequences.
    files.sync_directory(directory)
    return _continue(files, directory, options, random, manifest, lock=lock)


def check_expected(directory: PurePath, manifest: StoreManifest, expected: tuple[int, int] | None) -> None:
    """Raise `UnsupportedFormat` unless this is the expected store, in that life or the next.

    The manifest records a new life first, and the caller's memory follows; a crash between the two leaves one more.
    """
    if expected is None:
        return
    store, life = expected
    if manifest.store != store or manifest.life not in {life, life + 1}:
        age = "an older copy" if manifest.life < life else "a newer copy"
        which = age if manifest.store == store else "another store"
        raise UnsupportedFormat(
            f"{directory / MANIFEST}: {which}: expected store {store:016x} in life {life}, found "
            f"{manifest.store:016x} in life {manifest.life}; put the right store back",
            {"file": str(directory / MANIFEST), "expected": f"{store:016x}", "got": f"{manifest.store:016x}"},
        )


def _make(files: Files, directory: PurePath, options: EngineOptions, random: random.Random) -> StoreManifest:
    """Make a store: its first segment, then its manifest."""
    first = SegmentName(1, random.getrandbits(64))
    manifest = StoreManifest(
        store=random.getrandbits(64) or 1,
        life=1,
        spaces=frozenset(),
        next_space=FIRST_SPACE,
        next_merge=1,
        recovery_floor=first,
        log_floor=first,
    )
    header = SegmentHeader(manifest.store, *first, manifest.life, options.segment_bytes)
    make_segment(files, directory, header)
    write_manifest(files, directory, manifest)
    return manifest


def _refuse_remains(files: Files, directory: PurePath) -> None:
    """Raise `Corrupt` if a store here lost its manifest; remove the remains of an interrupted creation."""
    for entry in files.list_directory(directory / RUNS):
        raise Corrupt(str(directory / RUNS / entry.name), 0, f"the file belongs to a store whose {MANIFEST} is missing")
    for entry in files.list_directory(directory / LOG):
        path = directory / LOG / entry.name
        descriptor = files.open(path)
        try:
            head = files.pread(descriptor, HEADER_BYTES, HEADER_BYTES)
        finally:
            files.close(descriptor)
        if path != segment_path(directory, 1) or any(head):
            raise Corrupt(str(path), HEADER_BYTES, f"this segment has frames of a store whose {MANIFEST} is missing")
        files.unlink(path)


def _new_log(files: Files, directory: PurePath, options: EngineOptions, manifest: StoreManifest) -> OpenedLog:
    name = manifest.log_floor
    return OpenedLog(
        active=OpenSegment(
            name, files.open(segment_path(directory, name.number), WRITE), options.segment_bytes, HEADER_BYTES, 0
        ),
        kept=(),
        closed=(),
        memtable=Memtable(options.memtable_bytes),
        frozen=None,
        spaces=frozenset(),
        next_space=manifest.next_space,
        next_number=name.number + 1,
        position=0,
        files={},
        reserved_bytes=0,
    )


class _Replay:
    """The state replayed from the log: memtables by segment, and the spaces made and dropped."""

    def __init__(self, options: EngineOptions, manifest: StoreManifest) -> None:
        self.tables: dict[SegmentName, Memtable] = {}
        self.spaces = set(manifest.spaces)
        self.next_space = manifest.next_space
        self._options = options

    def table(self, segment: SegmentName) -> Memtable:
        table = self.tables.get(segment)
        if table is None:  # A memtable allocates at once, so none is made in vain.
            table = self.tables[segment] = Memtable(self._options.memtable_bytes)
        return table

    def on_batch(self, segment: SegmentName, position: int, payload: bytes) -> None:
        assert position > 0
        self.table(segment).apply(payload)
        for kind, space in space_changes(payload):
            if kind == MADE:
                self.spaces.add(space)
                self.next_space = max(self.next_space, space + 1)
            else:
                self.spaces.discard(space)


def _continue(
    files: Files,
    directory: PurePath,
    options: EngineOptions,
    random: random.Random,
    manifest: StoreManifest,
    *,
    lock: int,
) -> Opened:
    opened = works.open_runs(files, directory, tuple(manifest.run_files))
    replay = _Replay(options, manifest)
    recovered = recover(files, directory, manifest, replay.on_batch)
    if len(recovered.segments) > 1:
        reason = f"the manifest is too old: {len(recovered.segments)} whole segments follow its last one"
        raise Corrupt(str(directory / MANIFEST), 0, reason)
    # Comes first: on a full disk it frees room for the rest.
    removed = remove_strangers(files, directory, recovered, set(opened))
    name = SegmentName(recovered.next_number, random.getrandbits(64))
    cut = recovered.cut
    header = SegmentHeader(manifest.store, *name, manifest.life + 1, options.segment_bytes)
    active = _rewrite(files, directory, recovered, header)
    recovery_floor = name if manifest.recovery_floor.number >= cut.name.number else manifest.recovery_floor
    kept = tuple(segment.name for segment in recovered.kept)
    log_floor = (*kept, recovery_floor)[0]
    ends = (*manifest.lives, LifeEnd(manifest.life, cut.name.number, cut.end, recovered.position, name))
    after = replace(
        manifest,
        life=manifest.life + 1,
        recovery_floor=recovery_floor,
        log_floor=log_floor,
        lives=tuple(end for end in ends if end.number > log_floor.number),
        kept=kept,
    )
    write_manifest(files, directory, after)
    # From here on the new life is durable.
    descriptor = files.open(segment_path(directory, name.number), WRITE)
    log = OpenedLog(
        active=OpenSegment(name, descriptor, active.size_bytes, active.end, active.first),
        kept=recovered.kept,
        closed=recovered.segments,
        memtable=replay.table(cut.name),
        frozen=replay.table(recovered.segments[0].name) if recovered.segments else None,
        spaces=frozenset(replay.spaces),
        next_space=replay.next_space,
        next_number=name.number + 1,
        position=recovered.last_position,
        files=opened,
        damage=recovered.damage,
        reserved_bytes=works.reserved_bytes(files, directory),
    )
    _remove(files, directory, recovered.outlived)
    torn = None if recovered.torn is None else (recovered.torn.file, recovered.torn.offset)
    engine = Engine(directory, options, random, after, log)
    engine.upkeep.dropped_bytes += sum(engine.view.size_bytes(space) for space in manifest.spaces - replay.spaces)
    return Opened(engine, lock, removed, torn)


def _rewrite(files: Files, directory: PurePath, recovered: Recovered, header: SegmentHeader) -> Segment:
    """Write the cut segment anew; on a full disk, into a segment no longer than it needs."""
    try:
        return rewrite(files, directory, recovered, header)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return rewrite(files, directory, recovered, header._replace(size_bytes=0))


def remove_strangers(files: Files, directory: PurePath, recovered: Recovered, run_files: set[str]) -> tuple[str, ...]:
    """Remove files that a crash left unnamed; returns their paths."""
    names = [entry.name for entry in files.list_directory(directory / RUNS) if entry.kind == "file"]
    strangers = (*recovered.strangers, *(directory / RUNS / name for name in names if name not in run_files))
    _remove(files, directory, strangers)
    return tuple(map(str, strangers))


def _remove(files: Files, directory: PurePath, paths: Iterable[PurePath]) -> None:
    """Remove files, durably: a segment that came back would lie between valid ones."""
    with contextlib.suppress(OSError):  # Only room is at stake, and the next start tries again.
        works.remove(files, paths)
    with contextlib.suppress(OSError):
        files.sync_directory(directory / LOG)


def _take_lock(files: Files, directory: PurePath) -> int:
    descriptor = files.open(directory / LOCK, _LOCK_FLAGS)
    try:
        files.lock(descriptor)
    except BlockingIOError as error:
        files.close(descriptor)
        raise DirectoryInUse(
            f"{directory}: another process has this store open; stop it first", {"file": str(directory)}
        ) from error
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor
