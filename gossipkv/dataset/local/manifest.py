"""The manifest of a built version: its source and its files.

The manifest is written last, into the directory of the build, and says that the build is complete: a directory without
one is a leftover.  The manifest is a document (`gossipkv.storage.document`) of kind MANIFEST.

A node may hold only some partitions of a version: the others have no entry.  The share, computed once and kept here,
lists the partitions that the node should have; some may be lacking for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossipkv.dataset.source.files import LAST_MS
from gossipkv.errors import Corrupt
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.storage.document import Body, checked, field, read_document, text, whole, write_document
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files
    from gossipkv.storage.typed import Json

# Files beside the data begin with `_`.
MANIFEST = "_MANIFEST"
KIND = "MANIFEST"


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One sorted file: a partition of the version."""

    name: str
    records: int
    duplicates: int  # Records of the source whose key came again later; the later one is served.
    size_bytes: int
    seal: int  # The CRC-32 of the footer, see `storage.label.look_at_seal`.

    def check_size(self, path: str, size_bytes: int) -> None:
        """Raise Corrupt unless the file's size is the listed one."""
        if size_bytes != self.size_bytes:
            at = min(size_bytes, self.size_bytes)
            raise Corrupt(path, at, "the size differs from the manifest's", expected=self.size_bytes, got=size_bytes)

    def check_seal(self, path: str, seal: int) -> None:
        """Raise Corrupt unless a file of the listed size has the listed footer checksum."""
        if seal != self.seal:
            raise Corrupt(path, self.size_bytes, "the footer differs from the manifest's", expected=self.seal, got=seal)


@dataclass(frozen=True, slots=True)
class Stray:
    """A key in the wrong file; `offset` is that of the record, or of its block."""

    key: bytes
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class VersionManifest:
    """The content of a version; `files[i]` is partition i, None if it is not held here."""

    identity: VersionIdentity
    source_files: int
    source_bytes: int
    compression: str
    files: tuple[PartitionFile | None, ...]
    format: str = "tsv"  # The format of the source.
    # The functions that every key fits, the identity's first; a single one if it was told apart.
    alike: tuple[str, ...] = ()
    voided: str | None = None  # The function that seemed to have made the source, until keys strayed.
    strays: int = 0  # The number of stray keys.
    first_stray: Stray | None = None  # The first stray key.
    share: PartitionSet | None = None  # The partitions that should be here; None: all.
    source_ms: int = 0  # The newest time among the source's files, in milliseconds since 1970; 0: unknown.
    warnings: tuple[str, ...] = ()  # Doubts about the source, in words without any of its data.
    refuted: tuple[str, ...] = ()  # All functions known to be refuted for this digest, also by other nodes, sorted.

    def __post_init__(self) -> None:
        """Assert that every partition has an entry, and that no refuted function is relied on."""
        assert 0 < len(self.files) == self.identity.partitions, (len(self.files), self.identity)
        assert self.identity.regrouped or self.identity.function not in self.refuted, (self.identity, self.refuted)

    def joined(self, added: VersionManifest) -> VersionManifest:
        """Combine two builds of one version; if both have a partition, `added` wins."""
        assert self.identity == added.identity, (self.identity, added.identity)
        files = tuple(new or old for old, new in zip(self.files, added.files, strict=True))
        # The builds have read different records.
        alike = tuple(function for function in self.alike if function in added.alike)
        refuted = tuple(sorted({*self.refuted, *added.refuted}))
        newest_ms = max(self.source_ms, added.source_ms)
        return replace(self, files=files, alike=alike, refuted=refuted, share=added.share, source_ms=newest_ms)

    def without(self, partitions: PartitionSet) -> VersionManifest:
        left = list(self.files)
        for partition in partitions:
            left[partition] = None
        return replace(self, files=tuple(left))

    @property
    def files_here(self) -> list[PartitionFile]:
        return [file for file in self.files if file is not None]

    @property
    def here(self) -> PartitionSet:
        return PartitionSet.of(len(self.files), (at for at, file in enumerate(self.files) if file is not None))

    @property
    def records(self) -> int:
        """Return the number of records served."""
        return sum(file.records for file in self.files_here)

    @property
    def duplicates(self) -> int:
        """Return the number of source records that a later one replaced."""
        return sum(file.duplicates for file in self.files_here)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files_here)


def partition_name(partition: int) -> str:
    """Return the name of a partition's file, here and in versions built elsewhere."""
    return f"part-{partition:05d}.gkv"


def write_manifest(files: Files, directory: PurePath, manifest: VersionManifest) -> None:
    """Write the manifest, which declares the build in `directory` complete."""
    write_document(files, directory / MANIFEST, KIND, to_body(manifest))


