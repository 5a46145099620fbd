"""etcd beside metadata servers: three members on this machine, measured by etcd's own `benchmark` at their leader."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossipkv.address import parse_address
from tests.bench.processes import cpu_ns, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gossipkv.address import Address
    from tests.bench.data import Record

MEMBERS = 3
KEY_BYTES, VALUE_BYTES = 8, 118
OPERATIONS = 100  # In a transaction; etcd takes 128.
FIRST = 10  # Some versions print no percentiles of one transaction.
UNITS_MS = {"secs": 1e3, "ms": 1.0}  # The unit depends on the version.
SETTINGS = (
    "etcd {version}: three members, its defaults, data on the same disk; one client of `benchmark txn-put` at its "
    "leader, one put a transaction"
)


def missing() -> str | None:
    """Return the packages that etcd needs here, or None."""
    needed = [] if shutil.which("etcd") else ["apt-get install etcd-server"]
    needed += [] if shutil.which("benchmark") else ["etcd's `tools/benchmark` as `benchmark`"]
    return " and ".join(needed) or None


def settings() -> str:
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
    return SETTINGS.format(version=said.split()[2])


@dataclass(frozen=True)
class Etcd:
    endpoints: str
    processes: list[int]

    @property
    def address(self) -> Address:
        """The address of the first member."""
        return parse_address(self.endpoints.partition(",")[0])

    def fill(self, records: Sequence[Record]) -> None:
        """Put records by etcd's client for Python, many in a transaction."""
        import etcd3  # noqa: PLC0415  # It need not be installed.

        with etcd3.client(self.address.host, self.address.port) as client:
            for begin in range(0, len(records), OPERATIONS):
                puts = [client.transactions.put(key, value) for key, value in records[begin : begin + OPERATIONS]]
                client.transaction(compare=[], success=puts, failure=[])

    def transact(self, count: int) -> tuple[float, float]:
        """Do so many transactions in sequence; return the p50 in ms, and the CPU of all members for each in us."""
        command = ["benchmark", f"--endpoints={self.endpoints}", "--target-leader", "--precise", "txn-put"]
        command += [f"--total={count}", f"--key-size={KEY_BYTES}", f"--val-size={VALUE_BYTES}"]
        before_ns = sum(map(cpu_ns, self.processes))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        used_us = (sum(map(cpu_ns, self.processes)) - before_ns) / 1e3 / count
        found = re.search(r"50% in ([\d.e+-]+) (secs|ms)", done.stdout)
        assert found is not None, done.stdout
        return float(found[1]) * UNITS_MS[found[2]], used_us


@contextmanager
def running(directory: Path, members: int = MEMBERS) -> Iterator[Etcd]:
    ports = [free_port() for _ in range(2 * members)]
    clients, peers = ([f"http://127.0.0.1:{port}" for port in half] for half in (ports[:members], ports[members:]))
    cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    with ExitStack() as stack:
        processes: list[int] = []
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            place = directory / f"m{number}"
            place.mkdir(parents=True, mode=0o700)
            log = stack.enter_context((directory / f"m{number}.log").open("wb"))
            command = ["etcd", "--name", f"m{number}", "--data-dir", str(place), "--initial-cluster", cluster]
            command += ["--listen-client-urls", client, "--advertise-client-urls", client]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            member = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(member.wait)
            stack.callback(member.kill)
            processes.append(member.pid)
        etcd = Etcd(",".join(f"127.0.0.1:{port}" for port in ports[:members]), processes)
        etcd.transact(FIRST)  # The client waits until a leader is elected.
        yield etcd
