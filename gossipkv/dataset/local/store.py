"""The data directory of a node: who it is, what it has built, which version it answers with.

    LOCK                              locked while a node runs; holds its process number
    NODE                              document: cluster, this node's uuid, name and epoch (`node_document`)
    PEERS                             document: where members were last seen
    active/<database>                 document: the version that requests get which name none
    datasets/<database>/<version>/    a built version: a manifest and its sorted files; whole, or not there
    building/<database>/<version>/    a build that is going on
    removing/<database>/<version>/    a version that is being deleted
    damaged/<database>/<version>/     a version found damaged, kept until it is built again or a newer one serves

Invariants, across a crash at any point:

* A version enters `datasets` by one rename of a whole, synced directory, and leaves it by one rename.
* What `active` says was durable before the first answer from that version, so no answer ever goes back.
* `building` and `removing` hold leftovers only, once no node runs: they are emptied at opening.

`docs/operators/data-directory.md` has every byte.  Everything here blocks, and is called from worker threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Self, final

from gossipkv.dataset.local.node_document import NODE, PEERS, begin, read_peers, write_node, write_peers
from gossipkv.errors import Corrupt, DirectoryInUse, StorageError, UnsupportedFormat
from gossipkv.settings.databases import is_name
from gossipkv.storage.document import read_document, text, write_document

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Sequence
    from types import TracebackType

    from gossipkv.address import Address
    from gossipkv.dataset.local.node_document import NodeRecord
    from gossipkv.environment.seam import Entry, Files
    from gossipkv.storage.document import Body

ACTIVE_FORMAT = 1

_LOCK = "LOCK"
_ACTIVE, _DATASETS, _BUILDING, _REMOVING, _DAMAGED = "active", "datasets", "building", "removing", "damaged"
_DIRECTORIES = (_ACTIVE, _DATASETS, _BUILDING, _REMOVING, _DAMAGED)
_OWN = frozenset({_LOCK, NODE, f"{NODE}.tmp", PEERS, f"{PEERS}.tmp", "lost+found", *_DIRECTORIES})
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@final
@dataclass(frozen=True, slots=True)
class Active:
    """What the ACTIVE document of a database says."""

    version: str  # The version that requests get which name none.
    newest: str  # The newest that ever was that; another only after a hold has led back.


@final
class DataDirectory:
    """An opened, locked data directory.  Open it with `DataDirectory.open`."""

    def __init__(self, path: PurePath, files: Files, lock: int, record: NodeRecord) -> None:
        self.path = path
        self.files = files
        self._lock: int | None = lock
        self._record = record
        self._writing = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        files: Files,
        *,
        cluster: str,
        random: random.Random,
        node: str | None = None,
        first_epoch: int = 1,
    ) -> Self:
        """Locks the directory, making it if need be, and removes what a crash left behind.

        `node` renames this node; None keeps its name, or makes one from its uuid.  Each opening is an epoch of its own,
        that of a new directory `first_epoch`.

        Raises:
            DirectoryInUse: another node runs in it.
            UnsupportedFormat: of another cluster, of a newer format, or no data directory at all.
            Corrupt: the NODE document is damaged.
            StorageError: the system refused.
        """
        place = PurePath(path)
        try:
            _make(files, place)
            _refuse_foreign(files, place)
            lock = _take_lock(files, place)
            try:
                record = begin(files, place, cluster=cluster, node=node, random=random, first_epoch=first_epoch)
                for directory in _DIRECTORIES:
                    _make(files, place / directory)
                files.sync_directory(place)
                for directory in (_BUILDING, _REMOVING):
                    _clear(files, place / directory)
                    files.sync_directory(place / directory)
            except BaseException:
                files.close(lock)
                raise
        except OSError as error:
            raise _storage_error(error, place, "cannot be used as a data directory") from error
        return cls(place, files, lock, record)

    def close(self) -> None:
        """Unlocks."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            self.files.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Who lives here

    @property
    def record(self) -> NodeRecord:
        """The node, as it stands on the disk."""
        return self._record

    def keep(self, *, epoch: int | None = None, cluster_id: str | None = None, shard_id: int | None = None) -> None:
        """Changes what is given of the node's record; durable when it returns, and `record` says it from then on."""
        with self._writing:
            known = self._record
            record = known._replace(
                epoch=known.epoch if epoch is None else epoch,
                cluster_id=known.cluster_id if cluster_id is None else cluster_id,
                shard_id=known.shard_id if shard_id is None else shard_id,
            )
            assert record.epoch >= known.epoch, (record, known)
            try:
                write_node(self.files, self.path, record)
            except OSError as error:
                raise _storage_error(error, self.path / NODE, "cannot be written") from error
            self._record = record

    def peers(self) -> list[Address]:
        """Where members were last seen; nothing, if that was never kept, or is damaged."""
        return read_peers(self.files, self.path)

    def remember(self, peers: Sequence[Address]) -> None:
        """Where members are, for the next start."""
        try:
            write_peers(self.files, self.path, peers)
        except OSError as error:
            raise _storage_error(error, self.path / PEERS, "cannot be written") from error

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
            raise _storage_error(error, self.path / _DATASETS / database, "cannot be read") from error
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
            raise _storage_error(error, path, "cannot be read") from error
        version, newest = text(body, "version", str(path)), text(body, "newest", str(path))
        if text(body, "database", str(path)) != database or not is_name(version) or not version <= newest:
            raise Corrupt(str(path), 0, f"the document is not about a version of {database}")
        return Active(version, newest)

    def set_active(self, database: str, version: str, newest: str | None = None) -> None:
        """Durable when it returns; the first answer from `version` comes after that."""
        path = self.path / _ACTIVE / database
        body: Body = {"database": database, "version": version, "newest": max(version, newest or version)}
        try:
            write_document(self.files, path, "ACTIVE", body, format_number=ACTIVE_FORMAT)
        except OSError as error:
            raise _storage_error(error, path, "cannot be written") from error

    # The life of a version

    def begin_build(self, database: str, version: str) -> PurePath:
        """An empty directory to build in; what an earlier attempt left is gone."""
        path = self.build_path(database, version)
        try:
            _make(self.files, path.parent)
            _remove_tree(self.files, path)
            _make(self.files, path)
        except OSError as error:
            raise _storage_error(error, path, "cannot be made") from error
        return path

    def discard_build(self, database: str, version: str) -> None:
        """Removes what a failed build left, as far as the system lets us; the next opening removes the rest."""
        with contextlib.suppress(OSError):
            _remove_tree(self.files, self.build_path(database, version))

    def publish(self, database: str, version: str) -> PurePath:
        """Moves a whole build among the versions, in one durable step; returns where it is.

        One of the same name can be there only if it was found damaged; it is set aside and then deleted.
        """
        target = self.version_path(database, version)
        try:
            _make(self.files, target.parent)
            if self._exists(target):
                self.set_aside(database, version)
            self._move(self.build_path(database, version), target)
            _remove_tree(self.files, self.path / _DAMAGED / database / version)
        except OSError as error:
            raise _storage_error(error, target, "cannot be published") from error
        return target

    def set_aside(self, database: str, version: str) -> PurePath:
        """Takes a damaged version out of service, for a person to look at; returns where it is."""
        target = self.path / _DAMAGED / database / version
        try:
            _make(self.files, target.parent)
            _remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
        except OSError as error:
            raise _storage_error(error, target, "cannot be set aside") from error
        return target

    def clear_damaged(self, database: str, *, before: str, whole: Collection[str] = ()) -> None:
        """Deletes what was set aside and is of no use any more: versions older than `before`, and those in `whole`."""
        place = self.path / _DAMAGED / database
        try:
            for entry in self.files.list_directory(place):
                if entry.name < before or entry.name in whole:
                    _remove_tree(self.files, place / entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _storage_error(error, place, "cannot be cleared") from error

    def remove_version(self, database: str, version: str) -> None:
        """Deletes a version; after a crash it is there whole, or is not there."""
        target = self.path / _REMOVING / database / version
        try:
            _make(self.files, target.parent)
            _remove_tree(self.files, target)
            self._move(self.version_path(database, version), target)
            _remove_tree(self.files, target)
        except OSError as error:
            raise _storage_error(error, target, "cannot be removed") from error

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
            raise _storage_error(error, self.path / directory, "cannot be read") from error


def _storage_error(error: OSError, path: PurePath, what: str) -> StorageError:
    where = error.filename or str(path)
    return StorageError(f"{where}: {what}: {error.strerror}", {"file": str(where), "errno": error.errno})


def _make(files: Files, path: PurePath) -> None:
    """A directory, with those above it, each durable before anything is put into it."""
    try:
        if files.stat(path).kind in {"directory", "link"}:
            return
    except FileNotFoundError:
        if path.parent != path:
            _make(files, path.parent)
    files.make_directory(path)
    files.sync_directory(path.parent)


def _clear(files: Files, directory: PurePath) -> None:
    for entry in files.list_directory(directory):
        _remove_tree(files, directory / entry.name)


def _remove_tree(files: Files, path: PurePath) -> None:
    """Removes a file, or a directory with all below it; links are removed and not followed."""
    try:
        kind = files.stat(path).kind
    except FileNotFoundError:
        return
    if kind == "directory":
        _clear(files, path)
        files.remove_directory(path)
    else:
        files.unlink(path)


def _refuse_foreign(files: Files, path: PurePath) -> None:
    """Never moves into a directory with somebody else's files: it will be cleared of what looks left over."""
    entries = files.list_directory(path)
    if any(entry.name == NODE for entry in entries):
        return
    for entry in entries:
        if entry.name not in _OWN:
            raise UnsupportedFormat(
                f"{path}: not a data directory of GossipKV, and not empty: it has {entry.name!r}; "
                "give --data a directory of its own",
                {"file": str(path)},
            )


def _take_lock(files: Files, path: PurePath) -> int:
    descriptor = files.open(path / _LOCK, _LOCK_FLAGS)
    try:
        try:
            files.lock(descriptor)
        except BlockingIOError as error:
            holder = files.pread(descriptor, 20, 0).strip().decode("ascii", "replace")
            who = f"process {holder}" if holder else "another process"
            raise DirectoryInUse(
                f"{path}: in use by {who}; stop it, or give --data another directory",
                {"file": str(path), "process": holder},
            ) from error
        files.pwrite(descriptor, f"{os.getpid()}\n".ljust(20).encode(), 0)
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor
