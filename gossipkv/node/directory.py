"""The data directory of a node: locked while the node runs, and divided among the parts that store files in it.

    LOCK                  the process number of its locker, if that could be written
    NODE, PEERS, BACKUPS  documents: the node's identity, and the times of its backups (`identity`)
    active/, datasets/, building/, removing/, damaged/    the built versions (`dataset.local.store`)
    tables/               the store of its tables (`storage.engine`)
    tables-forgotten-1/   a former store (`forgotten`)

This class is the one owner of the directory. Each part gets its place in it and lists the names that it uses, so that
a directory with any other name is recognised as somebody else's. `docs/development/directory-format.md` has every byte.

The directory of a known node opens even while it cannot be written: its versions are served, but the epoch of this
start is not kept, so nobody may hear of the node. `silence` has the reason, until `begin` succeeds.

Everything here blocks, and is called from worker threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import PurePath
from typing import TYPE_CHECKING, Self, final

from gossipkv.dataset.local import store as version_store
from gossipkv.dataset.local.store import VersionStore
from gossipkv.errors import ConfigError, Corrupt, DirectoryInUse, StorageError, UnsupportedFormat
from gossipkv.log import Log
from gossipkv.node.forgotten import TABLES, has_tables, is_forgotten, set_aside
from gossipkv.node.identity import (
    BACKUPS,
    MAX_STORE,
    NODE,
    PEERS,
    keep_founding,
    new_node,
    next_life,
    read_backups,
    read_peers,
    with_founding,
    without_founding,
    write_backups,
    write_node,
    write_peers,
)
from gossipkv.storage.directories import make_directory, storage_error

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Iterable, Mapping, Sequence
    from types import TracebackType

    from gossipkv.address import Address
    from gossipkv.environment.seam import Files
    from gossipkv.errors import Detail
    from gossipkv.node.identity import NodeRecord

_LOCK = "LOCK"
_DOCUMENTS = (NODE, f"{NODE}.tmp", PEERS, f"{PEERS}.tmp", BACKUPS, f"{BACKUPS}.tmp")
_KNOWN = frozenset({_LOCK, *_DOCUMENTS, TABLES, "lost+found", *version_store.NAMES})
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


@final
class DataDirectory:
    """An opened, locked data directory. Open it with `DataDirectory.open`."""

    def __init__(self, path: PurePath, files: Files, lock: int, record: NodeRecord) -> None:
        self.path = path
        self.files = files
        self.store = VersionStore(path, files)  # The datasets.
        self.silence: StorageError | None = None  # The reason for which the epoch of this start is not kept.
        self.forgotten: PurePath | None = None  # The place of a store that this start set aside.
        self.backups_ms = read_backups(files, path)  # When the last backup of each table made here began.
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
        least_epoch: int = 1,
        forget_tables: bool = False,
        uuid: str | None = None,
    ) -> Self:
        """Lock the directory, creating it if necessary, and begin a new epoch, if that can be written.

        `node` renames this node; None keeps its name, or derives one from its uuid. The epoch is at least
        `least_epoch`. `uuid` is the one in its certificate; with None a new node draws one. With `forget_tables`
        another node lives here from now on, with the same name and datasets, and the old store of tables is set aside
        (`forgotten`). The same happens if NODE was lost.

        Raises:
            ConfigError: there are no tables to be forgotten; or `uuid` is that of another node.
            DirectoryInUse: another node runs in it.
            UnsupportedFormat: of another cluster, of a newer format, or no data directory at all.
            Corrupt: the NODE document is damaged.
            StorageError: the system refused, and not only to write where a node has lived.
        """
        place = PurePath(path)
        try:
            _make(files, place)
            _refuse_foreign(files, place)
            lock = _take_lock(files, place)
        except OSError as error:
            raise _unusable(error, place) from error
        try:
            record, is_new = next_life(
                files, place, cluster=cluster, node=node, random=random, least_epoch=least_epoch, uuid=uuid
            )
            _refuse_uuid(place, record, uuid, forget_tables=forget_tables)
            if forget_tables:
                _refuse_forgetting_nothing(files, place, record)
                record = new_node(record, random, uuid)
            found = cls(place, files, lock, record)
            if is_new or forget_tables:
                found.forgotten = set_aside(files, place)
            try:
                found.begin()
            except StorageError:
                if is_new or forget_tables:
                    raise
        except OSError as error:
            files.close(lock)
            raise _unusable(error, place) from error
        except BaseException:
            files.close(lock)
            raise
        return found

    def begin(self) -> None:
        """Remove what a crash left behind, and keep the epoch of this start; callable again after a failure.

        Raises:
            StorageError: the system refused; `silence` has the reason, too.
        """
        with self._writing:
            try:
                _note_holder(self.files, self.path)
                make_directory(self.files, self.path)
                self.store.prepare()
                write_node(self.files, self.path, self._record)
            except OSError as error:
                self.silence = _unusable(error, self.path)
                raise self.silence from error
            self.silence = None

    def close(self) -> None:
        """Unlock the directory; a second call does nothing."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            self.files.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def record(self) -> NodeRecord:
        """Record of the node: as on the disk, except for the epoch of a start that is not kept yet."""
        return self._record

    def keep(
        self,
        *,
        epoch: int | None = None,
        cluster_id: str | None = None,
        pinned: bool | None = None,
        shard_id: int | None = None,
        store: int | None = None,
        life: int | None = None,
        drew: bool | None = None,
    ) -> None:
        """Change the given fields of the node's record; on return they are durable and in `record`.

        Neither the epoch nor the life of a store may go down; a pinned node stays pinned in its cluster. `drew`: True
        if this node drew the cluster id; False if it may found nothing from now on (`table.ports.may_not_found`).

        Raises:
            StorageError: the system refused, or still refuses an earlier write (`silence`).
        """
        with self._writing:
            if self.silence is not None:
                raise StorageError(self.silence.message, self.silence.details)
            before = self._record
            record = before._replace(
                epoch=before.epoch if epoch is None else epoch,
                cluster_id=before.cluster_id if cluster_id is None else cluster_id,
                pinned=before.pinned if pinned is None else pinned,
                shard_id=before.shard_id if shard_id is None else shard_id,
                store=before.store if store is None else store,
                life=before.life if life is None else life,
            )
            if drew is not None:
                record = with_founding(record) if drew else without_founding(record)
            record = keep_founding(before, record)
            assert record.epoch >= before.epoch, (record, before)
            assert record.store != before.store or record.life >= before.life, (record, before)
            assert record.store <= MAX_STORE, record
            if before.pinned:
                assert record.pinned, (record, before)
                assert record.cluster_id == before.cluster_id or not before.cluster_id, (record, before)
            try:
                write_node(self.files, self.path, record)
            except OSError as error:
                raise storage_error(error, self.path / NODE, "the file cannot be written") from error
            self._record = record

    def forget(self) -> None:
        """Make the next start begin as a new node, and keep nothing any more."""
        with self._writing:
            self.silence = StorageError(f"{self.path}: the node of this directory runs elsewhere")
            with contextlib.suppress(OSError):
                self.files.unlink(self.path / NODE)
                self.files.sync_directory(self.path)

    def peers(self) -> list[Address]:
        """Return the last addresses of members; empty if they were never kept, or are damaged."""
        return read_peers(self.files, self.path)

    def remember(self, peers: Sequence[Address]) -> None:
        """Keep the addresses of members for the next start. Raises `StorageError`."""
        try:
            write_peers(self.files, self.path, peers)
        except OSError as error:
            raise storage_error(error, self.path / PEERS, "the file cannot be written") from error

    def backed_up(self, tables: Iterable[str], began_ms: int, existing: Container[str]) -> None:
        """Keep the time of a complete backup of some tables; forget tables that no longer exist."""
        times = {**self.backups_ms, **dict.fromkeys(tables, began_ms)}
        self.backups_ms = {name: time_ms for name, time_ms in times.items() if name in existing}
        with contextlib.suppress(OSError):  # The metric is right until the next start.
            write_backups(self.files, self.path, self.backups_ms)

    def to_map(self) -> dict[str, Detail]:
        """Return the times of backups for `info`, and the room on the disk, empty if the system does not tell it."""
        disk: dict[str, Detail] = {}
        with contextlib.suppress(OSError):
            disk = {"free_bytes": self.files.free_bytes(self.path), "size_bytes": self.files.size_bytes(self.path)}
        return {"disk": disk, "backups_ms": {**self.backups_ms}}


