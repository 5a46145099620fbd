"""The rows about a restart: a node that was killed serves ten gigabytes again.

The clock runs from the start of the process to its `ready` line, and on to the first right answer from every partition
of every database.  Once what the files hold is in memory as the node has left it, once nothing of it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import goals, machine
from tests.bench.datasets import records
from tests.bench.measurement import Measurement
from tests.bench.serving import Client, node_get, node_value, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = 4
PEAK_FACTOR = 2.6  # The source, what is built of it, and the runs of two builds at once.


@dataclass(frozen=True)
class Load:
    """How much is served, how often it is started."""

    databases: int = 10
    total_bytes: int = 10_000_000_000
    value_bytes: int = 10 << 10
    rounds: int = 7


class Node:
    """`gossipkv serve`, from its start."""

    def __init__(self, source: Path, directory: Path) -> None:
        command = [sys.executable, "-m", "gossipkv", "serve", "--source", str(source), "--data", str(directory)]
        command += ["--listen", "127.0.0.1:0", "--log-level", "warning"]
        self.begin = perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready_s = perf_counter() - self.begin
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"the node said {line!r} instead of being ready")
        host, _, port = line.split()[1].rpartition(":")
        self.client = Client(host, int(port))

    def answers(self, database: str, key: bytes, value_bytes: int) -> bool:
        """Whether a get is answered rightly."""
        value = self.client.exchange(node_get(database, key), node_value)
        if value is None:
            return False
        if value != records.value_of(key, value_bytes):
            raise RuntimeError(f"{database}: a wrong value of {key!r}")
        return True

    def wait_for_all(self, questions: list[tuple[str, bytes]], value_bytes: int) -> None:
        """Returns when each of them has been answered rightly."""
        for name, key in questions:
            wait_for(partial(self.answers, name, key, value_bytes), name)

    def kill(self) -> None:
        """Without a word."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def killed_at_last(source: Path, directory: Path) -> Iterator[Node]:
    """A node for the length of a block."""
    node = Node(source, directory)
    try:
        yield node
    finally:
        node.kill()
        node.client.close()


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Warm and cold."""
    free_bytes = shutil.disk_usage(directory).free
    total_bytes = min(load.total_bytes, int(free_bytes / PEAK_FACTOR))
    source, built = directory / "source", directory / "data"
    count = total_bytes // load.databases // (load.value_bytes + records.KEY_BYTES)
    questions: list[tuple[str, bytes]] = []
    for number in range(load.databases):
        name = f"database-{number}"
        first = records.write_tab_separated(
            source / name / "1", records.numbered(count, load.value_bytes), FILES, records.by_hash(FILES)
        )
        questions += [(name, key) for key in first]
    machine.say("    building")
    with killed_at_last(source, built) as node:
        node.wait_for_all(questions, load.value_bytes)
    files = _files(built)
    size_bytes = sum(path.stat().st_size for path in files)
    less = "" if total_bytes == load.total_bytes else f"; less than {load.total_bytes:,} for want of room on the disk"
    notes.append(
        f"{goals.RESTART}: {load.databases} databases of {FILES} partitions, {load.databases * count:,} records, "
        f"{size_bytes:,} bytes of built files{less}; killed with SIGKILL each time"
    )
    yield from _restarts(source, built, questions, load)
    if _files(built) != files:
        raise RuntimeError("a restart has built something anew")


def _files(built: Path) -> dict[Path, tuple[int, int]]:
    """All sorted files, and which they are."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(built.rglob("*.gkv"))}


def _restarts(source: Path, built: Path, questions: list[tuple[str, bytes]], load: Load) -> Iterator[Measurement]:
    warm: list[float] = []
    cold: list[float] = []
    ready: list[float] = []
    for number in range(2 * load.rounds):
        if number % 2:
            forget(built)
        with killed_at_last(source, built) as node:
            node.wait_for_all(questions, load.value_bytes)
            seconds = perf_counter() - node.begin
        (cold if number % 2 else warm).append(seconds)
        if number % 2 == 0:
            ready.append(node.ready_s)
        machine.say(f"    {'cold' if number % 2 else 'warm'}: ready {node.ready_s:.2f} s, all right {seconds:.2f} s")
    yield Measurement(goals.RESTART_READY, "s", "GossipKV", {"GossipKV": ready})
    yield Measurement(goals.RESTART, "s", "GossipKV", {"GossipKV": warm})
    yield Measurement(goals.RESTART_COLD, "s", "GossipKV", {"GossipKV": cold})


def forget(directory: Path) -> None:
    """Nothing of these files stays in memory."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
