"""The servers that take part, each pinned to one core, and what each of them has used.

Processor time is the kernel's own account in nanoseconds (`schedstat`), of all threads: a process's `stat` has ticks of
10 ms.  It is read while nothing is in flight, so it is complete.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import goals, machine
from tests.bench.cluster import nodes
from tests.bench.network import compiled
from tests.bench.serving import Client, node_get, node_value, process, redis_set, wait_for
from tests.bench.sources import VERSION, write_database
from tests.load import RedisDialect, RpcDialect

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from gossipkv.loadtest._dialect import Dialect
    from tests.bench.data import Record

DATABASE = "db"
NODE, REDIS, FLOOR = "GossipKV", goals.REDIS, goals.FLOOR
ASKERS = {1: "GossipKV, elsewhere", 2: "GossipKV, on two others"}  # By how many they ask.
MOST_CONNECTIONS = 20_000
CHUNK = 10_000  # Records given to redis at once.


def cpu_ns(process: int) -> int:
    """Processor time of a process since its start, of all threads there are."""
    tasks = Path(f"/proc/{process}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())


def pin(process: int, core: int) -> None:
    """All threads of a process on one core; what they start stays there."""
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {core})


def spread(process: int) -> None:
    """Its threads where the system wants them."""
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))


@dataclass(frozen=True)
class Server:
    """A process under load, and how it is spoken to."""

    name: str
    process: subprocess.Popen[str]
    address: Address
    dialect: Dialect | None = None  # None: it depends on what is asked.

    def cpu_ns(self) -> int:
        """Processor time since the start, of all threads there are."""
        return cpu_ns(self.process.pid)

    def resident_bytes(self) -> int:
        """Memory of its own that is in use."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def pin(self, core: int) -> None:
        """All threads on one core; what they start stays there."""
        pin(self.process.pid, core)


@dataclass(frozen=True)
class Cores:
    """Where the server runs, and where the load does."""

    server: int
    load: int

    @classmethod
    def of_this_machine(cls) -> Cores:
        """The last two, or the only one."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(server=allowed[-1], load=allowed[-2] if len(allowed) > 1 else allowed[-1])


@contextmanager
def node(
    directory: Path,
    records: list[Record],
    cores: Cores,
    *options: str,
    python: tuple[str, ...] = (sys.executable,),
    module: tuple[str, ...] = ("gossipkv", "serve"),
) -> Iterator[Server]:
    """A node that serves these records; built before it is pinned, as the build is not what is measured."""
    source = directory / "source"
    if not source.exists():
        source.mkdir(parents=True)
        write_database(source, DATABASE, iter(records))
    command = [*python, "-m", *module, "--source", str(source), "--data", str(directory / "data")]
    command += ["--listen", "127.0.0.1:0", "--log-level", "warning", "--max-connections", str(MOST_CONNECTIONS)]
    command += ["--max-connections-per-address", "off", *options]
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        host, _, port = line.split()[1].rpartition(":")
        client = Client(host, int(port))
        key, value = records[0]
        wait_for(lambda: client.exchange(node_get(DATABASE, key), node_value) == value, DATABASE)
        client.close()
        server = Server(NODE, running, Address(host, int(port)), RpcDialect(DATABASE, records))
        server.pin(cores.server)
        yield server


@contextmanager
def asker(directory: Path, records: list[Record], cores: Cores, owners: int) -> Iterator[Server]:
    """A node that holds nothing, and has so many others answer, which have as many of the records each."""
    source = directory / "source"
    source.mkdir(parents=True)
    write_database(source, DATABASE, iter(records))
    settings = {"busy_poll": "off", "proxy_timeout": "10s"}
    with ExitStack() as stack:
        cluster = stack.enter_context(
            nodes.running(directory / "owners", source, nodes=owners, replication=1, settings=settings)
        )
        nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE], VERSION)
        settings["replication"] = "1"
        running, address = stack.enter_context(nodes.bare(directory / "asker", cluster.addresses[0], settings))
        nodes.wait_for_answers([address], [DATABASE], VERSION)
        nodes.wait_for_copies([address], [DATABASE], VERSION)
        server = Server(ASKERS[owners], running, Address(*address), RpcDialect(DATABASE, records))
        for number in (running.pid, *nodes.processes(cluster)):
            pin(number, cores.server)
        yield server


@contextmanager
def redis(records: list[Record], cores: Cores) -> Iterator[Server | None]:
    """redis-server without persistence, as one would run it as a cache; None where it is not installed."""
    if shutil.which("redis-server") is None:
        machine.say("  redis-server takes no part: it is not installed")
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--maxclients", str(MOST_CONNECTIONS), "--tcp-backlog", "4096"]
    with process(command, ready=lambda line: "eady to accept connections" in line) as (running, _):
        _fill(port, records)
        server = Server(REDIS, running, Address("127.0.0.1", port), RedisDialect(records))
        server.pin(cores.server)
        yield server


def _fill(port: int, records: list[Record]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for first in range(0, len(records), CHUNK):
            chunk = records[first : first + CHUNK]
            connection.sendall(b"".join(redis_set(key, value) for key, value in chunk))
            expected = b"+OK\r\n" * len(chunk)
            received = b""
            while len(received) < len(expected):
                received += connection.recv(1 << 16)
            if received != expected:
                raise RuntimeError("redis-server did not take a record")


@contextmanager
def floor(request_bytes: int, reply_bytes: int, cores: Cores) -> Iterator[Server]:
    """The least a server can do."""
    command = [str(compiled.floor()), str(request_bytes), str(reply_bytes)]
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        dialect = compiled.protocols().ConstantDialect(request_bytes, reply_bytes)
        server = Server(FLOOR, running, Address("127.0.0.1", int(line.split()[1])), dialect)
        server.pin(cores.server)
        yield server


def allow_descriptors() -> None:
    """As many as there may be: ten thousand connections have their other ends here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
