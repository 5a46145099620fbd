"""The HTTP servers that take part: a node's gateway, and what others would put in front of constant bytes."""

from __future__ import annotations

import shutil
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import machine
from tests.bench.network import servers
from tests.bench.network.servers import DATABASE, Cores, Server
from tests.bench.serving import process, wait_for
from tests.load import HttpDialect

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.bench.data import Record

VALUE = b"x" * 100  # What the peers answer to whatever is asked.
GATEWAY, QUART, NGINX = "gateway", "quart-trio, hypercorn", "nginx"
NEEDED = ("quart_trio", "hypercorn")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True)
class Child(Server):
    """A process that another one has started, and that is measured alone."""

    pid: int = 0

    def cpu_ns(self) -> int:
        """Processor time since the start, of all threads there are."""
        return servers.cpu_ns(self.pid)

    def pin(self, core: int) -> None:
        """All threads on one core."""
        servers.pin(self.pid, core)


def child_with(parent: int, word: str) -> int:
    """The child of a process whose command line has this word."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == parent and word in (entry / "cmdline").read_text():
                return int(entry.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise RuntimeError(f"process {parent} has no child with {word!r} in its command line")


@contextmanager
def gateway(directory: Path, records: list[Record], cores: Cores, *options: str) -> Iterator[tuple[Server, Child]]:
    """A node with its gateway: the node where the load runs, the gateway alone on the server's core."""
    port = free_port()
    spread = replace(cores, server=cores.load)
    with servers.node(directory, records, spread, "--http-listen", f"127.0.0.1:{port}", *options) as node:
        address = Address("127.0.0.1", port)
        dialect = HttpDialect(DATABASE, str(address), records)
        found = Child(GATEWAY, node.process, address, dialect, child_with(node.process.pid, "gossipkv.http"))
        found.pin(cores.server)
        wait_until_it_listens(port, GATEWAY)
        yield node, found


@contextmanager
def quart(keys: list[bytes], cores: Cores) -> Iterator[Server | None]:
    """Constant bytes by quart-trio; None where it is not installed."""
    if not all(map(find_spec, NEEDED)):
        machine.say("  quart-trio takes no part: pip install quart-trio hypercorn")
        yield None
        return
    port = free_port()
    command = [sys.executable, "-u", "-m", "tests.bench.http.quart_app", str(port), VALUE.decode()]
    with _listening(command, port, QUART) as running:
        yield _constant(QUART, running, port, keys, cores)


@contextmanager
def nginx(directory: Path, keys: list[bytes], cores: Cores) -> Iterator[Server | None]:
    """Constant bytes by nginx, one worker; None where it is not installed."""
    if shutil.which("nginx") is None:
        machine.say("  nginx takes no part: it is not installed")
        yield None
        return
    port = free_port()
    directory.mkdir()
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr crit; worker_processes 1;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; server {{ listen 127.0.0.1:{port};\n"
        f'location / {{ default_type application/octet-stream; return 200 "{VALUE.decode()}"; }} }} }}\n'
    )
    command = ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf"), "-e", "stderr"]
    with _listening(command, port, NGINX) as running:
        yield _constant(NGINX, running, port, keys, cores)


@contextmanager
def _listening(command: list[str], port: int, name: str) -> Iterator[subprocess.Popen[str]]:
    with process(command, ready=lambda _line: True) as (running, _):
        wait_until_it_listens(port, name)
        yield running


def _constant(name: str, running: subprocess.Popen[str], port: int, keys: list[bytes], cores: Cores) -> Server:
    address = Address("127.0.0.1", port)
    dialect = HttpDialect(DATABASE, str(address), [(key, VALUE) for key in keys])
    server = Server(name, running, address, dialect)
    server.pin(cores.server)
    return server


def wait_until_it_listens(port: int, name: str) -> None:
    """Return when a connection can be had."""

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(listens, name)