def read_manifest(files: Files, directory: PurePath) -> VersionManifest:
    """Read the manifest in `directory`.

    Raises:
        FileNotFoundError: the build was not finished.
        Corrupt, UnsupportedFormat: the manifest is damaged, or too new.
    """
    path = directory / MANIFEST
    return from_body(read_document(files, path, KIND), str(path))


def to_body(manifest: VersionManifest) -> Body:
    """Encode the manifest as JSON; by partition, a file is `[records, duplicates, size, seal]` or null."""
    identity, stray = manifest.identity, manifest.first_stray
    return {
        "database": identity.database,
        "version": identity.version,
        "digest": identity.digest,
        "partitions": identity.partitions,
        "function": identity.function,
        "regrouped": identity.regrouped,
        "alike": list(manifest.alike),
        "voided": manifest.voided,
        "strays": manifest.strays,
        "first_stray": stray_to_json(stray),
        "refuted": list(manifest.refuted),
        "share": None if manifest.share is None else manifest.share.to_bytes().hex(),
        "format": manifest.format,
        "source_files": manifest.source_files,
        "source_bytes": manifest.source_bytes,
        "source_ms": manifest.source_ms,
        "compression": manifest.compression,
        **({"warnings": list(manifest.warnings)} if manifest.warnings else {}),
        "files": [
            None if file is None else [file.records, file.duplicates, file.size_bytes, file.seal]
            for file in manifest.files
        ],
    }


def from_body(body: Body, name: str) -> VersionManifest:
    """Decode the manifest from JSON; errors call it `name`.

    Raises:
        Corrupt: a field is missing or of another type.
    """
    voided = None if _present(body, "voided", name) is None else text(body, "voided", name)
    partitions, refuted = whole(body, "partitions", name), field(body, "refuted", tuple[str, ...], name)
    identity = checked(VersionIdentity, body, name)
    if not identity.regrouped and identity.function in refuted:
        raise Corrupt(name, 0, f"'refuted' contains {identity.function!r}, on which the build relied")
    files = body.get("files")
    if not isinstance(files, list) or not 0 < len(files) == partitions:
        raise Corrupt(name, 0, "'files' should be a list with an entry for each partition")
    return VersionManifest(
        identity,
        whole(body, "source_files", name),
        whole(body, "source_bytes", name),
        text(body, "compression", name),
        tuple(None if row is None else _file(partition, row, name) for partition, row in enumerate(files)),
        format=text(body, "format", name),
        alike=field(body, "alike", tuple[str, ...], name),
        voided=voided,
        strays=whole(body, "strays", name),
        first_stray=stray_from_json(_present(body, "first_stray", name), name),
        source_ms=_time(body, "source_ms", name),
        refuted=refuted,
        warnings=field(body, "warnings", tuple[str, ...], name) if "warnings" in body else (),
        share=_share(_present(body, "share", name), partitions, name),
    )


def _present(body: Body, field: str, name: str) -> Json:
    """Return a field that may be null, but not missing."""
    if field not in body:
        raise Corrupt(name, 0, f"the field {field!r} is missing")
    return body[field]


def _time(body: Body, field: str, name: str) -> int:
    """Return a time in milliseconds since 1970; it is checked, since other nodes will be told."""
    found = whole(body, field, name)
    if found > LAST_MS:
        raise Corrupt(name, 0, f"{field!r} should be a time in milliseconds, not {found}")
    return found


def stray_to_json(stray: Stray | None) -> Json:
    """Encode a stray as `[key in hexadecimal, file, offset]`, or null."""
    return None if stray is None else [stray.key.hex(), stray.file, stray.offset]


def stray_from_json(row: Json, name: str) -> Stray | None:
    """Decode the result of `stray_to_json`; errors call its place `name`.

    Raises:
        Corrupt: it is malformed.
    """
    return None if row is None else Stray(*checked(tuple[bytes, str, int], row, name, "first_stray"))


def _share(bitmap: Json, partitions: int, name: str) -> PartitionSet | None:
    try:
        return None if bitmap is None else PartitionSet.from_bytes(partitions, typed(bytes, bitmap, "share"))
    except ValueError as error:
        raise Corrupt(name, 0, f"'share': {error}") from error


def _file(partition: int, row: Json, name: str) -> PartitionFile:
    match row:
        case [int(records), int(duplicates), int(size_bytes), int(seal)] if min(records, duplicates, size_bytes) >= 0:
            return PartitionFile(partition_name(partition), records, duplicates, size_bytes, seal)
        case _:
            raise Corrupt(name, 0, f"'files' should have four whole numbers for partition {partition}")
