"""Feast's online store, where Feast is installed: in an environment of its own, since it holds pandas below 3."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.bench.processes import free_port
from tests.ci.cluster.node_process import NodeProcess

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "nightly" / "feast"
PATIENCE_S = 900


@pytest.fixture(scope="module", name="python")
def python_with_feast(tmp_path_factory):
    place = tmp_path_factory.mktemp("feast")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["feast"], "redis", "pytest"]
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "pip", "install", "-q", *needs], check=True, timeout=PATIENCE_S)
    return place / "bin" / "python"


def run(python, node, source, *arguments):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ |= {"PYTHONPATH": str(ROOT), "FEAST_NODE": node.address, "FEAST_SOURCE": str(source)}
    done = subprocess.run(
        [python, *arguments], check=False, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(2 * PATIENCE_S)
def test_cases(python, tmp_path):
    """Feast's store does what `cases.py` says, against a node."""
    source = tmp_path / "source"
    source.mkdir()
    with NodeProcess(tmp_path, source=source) as node:
        node.ready()
        run(
            python, node, source, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", HERE,
            "-p", "no:cacheprovider", HERE / "cases.py",
        )  # fmt: skip


@pytest.mark.timeout(2 * PATIENCE_S)
def test_reads_cost_less_than_with_redis(python, tmp_path):
    """100 entities of 10 features cost at most 0.8 of the CPU and of the median time of Feast's Redis store."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    with NodeProcess(tmp_path) as node, (tmp_path / "redis.log").open("wb") as log:
        node.ready()
        peer = subprocess.Popen(
            ["redis-server", "--port", str(port), "--save", "", "--dir", tmp_path], stdout=log, stderr=log
        )
        try:
            told = run(python, node, tmp_path, HERE / "beside_redis.py", f"127.0.0.1:{port}").split()
        finally:
            peer.kill()
            peer.wait()
    median, cpu = map(float, told[-2:])
    assert max(median, cpu) <= 0.8, told
