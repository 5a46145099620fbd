"""A building process stays within its memory."""

from __future__ import annotations

import random
from pathlib import Path

from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.build import test_build_child_slow as usual
from tests.unit.dataset.build.test_build_child_slow import last_word

start = usual.start


def test_the_whole_process_stays_within_its_memory(job, start):
    """VmHWM stays below the limit with several times more data than memory."""
    rng = random.Random(1)
    keys = [rng.randbytes(8).hex().encode() for _ in range(400_000)]
    data = b"".join(b"%s\t%s\n" % (key, key * 20) for key in keys)
    one = job([data[: data.index(b"\n", len(data) // 2) + 1], data[data.index(b"\n", len(data) // 2) + 1 :]])
    assert one.source_bytes > 130_000_000
    child, _ = start(one, memory_bytes=64 << 20)
    said, _ = last_word(child)
    assert said["done"] <= 64 << 20
    version = open_version(RealFiles(), Path(one.directory), "db", "v1")
    assert version.records == len(set(keys))
    version.close()
