"""The rows about Parquet that DuckDB wrote by default: built into a sorted file, beside DuckDB's own sort to Parquet.

DuckDB has one thread, as a build has one lane, and all the memory that it wants; a build sorts within `BUDGET_BYTES`.
Sorted files are not compressed.  DuckDB's are compressed by Snappy, its default, or not at all.  Every side is charged
the processor time of all its processes, from the start of the interpreter.  Rows of two columns have the same values
cut in two, with some twenty characters that JSON escapes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tests.bench import goals, sources
from tests.bench.building import remove
from tests.bench.data import key_of, number_of, object_of
from tests.bench.datasets import build_process
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.processes import children_cpu_s

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.measurement import Bench

NEEDED = ("duckdb", "pyarrow")
COMPRESSION = {goals.DUCKDB: "snappy", goals.DUCKDB_PLAIN: "uncompressed"}
HALF = 50
WHOLE, CUT = "key, value", f"key, value[:{HALF}] AS a, value[{HALF + 1}:] AS b"
BATCH_ROWS = 100_000
SORT = """
import sys, duckdb
source, target, compression = sys.argv[1:]
with duckdb.connect(config={"threads": 1}) as connection:
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"COPY (FROM '{source}' ORDER BY key) TO '{target}' (FORMAT parquet, COMPRESSION {compression})")
"""


def missing() -> str | None:
    """Return the packages that must be installed, or None."""
    return None if all(map(find_spec, NEEDED)) else f"pip install {' '.join(NEEDED)}"


def measure(bench: Bench, *, records: int = 5_000_000, rounds: int = 5) -> None:
    place = bench.directory
    paths = write(place, records, {"whole": WHOLE, "cut": CUT})
    for path in paths:
        bench.notes.append(f"{path.parts[-3]}: {records:,} records in {path.stat().st_size:,} bytes of Parquet")
    one = partial(_build_s, place, "whole", "value")
    two = partial(_build_s, place, "cut", ("a", "b"))
    sorts = {name: partial(_sort_s, paths[0], place / name, compression) for name, compression in COMPRESSION.items()}
    bench.compare(goals.PARQUET, {OURS: one, **sorts}, rounds, warm=0)
    bench.compare(goals.PARQUET_ROWS, {OURS: two, goals.ONE_COLUMN: one}, rounds, warm=0)
    sources.check_numbered(place / "whole", records, lambda key: object_of(number_of(key)))
    sources.check_numbered(place / "cut", records, _row_of)
    for name in sorts:
        check_sorted([place / name], records)


def _build_s(place: Path, database: str, value: str | tuple[str, ...]) -> float:
    target = place / database
    if target.exists():
        remove(target)
    job = build_process.job_of(place / "source", database, target)
    return build_process.run(replace(job, reading=replace(job.reading, value=value))).cpu_s


def _sort_s(source: Path, target: Path, compression: str) -> float:
    target.unlink(missing_ok=True)
    os.sync()
    before = children_cpu_s()
    subprocess.run([sys.executable, "-c", SORT, source, target, compression], check=True)
    return children_cpu_s() - before


def write(place: Path, records: int, shapes: dict[str, str]) -> list[Path]:
    """Let DuckDB write the records as the first version of each database, with these columns."""
    import duckdb  # noqa: PLC0415  # It need not be installed.
    import pyarrow as pa  # noqa: PLC0415  # This, too.

    def batch(first: int) -> pa.RecordBatch:
        numbers = range(first, min(first + BATCH_ROWS, records))
        columns = [map(key_of, numbers), map(object_of, numbers)]
        return pa.record_batch([pa.array(map(bytes.decode, column)) for column in columns], names=["key", "value"])

    made = pa.Table.from_batches(map(batch, range(0, records, BATCH_ROWS)))
    paths = [place / "source" / name / sources.VERSION / "part.parquet" for name in shapes]
    with duckdb.connect() as connection:
        connection.register("made", made)
        for path, columns in zip(paths, shapes.values(), strict=True):
            path.parent.mkdir(parents=True)
            connection.execute(f"COPY (SELECT {columns} FROM made) TO '{path}'")
    return paths


def _row_of(key: bytes) -> bytes:
    text = object_of(number_of(key)).decode()
    return json.dumps({"a": text[:HALF], "b": text[HALF:]}, separators=(",", ":")).encode()


def check_sorted(paths: list[Path], records: int) -> None:
    """Check that Parquet files have every record exactly once, in order."""
    from pyarrow import parquet  # noqa: PLC0415  # It need not be installed.

    previous, seen = "", 0
    for rows in (rows for path in paths for rows in parquet.ParquetFile(path).iter_batches()):
        for key, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if key <= previous or value.encode() != object_of(number_of(key.encode())):
                raise WrongAnswerError(f"{paths}: a wrong record: {key!r}")
            previous, seen = key, seen + 1
    if seen != records:
        raise WrongAnswerError(f"{paths}: {seen:,} records instead of {records:,}")
