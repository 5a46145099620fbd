"""Tests over real processes, sockets, threads or time; `test_datasets.py` has the other tests."""

from __future__ import annotations

from tests.ci.cluster.test_datasets import (
    killed_holders_fail_no_read,
)


def test_a_killed_holder_fails_no_read(tmp_path):
    """One of two replicas is killed, on a cluster of three nodes."""
    killed_holders_fail_no_read(tmp_path, 3, 2)
