"""A lane whose reading is a few lines: what the tests of lanes run instead of the real formats.

The reading is JSON: `files`, each of lines of a key, a TAB and a value; `groups`, the number of them; and `trouble`,
what is to go wrong at which file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path

from gossipkv.dataset.build import lane
from gossipkv.errors import Corrupt, SourceError

CHUNK_BYTES = 10_000


def group_of(key: bytes, groups: int) -> int:
    """`7|key` is in group 7, every other key where its checksum says."""
    head, bar, _ = key.partition(b"|")
    return int(head) if bar else zlib.crc32(key) % groups


def read_files(reading, which, builder, *, pace, on_records):
    """Adds what the files hold; counts its files and records."""
    told = json.loads(reading)
    records = 0
    for place in which:
        strike(told["trouble"].get(str(place)), told["files"][place])
        with Path(told["files"][place]).open("rb") as file:
            while lines := file.readlines(CHUNK_BYTES):
                pace(sum(map(len, lines)))
                for line in lines:
                    key, _, value = line.rstrip(b"\n").partition(b"\t")
                    builder.add(key, value, group_of(key, told["groups"]))
                records += len(lines)
                on_records(records)
    return {"files": list(which), "records": records}


def strike(trouble, path):
    """Does what is to go wrong here."""
    match trouble:
        case "wrong":
            raise SourceError(f"{path}: byte 7: wrong", {"file": path, "offset": 7, "reason": "wrong"})
        case "damaged":
            raise Corrupt(path, 9, "damaged", expected=1, got=2)
        case "gone":
            Path(path + ".gone").read_bytes()
        case "bug":
            raise KeyError(path)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stuck":
            Path(path + ".pid").write_text(str(os.getpid()))
            time.sleep(3600)
        case "talks":
            sys.stdout.write("an extension prints a line\n")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(lane.run(read_files))
