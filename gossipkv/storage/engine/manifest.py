"""The manifest of a store: its files and spaces, in one checked document that is replaced as a whole.

    MANIFEST             this document (`storage.document`, kind STORE)
    LOCK                 locked by the process that has the store open
    log/0000000000000001.log    segments of the log, by number (`segments`)
    runs/00000001-0001.gkv      files of runs: sorted files, by the number of the merge that wrote them (`merge`)
    RESERVE                     allocated without content: room for work that frees room (`policy`)

A file of the log or of runs that the manifest does not name was left by a crash; the next start removes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Corrupt
from gossipkv.storage.document import COVERED_AT, field, read_document, whole, write_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.document import Body
    from gossipkv.storage.typed import Json

MANIFEST: Final = "MANIFEST"
LOCK: Final = "LOCK"
RESERVE: Final = "RESERVE"
LOG: Final = "log"
RUNS: Final = "runs"
KIND: Final = "STORE"

MAX_SPACES: Final = 1 << 32

_WORD: Final = 1 << 64
_RUN_FILE: Final = re.compile(r"[0-9A-Za-z-]+\.gkv", re.ASCII)


class SegmentName(NamedTuple):
    """The name of a segment: a rising number, and the salt of its frames' checksums."""

    number: int
    salt: int  # 64 bits, random for each use of the file.


class LifeEnd(NamedTuple):
    """The end of a life of the store.

    Later frames in the cut segment are void, and another segment continues the log.
    """

    life: int
    number: int  # The cut segment.
    offset: int  # End of its last frame that counts.
    position: int  # Position of that frame; the continued segment has all frames of the cut one up to it.
    continued: SegmentName  # Begins with all valid frames of the cut segment, written anew.


class RunFile(NamedTuple):
    """One file of a run: a sorted file whose keys begin with a space and whose values begin with a flag."""

    name: str
    records: int  # Includes tombstones.
    size_bytes: int
    seal: int  # CRC-32 of the footer, which distinguishes this file from any other.
    first: bytes  # The least key, including its space.
    last: bytes  # The greatest key.
    tombstones: int = 0
    expiring: int = 0  # Records with an expiry.
    stale_ms: int = 0  # Time of day from which about a third of the bytes may leave the disk; 0: never.


