"""What a node has built: the versions on its disk, and which of them it answers with.

    active/<database>                 document: the version that requests get which name none
    datasets/<database>/<version>/    a built version: a manifest and its sorted files; whole, or not there
    building/<database>/<version>/    a build that is going on
    removing/<database>/<version>/    a version that is being deleted
    damaged/<database>/<version>/     a version found damaged, kept until it is built again or a newer one serves

Invariants, across a crash at any point:

* A version enters `datasets` by one rename of a whole, synced directory, and leaves it by one rename.
* What `active` says was durable before the first answer from that version, so no answer ever goes back.
* `building` and `removing` hold leftovers only, once no node runs: they are emptied before anything is written.

The directory is the node's data directory, which `node.directory` has locked.  `docs/operators/data-directory.md` has
every byte.  Everything here blocks, and is called from worker threads.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.settings.databases import is_name
from gossipkv.storage.directories import clear_directory, make_directory, remove_tree, storage_error
from gossipkv.storage.document import read_document, text, write_document

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import PurePath

    from gossipkv.environment.seam import Entry, Files
    from gossipkv.storage.document import Body

ACTIVE_FORMAT = 1

_ACTIVE, _DATASETS, _BUILDING, _REMOVING, _DAMAGED = "active", "datasets", "building", "removing", "damaged"
NAMES = (_ACTIVE, _DATASETS, _BUILDING, _REMOVING, _DAMAGED)  # All that it keeps in the data directory.


@final
@dataclass(frozen=True, slots=True)
class Active:
    """What the ACTIVE document of a database says."""

    version: str  # The version that requests get which name none.
    newest: str  # The newest that ever was that; another only after a hold has led back.


@final
class VersionStore:
    """The built versions in a directory that is this process's alone; `prepare` it before anything is written."""

    def __init__(self, path: PurePath, files: Files) -> None:
        self.path = path
        self.files = files

    def prepare(self) -> None:
        """Make the directories if need be, and remove what a crash left behind.

        Raises:
            OSError: the system refused.
        """
        for name in NAMES:
            make_directory(self.files, self.path / name)
        self.files.sync_directory(self.path)
        for name in (_BUILDING, _REMOVING):
            clear_directory(self.files, self.path / name)
            self.files.sync_directory(self.path / name)

    # What is here

    def databases(self) -> list[str]:
        """The databases with a built or an active version."""
        found = {entry.name for entry in self._list(_DATASETS) if entry.kind == "directory"}
        found |= {entry.name for entry in self._list(_ACTIVE) if entry.kind == "file"}
        return sorted(name for name in found if is_name(name))

    def versions(self, database: str) -> list[str]:
        """The built versions of a database, oldest first."""
        try:
            entries = self.files.list_directory(self.path / _DATASETS / database)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, self.path / _DATASETS / database, "cannot be read") from error
        return sorted(entry.name for entry in entries if entry.kind == "directory" and is_name(entry.name))

    def version_path(self, database: str, version: str) -> PurePath:
        """Where a built version is."""
        return self.path / _DATASETS / database / version

    def build_path(self, database: str, version: str) -> PurePath:
        """Where a version is built."""
        return self.path / _BUILDING / database / version

    def free_bytes(self) -> int:
        """What may still be written here.  Raises OSError."""
        return self.files.free_bytes(self.path)

    # The active version

    def active(self, database: str) -> Active | None:
        """The version that requests get which name none; None when there was never one.

        Raises:
            Corrupt: the document is damaged, or something else is in its place.
            UnsupportedFormat: it is too new.
            StorageError: the system refused.
        """
        path = self.path / _ACTIVE / database
        try:
            body = read_document(self.files, path, "ACTIVE", newest_format=ACTIVE_FORMAT)
        except FileNotFoundError:
            return None
        except UnsupportedFormat as error:
            if "newest" in error.details:
                raise
            # In a locked directory of our own, what is no document of this kind was one.
            raise Corrupt(str(path), 0, "no document of kind ACTIVE stands there") from error
        except OSError as error:
            raise storage_error(error, path, "cannot be read") from error
        version, newest = text(body, "version", str(path)), text(body, "newest", str(path))
        if text(body, "database", str(path)) != database or not is_name(version) or not version <= newest:
            raise Corrupt(str(path), 0, f"the document is not about a version of {database}")
        return Active(version, newest)

    def set_active(self, database: str, version: str, newest: str | None = None) -> None:
        """Durable when it returns; the first answer from `version` comes after that."""
        assert is_name(database), database
        assert is_name(version), version
        path = self.path / _ACTIVE / database
        body: Body = {"database": database, "version": version, "newest": max(version, newest or version)}
        try:
            write_document(self.files, path, "ACTIVE", body, format_number=ACTIVE_FORMAT)
        except OSError as error:
            raise storage_error(error, path, "cannot be written") from error

    # The life of a version

    def begin_build(self, database: str, version: str) -> PurePath:
        """An empty directory to build in; what an earlier attempt left is gone."""
        path = self.build_path(database, version)
        try:
            make_directory(self.files, path.parent)
            remove_tree(self.files, path)
            make_directory(self.files, path)
        except OSError as error:
            raise storage_error(error, path, "cannot be made") from error
        return path

    def discard_build(self, database: str, version: str) -> None:
        """Removes what a failed build left, as far as the system lets us; the next opening removes the rest."""
        with contextlib.suppress(OSError):
            remove_tree(self.files, self.build_path(database, version))

    def publish(self, database: str, version: str) -> PurePath:
        """Moves a whole build among the versions, in one durable step; returns where it is.

        One of the same name can be there only if it was found damaged; it is set aside and then deleted.
        """
        target = self.version_path(database, version)
        try:
            make_directory(self.files, target.parent)
            if self._exists(target):
                self.set_aside(database, version)
            self._move(self.build_path(database, version), target)
            remove_tree(self.files, self.path / _DAMAGED / database / version)
        except OSError as error:
            raise storage_error(error, target, "cannot be published") from error
        return target

    def set_aside(self, database: str, version: str) -> PurePath:
        """Takes a damaged version out of service, for a person to look at; returns where it is."""
        target = self.path / _DAMAGED / database / version
        try:
            make_directory(self.files, target.parent)
            remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
        except OSError as error:
            raise storage_error(error, target, "cannot be set aside") from error
        return target

    def clear_damaged(self, database: str, *, before: str, whole: Collection[str] = ()) -> None:
        """Deletes what was set aside and is of no use any more: versions older than `before`, and those in `whole`."""
        place = self.path / _DAMAGED / database
        try:
            for entry in self.files.list_directory(place):
                if entry.name < before or entry.name in whole:
                    remove_tree(self.files, place / entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, place, "cannot be cleared") from error

    def remove_version(self, database: str, version: str) -> None:
        """Deletes a version; after a crash it is there whole, or is not there."""
        target = self.path / _REMOVING / database / version
        try:
            make_directory(self.files, target.parent)
            remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
            remove_tree(self.files, target)
        except OSError as error:
            raise storage_error(error, target, "cannot be removed") from error

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

    def _list(self, directory: str) -> list[Entry]:
        try:
            return self.files.list_directory(self.path / directory)
        except OSError as error:
            raise storage_error(error, self.path / directory, "cannot be read") from error