def _refuse_foreign(files: Files, path: PurePath) -> None:
    """Refuse a directory with somebody else's files: a node removes files there that look left over."""
    entries = files.list_directory(path)
    if any(entry.name == NODE for entry in entries):
        return
    for entry in entries:
        if entry.name not in _KNOWN and not is_forgotten(entry.name):
            raise UnsupportedFormat(
                f"{path}: the directory is not empty and not a data directory of GossipKV: it has {entry.name!r}; "
                "give --data a directory for this node alone",
                {"file": str(path)},
            )


def _refuse_forgetting_nothing(files: Files, path: PurePath, record: NodeRecord) -> None:
    """Refuse, so that a flag left in a unit file does not make a new node at each start."""
    if not (record.store or record.pinned or has_tables(files, path)):
        raise ConfigError(
            f"{path}: this node has no tables to forget, and nothing was changed; start it without --forget-tables",
            {"file": str(path)},
        )


def _refuse_uuid(path: PurePath, record: NodeRecord, uuid: str | None, *, forget_tables: bool) -> None:
    """Refuse a certificate of another node than the one that lives here, or begins to live here now."""
    another_one = "`gossipkv certificates new DIR NAME --host HOST"
    if uuid == record.uuid and forget_tables:
        raise ConfigError(
            f"{path}: without its tables this is a new node, but tls_certificate belongs to the old node, {uuid}; make "
            f"a new certificate with {another_one}`",
            {"file": str(path), "uuid": uuid},
        )
    if uuid not in {None, record.uuid} and not forget_tables:
        raise ConfigError(
            f"{path}: this is the directory of the node {record.uuid}, but tls_certificate belongs to {uuid}; make its "
            f"certificate with {another_one} --uuid {record.uuid}`",
            {"file": str(path), "uuid": uuid},
        )


