"""Builds in several threads stay within their memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from gossipkv.dataset.build.job import BuildOrder
from gossipkv.dataset.build.memory import share_of_lanes
from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from gossipkv.processes.program import order_line


def test_two_lanes_stay_within_the_memory(job):
    """VmHWM of a child with two lanes, with more data than memory."""
    source = random.Random(1)
    lines = [b"%s\t%s\n" % (key, key * 30) for key in (source.randbytes(8).hex().encode() for _ in range(450_000))]
    one = job([b"".join(lines[at::4]) for at in range(4)])
    memory_bytes = 128 << 20
    assert one.source_bytes > memory_bytes
    leash, held = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "gossipkv.dataset.build.build_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        pass_fds=[leash],
    )
    os.close(leash)
    said, _ = child.communicate(order_line(BuildOrder(one, memory_bytes, 0, leash, most_lanes=2)))
    os.close(held)
    last = json.loads(said.splitlines()[-3])
    assert share_of_lanes(one, memory_bytes, process_bytes=30 << 20, most_lanes=2).lanes == 2
    assert 60 << 20 < last["done"] <= memory_bytes
    version = open_version(RealFiles(), Path(one.directory), "db", "v1")
    assert version.records == len(lines)
    version.close()
