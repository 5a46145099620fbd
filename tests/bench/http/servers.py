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
from tests.bench import goals
from tests.bench.processes import DATABASE, READY_TIMEOUT_S, Server, free_port, node, pin, process, wait_for
from tests.load import HttpDialect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record
    from tests.bench.processes import Cores

VALUE = b"x" * 100  # What the peers answer to whatever is asked.
NEEDED = ("quart_trio", "hypercorn")


@dataclass(frozen=True)
class Child(Server):
    """A process that another one has started, and that is measured alone."""

    number: int = 0

    @property
    def pid(self) -> int:
        """Its own number."""
        return self.number


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
def gateway(directory: Path, records: list[Record], cores: Cores) -> Iterator[tuple[Server, Child]]:
    """A node with its gateway: the node where the load runs, the gateway alone on the server's core."""
    address = Address("127.0.0.1", free_port())
    spread = replace(cores, server=cores.load)
    with node(directory, records, spread, "--http-listen", str(address)) as served:
        dialect = HttpDialect(DATABASE, str(address), records)
        number = child_with(served.pid, "gossipkv.http")
        pin(number, cores.server)
        _wait_until_it_listens(address)
        yield served, Child(goals.GATEWAY, served.process, address, dialect, number)


def quart_missing() -> str | None:
    """What must be installed before it can take part."""
    return None if all(map(find_spec, NEEDED)) else "pip install quart-trio hypercorn"


def nginx_missing() -> str | None:
    """What must be installed before it can take part."""
    return None if shutil.which("nginx") else "apt-get install nginx"


def quart(address: Address) -> list[str]:
    """Constant bytes by quart-trio, on this port."""
    return [sys.executable, "-u", "-m", "tests.bench.http.quart_app", str(address.port), VALUE.decode()]


def nginx(directory: Path, address: Address) -> list[str]:
    """Constant bytes by nginx, one worker."""
    directory.mkdir()
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr crit; worker_processes 1;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; server {{ listen {address};\n"
        f'location / {{ default_type application/octet-stream; return 200 "{VALUE.decode()}"; }} }} }}\n'
    )
    return ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf"), "-e", "stderr"]


@contextmanager
def constant(name: str, address: Address, command: list[str], keys: list[bytes], cores: Cores) -> Iterator[Server]:
    """A server that answers every key with the same bytes."""
    with process(command, ready=lambda _line: True) as (running, _):
        _wait_until_it_listens(address)
        pin(running.pid, cores.server)
        yield Server(name, running, address, HttpDialect(DATABASE, str(address), [(key, VALUE) for key in keys]))


def _wait_until_it_listens(address: Address) -> None:
    def listens() -> bool:
        try:
            socket.create_connection(address, timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(listens, f"a server at {address}", READY_TIMEOUT_S)
