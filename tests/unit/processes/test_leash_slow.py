"""A leash kills its wearer when the other end is closed, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gossipkv.processes import leash

WEARER = """
import os, sys, time
from gossipkv.processes import leash
leash.wear(int(sys.argv[1]))
print("worn", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_cut(frozen):
    """The wearer dies by SIGKILL at once, also when it is stopped."""
    worn, held = leash.braid()
    with subprocess.Popen(
        [sys.executable, "-c", WEARER, str(worn)], pass_fds=[worn], stdout=subprocess.PIPE
    ) as process:
        os.close(worn)
        assert process.stdout.readline() == b"worn\n"
        if frozen:
            process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        assert process.poll() is None
        leash.let_go(held)
        assert process.wait(60) == -signal.SIGKILL


def test_cut_before_it_is_worn():
    """A wearer of a leash whose holder is gone already dies as well."""
    worn, held = leash.braid()
    leash.let_go(held)
    leash.let_go(held)  # A repetition does no harm.
    assert leash.is_cut(worn)
    with subprocess.Popen(
        [sys.executable, "-c", WEARER, str(worn)], pass_fds=[worn], stdout=subprocess.PIPE
    ) as process:
        os.close(worn)
        assert process.stdout.read() == b""
        assert process.wait(60) == -signal.SIGKILL
