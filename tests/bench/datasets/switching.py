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
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, sources
from tests.bench.asking import percentile
from tests.bench.cluster import nodes
from tests.bench.datasets.load_client import Counts, Task, contents
from tests.bench.measurement import OURS
from tests.bench.processes import call, serve, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.address import Address
    from tests.bench.measurement import Bench

    Sample = tuple[int, int]  # When an answer came and how long it took, in nanoseconds.

PUMPS = 2


@dataclass
class Scene:
    """Databases of which each version is staged where nobody looks, and then appears at the source."""

    directory: Path
    databases: int
    keys: int
    value_bytes: int = data.SMALL_VALUE_BYTES
    files: int = sources.FILES

    def __post_init__(self) -> None:
        self.names = [f"database-{number}" for number in range(self.databases)]
        self.source = self.directory / "source"
        self._versions = (f"{number:04}" for number in count(1))

    def stage(self) -> str:
        """Write the next version of every database."""
        version = next(self._versions)
        for name in self.names:
            written = contents(name, version, self.keys, self.value_bytes)
            place = self.directory / "staging" / version / name
            sources.write_text(place, written, self.files, sources.by_hash(self.files))
        os.sync()
        return version

    def show(self, name: str, version: str) -> None:
        """A staged version appears at the source."""
        (self.source / name).mkdir(parents=True, exist_ok=True)
        (self.directory / "staging" / version / name).rename(self.source / name / version)

    def show_first(self) -> str:
        """Stage the first version, and have all of it appear."""
        version = self.stage()
        for name in self.names:
            self.show(name, version)
        return version

    def switch(self, asked: list[Address], version: str) -> None:
        """Each database gets the version, and all nodes have it before it is the next one's turn."""
        for name in self.names:
            self.show(name, version)
            call(asked[0], "refresh", name)
            nodes.wait_for_version(asked, [name], version)

    @contextmanager
    def asked(self, asked: list[Address], processes: int, connections: int = 1, **options: bool) -> Iterator[Clients]:
        """So many processes of clients, with so many connections to each database at each node."""
        tasks = [
            Task(
                asked,
                self.names * connections,
                self.keys,
                self.value_bytes,
                seed,
                f"{self.directory}/{name}",
                **options,
            )
            for seed in range(processes)
            for name in [f"samples-{monotonic_ns()}-{seed}"]
        ]
        clients = Clients(tasks)
        try:
            yield clients
        finally:
            clients.kill()


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

    def stop(self) -> tuple[Counts, list[Sample]]:
        """What they have counted together, and of each answer when it came and how long it took."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        counts, samples = Counts(), []
        for process, output in zip(self._processes, self._outputs, strict=True):
            assert process.stdout is not None
            counts.include(Counts(**json.loads(process.stdout.read())))
            process.stdout.close()
            process.wait()
            flat = array("q", output.read_bytes())
            samples += zip(flat[::2], flat[1::2], strict=True)
        return counts, samples

    def kill(self) -> None:
        """Leaves none; does nothing to those that have ended."""
        for process in self._processes:
            process.kill()
            process.wait()


def measure(
    bench: Bench,
    *,
    keys: int = 100_000,
    processes: tuple[int, ...] = (1, 2),
    warming_s: float = 3.0,
    before_s: float = 10.0,
    rounds: int = 5,
) -> None:
    """The percentiles, and what must not happen; with as many processes as cores, and with more."""
    scene = Scene(bench.directory, 10, keys)
    first = scene.show_first()
    failed = back = 0
    with serving(serve(bench.directory / "data", source=scene.source)) as node:
        nodes.wait_for_version([node.address], scene.names, first)
        for clients_count, rows in zip(processes, goals.SWITCH_ROWS, strict=True):
            with scene.asked([node.address], clients_count) as clients:
                moments = [_round(scene, node.address, warming_s, before_s) for _ in range(rounds)]
                counts, samples = clients.stop()
            for begin_ns, show_ns, end_ns in moments:
                quiet, busy = (
                    [took_ns for came_ns, took_ns in samples if first_ns <= came_ns < last_ns]
                    for first_ns, last_ns in ((begin_ns, show_ns), (show_ns, end_ns))
                )
                for share, row in rows.items():
                    bench.add(row, percentile(busy, share))
                    bench.add(row, percentile(quiet, share), goals.BEFORE)
            failed += counts.failed
            back += counts.back
            bench.notes.append(
                f"{rows[0.99]}: {clients_count} processes of clients with {len(scene.names)} connections each, one get "
                f"in flight on each; {keys:,} records a database; {counts.reads:,} gets, every value checked"
                f"{counts.first_failure and '; first failure: ' + counts.first_failure}"
            )
    bench.add(goals.SWITCH_FAILED, failed)
    bench.add(goals.SWITCH_BACK, back)


def of_pumps(
    bench: Bench,
    *,
    keys: int = 50_000,
    databases: int = 8,
    connections: int = 4,
    warming_s: float = 2.0,
    rounds: int = 5,
) -> None:
    """The same of two pumps and of one: clients compare what comes over all of their connections."""
    with ExitStack() as stack:
        sides = {}
        total = Counts()
        for name, pumps in ((goals.ONE_PUMP, 1), (OURS, PUMPS)):
            scene = Scene(bench.directory / str(pumps), databases, keys)
            first = scene.show_first()
            command = serve(scene.directory / "data", "--pumps", str(pumps), source=scene.source)
            node = stack.enter_context(serving(command))
            nodes.wait_for_version([node.address], scene.names, first)
            sides[name] = partial(_busy_us, scene, node.address, connections, warming_s, total)
        bench.compare(goals.PUMPS_SWITCH, sides, rounds)
    bench.count(goals.PUMPS_SWITCH_FAILED, total.failed, total.reads)
    bench.count(goals.PUMPS_SWITCH_BACK, total.back, total.reads)
    bench.notes.append(
        f"{goals.PUMPS_SWITCH}: {PUMPS} processes of clients with {connections} connections to each database each, on "
        f"the same cores as the node and its builds; {keys:,} records a database; every value checked"
        f"{total.first_failure and '; first failure: ' + total.first_failure}"
    )


def _busy_us(scene: Scene, address: Address, connections: int, warming_s: float, total: Counts) -> float:
    """The p99 of gets while each database switches once."""
    with scene.asked([address], PUMPS, connections, together=True) as clients:
        _, show_ns, end_ns = _round(scene, address, warming_s, 0)
        counts, samples = clients.stop()
    total.include(counts)
    return percentile([took_ns for came_ns, took_ns in samples if show_ns <= came_ns < end_ns], 0.99)


def _round(scene: Scene, address: Address, warming_s: float, before_s: float) -> tuple[int, int, int]:
    """When the quiet time began, when the first version appeared, and when the last was switched to."""
    version = scene.stage()
    sleep(warming_s)  # What staging has disturbed, and at first what nobody has touched.
    begin_ns = monotonic_ns()
    sleep(before_s)
    show_ns = monotonic_ns()
    scene.switch([address], version)
    return begin_ns, show_ns, monotonic_ns()
