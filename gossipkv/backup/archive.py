"""Backups at a destination: a directory of a node's machine, or a URL that fsspec opens.

    <destination>/<backup>/OWNER       who writes the backup, and a number that grows meanwhile; removed at the end
    <destination>/<backup>/<n>.gkv     records of one partition, in a sorted file: each value behind a mark
    <destination>/<backup>/MANIFEST    written last: the tables, and for each partition its files

A partition's files are read from the newest to the oldest, and the first one that has a key decides. A full backup has
one file for a partition. A backup since another one refers to the other's files, and adds one file with the changed
records and the deleted keys, or none. So a backup depends on files in other backups' directories; `expire` keeps those
that a remaining manifest names, in a directory that has neither OWNER nor MANIFEST then.

Each backup is judged alone: a damaged one is named and hides no others. Those of one destination are written and
removed by one cluster, that of the newest backup, since another's nodes cannot say whether they still write one.

Everything here blocks, and raises StorageError if the destination refuses, Corrupt if a file is damaged.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping  # noqa: TC003  # `typed` reads the types of fields.
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.dataset.offline.destinations import destination
from gossipkv.errors import BadRequest, Corrupt, GossipKVError, ProtocolError, StorageError
from gossipkv.keyspace.time_key import TimeKey, time_key_of
from gossipkv.register.metadata.partitions import HASH
from gossipkv.storage.document import COVERED_AT, MAX_DOCUMENT_BYTES, decode, encode
from gossipkv.storage.sorted_file import SUFFIX, SortedFile
from gossipkv.storage.typed import typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gossipkv.dataset.offline.destinations import Destination
    from gossipkv.environment.seam import Files
    from gossipkv.settings.masking import Option
    from gossipkv.storage.typed import Json
    from gossipkv.wire.rpc import Value

MANIFEST: Final = "MANIFEST"
OWNER: Final = "OWNER"

# Other directories at a destination are not touched.
_NAME: Final = re.compile(r"\d{4}-\d\d-\d\d-\d{6}-[0-9a-f]{4}")

# The first byte of each value in a file.
DELETED: Final = b"\0"
PRESENT: Final = b"\1"
EXPIRING: Final = b"\2"  # The expiry in milliseconds since 1970 follows, big-endian in `EXPIRY_BYTES`, then the value.
EXPIRY_BYTES: Final = 8


class BackupFile(NamedTuple):
    """A sorted file of a backup."""

    path: str  # Below the destination: `<backup>/<n>.gkv`.
    size_bytes: int
    records: int  # Deleted keys included.


@dataclass(frozen=True, slots=True)
class SavedPartition:
    """A partition as a backup has it."""

    partition: int
    first: bytes  # Start of a range; empty for a shard.
    clock: bytes  # Clock of the replica that was copied: the backup has the records that it covers.
    files: tuple[BackupFile, ...]  # The oldest first.


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table as a backup has it, with the options that create such a table."""

    name: str
    id: str  # In hexadecimal digits.
    kind: str
    replication: int
    partitioner: str
    time_key: TimeKey | None
    smears: bool
    ttl_ms: int
    retention_ms: int
    partitions: tuple[SavedPartition, ...]
    missing: tuple[int, ...] = ()  # Places in `partitions` of those that could not be read: they have no files.

    @property
    def files(self) -> Iterator[BackupFile]:
        """All files of the table."""
        return (file for partition in self.partitions for file in partition.files)

    @property
    def left_out(self) -> list[Value]:
        """The missing partitions: `{"shard"}`, or `{"start", "end"}` with a nil end for the last range."""
        if self.kind == HASH:
            return [{"shard": number} for number in self.missing]
        firsts = [*(partition.first for partition in self.partitions), None]
        return [{"start": firsts[place], "end": firsts[place + 1]} for place in self.missing]


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """A complete backup."""

    name: str
    began: str  # UTC, as ISO 8601.
    cluster: str
    node: str  # The node that wrote the backup.
    since: str | None  # The backup whose files this one shares.
    tables: tuple[SavedTable, ...]
    datasets: Mapping[str, Mapping[str, str | None]]  # By name: the `active` version, and the held one (`hold`).

    @property
    def files(self) -> dict[str, BackupFile]:
        """All files that this backup needs, by path."""
        return {file.path: file for table in self.tables for file in table.files}

    @property
    def missing(self) -> dict[str, Value]:
        """The partitions that a partial backup lacks, by table (`SavedTable.left_out`)."""
        return {table.name: table.left_out for table in self.tables if table.missing}

    def summary(self) -> dict[str, Value]:
        """Return the line of this backup in a list."""
        files = self.files.values()
        own = [file for file in files if file.path.startswith(f"{self.name}/")]
        return {
            "backup": self.name,
            "began": self.began,
            "cluster": self.cluster,
            "node": self.node,
            "since": self.since,
            "tables": [table.name for table in self.tables],
            "bytes": sum(file.size_bytes for file in files),
            "new_bytes": sum(file.size_bytes for file in own),
            "missing": self.missing,
        }

    def encode(self) -> bytes:
        """Return the bytes of MANIFEST."""
        return encode(MANIFEST, asdict(self, dict_factory=_of_json))


