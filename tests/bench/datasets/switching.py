"""The rows about switching: a node serves ten databases under closed-loop load, and each gets a new version in turn.

The clients are processes apart from the node (`load_client`) and ask all databases all the time, as fast as they are
answered.  A version is there at the source by one rename, is built by the node with its defaults beside the load, and
switched to; then it is the next database's turn.  The percentile over all that time is compared with the one over the
seconds before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median
from time import monotonic, monotonic_ns, sleep
from typing import TYPE_CHECKING

import msgpack

from tests.bench import goals, machine
from tests.bench.datasets import records
from tests.bench.datasets.load_client import Counts, Task, contents
from tests.bench.measurement import Measurement
from tests.bench.serving import BUILD_TIMEOUT_S, Client, node_get, percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = 4
POLL_PERIOD_S = 0.05
NANOSECONDS = 10**9
SHARES = (0.99, 0.5, 0.999)


@dataclass(frozen=True)
class Load:
    """How much is served to how many."""

    databases: int = 10
    keys: int = 100_000
    value_bytes: int = 100
    processes: tuple[int, ...] = (1, 2)  # With the node's own: as many as there are cores here, and one more.
    warming_s: float = 3.0
    before_s: float = 10.0
    rounds: int = 5


@dataclass(frozen=True)
class Span:
    """From when to when, in nanoseconds of the monotonic clock."""

    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """How long that was."""
        return (self.end_ns - self.begin_ns) / NANOSECONDS


class Scene:
    """A node that serves the databases, and the means to give them further versions."""

    def __init__(self, directory: Path, load: Load, files: int = FILES) -> None:
        self.load = load
        self._files = files
        self.names = [f"database-{number}" for number in range(load.databases)]
        self.source = directory / "source"
        self._staging = directory / "staging"

    def task(self, addresses: list[tuple[str, int]], seed: int, output: Path, *, min_version: bool = False) -> Task:
        """What a process of clients is to ask: all databases."""
        return Task(
            addresses, self.names, self.load.keys, self.load.value_bytes, seed, str(output), min_version=min_version
        )

    def stage(self, version: str) -> None:
        """Writes a version of every database where nobody looks."""
        for name in self.names:
            written = contents(name, version, self.load.keys, self.load.value_bytes)
            records.write_tab_separated(self._staging / name, written, self._files, records.by_hash(self._files))
        os.sync()

    def show(self, name: str, version: str) -> None:
        """A staged version appears at the source."""
        (self.source / name).mkdir(parents=True, exist_ok=True)
        (self._staging / name).rename(self.source / name / version)

    def switch(self, control: Client, version: str) -> Span:
        """Each database gets the version and is waited for before the next one."""
        begin_ns = monotonic_ns()
        for name in self.names:
            self.show(name, version)
            control.exchange(msgpack.packb([0, 1, "refresh", [name]]), msgpack.unpackb)
            wait_for_version(control, name, version)
        return Span(begin_ns, monotonic_ns())


def wait_for_version(control: Client, name: str, version: str) -> None:
    """Sleeps until a database is served in this version."""
    deadline = monotonic() + BUILD_TIMEOUT_S
    while True:
        if control.exchange(node_get(name, records.key_of(0)), _version_of) == version:
            return
        if monotonic() > deadline:
            raise RuntimeError(f"{name}: version {version} was not served within {BUILD_TIMEOUT_S:.0f} s")
        sleep(POLL_PERIOD_S)


def _version_of(reply: bytes) -> object:
    """Which version has answered; None for any error."""
    _, _, error, result = msgpack.unpackb(reply)
    return None if error is not None else result[1]


class Clients:
    """The processes that ask."""

    def __init__(self, tasks: list[Task]) -> None:
        self._outputs = [Path(task.output) for task in tasks]
        self._processes: list[subprocess.Popen[bytes]] = []
        for task in tasks:
            command = [sys.executable, "-m", "tests.bench.datasets.load_client"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
            process.stdin.flush()

    def stop(self) -> tuple[list[Counts], list[tuple[int, int]]]:
        """What they have counted, and of each answer when it came and how long it took."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        counts = []
        for process in self._processes:
            assert process.stdout is not None
            counts.append(Counts(**json.loads(process.stdout.read())))
            process.stdout.close()
            process.wait()
        samples: list[tuple[int, int]] = []
        for output in self._outputs:
            flat = array("q", output.read_bytes())
            samples += zip(flat[::2], flat[1::2], strict=True)
        return counts, samples

    def kill(self) -> None:
        """Leaves none; does nothing to those that have ended."""
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def node(source: Path, directory: Path) -> Iterator[tuple[str, int]]:
    """A node with its defaults, on a free port."""
    command = [sys.executable, "-m", "gossipkv", "serve", "--source", str(source), "--data", str(directory)]
    command += ["--listen", "127.0.0.1:0", "--log-level", "warning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        host, _, port = line.split()[1].rpartition(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.wait()


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The percentiles, then what must not happen; with few clients, and with more than there are cores for."""
    scene = Scene(directory, load)
    versions = (f"{number:04}" for number in count(1))
    first = next(versions)
    scene.stage(first)
    for name in scene.names:
        scene.show(name, first)
    failed = back = 0.0
    with ExitStack() as stack:
        address = stack.enter_context(node(scene.source, directory / "data"))
        control = Client(*address)
        stack.callback(control.close)
        for name in scene.names:
            wait_for_version(control, name, first)
        for processes, rows in zip(load.processes, goals.SWITCH_ROWS, strict=True):
            with ExitStack() as clients_stack:
                clients = Clients(
                    [scene.task([address], number, directory / f"samples-{number}") for number in range(processes)]
                )
                clients_stack.callback(clients.kill)
                spans = [_round(scene, control, next(versions)) for _ in range(load.rounds)]
                counts, samples = clients.stop()
            yield from _evaluate(rows, spans, samples)
            failed += sum(each.failed for each in counts)
            back += sum(each.back for each in counts)
            notes.append(_note(rows[0], processes, counts, spans, load))
    yield Measurement(goals.SWITCH_FAILED, "", "GossipKV", {"GossipKV": [failed]})
    yield Measurement(goals.SWITCH_BACK, "", "GossipKV", {"GossipKV": [back]})


def _round(scene: Scene, control: Client, version: str) -> tuple[Span, Span]:
    """Before and during."""
    scene.stage(version)
    sleep(scene.load.warming_s)  # What staging has disturbed, and at first what nobody has touched.
    begin_ns = monotonic_ns()
    sleep(scene.load.before_s)
    return Span(begin_ns, monotonic_ns()), scene.switch(control, version)


def _evaluate(
    rows: tuple[str, ...], spans: list[tuple[Span, Span]], samples: list[tuple[int, int]]
) -> Iterator[Measurement]:
    figures: dict[str, dict[str, list[float]]] = {row: {"GossipKV": [], goals.BEFORE: []} for row in rows}
    for before, during in spans:
        quiet, busy = _within(before, samples), _within(during, samples)
        for row, share in zip(rows, SHARES, strict=True):
            figures[row]["GossipKV"].append(percentile(busy, share))
            figures[row][goals.BEFORE].append(percentile(quiet, share))
        machine.say(f"    before: {_said(before, quiet)}; during: {_said(during, busy)}")
    for row, by_name in figures.items():
        yield Measurement(row, "us", "GossipKV", by_name)


def _note(row: str, processes: int, counts: list[Counts], spans: list[tuple[Span, Span]], load: Load) -> str:
    for each in counts:
        if each.first_failure:
            machine.say(f"    {each.first_failure}")
    seconds = median([during.seconds for _, during in spans])
    return (
        f"{row}: {processes} client process{'es' * (processes > 1)} with {load.databases} connections each, one get in "
        f"flight on each; {load.keys:,} records of {load.value_bytes + records.KEY_BYTES} bytes a database; "
        f"{sum(each.reads for each in counts):,} gets, every value checked; the builds and switches of all "
        f"{load.databases} took {seconds:.0f} s"
    )


def _within(span: Span, samples: list[tuple[int, int]]) -> list[int]:
    return [latency_ns for came_ns, latency_ns in samples if span.begin_ns <= came_ns < span.end_ns]


def _said(span: Span, latencies_ns: list[int]) -> str:
    return (
        f"{len(latencies_ns) / span.seconds:,.0f} gets/s for {span.seconds:.1f} s, p99 "
        f"{percentile(latencies_ns, 0.99):.0f} us, longest {max(latencies_ns) / 1e6:.1f} ms"
    )
