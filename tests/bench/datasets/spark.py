"""The row about Spark: a DataFrame, read from DuckDB's Parquet, as a version, beside sorted Parquet by Spark itself.

Both are written by one session of a local Spark, which uses all cores.  Spark's Parquet has Snappy, its default.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import goals, sources
from tests.bench.building import remove
from tests.bench.data import number_of, object_of
from tests.bench.datasets import parquet
from tests.bench.measurement import OURS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.measurement import Bench


def missing() -> str | None:
    """Return what must be installed, or None."""
    if not all(map(find_spec, ("pyspark", "pandas"))):
        return "pip install 'pyspark>=4.1' pandas"
    return parquet.missing() or (None if shutil.which("java") else "apt-get install openjdk-17-jre-headless")


def measure(bench: Bench, *, records: int = 5_000_000, rounds: int = 5) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # It need not be installed.

    import gossipkv.spark  # noqa: PLC0415  # This, too.

    source = parquet.write(bench.directory, records, {"whole": parquet.WHOLE})[0]
    bench.notes.append(f"{records:,} records in {source.stat().st_size:,} bytes of Parquet")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        frame = spark.read.parquet(str(source))
        sides: dict[str, Callable[[str], object]] = {
            OURS: partial(gossipkv.spark.write, frame),
            goals.SPARK_PARQUET: frame.sort("key").write.parquet,
        }
        places = {name: bench.directory / f"side-{number}" for number, name in enumerate(sides)}
        timed = {name: partial(_write_s, places[name], write) for name, write in sides.items()}
        bench.compare(goals.SPARK_WRITE, timed, rounds)
        sources.check_numbered(places[OURS], records, lambda key: object_of(number_of(key)))
        parquet.check_sorted(sorted(places[goals.SPARK_PARQUET].glob("*.parquet")), records)
    finally:
        spark.stop()


def _write_s(place: Path, write: Callable[[str], object]) -> float:
    if place.exists():
        remove(place)
    os.sync()
    begin = perf_counter()
    write(str(place))
    return perf_counter() - begin
