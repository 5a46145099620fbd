"""Tests over real processes, sockets, threads or time; `test_directory.py` has the others."""

import os
import random
import subprocess
import sys

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import DirectoryInUse
from gossipkv.node.directory import DataDirectory

FILES = RealFiles()


def opened(path, files=FILES, cluster="test", node=None, seed=1, **certified):
    """Opens the directory."""
    return DataDirectory.open(path, files, cluster=cluster, random=random.Random(seed), node=node, **certified)


def test_the_lock_holds_between_processes_and_ends_with_one(tmp_path):
    """However it ends."""
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