class SortedRun(NamedTuple):
    """Files whose keys ascend from one file to the next: the output of a merge."""

    files: tuple[RunFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def tombstones(self) -> int:
        return sum(file.tombstones for file in self.files)


NO_RUN: Final = SortedRun(())


@final
@dataclass(frozen=True, slots=True)
class StoreManifest:
    """The files and spaces of a store at one moment, all of them synced."""

    store: int  # A random id of 64 bits, constant for the store.
    life: int  # Number of openings so far.
    spaces: frozenset[int]
    next_space: int  # Numbers below were used, and are never used again.
    next_merge: int  # Merge numbers below were used.
    recovery_floor: SegmentName  # Recovery begins here; older records are in runs.
    log_floor: SegmentName  # The oldest segment that is kept for readers of the log.
    lives: tuple[LifeEnd, ...] = ()  # Lives that ended in the kept log, from the oldest.
    young: tuple[SortedRun, ...] = ()  # Ordered from the newest to the oldest.
    oldest: SortedRun = NO_RUN
    dropped_bytes: int = 0  # Estimate of the bytes of dropped spaces in runs: debt.
    kept: tuple[SegmentName, ...] = ()  # Segments from `log_floor` up to, but without, `recovery_floor`.

    @property
    def run_files(self) -> Iterator[RunFile]:
        for run in (*self.young, self.oldest):
            yield from run.files

    def ended(self, number: int) -> LifeEnd | None:
        return next((end for end in self.lives if end.number == number), None)


def segment_path(directory: PurePath, number: int) -> PurePath:
    """Return the path of a segment in the store `directory`."""
    return directory / LOG / f"{number:016d}.log"


def read_manifest(files: Files, directory: PurePath) -> StoreManifest:
    """Return the manifest of the store in `directory`.

    Raises:
        FileNotFoundError: there is no store.
        Corrupt, UnsupportedFormat: it is damaged, or too new; names the file.
        OSError: the system refused.
    """
    path = directory / MANIFEST
    name = str(path)
    body = read_document(files, path, KIND)
    lives = field(body, "lives", list[tuple[int, int, int, int, int, int]], name)
    try:
        manifest = StoreManifest(
            store=whole(body, "store", name),
            life=whole(body, "life", name),
            spaces=frozenset(field(body, "spaces", list[int], name)),
            next_space=whole(body, "next_space", name),
            next_merge=whole(body, "next_merge", name),
            recovery_floor=field(body, "recovery_floor", SegmentName, name),
            log_floor=field(body, "log_floor", SegmentName, name),
            lives=tuple(LifeEnd(*end[:4], SegmentName(*end[4:])) for end in lives),
            young=tuple(map(run_of, field(body, "young", list[tuple[RunFile, ...]], name))),
            oldest=run_of(field(body, "oldest", tuple[RunFile, ...], name)),
            dropped_bytes=whole(body, "dropped_bytes", name),
            kept=field(body, "kept", tuple[SegmentName, ...], name),
        )
    except ValueError as error:
        raise Corrupt(name, COVERED_AT, f"this is not a store's manifest: {error}") from error
    if not all(map(_are_words, body.values())) or not _can_be(manifest):
        raise Corrupt(name, COVERED_AT, "the numbers of the store, its life, spaces or segments are impossible")
    return manifest


def _can_be(manifest: StoreManifest) -> bool:
    return (
        manifest.life > 0
        and max(manifest.life, manifest.store, manifest.next_merge, manifest.dropped_bytes) < _WORD
        and manifest.next_space <= MAX_SPACES
        and all(space < manifest.next_space for space in manifest.spaces)
        and manifest.log_floor.number <= manifest.recovery_floor.number
        and _follow((*manifest.kept, manifest.recovery_floor), manifest.log_floor)
    )


def _follow(names: tuple[SegmentName, ...], floor: SegmentName) -> bool:
    """Return True if segments begin with the floor, and their numbers rise."""
    return names[0] == floor and all(before.number < after.number for before, after in pairwise(names))


def write_manifest(files: Files, directory: PurePath, manifest: StoreManifest) -> None:
    """Replace the manifest durably; after a crash the old one or the new one is there. Raises OSError."""
    body: Body = {
        "store": manifest.store,
        "life": manifest.life,
        "spaces": [*sorted(manifest.spaces)],
        "next_space": manifest.next_space,
        "next_merge": manifest.next_merge,
        "recovery_floor": [*manifest.recovery_floor],
        "log_floor": [*manifest.log_floor],
        "lives": [[end.life, end.number, end.offset, end.position, *end.continued] for end in manifest.lives],
        "young": [run_json(run) for run in manifest.young],
        "oldest": run_json(manifest.oldest),
        "dropped_bytes": manifest.dropped_bytes,
        "kept": [[*name] for name in manifest.kept],
    }
    write_document(files, directory / MANIFEST, KIND, body)


def run_json(run: SortedRun) -> Json:
    """Return a run in its JSON form."""
    return [[*file[:4], file.first.hex(), file.last.hex(), *file[6:]] for file in run.files]


def run_of(files: tuple[RunFile, ...]) -> SortedRun:
    """Return the run of these files. Raises ValueError: they cannot be a run."""
    for at, file in enumerate(files):
        if _RUN_FILE.fullmatch(file.name) is None:
            raise ValueError(f"{file.name!r} is not the name of a run file")
        if file.first > file.last or (at and files[at - 1].last >= file.first):
            raise ValueError(f"the keys of {file.name} do not follow the keys of the file before it")
    return SortedRun(files)


def _are_words(value: Json) -> bool:
    """Return True if all numbers in a value have 64 bits."""
    match value:
        case int():
            return 0 <= value < _WORD
        case list():
            return all(map(_are_words, value))
    return True


def describe_store(files: Files, directory: PurePath) -> dict[str, str | int]:
    """Return a summary of the store in `directory`, for people, without opening it.

    A node may have it open meanwhile: the manifest is replaced as a whole, and files that are gone by now do not count.

    Raises:
        FileNotFoundError: there is no store.
        Corrupt, UnsupportedFormat: its manifest is damaged, or too new.
        OSError: the system refused.
    """
    manifest = read_manifest(files, directory)
    segments = [entry.size_bytes for entry in files.list_directory(directory / LOG) if entry.kind == "file"]
    named = list(manifest.run_files)
    there = {entry.name for entry in files.list_directory(directory / RUNS)} if named else set()
    return {
        "store": f"{manifest.store:016x}",
        "life": manifest.life,
        "spaces": len(manifest.spaces),
        "young_runs": len(manifest.young),
        "run_files": len(named),
        "missing_run_files": sum(file.name not in there for file in named),
        "records": sum(file.records for file in named),
        "run_bytes": sum(file.size_bytes for file in named),
        "dropped_bytes": manifest.dropped_bytes,
        "segments": len(segments),
        "log_bytes": sum(segments),
        "recovered_from": manifest.recovery_floor.number,
        "log_kept_from": manifest.log_floor.number,
    }
