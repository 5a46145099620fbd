"""Slow tests of the data directory; the fast ones are in `test_directory.py`."""

import os
import random
import subprocess
import sys

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, DirectoryInUse, UnsupportedFormat
from gossipkv.node.directory import DataDirectory
from gossipkv.storage.slots import SLOT_BYTES, SLOTS

FILES = RealFiles()


def opened(path, files=FILES, cluster="test", node=None, seed=1, **certified):
    return DataDirectory.open(path, files, cluster=cluster, random=random.Random(seed), node=node, **certified)


def test_the_lock_holds_between_processes_and_ends_with_one(tmp_path):
    """A killed process releases the lock."""
    script = (
        "import sys, random, time; from gossipkv.node.directory import DataDirectory\n"
        "from gossipkv.environment.real_files import RealFiles\n"
        "data = DataDirectory.open(sys.argv[1], RealFiles(), cluster='test', random=random.SystemRandom())\n"
        "print('locked', flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match=f"process {holder.pid}"):
            opened(tmp_path)
        holder.kill()
    opened(tmp_path).close()


def test_every_damaged_byte_of_the_node_document_is_named(tmp_path):
    """Damage never makes another node; damage of one slot costs nothing and is repaired."""
    opened(tmp_path).close()
    whole = (tmp_path / "NODE").read_bytes()
    with opened(tmp_path) as data:
        node, following = data.record, (tmp_path / "NODE").read_bytes()
    assert node.epoch == 2
    for at in [*range(len(whole[:SLOT_BYTES].rstrip()) + 2), SLOT_BYTES - 1]:
        damaged = bytearray(whole)
        for slot in range(SLOTS):
            damaged[slot * SLOT_BYTES + at] ^= 4
            one = bytearray(whole)
            one[slot * SLOT_BYTES + at] ^= 4
            (tmp_path / "NODE").write_bytes(one)
            with opened(tmp_path) as data:
                assert data.record == node
            assert (tmp_path / "NODE").read_bytes() == following
        (tmp_path / "NODE").write_bytes(damaged)
        with pytest.raises((Corrupt, UnsupportedFormat), match="NODE"):
            opened(tmp_path)
