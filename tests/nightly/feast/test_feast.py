"""Feast's online store, where Feast is installed: in an environment of its own, since it holds pandas below 3."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.bench.network.servers import redis_missing
from tests.ci.cluster.node_process import NodeProcess
from tests.nightly import environments
from tests.nightly.bench import kept

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "nightly" / "feast"
PATIENCE_S = 900


@pytest.fixture(scope="module", name="python")
def python_with_feast(tmp_path_factory):
    return environments.make(tmp_path_factory.mktemp("feast"), "pytest", extras=("feast", "bench", "secure"))


@pytest.mark.timeout(2 * PATIENCE_S)
def test_cases(python, tmp_path):
    """Feast's store does what `cases.py` says, against a node."""
    source = tmp_path / "source"
    source.mkdir()
    with NodeProcess(tmp_path, source=source) as node:
        node.ready()
        command = [python, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", HERE]
        environ = environments.variables() | {"FEAST_NODE": node.address, "FEAST_SOURCE": str(source)}
        command += ["-p", "no:cacheprovider", HERE / "cases.py"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(2 * PATIENCE_S)
def test_reads_cost_less_than_with_redis(python, tmp_path, record_property):
    """100 entities of 10 features cost at most 0.8 of the CPU and of the median time of Feast's Redis store."""
    if (missing := redis_missing()) is not None:
        pytest.skip(f"needs {missing}")
    record_property("measured", kept.check("feast", tmp_path, python=python, environ=environments.variables()))
