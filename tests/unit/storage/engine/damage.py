"""A small store as bytes by path, which can be changed, put on a disk and opened: refused, or right in full."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.environment.seam import READ, WRITE_NEW
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.engine.manifest import read_manifest, segment_path
from tests.conformance.store import FIRST, Witness, drawn
from tests.oracle.store import NEW_SPACE, VALUE
from tests.unit.storage.engine.crashing import survivor
from tests.unit.storage.engine.places import DIRECTORY, SimulatedPlace

if TYPE_CHECKING:
    from tests.world.simulated_files import SimulatedFiles

MANIFEST, LOG, RUNS = (str(DIRECTORY / name) for name in ("MANIFEST", "log", "runs"))
RIGHT, REFUSED = "right", "refused"


class Made(NamedTuple):
    """A closed store: its disk, the contents of its files, and the witness of its records."""

    disk: SimulatedFiles
    contents: dict[str, bytes]
    witness: Witness

    def of(self, place: str) -> list[str]:
        """Return the paths in one of its directories, in the order of their numbers."""
        return sorted(path for path in self.contents if path.startswith(place))

    @property
    def kept(self) -> list[str]:
        """Return the paths of segments that are kept only for readers of the log, in the order of their numbers."""
        return [str(segment_path(DIRECTORY, name.number)) for name in read_manifest(self.disk, DIRECTORY).kept]

    def changed(self, changes: dict[str, bytes | None]) -> SimulatedFiles:
        """Return a disk on which some files have other contents, or (None) are missing."""
        disk = self.disk.copied()
        for path, content in changes.items():
            if path in self.contents:
                disk.unlink(path)
            if content is not None:
                put(disk, path, content)
        return disk

    def overwritten(self, path: str, offset: int, data: bytes) -> SimulatedFiles:
        """Return a disk on which some bytes of a file are overwritten."""
        disk = self.disk.copied()
        descriptor = disk.open(path, os.O_WRONLY)
        disk.pwrite(descriptor, data, offset)
        disk.close(descriptor)
        return disk

    def outcome(self, disk: SimulatedFiles) -> str:
        """Open and read the store on a disk; return RIGHT, or REFUSED if an error names the place."""
        witness = survivor(self.witness, disk, 1_000_000)
        witness.is_harmed = True
        try:
            witness.open()
            witness.look()
        except (Corrupt, UnsupportedFormat) as refusal:
            assert str(refusal.details.get("file", "")).startswith(str(DIRECTORY)), refusal
            assert isinstance(refusal, UnsupportedFormat) or refusal.offset >= 0
            return REFUSED
        return RIGHT


def made(seed: int = 3, batches: int = 90) -> Made:
    """Return a store with young runs, an oldest run, closed and kept segments, and lives that a crash ended."""
    witness = Witness(SimulatedPlace())
    disk = witness.place.files
    chance = random.Random(seed)
    witness.reserve()
    witness.write((NEW_SPACE, FIRST, b"", b""))
    for number in range(batches):
        witness.append(drawn(witness, chance, 1_000))
        if number % 3:
            witness.commit()
        if number % 5 == 0:
            witness.store.maintain()
        if number in (batches // 3, batches - 6):
            witness.append([(VALUE, FIRST, b"cut", b"off")])
            witness.place.kill(0)
            witness.open()
    witness.close()
    return Made(disk, contents(disk, str(DIRECTORY)), witness)


def contents(disk: SimulatedFiles, directory: str) -> dict[str, bytes]:
    found = {}
    for entry in disk.list_directory(directory):
        path = f"{directory}/{entry.name}"
        found |= contents(disk, path) if entry.kind == "directory" else {path: get(disk, path)}
    return found


def get(disk: SimulatedFiles, path: str) -> bytes:
    descriptor = disk.open(path, READ)
    try:
        return disk.pread(descriptor, disk.size(descriptor), 0)
    finally:
        disk.close(descriptor)


def put(disk: SimulatedFiles, path: str, content: bytes) -> None:
    descriptor = disk.open(path, WRITE_NEW)
    disk.pwrite(descriptor, content, 0)
    disk.close(descriptor)
