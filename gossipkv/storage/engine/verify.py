"""Verification of a store: compares every byte that counts with its checksums, in the manifest, runs and log.

A node may have the store open. Files of runs never change; a missing one was merged if the current manifest no longer
names it. The log is written meanwhile: an invalid frame is damage if the next look finds it at the same place.
Otherwise it was the end of the log, or a reused segment.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import Corrupt, GossipKVError
from gossipkv.storage.directories import storage_error
from gossipkv.storage.engine._engine import operations
from gossipkv.storage.engine.manifest import LOG, MANIFEST, RUNS, StoreManifest, read_manifest, segment_path
from gossipkv.storage.engine.recovery import recover
from gossipkv.storage.label import FOOTER_BYTES, look_at_seal
from gossipkv.storage.sorted_file import SortedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.manifest import RunFile, SegmentName
    from gossipkv.storage.engine.recovery import Recovered
    from gossipkv.storage.engine.segments import Segment

# Looks at a growing log. Each look finds the end at another place; two at the same place are enough.
MAX_LOOKS: Final = 10


class CheckedStoreFile(NamedTuple):
    """A file of the store, completely checked."""

    path: PurePath
    size_bytes: int
    trouble: GossipKVError | None


def verify_store(files: Files, directory: PurePath, on_progress: Callable[[int], object]) -> list[CheckedStoreFile]:
    """Check the store in `directory`; `on_progress` is called with the number of bytes checked since the last call.

    Raises only defects: the result of each file has its damage, or the system's refusal.
    """
    path = directory / MANIFEST
    try:
        manifest = read_manifest(files, directory)
    except FileNotFoundError:
        return [CheckedStoreFile(path, 0, Corrupt(str(path), 0, "the manifest of the store is missing"))]
    except (GossipKVError, OSError) as error:
        return [CheckedStoreFile(path, _size(files, path), _in_words(error, path))]
    checked = [CheckedStoreFile(path, _size(files, path), None)]
    on_progress(checked[0].size_bytes)
    for file in manifest.run_files:
        found = _check_run(files, directory, file, on_progress)
        if found.trouble is None or _is_named(files, directory, file):
            checked.append(found)
    return checked + _check_log(files, directory, manifest, on_progress)


def _is_named(files: Files, directory: PurePath, file: RunFile) -> bool:
    """Return True if the current manifest names a file, or if the manifest cannot be read now."""
    try:
        return file in read_manifest(files, directory).run_files
    except (GossipKVError, OSError):
        return True


def _check_run(
    files: Files, directory: PurePath, file: RunFile, on_progress: Callable[[int], object]
) -> CheckedStoreFile:
    path = directory / RUNS / file.name
    reported = 0

    def report(share: float) -> None:
        nonlocal reported
        done = int(share * file.size_bytes)
        on_progress(done - reported)
        reported = done

    try:
        _compare(files, path, file)
        with SortedFile(path, files=files) as found:
            found.verify(report)
            if len(found) != file.records:
                reason = "the number of records does not match the manifest"
                raise Corrupt(str(path), 0, reason, expected=file.records, got=len(found))
    except FileNotFoundError:
        return CheckedStoreFile(path, 0, Corrupt(str(path), 0, "the file is missing"))
    except (GossipKVError, OSError) as error:
        return CheckedStoreFile(path, _size(files, path), _in_words(error, path))
    on_progress(file.size_bytes - reported)
    return CheckedStoreFile(path, file.size_bytes, None)


def _compare(files: Files, path: PurePath, file: RunFile) -> None:
    """Compare size and seal with the manifest: an undamaged file in the wrong place is damage, too."""
    size_bytes, seal = look_at_seal(files, path)
    if size_bytes != file.size_bytes:
        at, reason = min(size_bytes, file.size_bytes), "the size does not match the manifest"
        raise Corrupt(str(path), at, reason, expected=file.size_bytes, got=size_bytes)
    if seal != file.seal:
        raise Corrupt(str(path), size_bytes - FOOTER_BYTES, "the footer does not match the manifest: another file")


def _check_log(
    files: Files, directory: PurePath, manifest: StoreManifest, on_progress: Callable[[int], object]
) -> list[CheckedStoreFile]:
    """Check each segment from the log's floor on, as recovery reads it."""
    before: Corrupt | None = None
    for _ in range(MAX_LOOKS):
        try:
            found = _read_log(files, directory, manifest)
        except Corrupt as damage:
            if before is not None and (before.file, before.offset) == (damage.file, damage.offset):
                break
            before = damage
        except (GossipKVError, OSError) as error:
            return [CheckedStoreFile(directory / LOG, 0, _in_words(error, directory / LOG))]
        else:
            checked = [
                CheckedStoreFile(segment_path(directory, segment.name.number), segment.end, None)
                for segment in _walked(found)
            ]
            for file in checked:
                on_progress(file.size_bytes)
            return checked
        with contextlib.suppress(GossipKVError, OSError):  # On failure the manifest of before remains.
            manifest = read_manifest(files, directory)
    assert before is not None
    path = directory / LOG / PurePath(before.file).name
    return [CheckedStoreFile(path, _size(files, path), before)]


def _walked(found: Recovered) -> list[Segment]:
    """Return the segments that were read, each once."""
    return sorted({found.cut.name: found.cut, **{segment.name: segment for segment in found.segments}}.values())


def _read_log(files: Files, directory: PurePath, manifest: StoreManifest) -> Recovered:
    """Read all of the log; segments kept for readers are checked as strictly as those to recover."""

    def check(segment: SegmentName, position: int, payload: bytes) -> None:
        try:
            operations(payload)
        except ValueError as error:
            path = segment_path(directory, segment.number)
            raise Corrupt(str(path), 0, f"the batch of position {position} has an incomplete operation") from error

    return recover(files, directory, replace(manifest, recovery_floor=manifest.log_floor, kept=()), check)


def _size(files: Files, path: PurePath) -> int:
    try:
        return files.stat(path).size_bytes
    except OSError:
        return 0


def _in_words(error: GossipKVError | OSError, path: PurePath) -> GossipKVError:
    return storage_error(error, path, "the file cannot be read") if isinstance(error, OSError) else error
