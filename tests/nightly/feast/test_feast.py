"""Feast's online store, where Feast is installed: in an environment of its own, since it holds pandas below 3."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.bench.network.servers import redis_missing
from tests.ci.cluster.node_process import NodeProcess
from tests.nightly.bench import kept

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "nightly" / "feast"
PATIENCE_S = 900


@pytest.fixture(scope="module", name="python")
def python_with_feast(tmp_path_factory):
    place = tmp_path_factory.mktemp("feast")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], "pytest"]
    needs += (need for extra in ("feast", "bench", "secure") for need in project["optional-dependencies"][extra])
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "pip", "install", "-q", *needs], check=True, timeout=PATIENCE_S)
    return place / "bin" / "python"


def environ():
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return here | {"PYTHONPATH": str(ROOT)}


@pytest.mark.timeout(2 * PATIENCE_S)
def test_cases(python, tmp_path):
    """Feast's store does what `cases.py` says, against a node."""
    source = tmp_path / "source"
    source.mkdir()
    with NodeProcess(tmp_path, source=source) as node:
        node.ready()
        command = [python, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", HERE]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", HERE / "cases.py"], check=False, capture_output=True, text=True,
            env=environ() | {"FEAST_NODE": node.address, "FEAST_SOURCE": str(source)}, timeout=PATIENCE_S,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(2 * PATIENCE_S)
def test_reads_cost_less_than_with_redis(python, tmp_path, record_property):
    """100 entities of 10 features cost at most 0.8 of the CPU and of the median time of Feast's Redis store."""
    if (missing := redis_missing()) is not None:
        pytest.skip(f"needs {missing}")
    record_property("measured", kept.check("feast", tmp_path, python=python, environ=environ()))
