"""Work in a forked process: its end is reported, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.unit.processes.started import is_running, started_by

SCRIPT = """
import os, sys, time
from gossipkv.processes.leash import run_apart
def work():
    {}
print(run_apart(work), os.getpid() != os.getsid(0), flush=True)
"""


@pytest.mark.parametrize(
    ("does", "status"),
    [
        ("return 0", 0),
        ("return 7", 7),
        ("os.kill(os.getpid(), 15)", -15),
        ("raise RuntimeError('a defect')", 1),
        ("raise KeyboardInterrupt", 1),
        ("sys.exit(9)", 1),  # The result is the return value of `work`.
        ("assert os.getsid(0) == os.getpid(); return 0", 0),
    ],
)
def test_what_becomes_of_it(does: str, status: int) -> None:
    """After any end the parent goes on exactly once; a traceback is on standard error."""
    told = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT.format(does)], capture_output=True, text=True, check=True, env=environment()
    )
    assert told.stdout.split()[:1] == [str(status)]
    assert len(told.stdout.splitlines()) == 1
    assert ("RuntimeError: a defect" in told.stderr) == ("RuntimeError" in does)


def test_it_dies_with_whoever_waits_for_it() -> None:
    """The copy dies by SIGKILL, also if it is stopped."""
    command = [sys.executable, "-P", "-c", SCRIPT.format("print('on', flush=True); time.sleep(3600)")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        (copy,) = started_by(process.pid)
        os.kill(copy, signal.SIGSTOP)
        process.kill()
    deadline = time.monotonic() + 60
    while is_running(copy):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