def _make(files: Files, path: PurePath) -> None:
    """Make the directory if it is missing; an existing one may be readable only (`begin`)."""
    try:
        files.stat(path)
    except FileNotFoundError:
        make_directory(files, path)


def _take_lock(files: Files, path: PurePath) -> int:
    """Lock the directory; without the right to write, a descriptor for reading can be locked as well."""
    try:
        descriptor, is_writable = files.open(path / _LOCK, _LOCK_FLAGS), True
    except OSError as refused:
        try:
            descriptor, is_writable = files.open(path / _LOCK), False
        except OSError:
            raise refused from None
    try:
        files.lock(descriptor)
    except BlockingIOError as error:
        holder = files.pread(descriptor, 20, 0).strip().decode("ascii", "replace") if is_writable else ""
        files.close(descriptor)
        user = f"process {holder}" if holder else "another process"
        raise DirectoryInUse(
            f"{path}: the directory is in use by {user}; stop it, or give --data another directory",
            {"file": str(path), "process": holder},
        ) from error
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor


def _note_holder(files: Files, path: PurePath) -> None:
    """Write this process's number into the lock, for people and for processes that find it locked."""
    descriptor = files.open(path / _LOCK, _LOCK_FLAGS)
    try:
        files.pwrite(descriptor, f"{os.getpid()}\n".ljust(20).encode(), 0)
    finally:
        files.close(descriptor)


def _unusable(error: OSError, path: PurePath) -> StorageError:
    return storage_error(error, path, "the directory cannot be used as a data directory")


def kept_ring(directory: DataDirectory) -> Mapping[str, str]:
    """Return the ring of the last run; one that cannot be read counts as none, and the node waits for it again."""
    log = Log("gossipkv.node")
    try:
        return directory.store.ring()
    except (Corrupt, UnsupportedFormat, StorageError) as error:
        log.warning("ring_unreadable", error=error.message)
        return {}
