"""Nodes of the former program and of this one in one cluster: each is replaced, and put back, and no read fails.

FORMER is the last commit of the forms that this program must still understand.  It is compiled from the history of the
clone, once a run; GOSSIPKV_FORMER may name a directory where that was done.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, wait_for
from tests.ci.cluster.test_contents_differ import FLAGS, KEYS, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMER = "41da9df2"
ROOT = Path(__file__).parents[3]
LEAST_READS = 20_000

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the former program can be imported from."""
    if told := os.environ.get("GOSSIPKV_FORMER"):
        return told
    place = tmp_path_factory.mktemp("former")
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", FORMER], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip("the former program is not in the history here")
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=place, check=True, timeout=900, stdout=subprocess.DEVNULL)
    return str(place)


class Trio:
    """Three nodes at fixed addresses, each of one of the two programs."""

    def __init__(self, place: Path, former: str, stack: contextlib.ExitStack) -> None:
        self._place, self._stack = place, stack
        self._import = {"former": former, "present": str(ROOT)}
        self.addresses = free_addresses(3)
        self.nodes: list[NodeProcess | None] = [None, None, None]

    def start(self, at: int, program: str) -> None:
        """Start a node, in what is left of the one before."""
        place = self._place / str(at)
        place.mkdir(exist_ok=True)
        others = [address for number, address in enumerate(self.addresses) if number != at]
        joins = [flag for other in others for flag in ("--join", other)]
        options = [*FLAGS, "--node", f"n{at}", "--listen", self.addresses[at], *joins]
        environ = {"PYTHONPATH": self._import[program]}
        node = NodeProcess(place, *options, source=self._place / "source", environ=environ)
        self.nodes[at] = self._stack.enter_context(node)
        node.ready()

    def replace(self, at: int, program: str) -> None:
        """End a node as an operator does, and start the other program in its place."""
        node = self.nodes[at]
        assert node is not None
        assert node.stop(signal.SIGTERM) == 0, node.said()
        self.start(at, program)

    def wait(self, version: str) -> None:
        """Return when each node has that version active, and knows two owners of each partition."""
        for address in self.addresses:
            wait_for(address, "geo", version)
            with blocking.connect(address, timeout_ms=30_000) as client:
                until(lambda client=client: few(client, version), 0)

    def tables(self, names: list[str]) -> None:
        """Return when each node knows these tables, by the same maps."""
        for address in self.addresses:
            with blocking.connect(address, timeout_ms=30_000) as client:
                until(lambda client=client: sorted(maps(client)), sorted(names))


def free_addresses(count: int) -> list[str]:
    """Where nobody listened a moment ago."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in held]


def few(client: blocking.Client, version: str) -> int:
    """How many partitions have too few owners, as a node knows."""
    return client.status("geo")["geo"]["versions"][version]["under_replicated"]["count"]


def maps(client: blocking.Client) -> dict[str, object]:
    """The tables whose maps a node knows."""
    found = {}
    for database in client.call("databases"):
        with contextlib.suppress(GossipKVError):
            told = client.call("partition_map", database["name"])
            if "table" in told:
                found[database["name"]] = told["table"]
    return found


def until(ask: object, wanted: object) -> None:
    """Ask until that is answered."""
    give_up_s = time.monotonic() + PATIENCE_S
    while (found := ask()) != wanted:
        assert time.monotonic() < give_up_s, (found, wanted)
        time.sleep(0.1)


@contextlib.contextmanager
def read(addresses: list[str], values: dict[str, bytes]) -> Iterator[list[str]]:
    """Clients that know all nodes and read without a pause; yields what went wrong, and counts."""
    trouble: list[str] = []
    done, counts = threading.Event(), [0, 0, 0]

    def ask(at: int) -> None:
        chance = random.Random(at)
        with blocking.connect(addresses[at:] + addresses[:at], timeout_ms=30_000) as client:
            data, newest = client.dataset("geo"), "1"
            while not done.is_set():
                try:
                    value, version = data.get_with_version(chance.choice(KEYS), min_version=newest)
                except GossipKVError as error:
                    trouble.append(f"{error.code} {error}")
                    continue
                counts[at] += 1
                if values[version] != value or version < newest:
                    trouble.append(f"{value!r} of {version} after {newest}")
                newest = version

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield trouble
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert sum(counts) >= LEAST_READS, counts


def test_each_node_is_replaced_and_put_back(tmp_path: Path, former: str) -> None:
    """Under reads, with a version and a table that come while both programs run, and while only the new one does."""
    values = {"1": b"one"}
    names: list[str] = []
    publish(tmp_path / "source", "1", values["1"])

    def news(cluster: Trio) -> None:
        version = str(len(values) + 1)
        values[version] = f"value of {version}".encode()
        publish(tmp_path / "source", version, values[version])
        cluster.wait(version)
        names.append(f"table{version}")
        with blocking.connect(cluster.addresses[len(names) % 3], timeout_ms=60_000) as client:
            client.call("create_table", names[-1], {"kind": "hash", "partitions": 4, "replication": 3})
        cluster.tables(names)

    with contextlib.ExitStack() as stack:
        cluster = Trio(tmp_path, former, stack)
        for at in range(3):
            cluster.start(at, "former")
        cluster.wait("1")
        with read(cluster.addresses, values) as trouble:
            news(cluster)
            for program in ("present", "former"):
                for at in (0, 1, 2):
                    cluster.replace(at, program)
                    cluster.wait(str(len(values)))
                    cluster.tables(names)
                    if at != 1:
                        news(cluster)
            assert trouble == [], json.dumps(trouble[:5])
