"""The examples of `docs/spark.md`, taken from the page, run with PySpark, and read back through a node."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gossipkv.client import blocking
from tests.cluster.node_process import NodeProcess, wait_for

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
KINDS = ("sequence", "sorted")
PATIENCE_S = 120

TEXT = (ROOT / "docs" / "keyspace.md").read_text("utf-8") + "\n \U0001d4b3 ü\n日本 日本\n"


def test_the_page_has_both_examples() -> None:
    """One writes SequenceFiles and one sorted files, and each compiles."""
    sequence, in_sorted = EXAMPLES
    assert "saveAsSequenceFile" in sequence
    assert "gossipkv" not in re.sub(r'""".*?"""', "", sequence)
    assert "write_partition" in in_sorted
    for example in EXAMPLES:
        compile(example, "docs/spark.md", "exec")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source root in which each example has written the version of a database, in processes side by side."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    place = tmp_path_factory.mktemp("spark")
    (place / "text.txt").write_text(TEXT, encoding="utf-8")
    environ = dict(os.environ) | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        "PYTHONPATH": str(ROOT),
    }
    jobs = []
    for kind, example in zip(KINDS, EXAMPLES, strict=True):
        script = place / f"{kind}.py"
        script.write_text(example, encoding="utf-8")
        version = place / "source" / kind / "2026-03-01"
        version.parent.mkdir(parents=True)
        command = [sys.executable, str(script), str(place / "text.txt"), str(version)]
        jobs.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    for job in jobs:
        said, _ = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, said.decode()
    return place / "source"


def test_examples_write_what_a_node_serves(root: Path, tmp_path: Path) -> None:
    """Every word has its count, and the function is recognised: both examples partition by Sequins' function."""
    counts = {word.encode(): str(count).encode() for word, count in Counter(TEXT.split()).items()}
    with NodeProcess(tmp_path, "--require-success-file", source=root) as node:
        node.ready()
        for kind in KINDS:
            wait_for(node.address, kind, "2026-03-01")
        with blocking.connect(node.address) as client:
            for kind in KINDS:
                assert list(client.dataset(kind).scan()) == sorted(counts.items())
                told = client.status(kind)[kind]["versions"]["2026-03-01"]
                assert (told["function"], told["records"], len(told["partitions"])) == ("sequins", len(counts), 8)
                assert told["strays"] == 0
