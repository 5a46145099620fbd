"""Helpers of `test_lanes.py` and `test_lanes_slow.py`."""

from __future__ import annotations

import os
import random
import threading
import zlib

from gossipkv.dataset.build.lanes import LaneTask, build_in_lanes
from gossipkv.environment.real_files import RealFiles
from gossipkv.storage.builder import MIN_MEMORY_BYTES
from tests.oracle import sorted_file as oracle

GROUPS = 5
METADATA = [bytes(range(256 - group)) for group in range(GROUPS)]
CHUNK_BYTES = 10_000


def group_of(key, groups=GROUPS):
    """Return the group: 7 for `7|key`, else by the checksum of the key."""
    head, bar, _ = key.partition(b"|")
    return int(head) if bar else zlib.crc32(key) % groups


class Build:
    """The source files and the target of a build; `troubles` are called at the start of a file."""

    def __init__(self, root, contents, troubles=None):
        self.paths = []
        for number, lines in enumerate(contents):
            self.paths.append(root / f"part-{number}")
            self.paths[-1].write_bytes(b"".join(b"%s\t%s\n" % line for line in lines))
        self.records = [line for lines in contents for line in lines]
        self.sizes = [path.stat().st_size for path in self.paths]
        self.directory = root / "built"
        self.directory.mkdir()
        self.names = [f"{group}.gkv" for group in range(GROUPS)]
        self.task = LaneTask(str(self.directory), self.names, 3 * MIN_MEMORY_BYTES, "none", METADATA)
        self.troubles = troubles or {}

    def read(self, places, builder, pace, on_records):
        """Add the records of the files to the builder, and count them."""
        records = 0
        for place in places:
            self.troubles.get(place, lambda: None)()
            with self.paths[place].open("rb") as file:
                while lines := file.readlines(CHUNK_BYTES):
                    pace(sum(map(len, lines)))
                    for line in lines:
                        key, _, value = line.rstrip(b"\n").partition(b"\t")
                        builder.add(key, value, group_of(key))
                    records += len(lines)
                    on_records(records)
        return list(places), records

    def run(self, lanes, files=None, **options):
        """Build in so many lanes; assert that no thread is left."""
        before = set(threading.enumerate())  # Not a count: an idle thread of an earlier test may end meanwhile.
        try:
            return build_in_lanes(self.task, self.read, self.sizes, lanes, files or RealFiles(), **options)
        finally:
            assert set(threading.enumerate()) <= before

    def left(self):
        return sorted(os.listdir(self.directory))

    def expected(self):
        """Return the bytes of each file by the oracle."""
        return [
            oracle.write([one for one in self.records if group_of(one[0]) == group], metadata=METADATA[group])
            for group in range(GROUPS)
        ]

    def built(self):
        return [(self.directory / name).read_bytes() for name in self.names]


def some_lines(seed, count, keys=400):
    """Return records with few keys, so that many keys repeat."""
    source = random.Random(seed)
    return [(b"key %d" % source.randrange(keys), b"%d" % source.randrange(10**9)) for _ in range(count)]
