"""The store of built versions on the disk, and the record of the active one.

`docs/operators/data-directory.md` has the full layout; `node.directory` has locked the directory.  The parts:
`datasets/<database>/<version>/` (built), `building`, `removing`, `damaged` (the same levels), and the documents
`active/`, `refuted/`, `held/<database>` and RING.  All calls block, and come from worker threads.  A crash keeps these
invariants:

* A version enters `datasets` by one rename of a complete, synced directory, and leaves it by one rename.
* An added partition is renamed first, and listed in the manifest after that; a dropped one is removed from the manifest
  first.  Opening a version removes unlisted files.
* `active` is durable before the first answer from that version.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, final

from gossipkv.dataset.local import active as active_document
from gossipkv.dataset.local.manifest import MANIFEST, VersionManifest, read_manifest, write_manifest
from gossipkv.dataset.local.scrubbed import SCRUBBED
from gossipkv.errors import Corrupt, LocalError, UnsupportedFormat
from gossipkv.placement.orders import Orders, RollbackOrder
from gossipkv.settings.databases import is_name
from gossipkv.storage.directories import clear_directory, make_directory, remove_tree, storage_error
from gossipkv.storage.document import field, read_document, text, write_document

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import PurePath

    from gossipkv.dataset.local.active import ActiveDocument
    from gossipkv.environment.seam import FileEntry, Files
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.storage.document import Body
    from gossipkv.storage.typed import Json

_ACTIVE, _REFUTED, _HELD, _RING, _DATASETS = "active", "refuted", "held", "RING", "datasets"
_BUILDING, _REMOVING, _DAMAGED = "building", "removing", "damaged"
_REFUTED_KIND, _HELD_KIND, _RING_KIND = "REFUTED", "HELD", "RING"
# All names that the store keeps in the data directory.
NAMES = (_ACTIVE, _REFUTED, _HELD, _DATASETS, _BUILDING, _REMOVING, _DAMAGED)

Refuted = dict[str, tuple[str, ...]]  # The functions of each digest are sorted.


@final
class AnotherIdentity(LocalError):
    """The built files have another identity than the version that they should join."""


@final
class VersionStore:
    """The built versions in a directory owned by this process; call `prepare` before any write."""

    def __init__(self, path: PurePath, files: Files) -> None:
        self.path = path
        self.files = files

    def prepare(self) -> None:
        """Make the directories if necessary, and remove the leftovers of a crash.

        Raises:
            OSError: the system refused.
        """
        for name in NAMES:
            make_directory(self.files, self.path / name)
        for name in (_BUILDING, _REMOVING):
            clear_directory(self.files, self.path / name)
            self.files.sync_directory(self.path / name)

    # Built versions

    def databases(self) -> list[str]:
        """Return the databases with a built or an active version."""
        found = {entry.name for entry in self._list(_DATASETS) if entry.kind == "directory"}
        found |= {entry.name for entry in self._list(_ACTIVE) if entry.kind == "file"}
        return sorted(name for name in found if is_name(name))

    def versions(self, database: str) -> list[str]:
        """Return the built versions of a database, oldest first."""
        try:
            entries = self.files.list_directory(self.path / _DATASETS / database)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, self.path / _DATASETS / database, "the directory cannot be read") from error
        return sorted(entry.name for entry in entries if entry.kind == "directory" and is_name(entry.name))

    def version_path(self, database: str, version: str) -> PurePath:
        return self.path / _DATASETS / database / version

    def build_path(self, database: str, version: str) -> PurePath:
        return self.path / _BUILDING / database / version

    def free_bytes(self) -> int:
        return self.files.free_bytes(self.path)

    # The active version

    def active(self, database: str) -> ActiveDocument | None:
        """Read the ACTIVE document; None if no version was ever active.

        Raises:
            Corrupt: the document is damaged, or something else is in its place.
            UnsupportedFormat: it has another format.
            StorageError: the system refused.
        """
        path = self.path / _ACTIVE / database
        try:
            body = read_document(self.files, path, active_document.KIND)
        except FileNotFoundError:
            return None
        except UnsupportedFormat as error:
            if "format" in error.details:
                raise
            # In a locked directory of our own, a file of another kind was once this document.
            raise Corrupt(str(path), 0, "the file is not a document of the kind ACTIVE") from error
        except OSError as error:
            raise storage_error(error, path, "the file cannot be read") from error
        return active_document.from_body(database, body, str(path))

    def set_active(self, database: str, active: ActiveDocument) -> None:
        """Write the ACTIVE document, durably; the first answer from the version comes after that."""
        assert is_name(database), database
        assert is_name(active.version), active.version
        body = active_document.to_body(database, active)
        self._write(self.path / _ACTIVE / database, active_document.KIND, body)

    # Refuted functions

    def refuted(self, database: str) -> Refuted:
        """Return the functions that strays have refuted, by digest of the source.

        Raises:
            Corrupt, UnsupportedFormat: the document is damaged, or too new.
            StorageError: the system refused.
        """
        path = self.path / _REFUTED / database
        body = self._read(path, _REFUTED_KIND, database)
        return {} if body is None else dict(field(body, "refuted", list[tuple[str, tuple[str, ...]]], str(path)))

    def set_refuted(self, database: str, refuted: Refuted) -> None:
        """Write the refuted functions, durably.  Raises StorageError."""
        assert is_name(database), database
        rows: list[Json] = [[digest, list(functions)] for digest, functions in refuted.items()]
        self._write(self.path / _REFUTED / database, _REFUTED_KIND, {"database": database, "refuted": rows})

    # Orders of operators

    def orders(self, database: str) -> Orders:
        """Return the orders to hold a version.

        Raises:
            Corrupt, UnsupportedFormat: the document is damaged, or too new.
            StorageError: the system refused.
        """
        path = self.path / _HELD / database
        body = self._read(path, _HELD_KIND, database)
        return Orders() if body is None else Orders(*(_order(body.get(field), str(path)) for field in Orders._fields))

    def set_orders(self, database: str, orders: Orders) -> None:
        """Write the orders, durably.  Raises StorageError."""
        assert is_name(database), database
        rows: Body = {field: None if order is None else [*order] for field, order in orders._asdict().items()}
        self._write(self.path / _HELD / database, _HELD_KIND, {"database": database, **rows})

    # The ring

    def ring(self) -> dict[str, str]:
        """Return the ids of the last ring by owner; empty if there was none.

        Raises:
            Corrupt, UnsupportedFormat: the document is damaged, or too new.
            StorageError: the system refused.
        """
        path = self.path / _RING
        body = self._read(path, _RING_KIND)
        return {} if body is None else dict(field(body, "claims", list[tuple[str, str]], str(path)))

    def set_ring(self, claims: Mapping[str, str]) -> None:
        """Write the ids of the ring, durably.  Raises StorageError."""
        rows: list[Json] = [[name, shard_id] for name, shard_id in claims.items()]
        self._write(self.path / _RING, _RING_KIND, {"claims": rows})

    # The life of a version

    def begin_build(self, database: str, version: str) -> PurePath:
        """Return an empty directory for a build, after removing the leftovers of an earlier attempt."""
        path = self.build_path(database, version)
        try:
            make_directory(self.files, path.parent)
            remove_tree(self.files, path)
            make_directory(self.files, path)
        except OSError as error:
            raise storage_error(error, path, "the directory cannot be made") from error
        return path

    def discard_build(self, database: str, version: str) -> None:
        """Remove the leftovers of a failed build, as far as possible; the next opening removes the rest."""
        with contextlib.suppress(OSError):
            remove_tree(self.files, self.build_path(database, version))

    def publish(self, database: str, version: str, share: PartitionSet | None = None) -> PurePath:
        """Move a complete build among the versions, in one durable step; return its directory.

        `share`: the partitions wanted here; None: all.  An existing version of the name can only be a damaged one; it
        is quarantined and then deleted.
        """
        source, target = self.build_path(database, version), self.version_path(database, version)
        try:
            if share is not None and len(share) < share.partitions:
                write_manifest(self.files, source, _with_share(read_manifest(self.files, source), share))
            make_directory(self.files, target.parent)
            if self._exists(target):
                self.set_aside(database, version)
            self._move(source, target)
            remove_tree(self.files, self.path / _DAMAGED / database / version)
        except OSError as error:
            raise storage_error(error, target, "the version cannot be published") from error
        return target

    def add_partitions(self, database: str, version: str, share: PartitionSet) -> VersionManifest:
        """Move built partitions into a version that lacks them; return the manifest of the build.

        Raises:
            AnotherIdentity: the identities differ; nothing has changed.
            Corrupt, UnsupportedFormat: one of the manifests is damaged.
            StorageError: the system refused; the version is unchanged.
        """
        source, target = self.build_path(database, version), self.version_path(database, version)
        try:
            built, existing = read_manifest(self.files, source), read_manifest(self.files, target)
            if built.identity != existing.identity:
                raise AnotherIdentity(
                    f"{target}: the built partitions belong to {built.identity}, not to {existing.identity}"
                )
            if existing.here & built.here:  # An attempt that could not open the partitions left them there.
                existing = existing.without(built.here)
                write_manifest(self.files, target, existing)
            for file in built.files_here:
                self.files.rename(source / file.name, target / file.name)
            self.files.sync_directory(target)
            self.files.sync_directory(source)
            built = _with_share(built, share)
            write_manifest(self.files, target, existing.joined(built))
            remove_tree(self.files, source)
        except OSError as error:
            raise storage_error(error, target, "the partitions cannot be added") from error
        return built

    def drop_partitions(self, database: str, version: str, partitions: PartitionSet) -> VersionManifest:
        """Delete partitions of a version, which have no new readers; return the remaining manifest.

        Raises:
            Corrupt, UnsupportedFormat: the manifest is damaged.
            StorageError: the system refused; the next opening removes files that are left.
        """
        target = self.version_path(database, version)
        try:
            left = read_manifest(self.files, target).without(partitions)
            write_manifest(self.files, target, left)
            self.remove_unlisted(database, version, left)
        except OSError as error:
            raise storage_error(error, target, "the partitions cannot be deleted") from error
        return left

    def remove_unlisted(self, database: str, version: str, manifest: VersionManifest) -> None:
        """Delete the files of a version that its manifest does not list.  Raises OSError."""
        target = self.version_path(database, version)
        listed = {MANIFEST, SCRUBBED, *(file.name for file in manifest.files_here)}
        strangers = [entry.name for entry in self.files.list_directory(target) if entry.name not in listed]
        for name in strangers:
            self.files.unlink(target / name)
        if strangers:
            self.files.sync_directory(target)

    def set_aside(self, database: str, version: str) -> PurePath:
        """Quarantine a damaged version for inspection; return its directory."""
        target = self.path / _DAMAGED / database / version
        try:
            make_directory(self.files, target.parent)
            remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
        except OSError as error:
            raise storage_error(error, target, "the version cannot be quarantined") from error
        return target

    def clear_damaged(self, database: str, *, before: str, whole: Collection[str] = ()) -> None:
        """Delete quarantined versions older than `before`, and those in `whole`."""
        place = self.path / _DAMAGED / database
        try:
            for entry in self.files.list_directory(place):
                if entry.name < before or entry.name in whole:
                    remove_tree(self.files, place / entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, place, "quarantined versions cannot be deleted") from error

    def remove_version(self, database: str, version: str) -> None:
        """Delete a version; after a crash it is complete, or absent."""
        target = self.path / _REMOVING / database / version
        try:
            make_directory(self.files, target.parent)
            remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
            remove_tree(self.files, target)
        except OSError as error:
            raise storage_error(error, target, "the version cannot be deleted") from error

    def _read(self, path: PurePath, kind: str, database: str | None = None) -> Body | None:
        """Read a document, which must be about `database` if one is given; None if there is no such file."""
        try:
            body = read_document(self.files, path, kind)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, path, "the file cannot be read") from error
        if database is not None and text(body, "database", str(path)) != database:
            raise Corrupt(str(path), 0, f"the document belongs to another database than {database}")
        return body

    def _write(self, path: PurePath, kind: str, body: Body) -> None:
        try:
            write_document(self.files, path, kind, body)
        except OSError as error:
            raise storage_error(error, path, "the file cannot be written") from error

    def _move(self, source: PurePath, target: PurePath) -> None:
        self.files.rename(source, target)
        self.files.sync_directory(target.parent)
        self.files.sync_directory(source.parent)

    def _exists(self, path: PurePath) -> bool:
        try:
            self.files.stat(path)
        except FileNotFoundError:
            return False
        return True

    def _list(self, directory: str) -> list[FileEntry]:
        try:
            return self.files.list_directory(self.path / directory)
        except OSError as error:
            raise storage_error(error, self.path / directory, "the directory cannot be read") from error


def _order(row: Json, name: str) -> RollbackOrder | None:
    match row:
        case None:
            return None
        case [int(stamp), str() | None as version] if version is None or is_name(version):
            return RollbackOrder(stamp, version)
    raise Corrupt(name, 0, "an order should be a stamp and a version, or null")


def _with_share(manifest: VersionManifest, share: PartitionSet) -> VersionManifest:
    assert share.partitions == manifest.identity.partitions, (share, manifest.identity)
    return replace(manifest, share=None if len(share) == share.partitions else share)
