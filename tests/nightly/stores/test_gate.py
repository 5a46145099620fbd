"""The gate of a store keeps readers from meeting a change, and ThreadSanitizer would see if it did not."""

from __future__ import annotations

import subprocess
import sys

from tests.nightly.stores.test_stores import ROOT, TIMEOUT_S, only_for_races

pytestmark = only_for_races


def beside(way: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.nightly.stores.beside", way],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_reader_within_the_gate_races_with_no_change() -> None:
    done = beside("gate")
    assert done.returncode == 0, done.stderr
    assert "data race" not in done.stderr


def test_a_reader_past_the_gate_is_rejected() -> None:
    done = beside("past")
    assert done.returncode != 0
    assert "data race" in done.stderr
