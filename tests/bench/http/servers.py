"""The compared HTTP servers: a node, and nginx, which answers a constant."""

from __future__ import annotations

import shutil
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench.processes import (
    DATABASE,
    NO_POLLING,
    READY_TIMEOUT_S,
    Server,
    cpu_ns,
    free_port,
    node,
    pin,
    process,
    wait_for,
)
from tests.load import HttpDialect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record
    from tests.bench.processes import Cores
    from tests.unit.serving.secured import Pair

GATEWAY_MODULE = "gossipkv.http"
VALUE = b"x" * 100  # The peers' answer to every request.
NGINX_TLS = "ssl_protocols TLSv1.2 TLSv1.3; ssl_conf_command NumTickets 1;"


@dataclass(frozen=True)
class NodeByHttp(Server):
    """A node that is asked by HTTP: its gateway's use counts too."""

    gateways: tuple[int, ...] = ()

    def cpu_ns(self) -> int:
        return super().cpu_ns() + sum(map(cpu_ns, self.gateways))


def children_with(parent: int, word: str) -> tuple[int, ...]:
    """Return the children of a process whose command line has this word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == parent and word in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return tuple(found)


@contextmanager
def node_by_http(
    directory: Path, records: list[Record], cores: Cores, *options: str
) -> Iterator[tuple[NodeByHttp, Server]]:
    """Run a node with its HTTP gateway on the same core; yield it for HTTP and for its own protocol."""
    address = Address("127.0.0.1", free_port())
    with node(directory, records, cores, *NO_POLLING, "--http-listen", str(address), *options) as served:
        _wait_until_it_listens(address)
        gateways = children_with(served.pid, GATEWAY_MODULE)
        for number in gateways:
            pin(number, cores.server)
        dialect = HttpDialect(DATABASE, str(address), records)
        yield NodeByHttp(served.name, served.process, address, dialect, gateways), served


def nginx_missing() -> str | None:
    """Return the package that nginx needs here, or None."""
    return None if shutil.which("nginx") else "apt-get install nginx"


def nginx(directory: Path, address: Address, pair: Pair | None = None) -> list[str]:
    """Return the command of nginx with one worker that answers constant bytes; by TLS with that certificate."""
    directory.mkdir()
    tls = f" ssl; ssl_certificate {pair.certificate}; ssl_certificate_key {pair.key}; {NGINX_TLS}" if pair else ";"
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr crit; worker_processes 1;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; server {{ listen {address}{tls}\n"
        f'location / {{ default_type application/octet-stream; return 200 "{VALUE.decode()}"; }} }} }}\n'
    )
    return ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf"), "-e", "stderr"]


def constants(records: list[Record]) -> list[Record]:
    """Return the same keys, all with the constant bytes."""
    return [(key, VALUE) for key, _ in records]


@contextmanager
def peer(name: str, address: Address, command: list[str], records: list[Record], cores: Cores) -> Iterator[Server]:
    with process(command, ready=lambda _line: True) as (running, _):
        _wait_until_it_listens(address)
        pin(running.pid, cores.server)
        yield Server(name, running, address, HttpDialect(DATABASE, str(address), records))


def _wait_until_it_listens(address: Address) -> None:
    def listens() -> bool:
        try:
            socket.create_connection(address, timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(listens, f"a server at {address}", READY_TIMEOUT_S)
