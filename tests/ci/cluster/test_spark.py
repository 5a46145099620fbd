"""The examples of `docs/users/spark.md` are run with PySpark, and their output is read through a node."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gossipkv.client import blocking
from tests.ci.cluster.node_process import NodeProcess

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "users" / "spark.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
VERSION = "2026-03-01"
KINDS = ("sequence", "sorted")
PATIENCE_S = 120

TEXT = (ROOT / "docs" / "users" / "keyspace.md").read_text("utf-8") + "\n \U0001d4b3 ü\n日本 日本\n"


def test_the_page_has_both_examples() -> None:
    """One example writes SequenceFiles, the other sorted files, and each compiles."""
    sequence, in_sorted = EXAMPLES
    assert "saveAsSequenceFile" in sequence
    assert "gossipkv" not in re.sub(r'""".*?"""', "", sequence)
    assert "write_partition" in in_sorted
    for example in EXAMPLES:
        compile(example, "docs/users/spark.md", "exec")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a source root in which each example has written a version, in parallel processes."""
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
        version = place / "source" / kind / VERSION
        version.parent.mkdir(parents=True)
        command = [sys.executable, str(script), str(place / "text.txt"), str(version)]
        jobs.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    for job in jobs:
        said, _ = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, said.decode()
    return place / "source"


def settled(client: blocking.Client, database: str) -> dict[str, object]:
    """Return the node's status of the version once it is active or in error."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        told = client.status(database)[database]["versions"][VERSION]
        if told["state"] in {"ACTIVE", "ERROR"}:
            return told
        assert time.monotonic() < give_up_s, told
        time.sleep(0.1)


def test_examples_write_what_a_node_serves(root: Path, tmp_path: Path) -> None:
    """Every word has its count, and both examples partition by Sequins' function, which is recognised."""
    counts = {word.encode(): str(count).encode() for word, count in Counter(TEXT.split()).items()}
    with NodeProcess(tmp_path, "--require-success-file", source=root) as node:
        node.ready()
        with blocking.connect(node.address, timeout_ms=1000 * PATIENCE_S) as client:
            for kind in KINDS:
                told = settled(client, kind)
                assert told["state"] == "ACTIVE", told
                assert list(client.dataset(kind).scan()) == sorted(counts.items())
                assert (told["function"], told["records"], len(told["partitions"])) == ("sequins", len(counts), 8)
                assert told["strays"] == 0
