"""Several pumps, each with a few requests: `python -m tests.nightly.stores.asking PUMPS METHOD`, under the recorder.

The program prints as JSON how many cache lines each pump has stored to, and the lines of two pumps: the bytes and, for
each pump, the extension of the first store.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import trio

from tests.unit.serving.driven import one_database
from tests.unit.serving.test_pumps_slow import serving

LINE_BYTES = 64
MOST = 1 << 16
WARM = 2  # Rounds in which one-time allocations happen.
ROUNDS = 8
REQUESTS: dict[str, list[object]] = {"get": ["get", "db", b"k"], "named": ["named"]}


class Entry(ctypes.Structure):
    """The first store of a thread to a line."""

    _fields_ = (("address", ctypes.c_size_t), ("instruction", ctypes.c_size_t))


def recorded(recorder: ctypes.CDLL) -> list[dict[int, Entry]]:
    """Return the stores of each recorded thread, by line."""
    threads: list[dict[int, Entry]] = []
    entries = (Entry * MOST)()
    number = 0
    while (count := recorder.recorder_take(number, entries)) != -1:
        assert count >= 0, "a thread's table is full"
        if count:
            copies = [Entry(entry.address, entry.instruction) for entry in entries[:count]]
            threads.append({entry.address // LINE_BYTES: entry for entry in copies})
        number += 1
    return threads


def library(instruction: int) -> str:
    """Return the file that an instruction was mapped from."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, *_, name = line.split()
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= instruction < end:
            return f"{Path(name).name.partition('.')[0]}+{instruction - begin:#x}"
    return "?"


async def main(pumps: int, method: str) -> None:
    recorder = ctypes.CDLL("libtsan.so.2")
    with tempfile.TemporaryDirectory() as directory:
        async with serving(Path(directory), pumps) as running:
            running.pumps.publish(one_database(Path(directory), {b"k": b"v" * 100}))
            clients = [await running.connect() for _ in range(pumps)]
            for number in range(WARM + ROUNDS):
                if number == WARM:
                    recorder.recorder_begin()
                for client in clients:
                    await running.ask(client, *REQUESTS[method])
            recorder.recorder_end()
    threads = recorded(recorder)
    stored: defaultdict[int, list[Entry]] = defaultdict(list)
    for thread in threads:
        for line, entry in thread.items():
            stored[line].append(entry)
    shared = [
        [[f"{entry.address:#x}", library(entry.instruction)] for entry in entries]
        for entries in stored.values()
        if len(entries) > 1
    ]
    sys.stdout.write(json.dumps({"lines": [len(thread) for thread in threads], "shared": shared}))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
