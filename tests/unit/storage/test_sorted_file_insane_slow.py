"""Tests over real processes, sockets, threads or time; `test_sorted_file_insane.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.storage import insane_footers


def test_every_footer_field_with_every_odd_number() -> None:
    """Each word, and pairs of words, hold numbers at which arithmetic overflows, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", insane_footers.__file__],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr + done.stdout[-500:]
    refused_count, opened_count = map(int, done.stdout.split()[-2:])
    assert refused_count > 1000
    assert opened_count > 100
