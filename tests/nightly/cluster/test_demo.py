"""The demo, interrupted."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.ci.cluster.test_demo import COMMAND, PATIENCE_S, environment, left_below


@pytest.mark.parametrize(("number", "stage"), [
    (signal.SIGINT, b"nodes start"),
    (signal.SIGHUP, b"nodes start"),
    (signal.SIGINT, b"is killed"),
    (signal.SIGTERM, b"is killed"),
])  # fmt: skip
def test_interrupted_it_cleans_up(tmp_path, number, stage):
    """Ctrl-C, SIGTERM, a closed terminal, at the start or amid the upgrade: no process, file, traceback; status 130."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path))
    while stage not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (130, b"")
    assert list(tmp_path.iterdir()) == []
    assert left_below(tmp_path) == []
