"""Tests over real processes, sockets, threads or time; `test_opening.py` has the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gossipkv.errors import DirectoryInUse
from tests.world.blocking_store import Store


def test_two_processes(tmp_path):
    """The second process is refused until the first has ended, even by a kill."""
    code = (
        "import sys; from tests.world.blocking_store import Store;"
        "store = Store.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen([sys.executable, "-c", code, tmp_path / "store"], stdin=-1, stdout=-1)
    try:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(DirectoryInUse, match="another process"):
            Store.open(tmp_path / "store")
    finally:
        first.kill()
        first.communicate()
    Store.open(tmp_path / "store").close()
