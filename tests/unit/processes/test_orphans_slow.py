"""Process 1 reaps orphans, and leaves its own children to those who wait for them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
from gossipkv.processes import orphans

orphans.REAP_S = 0.05
orphans.reap_as_first()
subprocess.run(["sh", "-c", "true & exec true"], check=True)
subprocess.run(["sh", "-c", "sh -c 'sleep 0.2' & true"], check=True)
assert subprocess.run(["sh", "-c", "exit 3"], check=False).returncode == 3
while any(entry.name.isdigit() and entry.name != "1" for entry in Path("/proc").iterdir()):
    time.sleep(0.01)
print("alone")
"""


def test_process_1_reaps_orphans():
    """No entry stays, and the status of an own child is not lost."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode != 0:
        pytest.skip("namespaces cannot be made")
    command += [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("alone\n", "")
