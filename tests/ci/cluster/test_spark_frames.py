"""DataFrames of a real Spark become versions, and versions DataFrames, though tasks are killed; a node serves them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossipkv.client import blocking
from tests.ci.cluster.test_node_process import NodeProcess

ROOT = Path(__file__).parents[3]
ROWS = 60_000
PATIENCE_S = 120


PAGE = (ROOT / "docs" / "users" / "spark.md").read_text("utf-8")


def run_spark(*arguments: object, python: str | None = None) -> str:
    """Run a program with a Python that has Spark, or with this one, if Spark is here."""
    if python is None and importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed")
    python = python or sys.executable
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, "PYSPARK_PYTHON": python, "PYTHONPATH": path}
    environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2,3] --conf spark.ui.enabled=false pyspark-shell"
    command = [python, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_the_page_writes_and_reads(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python frames\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    script = tmp_path / "capitals.py"
    script.write_text(example, encoding="utf-8")
    said = run_spark(script, tmp_path)
    assert "partitions=4, function='sequins', records=2" in said
    assert '{"country":"peru"' in said
    assert (tmp_path / "written" / "_SUCCESS").exists()


@pytest.mark.timeout(900)
def test_what_spark_writes_is_served(tmp_path: Path) -> None:
    """Three attempts at a task are allowed, and the program kills some."""
    run_spark("-m", "tests.ci.cluster.spark_program", tmp_path / "source", ROWS)
    shutil.rmtree(tmp_path / "source" / "failed")
    with NodeProcess(tmp_path, "--require-success-file") as node:
        node.ready()
        for database in ("written", "saved"):
            node.until_active(database, "1")
        with blocking.connect(node.address, timeout_ms=1000 * PATIENCE_S) as client:
            for database, partitions in (("written", 7), ("saved", 5)):
                told = client.status(database)[database]["versions"]["1"]
                assert (told["records"], told["partition_count"], told["strays"]) == (ROWS, partitions, 0)
                assert client.dataset(database).get("key 77") == b"value 77"
