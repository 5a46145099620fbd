"""The demo's output for people, and its interruption."""

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
    """An interruption at the start or amid the upgrade leaves no process, file or traceback, and gives status 130."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path))
    while stage not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (130, b"")
    assert list(tmp_path.iterdir()) == []
    assert left_below(tmp_path) == []


def test_for_people(tmp_path):
    """The plain output names every number, and characters of both versions."""
    done = subprocess.run(COMMAND, capture_output=True, env=environment(tmp_path), timeout=PATIENCE_S, check=True)
    text = done.stdout.decode()
    for words in (
        "PILE OF POO",
        "not there",
        "reads with a changed answer",
        "steps back",
        "n3 is killed",
        "reads after a node was killed",
        "p99",
        "until the switch and the kill",
        "n1, after 100 writes; the writer goes on",
        "values read again from each node",
        "moved    12 of 48 replicas to n4; ",
        "moved    12 of 48 replicas to n5; ",
        " requests, 0 failed, 0 steps back",
        "13,789 characters",
        "done in",
    ):
        assert words in text
    assert "NOT OK" not in text
