"""Tests over real processes, sockets, threads or time; `test_replication.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gossipkv.replication.replica.replica import Replica
from tests.world.replication.world import run

pytestmark = pytest.mark.timeout(1200)


def test_a_run_is_the_same_twice():
    """The two processes hash strings differently and allocate at other addresses."""
    command = [sys.executable, "-m", "tests.world", "--replication", "--seed", "78", "--runs", "1"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert {"records sent", "advance DONE", "joined"} <= {line[9:] for line in said[0].splitlines()}


def test_a_run_does_not_follow_the_order_of_sets_of_replicas(monkeypatch):
    """Replicas hash by their addresses; here by their numbers, in two orders. The seed divides and bulk loads."""
    runs = []
    for factor in (1, 2_654_435_761):
        seen: dict[int, tuple[int, Replica]] = {}

        def number(replica, seen=seen, factor=factor):
            return seen.setdefault(id(replica), (factor * len(seen) % (1 << 61), replica))[0]

        monkeypatch.setattr(Replica, "__hash__", number)
        outcome = run(28)
        runs.append((outcome.violations, outcome.counts, outcome.travelled))
    assert runs[0] == runs[1]
