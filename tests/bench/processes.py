"""Measured processes: started, awaited, ended, and their resource use.

Processor time is the kernel's own account in nanoseconds, by the process' own clock (clock_getcpuclockid(3)): its
`stat` has ticks of 10 ms, and the `schedstat` of its threads omits ended ones. The clock is read while nothing is in
flight, so it is complete.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import clock_gettime_ns, monotonic, sleep
from typing import TYPE_CHECKING

from gossipkv.address import Address, parse_address
from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from tests.bench.measurement import OURS
from tests.bench.sources import write_database
from tests.load import RpcDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.loadtest._loadtest import Dialect
    from tests.bench.data import Record

READY_TIMEOUT_S = 60.0
PATIENCE_S = 300.0  # A build may take minutes.
REQUEST_TIMEOUT_MS = 60_000
POLL_PERIOD_S = 0.05
CPUCLOCK_SCHED = 2  # The scheduler clock; the inverted process id precedes it.
DATABASE = "db"
MAX_CONNECTIONS = 20_000
SERVE = ("-m", "gossipkv", "serve")
MANY_CONNECTIONS = ("--max-connections", str(MAX_CONNECTIONS), "--max-connections-per-address", "off")
NO_POLLING = ("--busy-poll", "off")


def wait_for(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until `holds()` is true; an error of a node counts as False. Raises RuntimeError at the deadline."""
    deadline, why = monotonic() + patience_s, ""
    while True:
        try:
            if holds():
                return
        except GossipKVError as error:
            why = f" ({error.message})"
        if monotonic() > deadline:
            raise RuntimeError(f"waited {patience_s:.0f} s for {what}{why}")
        sleep(POLL_PERIOD_S)


def connect(address: Address) -> blocking.Client:
    """Return a client for requests beside the measurement."""
    return blocking.connect(address, timeout_ms=REQUEST_TIMEOUT_MS)


def call(address: Address, method: str, *params: object) -> object:
    with connect(address) as client:
        return client.call(method, *params)


def wait_for_records(address: Address, expected: list[tuple[str, Record]]) -> None:
    """Return when each of these databases has answered with its record."""
    with connect(address) as client:
        for name, (key, value) in expected:
            wait_for(lambda name=name, key=key, value=value: client.dataset(name).get(key) == value, name)


@contextmanager
def process(
    command: list[str],
    *,
    ready: Callable[[str], bool] = lambda line: line.startswith("ready "),
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server until its output reports ready; yield the process and that line, and end it with the block."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        deadline = monotonic() + READY_TIMEOUT_S
        line = ""
        while not ready(line):
            line = server.stdout.readline()
            if not line or monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command[:4])} … was not ready within {READY_TIMEOUT_S:.0f} s")
        yield server, line
    finally:
        server.send_signal(end)
        try:
            server.wait(READY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()


def cpu_ns(number: int) -> int:
    """Return the processor time of a process since its start, of all its threads, including ended ones."""
    return clock_gettime_ns(~number << 3 | CPUCLOCK_SCHED)


def children_cpu_s() -> float:
    """Return the processor time of all awaited children and their awaited children."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def disk_bytes(number: int | str, kind: str) -> int:
    """Return the bytes that the kernel has read or written for a process and its awaited children."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{number}/io").read_text().splitlines())
    return int(lines[kind])


def anonymous_bytes(number: int) -> int:
    """Return the anonymous memory of a process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{number}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def pin(number: int, core: int | None) -> None:
    """Pin all threads of a process to one core, which its children inherit; None unpins them."""
    for task in Path(f"/proc/{number}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), os.sched_getaffinity(0) if core is None else {core})


@dataclass(frozen=True)
class Server:
    """A process under load, and the protocol to it."""

    name: str
    process: subprocess.Popen[str]
    address: Address
    dialect: Dialect | None = None  # None if it depends on the request.

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_ns(self) -> int:
        """Return the processor time since the start, of all threads."""
        return cpu_ns(self.pid)

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()


@dataclass(frozen=True)
class Cores:
    """The cores of the server and of the load."""

    server: int
    load: int

    @classmethod
    def of_this_machine(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        return cls(server=allowed[-1], load=allowed[-2] if len(allowed) > 1 else allowed[-1])


@contextmanager
def serving(
    command: list[str], *, name: str = OURS, dialect: Dialect | None = None, core: int | None = None
) -> Iterator[Server]:
    with process(command) as (running, line):
        address = line.split()[1]
        server = Server(name, running, parse_address(address if ":" in address else f"127.0.0.1:{address}"), dialect)
        if core is not None:
            pin(server.pid, core)
        yield server


def serve(
    data: Path,
    *options: str,
    source: Path | None = None,
    python: tuple[str, ...] = (sys.executable,),
    module: tuple[str, ...] = SERVE,
) -> list[str]:
    """Return the command of a node as a user starts it, on a free port; with one pump, unless `options` override it."""
    command = [*python, *module, "--data", str(data), "--listen", "127.0.0.1:0", "--log-level", "warning"]
    command += ["--pumps", "1"]
    return [*command, *(("--source", str(source)) if source else ()), *options]


@contextmanager
def node(
    directory: Path,
    records: list[Record],
    cores: Cores,
    *options: str,
    python: tuple[str, ...] = (sys.executable,),
    module: tuple[str, ...] = SERVE,
) -> Iterator[Server]:
    """Run a node that serves these records; it is pinned after the build, which is not measured."""
    source = directory / "source"
    if not (source / DATABASE).exists():
        write_database(source, DATABASE, records)
    command = serve(directory / "data", *MANY_CONNECTIONS, *options, source=source, python=python, module=module)
    with serving(command, dialect=RpcDialect(DATABASE, records)) as server:
        wait_for_records(server.address, [(DATABASE, records[0])])
        pin(server.pid, cores.server)
        yield server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
