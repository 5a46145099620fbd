"""Slow tests of metrics with promtool; the fast ones are in `test_metrics.py`."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import trio

from gossipkv.http.metrics import metrics
from tests.unit.http.node_info import SPARSE, Node, histogram, info

ODD = 'n"1\\ \n<script>'


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "told", [info(("geo", "users")), info(node=ODD, latency={"local": histogram(*range(6))}), SPARSE]
)
def test_promtool_has_nothing_to_say(told):
    """Prometheus' own checker accepts the text and the names."""
    answer = trio.run(metrics, Node(info=told))
    checked = subprocess.run(["promtool", "check", "metrics"], input=answer.body, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