def backup_name(wall_ms: int, number: int) -> str:
    """Return the name of a backup that begins now; names sort by time, and `number` tells two of one moment apart."""
    suffix = wall_ms % 1000 << 6 | number & 0x3F
    return f"{datetime.fromtimestamp(wall_ms // 1000, UTC):%Y-%m-%d-%H%M%S}-{suffix:04x}"


def is_backup_name(name: str) -> bool:
    """Return True for the name of a backup."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class BackupOwner:
    """The start of a node that writes a backup."""

    uuid: str
    epoch: int
    since: str | None  # The backup whose files the new one shares.
    cluster: str = ""
    beat: int = 0  # It grows while the backup is written.


class Unfinished(NamedTuple):
    """A backup that is not complete; all fields change with its content."""

    name: str
    owner: BackupOwner | None  # None: OWNER cannot be read, or is not there yet.
    files: tuple[str, ...]


class Contents(NamedTuple):
    """The backups at a destination, by name, the oldest first."""

    complete: dict[str, BackupManifest]
    damaged: dict[str, str]  # With the reasons.
    unfinished: dict[str, Unfinished]

    @property
    def cluster(self) -> str | None:
        """The cluster of the newest backup; None: it is unknown."""
        owners = {name: found.owner.cluster for name, found in self.unfinished.items() if found.owner is not None}
        clusters = owners | {name: manifest.cluster for name, manifest in self.complete.items()}
        return clusters[max(clusters)] if clusters else None


@final
class Archive:
    """The backups at one destination."""

    def __init__(self, place: str, options: Mapping[str, Option], files: Files) -> None:
        self.place = place.rstrip("/")
        self._options, self._files = options, files
        self._root = self._at("")

    def _at(self, backup: str) -> Destination:
        place = f"{self.place}/{backup}" if backup else self.place
        return destination(place, self._options, files=self._files, use="keep backups", is_strict=True)

    # -- backups -------------------------------------------------------------------------------------------------------

    def contents(self) -> Contents:
        """Read all manifests and owners."""
        found = Contents({}, {}, {})
        for name in self._directories():
            try:
                files = self._at(name).names()
                if MANIFEST in files:
                    found.complete[name] = self._manifest(name)
                elif OWNER in files or not any(file.endswith(SUFFIX) for file in files):  # Else it expired.
                    found.unfinished[name] = Unfinished(name, self._owner(name, files), tuple(files))
            except GossipKVError as error:
                found.damaged[name] = error.message
        return found

    def _directories(self) -> list[str]:
        return [*filter(is_backup_name, self._root.names())]

    def _owner(self, name: str, files: Sequence[str]) -> BackupOwner | None:
        if OWNER not in files:
            return None
        with contextlib.suppress(Corrupt, StorageError, ValueError):  # The backup may have just become complete.
            return typed(BackupOwner, decode(self._read(name, OWNER), f"{self.place}/{name}/{OWNER}", OWNER))
        return None

    def manifest(self, backup: str) -> BackupManifest:
        """Return the manifest of a backup.  Raises BadRequest: there is no such complete backup."""
        if not self.has(backup):
            here = ", ".join([*self.contents().complete][-5:]) or "none"
            raise BadRequest(f"{self.place}: no complete backup {backup!r}; the last backups are: {here}")
        return self._manifest(backup)

    def _manifest(self, backup: str) -> BackupManifest:
        return _manifest_of(self._read(backup, MANIFEST), f"{self.place}/{backup}/{MANIFEST}")

    def has(self, backup: str) -> bool:
        """Return True if there is a complete backup of that name."""
        return is_backup_name(backup) and self._at(backup).exists(MANIFEST)

    def newest(self) -> BackupManifest:
        """Return the manifest of the newest backup.  Raises BadRequest: there is none."""
        found = self.contents()
        if not found.complete and not found.damaged:
            raise BadRequest(f"{self.place}: no complete backup is here")
        name = max([*found.complete, *found.damaged])
        return found.complete.get(name) or self._manifest(name)  # The second raises the reason.

    def begin(self, backup: str, owner: BackupOwner) -> None:
        """Make the directory of a backup."""
        with self._at(backup).workspace():  # Makes the directory, where there are directories.
            self.own(backup, owner)

    def own(self, backup: str, owner: BackupOwner) -> None:
        """Say who writes a backup."""
        self._at(backup).put(OWNER, encode(OWNER, asdict(owner)))

    def finish(self, manifest: BackupManifest, owner: BackupOwner) -> None:
        """Check the files, then write the manifest: the backup is complete.

        The files of the earlier backups that this one shares were read then; only their sizes are checked.

        Raises:
            Corrupt: a file is missing or damaged.
            StorageError: another node took or removed the backup, or the destination refuses.
        """
        place = self._at(manifest.name)
        found = self._owner(manifest.name, place.names())
        if found is None or (found.uuid, found.epoch) != (owner.uuid, owner.epoch):
            where = f"{self.place}/{manifest.name}"
            words = "another node removed this backup while it was written; give the command again"
            raise StorageError(f"{where}: {words}", {"file": where})
        for path, file in manifest.files.items():
            if path.startswith(f"{manifest.name}/"):
                self.check(file)
            else:
                with self.open(file):
                    pass
        place.put(MANIFEST, manifest.encode())
        with contextlib.suppress(StorageError):  # Or the next backup removes it.
            place.remove(OWNER)

    def remove(self, backup: str) -> None:
        """Remove an unfinished backup; MANIFEST goes first, and OWNER last: an interrupted removal is continued."""
        place = self._at(backup)
        for name in sorted(place.names(), key=lambda name: name != MANIFEST):
            if name != OWNER:
                place.remove(name)
        self._root.remove(backup)

    def settle(self) -> None:
        """Remove OWNER from complete backups, whose nodes were killed between the last two steps."""
        for name in self._directories():
            with contextlib.suppress(StorageError):  # A damaged backup.
                place = self._at(name)
                if {OWNER, MANIFEST} <= {*place.names()}:
                    place.remove(OWNER)

    def expire(self, backups: Sequence[str]) -> tuple[int, list[str]]:
        """Remove backups, but not files that other backups need; return the bytes removed, and the damaged backups.

        An interrupted removal is continued by the next one.  Files that a damaged backup may need stay.  Raises
        BadRequest: there is no such backup.
        """
        found = self.contents()
        if missing := [name for name in backups if name not in found.complete and name not in found.damaged]:
            self.manifest(missing[0])
        if used := sorted(_bases(found).intersection(backups)):
            raise BadRequest(f"{self.place}: a backup since {used[0]} is being written; try again when it is done")
        for name in backups:
            try:
                self._at(name).remove(MANIFEST)
            except StorageError:
                if name not in found.damaged:
                    raise
                self._root.remove(name)  # A link in place of the directory is removed, and not followed.
        finished = [name for name in self._directories() if not self._at(name).exists(OWNER)]
        found = self.contents()  # Read after `finished`: MANIFEST is written before OWNER is removed.
        damaged = [*found.damaged]
        if not _bases(found) <= found.complete.keys():
            return 0, damaged  # A backup since a removed one has begun meanwhile. The next removal continues.
        needed = {path for manifest in found.complete.values() for path in manifest.files}
        homes = {path.partition("/")[0] for path in needed}
        removed = 0
        for name in finished:
            if damaged and name <= damaged[-1]:
                continue
            removed += self._remove_files(name, needed)
            if name not in homes and name not in found.complete:
                self._root.remove(name)
        return removed, damaged

    def _remove_files(self, backup: str, needed: set[str]) -> int:
        """Remove the files of a backup that no other needs; return their bytes."""
        place, removed = self._at(backup), 0
        for file in place.names():
            if file.endswith(SUFFIX) and f"{backup}/{file}" not in needed:
                with place.open(file) as opened:
                    removed += opened.size_bytes
                place.remove(file)
        return removed

    # -- files ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def workspace(self, backup: str) -> Iterator[Path]:
        """Yield an empty local directory, from which `publish` takes files."""
        with self._at(backup).workspace() as place:
            yield place

    def publish(self, path: Path, backup: str, name: str) -> None:
        """Move a finished file of a workspace into a backup."""
        self._at(backup).publish(path, name)

    @contextlib.contextmanager
    def open(self, file: BackupFile) -> Iterator[SortedFile]:
        """Open a file of a backup, which is copied to this machine first if the destination is remote.

        Raises:
            Corrupt: the file is missing, or has another size.
        """
        backup, _, name = file.path.partition("/")
        place, where = self._at(backup), f"{self.place}/{file.path}"
        if not place.exists(name):
            raise Corrupt(where, 0, "a file of the backup is missing")
        with place.local(name) as path, SortedFile(path, files=self._files, name=where) as opened:
            if opened.size_bytes != file.size_bytes:
                raise Corrupt(where, opened.size_bytes, f"the file must have {file.size_bytes} bytes")
            yield opened

    def check(self, file: BackupFile) -> None:
        """Read every byte of a file.  Raises Corrupt."""
        with self.open(file) as opened:
            opened.verify()
            if len(opened) != file.records:
                raise Corrupt(opened.name, 0, f"the file must have {file.records} records, not {len(opened)}")

    @contextlib.contextmanager
    def records(self, files: Sequence[BackupFile]) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        """Open the files of a partition; yields an iterator over its keys and values, in order."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(self.open(file)) for file in files]
            # If one file is damaged, the scans of the others have not ended, and a file is not closed during a scan.
            yield _merged([stack.enter_context(contextlib.closing(file.scan())) for file in reversed(opened)])

    def _read(self, backup: str, name: str) -> bytes:
        with self._at(backup).open(name) as file:
            if file.size_bytes > MAX_DOCUMENT_BYTES:
                raise Corrupt(file.name, MAX_DOCUMENT_BYTES, "the file is too large for a document")
            return file.read_at(0, file.size_bytes)


