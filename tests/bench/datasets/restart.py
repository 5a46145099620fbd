"""The rows about a restart: a node that was killed serves ten gigabytes again.

The clock runs from the start of the process to its `ready` line, and on to the first right answer from every partition
of every database.  Once what the files hold is in memory as the node has left it, once nothing of it is.
"""

from __future__ import annotations

import os
import shutil
import signal
from time import perf_counter
from typing import TYPE_CHECKING

from gossipkv.address import parse_address
from tests.bench import data, goals, sources
from tests.bench.processes import process, serve, wait_for_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

PEAK_FACTOR = 2.6  # The source, what is built of it, and the runs of two builds at once.


def measure(
    bench: Bench,
    *,
    databases: int = 10,
    total_bytes: int = 10_000_000_000,
    value_bytes: int = 10 << 10,
    rounds: int = 7,
) -> None:
    """Warm and cold."""
    total_bytes = min(total_bytes, int(shutil.disk_usage(bench.directory).free / PEAK_FACTOR))
    source, built = bench.directory / "source", bench.directory / "data"
    count = total_bytes // databases // (value_bytes + data.KEY_BYTES)
    expected: list[tuple[str, Record]] = []
    for name in (f"database-{number}" for number in range(databases)):
        records = data.numbered(count, value_bytes)
        first = sources.write_database(source, name, records, choose=sources.by_hash(sources.FILES))
        expected += [(name, (key, data.value_of(key, value_bytes))) for key in first]
    _start(source, built, expected)
    files = _files(built)
    bench.notes.append(
        f"{goals.RESTART}: {databases} databases of {sources.FILES} partitions, {databases * count:,} records, "
        f"{sum(path.stat().st_size for path in files):,} bytes of built files; killed with SIGKILL each time"
    )

    def cold() -> dict[Row, float]:
        forget(built)
        return {goals.RESTART_COLD: _start(source, built, expected)[1]}

    def warm() -> dict[Row, float]:
        return dict(zip((goals.RESTART_READY, goals.RESTART), _start(source, built, expected), strict=True))

    for _ in range(rounds):
        for row, figure in (warm() | cold()).items():
            bench.add(row, figure)
    if _files(built) != files:
        raise RuntimeError("a restart has built something anew")


def _start(source: Path, built: Path, expected: list[tuple[str, Record]]) -> tuple[float, float]:
    """Seconds from the start of a node to its ready line, and to its last right answer; it is killed then."""
    begin = perf_counter()
    with process(serve(built, source=source), end=signal.SIGKILL) as (_, line):
        ready_s = perf_counter() - begin
        wait_for_records(parse_address(line.split()[1]), expected)
        return ready_s, perf_counter() - begin


def _files(built: Path) -> dict[Path, tuple[int, int]]:
    """All sorted files, and which they are."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(built.rglob("*.gkv"))}


def forget(directory: Path) -> None:
    """Nothing of these files stays in memory."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
