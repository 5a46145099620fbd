"""Files of a real Spark: counts and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet as pq

from gossipkv.settings.csv_dialect import CsvDialect
from tests.ci.cluster.test_spark_frames import run_spark
from tests.unit.dataset.formats.columns.real_writers import ALL, NAIVE, SIMPLE, TABLE, Case, check, text_of

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = tuple(name for name in ALL if name != "clock")
IN_ORC = tuple(name for name in COLUMNS if name not in {"at", "far", "pair"})  # Spark stores the first two as integers.
TEXTS = text_of("true", "false")
CASES = [
    Case("parquet", None, COLUMNS),
    Case("gzip", None, COLUMNS),
    Case("version 2", None, COLUMNS),
    Case("legacy", None, COLUMNS, seen=NAIVE),
    Case("milliseconds", None, tuple(name for name in COLUMNS if name not in {"at", "far", "pair"}), digits=3),
    Case("orc", None, IN_ORC, digits=9, seen=NAIVE),
    Case("zlib", None, IN_ORC, digits=9, seen=NAIVE),
    Case("json", None, (*SIMPLE, "day", "tags")),
    Case("csv", None, SIMPLE, seen=TEXTS),
    Case("tsv", None, SIMPLE, seen=TEXTS, csv=CsvDialect(delimiter="\t", header=False, columns=SIMPLE)),
]


@pytest.fixture(scope="module")
def written(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("files")
    pq.write_table(TABLE.select(COLUMNS), place / "rows.parquet")
    run_spark("-m", "tests.nightly.spark.spark_writers", place / "rows.parquet", place, python=python)
    return place


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files_of_spark_are_read(written: Path, case: Case) -> None:
    (path,) = (path for path in (written / case.name).iterdir() if path.name.startswith("part-"))
    check(case, path)