def _bases(found: Contents) -> set[str]:
    """Return the backups whose files unfinished ones share."""
    owners = (unfinished.owner for unfinished in found.unfinished.values())
    return {owner.since for owner in owners if owner is not None and owner.since is not None}


def _merged(newest_first: Sequence[Iterable[tuple[bytes, bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys that are present, with their newest values behind their marks."""
    last = None
    for key, marked in merge(*newest_first, key=itemgetter(0)):  # With equal keys, the first iterable's comes first.
        if key != last and marked[:1] != DELETED:
            yield key, marked
        last = key


def _of_json(fields: list[tuple[str, Json | bytes]]) -> dict[str, Json]:
    """Return the fields of a dataclass as JSON: bytes become hexadecimal digits."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields}


def _manifest_of(data: bytes, where: str) -> BackupManifest:
    """Decode a manifest.  Raises Corrupt, UnsupportedFormat."""
    with contextlib.suppress(ProtocolError, TypeError, ValueError):
        manifest = typed(BackupManifest, decode(data, where, MANIFEST))
        for table in manifest.tables:
            if table.time_key is not None:
                time_key_of([*table.time_key])
        if all(map(_is_path, manifest.files)) and all(
            place in range(len(table.partitions)) for table in manifest.tables for place in table.missing
        ):
            return manifest
    raise Corrupt(where, COVERED_AT, "this is not the manifest of a backup")


def _is_path(path: str) -> bool:
    backup, _, name = path.partition("/")
    return is_backup_name(backup) and name.endswith(SUFFIX) and "/" not in name
