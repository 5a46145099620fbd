"""The servers beside a node, each pinned to one core."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import compiled, goals
from tests.bench.cluster import nodes
from tests.bench.processes import DATABASE, MAX_CONNECTIONS, Server, free_port, pin, process, serving
from tests.bench.sources import write_database
from tests.load import RedisDialect, RpcDialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tests.bench.data import Record
    from tests.bench.processes import Cores

HERE = Path(__file__).parent
CHUNK = 10_000  # Records sent to redis at once.


def protocols() -> ModuleType:
    return compiled.from_cython(HERE / "_protocols.pyx")


@contextmanager
def asker(
    directory: Path, records: list[Record], cores: Cores, owners: int, *, python: tuple[str, ...] = (sys.executable,)
) -> Iterator[Server]:
    """Run a node that holds nothing and forwards to `owners` nodes with equal shares of the records.

    `python` runs the forwarding node, and not the owners.
    """
    source = directory / "source"
    write_database(source, DATABASE, records)
    settings = {"busy_poll": "off", "proxy_timeout": "10s"}
    with ExitStack() as stack:
        cluster = stack.enter_context(
            nodes.running(directory / "owners", owners, source=source, replication=1, **settings)
        )
        nodes.wait_for_copies(nodes.addresses(cluster), [DATABASE])
        asker = stack.enter_context(
            nodes.bare(directory / "asker", cluster, python=python, replication="1", **settings)
        )
        nodes.wait_for_copies([asker.address], [DATABASE])
        for number in (asker.pid, *nodes.processes(cluster)):
            pin(number, cores.server)
        name = goals.ELSEWHERE if owners == 1 else goals.ON_TWO
        yield replace(asker, name=name, dialect=RpcDialect(DATABASE, records))


def redis_get(key: bytes) -> bytes:
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)


def redis_set(key: bytes, value: bytes) -> bytes:
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)


def redis_missing() -> str | None:
    """Return the package that redis-server needs here, or None."""
    return None if shutil.which("redis-server") else "apt-get install redis-server"


def redis_version() -> str:
    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return next(word.removeprefix("v=") for word in said.split() if word.startswith("v="))


def waitaof_missing() -> str | None:
    """Return what WAITAOF needs here, which confirms that a replica has synced, or None."""
    if (missing := redis_missing()) is not None:
        return missing
    version = tuple(map(int, redis_version().split(".")))
    return None if version >= (7, 2) else "redis-server 7.2 or newer"


@contextmanager
def redis(records: list[Record], core: int | None, *options: str) -> Iterator[Server]:
    """Run redis-server without persistence, as a cache."""
    port = free_port()
    command = ["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--maxclients", str(MAX_CONNECTIONS), "--tcp-backlog", "4096", *options]
    with process(command, ready=lambda line: "eady to accept connections" in line) as (running, _):
        address = Address("127.0.0.1", port)
        _tell(address, [redis_set(key, value) for key, value in records], b"+OK\r\n")
        if core is not None:
            pin(running.pid, core)
        yield Server(goals.REDIS, running, address, RedisDialect(records))


def _tell(address: Address, requests: list[bytes], taken: bytes) -> None:
    """Send all requests, each of which must be answered with `taken`."""
    with socket.create_connection(address) as connection:
        for first in range(0, len(requests), CHUNK):
            chunk = requests[first : first + CHUNK]
            connection.sendall(b"".join(chunk))
            expected = taken * len(chunk)
            received = b""
            while len(received) < len(expected):
                received += connection.recv(1 << 16)
            if received != expected:
                raise RuntimeError("a server did not take a record")


@contextmanager
def floor(request_bytes: int, reply_bytes: int, cores: Cores) -> Iterator[Server]:
    command = [str(compiled.from_c(HERE / "floor.c")), str(request_bytes), str(reply_bytes)]
    dialect = protocols().ConstantDialect(request_bytes, reply_bytes)
    with serving(command, name=goals.FLOOR, dialect=dialect, core=cores.server) as server:
        yield server


def allow_descriptors() -> None:
    """Raise the limit of descriptors to its maximum: this process has the other ends of ten thousand connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
