"""Tests over real processes, sockets, threads or time; `test_faulty_files.py` has the others."""

import signal
import subprocess
import sys


def test_a_child_can_be_killed_for_real(tmp_path):
    """With SIGKILL, at the chosen operation."""
    script = (
        "import sys\n"
        "from gossipkv.environment.real_files import RealFiles\n"
        "from gossipkv.environment.seam import WRITE_NEW\n"
        "from tests.world.faulty_files import *\n"
        "files = FaultyFiles(RealFiles(), Fault(0, Action.CRASH_AFTER, kinds={'create'}), die=kill_process)\n"
        "files.open(sys.argv[1], WRITE_NEW); print('not reached')\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "x"], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")
    assert (tmp_path / "x").exists()
