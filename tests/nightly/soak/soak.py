"""Nodes that serve for a long time while versions, clients and other nodes come and go, and their resource use.

A round publishes a new version, and during its build reads, breaks off requests and sends garbage; every other round
kills a node and restarts it. After each round the remaining nodes are measured from outside, and their tasks are
counted from inside. Flatness is judged by medians, so that a single bad moment decides nothing.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self

from gossipkv.wire import rpc
from tests.ci.cluster.node_process import UNHURRIED, NodeProcess, connect, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORDS = 500
CONNECTIONS = 16
FLAGS = ("--profile", "local", "--time-to-converge", "300ms", "--refresh-period", "100ms", "--retire-after", "0s")
GARBAGE = [
    b"\xc1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x94\x00\x01\xa3get",
    rpc.request(1, "get", ["geo", None]),
    b"\x90" * 99,
]

# A task in the node writes down the number of tasks.
COUNTED = """
import os
import trio
from gossipkv.node import wiring as node
serve = node.run
async def tell():
    place = os.open(os.environ["SOAK_TASKS"], os.O_WRONLY | os.O_CREAT)
    while True:
        os.pwrite(place, b"%8d" % trio.lowlevel.current_statistics().tasks_living, 0)
        await trio.sleep(0.05)
async def counted(*arguments, **options):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        await serve(*arguments, **options)
        nursery.cancel_scope.cancel()
node.run = counted
"""

# The allowed growth between the medians of the second and the last third of the measurements.
SLACK = {"resident_kib": 8192, "peak_kib": 8192, "descriptors": 3, "threads": 3, "tasks": 3}


@dataclass
class Looked:
    """The measurements of a process, in order."""

    process: int
    tasks: Path
    series: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SLACK})

    def look(self) -> None:
        """Take the minimum of a few measurements: a connection that is about to close is no leak."""
        looks = [self._now() for _ in range(5)]
        for name, taken in self.series.items():
            taken.append(min(look[name] for look in looks))

    def _now(self) -> Mapping[str, int]:
        time.sleep(0.06)
        status = dict(re.findall(r"^(\w+):\s+(\d+)", Path(f"/proc/{self.process}/status").read_text(), re.MULTILINE))
        return {
            "resident_kib": int(status["VmRSS"]),
            "peak_kib": int(status["VmHWM"]),
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{self.process}/fd")),
            "tasks": int(self.tasks.read_text()),
        }

    def told(self) -> str:
        """Return the medians of each quantity in the three thirds."""
        if len(self.series["tasks"]) < 3:
            return "hardly looked at"
        thirds = (
            (name, *(str(round(median(part))) for part in thirds_of(taken))) for name, taken in self.series.items()
        )
        return ", ".join(f"{name} {' '.join(values)}" for name, *values in thirds)


def thirds_of(taken: Sequence[int]) -> list[Sequence[int]]:
    """Split the measurements into the beginning, which may grow, and two parts of equal size."""
    part = len(taken) // 3
    return [taken[: len(taken) - 2 * part], taken[-2 * part : -part], taken[-part:]]


def grown(series: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the quantities whose median rose from the second third to the last by more than the slack."""
    found = []
    for name, taken in series.items():
        _, before, after = thirds_of(taken)
        if median(after) - median(before) > SLACK[name]:
            found.append(f"{name}: {median(before)} before, {median(after)} after, of {list(taken)[:100]}")
    return found


class Soak:
    """A cluster of nodes that stay and one that is killed now and then; a context manager that ends all processes."""

    def __init__(self, root: Path, *, staying: int = 2, churned: bool = True, changed: str = "") -> None:
        self.root = root
        self.source = root / "source"
        self.rounds = self.kills = self.answers = 0
        self._changed = changed
        self._stack = ExitStack()
        self._put()
        self.nodes = [self._start(f"stays-{number}") for number in range(staying)]
        self.looked = [Looked(node.process.pid, self.root / f"stays-{at}.tasks") for at, node in enumerate(self.nodes)]
        self._churned = self._start("churned") if churned else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note("\n".join(node.said()[-2000:] for node in self.nodes))
        self._stack.close()

    @property
    def version(self) -> str:
        return f"{self.rounds:06d}"

    def _put(self) -> None:
        """Publish the next version atomically, and remove the version before the last."""
        self.rounds += 1
        staged = self.source / "geo" / "_staged"
        staged.mkdir(parents=True)
        for part in range(2):
            lines = [f"{part}-{number}\t{self.version} {number}\n" for number in range(RECORDS)]
            (staged / f"part-{part}").write_text("".join(lines))
        staged.rename(self.source / "geo" / self.version)
        if self.rounds > 2:
            shutil.rmtree(self.source / "geo" / f"{self.rounds - 2:06d}")

    def _start(self, name: str) -> NodeProcess:
        place = self.root / name
        place.mkdir(exist_ok=True)
        joins = [flag for node in getattr(self, "nodes", []) for flag in ("--join", node.address)]
        node = NodeProcess(
            place, *FLAGS, "--node", name, *joins,
            source=self.source,
            changed=f"{UNHURRIED}\n{COUNTED}\n{self._changed}",
            environ={"SOAK_TASKS": str(self.root / f"{name}.tasks")},
        )  # fmt: skip
        self._stack.enter_context(node)
        node.ready()
        wait_for(node.address, "geo", self.version)
        return node

    def round(self) -> None:
        """Change everything once, and measure the nodes."""
        self._put()
        kill = self._churned is not None and self.rounds % 2 == 0
        if self._churned is not None and kill:
            time.sleep(self.rounds % 16 * 0.05)  # Each kill comes at another moment of the build.
            self._churned.stop(signal.SIGKILL)
            self._churned.process.stdout.close()  # A night has thousands of these.
            self.kills += 1
        for node in self.nodes:
            self._bother(node.address)
            wait_for(node.address, "geo", self.version)
            self._read(node.address)
        if kill:
            self._churned = self._start("churned")
        for looked in self.looked:
            looked.look()

    def _bother(self, address: str) -> None:
        """Break off connections amid a request, amid an answer, and after garbage."""
        host, _, port = address.rpartition(":")
        for data, _ in itertools.product(GARBAGE, range(2)):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(data)
        with connect(address) as client:
            next(iter(client.dataset("geo").scan()))

    def _read(self, address: str) -> None:
        """Check that every connection reads right values of the newest version."""
        clients = [connect(address) for _ in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            geo = client.dataset("geo")
            assert geo.get_with_version(f"0-{number}") == (f"{self.version} {number}".encode(), self.version)
            keys = [f"{part}-{at}" for part in range(2) for at in range(number, RECORDS, 7)]
            expected = [f"{self.version} {key.partition('-')[2]}".encode() for key in keys]
            assert geo.get_many(keys) == expected
            self.answers += 1 + len(keys)
            if number % 8 == 0:
                assert len(list(geo.scan())) == 2 * RECORDS
        for client in clients:
            client.close()

    def told(self) -> str:
        each = "; ".join(looked.told() for looked in self.looked)
        return f"{self.rounds} switches, {self.kills} kills, {self.answers:,} answers; by thirds: {each}"
