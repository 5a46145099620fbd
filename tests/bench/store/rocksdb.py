"""RocksDB as a written store: with its default settings except those named, through rocksdict or `db_bench`.

rocksdict keeps the interpreter's lock while RocksDB writes and syncs, so that writers in threads would wait for each
other. RocksDB combines its threads' writes into one sync, and its own benchmark shows that speed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from time import sleep
from typing import TYPE_CHECKING, final

from tests.bench.data import KEY_BYTES, SMALL_VALUE_BYTES

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


def missing() -> str | None:
    """Return the package that RocksDB needs here, or None."""
    return "pip install rocksdict" if rocksdict is None else None


@final
class RocksStore:
    def __init__(self, path: Path, *, sync: bool, compressed: bool = False, memtable_bytes: int | None = None) -> None:
        """Make a database at `path`, which must not exist; `compressed` uses Snappy, RocksDB's default.

        Files and levels are in proportion to a memtable of another size than the default.
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
        """Write one record after the other, each on its own."""
        put, how = self._db.put, self._how
        for key, value in records:
            put(key, value, how)

    def write_batch(self, records: list[Record]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in records:
            batch.put(key, value)
        self._db.write(batch, self._how)

    def settle(self) -> None:
        """Flush everything, and wait until nothing is left to merge."""
        self._db.flush()
        while any(map(self._number, ("num-running-compactions", "compaction-pending", "num-running-flushes"))):
            sleep(POLL_PERIOD_S)

    def _number(self, name: str) -> int:
        return self._db.property_int_value(f"rocksdb.{name}") or 0

    def close(self) -> None:
        self._db.close()


def bench_missing() -> str | None:
    """Return the package that RocksDB's own benchmark needs here, or None."""
    return None if shutil.which("db_bench") else "apt-get install rocksdb-tools"


def many_writers_us(directory: Path, writers: int, puts: int) -> float:
    """Return the microseconds of a durable put by as many threads of `db_bench`, each with so many puts."""
    command = ["db_bench", "--benchmarks=fillrandom", "--sync=1", f"--threads={writers}", f"--num={puts}"]
    command += [f"--key_size={KEY_BYTES}", f"--value_size={SMALL_VALUE_BYTES}", "--compression_type=none"]
    done = subprocess.run([*command, f"--db={directory}"], capture_output=True, text=True, check=True)
    found = re.search(r"^fillrandom .* (\d+) ops/sec", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return 1e6 / int(found[1])
