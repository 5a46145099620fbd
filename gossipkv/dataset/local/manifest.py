"""The manifest of a built version: what it was made from, and the files it consists of.

It is written last, into the directory of the build, and says that the build is whole: a directory without one is a
leftover.  It is a document (`gossipkv.storage.document`) of kind MANIFEST.

A node may hold some of a version's partitions only: those are its assignment, and the others have no entry.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.errors import Corrupt
from gossipkv.placement.identity import Identity
from gossipkv.storage.document import Body, Json, read_document, text, whole, write_document

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

# Begins with `_`, as everything does that lies beside data and is none.
MANIFEST = "_MANIFEST"
KIND = "MANIFEST"
FORMAT = 2
SEALED_BYTES = 256


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One sorted file: a partition of the version."""

    name: str
    records: int
    duplicates: int  # Records of the source whose key came again later; the later one is served.
    size_bytes: int
    seal: int  # See `look`.

    def check_size(self, path: str, size_bytes: int) -> None:
        """Raise Corrupt unless a file is as long as this one."""
        if size_bytes != self.size_bytes:
            at = min(size_bytes, self.size_bytes)
            raise Corrupt(path, at, "another size than in the manifest", expected=self.size_bytes, got=size_bytes)

    def check_seal(self, path: str, seal: int) -> None:
        """Raise Corrupt unless a file, which is as long as this one, ends as it does."""
        if seal != self.seal:
            raise Corrupt(path, self.size_bytes, "another footer than in the manifest", expected=self.seal, got=seal)


@dataclass(frozen=True, slots=True)
class Stray:
    """A key in a file that does not hold its partition; `offset` is the record's, or that of the block it is in."""

    key: bytes
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a version consists of; `files[i]` is partition i, None when it is not held here."""

    identity: Identity
    source_files: int
    source_bytes: int
    compression: str
    files: tuple[PartitionFile | None, ...]
    format: str = "tsv"  # of the source
    alike: tuple[str, ...] = ()  # The functions that every key fits, the identity's first: one if it was told apart.
    voided: str | None = None  # The function that the source seemed to be made with, until keys strayed.
    strays: int = 0  # How many did,
    first_stray: Stray | None = None  # and the first of them.

    def __post_init__(self) -> None:
        """Asserts that each partition has its place."""
        assert 0 < len(self.files) == self.identity.partitions, (len(self.files), self.identity)

    @property
    def held(self) -> list[PartitionFile]:
        """The sorted files that are here."""
        return [file for file in self.files if file is not None]

    @property
    def records(self) -> int:
        """Records served."""
        return sum(file.records for file in self.held)

    @property
    def duplicates(self) -> int:
        """Records of the source that a later one replaced."""
        return sum(file.duplicates for file in self.held)

    @property
    def size_bytes(self) -> int:
        """What the sorted files take on the disk."""
        return sum(file.size_bytes for file in self.held)


def partition_name(partition: int) -> str:
    """The name of a partition's file, here and in a version that is built elsewhere."""
    return f"part-{partition:05d}.gkv"


def look(files: Files, path: PurePath) -> tuple[int, int]:
    """The size of a sorted file, and its seal: the CRC-32 of its last 256 bytes, the footer.

    The footer holds the checksum of the checksums of all pages, so the seal tells this file from every other,
    at the cost of one page: a file that took another's place is noticed at opening.
    """
    descriptor = files.open(path)
    try:
        size_bytes = files.size(descriptor)
        tail_bytes = min(size_bytes, SEALED_BYTES)
        return size_bytes, zlib.crc32(files.pread(descriptor, tail_bytes, size_bytes - tail_bytes))
    finally:
        files.close(descriptor)


def write_manifest(files: Files, directory: PurePath, manifest: Manifest) -> None:
    """Declares the build in `directory` whole."""
    write_document(files, directory / MANIFEST, KIND, to_body(manifest), format_number=FORMAT)


def read_manifest(files: Files, directory: PurePath) -> Manifest:
    """The manifest in `directory`.

    Raises:
        FileNotFoundError: the build was not finished.
        Corrupt, UnsupportedFormat: it is damaged, or too new.
    """
    path = directory / MANIFEST
    return from_body(read_document(files, path, KIND, newest_format=FORMAT), str(path))


def to_body(manifest: Manifest) -> Body:
    """The manifest as JSON; each file is `[records, duplicates, size, seal]` or null, its place its partition."""
    identity, stray = manifest.identity, manifest.first_stray
    return {
        "database": identity.database,
        "version": identity.version,
        "digest": identity.digest,
        "partitions": identity.partitions,
        "function": identity.function,
        "alike": list(manifest.alike),
        "voided": manifest.voided,
        "strays": manifest.strays,
        "first_stray": stray_to_json(stray),
        "format": manifest.format,
        "source_files": manifest.source_files,
        "source_bytes": manifest.source_bytes,
        "compression": manifest.compression,
        "files": [
            None if file is None else [file.records, file.duplicates, file.size_bytes, file.seal]
            for file in manifest.files
        ],
    }


def from_body(body: Body, name: str) -> Manifest:
    """The manifest from JSON; `name` is what errors call it.

    Raises:
        Corrupt: a field is missing or is of another type.
    """
    identity = Identity(
        text(body, "database", name),
        text(body, "version", name),
        text(body, "digest", name),
        whole(body, "partitions", name),
        text(body, "function", name),
    )
    files = body.get("files")
    if not isinstance(files, list) or not 0 < len(files) == identity.partitions:
        raise Corrupt(name, 0, "'files' should be a list with an entry for each partition")
    return Manifest(
        identity,
        whole(body, "source_files", name),
        whole(body, "source_bytes", name),
        text(body, "compression", name),
        tuple(None if row is None else _file(partition, row, name) for partition, row in enumerate(files)),
        format=text(body, "format", name),
        alike=_alike(_present(body, "alike", name), name),
        voided=None if _present(body, "voided", name) is None else text(body, "voided", name),
        strays=whole(body, "strays", name),
        first_stray=stray_from_json(_present(body, "first_stray", name), name),
    )


def _present(body: Body, field: str, name: str) -> Json:
    """A field that may be null, but not missing."""
    if field not in body:
        raise Corrupt(name, 0, f"the field {field!r} is missing")
    return body[field]


def _alike(names: Json, name: str) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise Corrupt(name, 0, "'alike' should be a list")
    found = tuple(one for one in names if isinstance(one, str))
    if len(found) != len(names):
        raise Corrupt(name, 0, "'alike' should hold the names of functions")
    return found


def stray_to_json(stray: Stray | None) -> Json:
    """`[key in hexadecimal, file, offset]`, or null."""
    return None if stray is None else [stray.key.hex(), stray.file, stray.offset]


def stray_from_json(row: Json, name: str) -> Stray | None:
    """Return what `stray_to_json` was called on; `name` is what errors call its place.

    Raises:
        Corrupt: it is of another form.
    """
    match row:
        case None:
            return None
        case [str(key), str(file), int(offset)] if re.fullmatch("([0-9a-f]{2})*", key):
            return Stray(bytes.fromhex(key), file, offset)
        case _:
            raise Corrupt(name, 0, "'first_stray' is no key, file and offset")


def _file(partition: int, row: Json, name: str) -> PartitionFile:
    match row:
        case [int(records), int(duplicates), int(size_bytes), int(seal)] if min(records, duplicates, size_bytes) >= 0:
            return PartitionFile(partition_name(partition), records, duplicates, size_bytes, seal)
        case _:
            raise Corrupt(name, 0, f"'files' has no four whole numbers for partition {partition}")
