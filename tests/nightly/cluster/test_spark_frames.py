"""Five million rows through a real Spark, whose tasks are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci.cluster.test_spark_frames import run_spark

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 5_000_000


@pytest.mark.timeout(3600)
def test_five_million_rows_come_back(tmp_path: Path) -> None:
    run_spark("-m", "tests.ci.cluster.spark_program", tmp_path / "source", ROWS)
