"""RocksDB as it is written to: with its own settings but for what is named, through rocksdict or its C interface.

rocksdict keeps the interpreter's lock while RocksDB writes and syncs, so that writers in threads wait for each other
whatever RocksDB could do with them: beside many writers stands group commit over the same library, as anybody would
write it.  The C interface through ctypes lets go of the lock: there RocksDB gathers the writers of many threads into
one write, as it is made to.
"""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from time import sleep
from typing import TYPE_CHECKING, final

import trio

try:
    import rocksdict
except ImportError:
    rocksdict = None

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.data import Record

POLL_PERIOD_S = 0.05
SETTINGS = (
    "RocksDB through rocksdict: raw mode, its defaults (memtables of 64 MiB, write-ahead log, leveled compaction by "
    "two threads) but no compression, as there is none on our side; `WriteBatch` for batches; `sync`"
)


GROUPS_SETTINGS = "as RocksDB; writers are tasks, and what they put until all had their turn goes into one `WriteBatch`"
THREADS_SETTINGS = (
    "the library of the distribution through ctypes, which lets go of the interpreter's lock, so that RocksDB gathers "
    "what its threads write; otherwise as RocksDB, whose Python package keeps that lock while it waits for the disk"
)


def missing() -> str | None:
    """What must be installed before RocksDB can take part."""
    return "pip install rocksdict" if rocksdict is None else None


@final
class RocksStore:
    """A database that is open for writing."""

    def __init__(self, path: Path, *, sync: bool, compressed: bool = False, memtable_bytes: int | None = None) -> None:
        """Make one at `path`, which is not there; `compressed` as RocksDB does by default, with Snappy.

        With other memtables than by default, files and levels are in proportion to them.
        """
        options = rocksdict.Options(raw_mode=True)
        if not compressed:
            options.set_compression_type(rocksdict.DBCompressionType.none())
        if memtable_bytes is not None:
            options.set_write_buffer_size(memtable_bytes)
            options.set_target_file_size_base(memtable_bytes)
            options.set_max_bytes_for_level_base(4 * memtable_bytes)
        self._db = rocksdict.Rdict(str(path), options)
        self._how = rocksdict.WriteOptions()
        self._how.sync = sync
        self.get = self._db.get

    def write_each(self, records: list[Record]) -> None:
        """One record after the other, each on its own."""
        put, how = self._db.put, self._how
        for key, value in records:
            put(key, value, how)

    def write_batch(self, records: list[Record]) -> None:
        """All at once, or nothing."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in records:
            batch.put(key, value)
        self._db.write(batch, self._how)

    def settle(self) -> None:
        """Everything written out, and nothing left to be merged."""
        self._db.flush()
        while any(map(self._number, ("num-running-compactions", "compaction-pending", "num-running-flushes"))):
            sleep(POLL_PERIOD_S)

    def _number(self, name: str) -> int:
        return self._db.property_int_value(f"rocksdb.{name}") or 0

    def close(self) -> None:
        """Let go of it."""
        self._db.close()


@final
class RocksGroups:
    """Group commit in front of a database: what tasks put before all of them had their turn goes into one batch."""

    def __init__(self, store: RocksStore) -> None:
        self._write = store.write_batch
        self._group: list[Record] = []
        self._written = trio.Event()

    async def write_each(self, records: list[Record]) -> None:
        """One record after the other, each on its own; by any task."""
        for record in records:
            self._group.append(record)
            if len(self._group) > 1:
                await self._written.wait()
                continue
            for _ in range(2):  # The first turn is theirs, in any order.
                await trio.lowlevel.checkpoint()
            group, self._group = self._group, []
            written, self._written = self._written, trio.Event()
            self._write(group)
            written.set()


@final
class RocksThreads:
    """The same database through RocksDB's own C interface, which any number of threads may write to at once."""

    def __init__(self, path: Path) -> None:
        """Make one at `path`, synced."""
        self._library = _library()
        options = self._library.rocksdb_options_create()
        self._library.rocksdb_options_set_create_if_missing(options, 1)
        self._library.rocksdb_options_set_compression(options, 0)
        self._error = ctypes.c_char_p()
        self._db = self._library.rocksdb_open(options, str(path).encode(), ctypes.byref(self._error))
        self._check(self._error)
        self._how = self._library.rocksdb_writeoptions_create()
        self._library.rocksdb_writeoptions_set_sync(self._how, 1)
        self._reading = self._library.rocksdb_readoptions_create()

    @staticmethod
    def missing() -> str | None:
        """What must be installed before it can take part."""
        return "apt-get install librocksdb7.8 (or a newer one)" if find_library("rocksdb") is None else None

    def write_each(self, records: list[Record]) -> None:
        """One record after the other, each on its own; by any thread."""
        put, db, how, error = self._library.rocksdb_put, self._db, self._how, ctypes.c_char_p()
        told = ctypes.byref(error)
        for key, value in records:
            put(db, how, key, len(key), value, len(value), told)
        self._check(error)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        size = ctypes.c_size_t()
        found = self._library.rocksdb_get(
            self._db, self._reading, key, len(key), ctypes.byref(size), ctypes.byref(self._error)
        )
        self._check(self._error)
        if not found:
            return None
        value = ctypes.string_at(found, size.value)
        self._library.rocksdb_free(found)
        return value

    @staticmethod
    def _check(error: ctypes.c_char_p) -> None:
        if error.value:
            raise RuntimeError(f"RocksDB: {error.value.decode()}")

    def close(self) -> None:
        """Let go of it."""
        self._library.rocksdb_close(self._db)


def _library() -> ctypes.CDLL:
    """The C interface, with its types said: a pointer would be cut to an int."""
    library = ctypes.CDLL(find_library("rocksdb"))
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    told, flag = ctypes.POINTER(text), ctypes.c_ubyte
    for name, result, arguments in (
        ("options_create", pointer, []),
        ("options_set_create_if_missing", None, [pointer, flag]),
        ("options_set_compression", None, [pointer, ctypes.c_int]),
        ("open", pointer, [pointer, text, told]),
        ("writeoptions_create", pointer, []),
        ("writeoptions_set_sync", None, [pointer, flag]),
        ("readoptions_create", pointer, []),
        ("put", None, [pointer, pointer, text, size, text, size, told]),
        ("get", pointer, [pointer, pointer, text, size, ctypes.POINTER(size), told]),
        ("free", None, [pointer]),
        ("close", None, [pointer]),
    ):
        function = getattr(library, f"rocksdb_{name}")
        function.restype, function.argtypes = result, arguments
    return library
