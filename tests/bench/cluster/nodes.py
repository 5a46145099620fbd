"""Clusters of real nodes: what they are given to serve, when they have it, and what they have used."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgpack

from gossipkv.launcher import Cluster
from tests.bench.datasets.switching import wait_for_version
from tests.bench.serving import BUILD_TIMEOUT_S, POLL_PERIOD_S, Client, process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Mapping

    Address = tuple[str, int]

NAME = f"bench-{os.getpid()}"  # Keeps out whoever looks for another cluster at these ports.
SETTINGS = {"cluster": NAME, "time_to_converge": "1s", "log_level": "warning", "max_connections_per_address": "off"}
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
USER_TICKS, CHILDREN_TICKS_END = 11, 15  # Of user and kernel, of a process and of the children that it has waited for.


@contextmanager
def running(
    directory: Path, source: Path, *, nodes: int, replication: int, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """So many nodes that share what is at the source, all ready."""
    with Cluster(
        directory,
        nodes=nodes,
        source=source,
        replication=replication,
        settings={**SETTINGS, **(settings or {})},
        environ={name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")},
    ) as cluster:
        yield cluster


@contextmanager
def bare(directory: Path, joined: str, settings: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], Address]]:
    """A node without a source, which holds nothing and has others answer."""
    command = [sys.executable, "-m", "gossipkv", "serve", "--data", str(directory), "--listen", "127.0.0.1:0"]
    for name, value in {**SETTINGS, "profile": "local", "join": joined, **settings}.items():
        command += [f"--{name.replace('_', '-')}", value]
    with process(command, ready=lambda line: line.startswith("ready ")) as (running, line):
        yield running, address_of(line.split()[1])


def address_of(text: str) -> Address:
    """Host and port."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def addresses(cluster: Cluster) -> list[Address]:
    """Where the nodes that run are asked."""
    return [address_of(node.address) for node in cluster.status() if node.state == "ready"]


def processes(cluster: Cluster) -> list[int]:
    """Their numbers, of the nodes that run."""
    return [node.process for node in cluster.status() if node.process is not None]


def refresh(address: Address, database: str) -> None:
    """Have a node look at the source; the others hear of what it finds."""
    control = Client(*address)
    control.exchange(msgpack.packb([0, 1, "refresh", [database]]), msgpack.unpackb)
    control.close()


def wait_for_answers(asked: Iterable[Address], databases: Iterable[str], version: str) -> None:
    """Return when each node answers from this version of each database."""
    databases = list(databases)
    for address in asked:
        control = Client(*address)
        for database in databases:
            wait_for_version(control, database, version)
        control.close()


def wait_for_copies(asked: Iterable[Address], databases: Iterable[str], version: str) -> None:
    """Return when each node knows every partition on as many live nodes as there are to be, and all nodes alive."""
    databases = list(databases)
    deadline = monotonic() + BUILD_TIMEOUT_S
    for address in asked:
        control = Client(*address)
        for database in databases:
            while not control.exchange(_status(database), partial(_has_all_copies, database, version)):
                if monotonic() > deadline:
                    raise RuntimeError(f"{database} {version} was not on all its nodes in {BUILD_TIMEOUT_S:.0f} s")
                sleep(POLL_PERIOD_S)
        control.close()


def _status(database: str) -> bytes:
    return msgpack.packb([0, 1, "status", [{"database": database}]])


def _has_all_copies(database: str, version: str, reply: bytes) -> bool:
    _, _, error, result = msgpack.unpackb(reply)
    if error is not None:
        return False
    told = result[database]
    few = told["versions"].get(version, {}).get("under_replicated", {})
    return few.get("count") == 0 and all(node["state"] == "alive" for node in told["nodes"])


def cpu_s(cluster: Cluster) -> float:
    """Processor time of all nodes since they were started, with that of builds that have ended."""
    used = 0
    for number in processes(cluster):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        used += sum(map(int, fields[USER_TICKS:CHILDREN_TICKS_END]))
    return used / TICKS_A_SECOND
