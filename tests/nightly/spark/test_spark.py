"""Five million rows through a real Spark, whose tasks are killed, and beside Spark's own Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster.test_spark_frames import run_spark
from tests.nightly import environments
from tests.nightly.bench import kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 5_000_000


@pytest.mark.timeout(3600)
def test_five_million_rows_come_back(python: str, tmp_path: Path) -> None:
    run_spark("-m", "tests.ci.cluster.spark_program", tmp_path / "source", ROWS, python=python)


@pytest.mark.timeout(3600)
def test_a_version_is_written_as_fast_as_sorted_parquet(
    python: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The row of the benchmark meets its goal, 1.5 times the time of Spark's Parquet."""
    record_property("measured", kept.check("spark", tmp_path, python=python, environ=environments.variables()))
