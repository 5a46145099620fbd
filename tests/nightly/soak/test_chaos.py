"""Four nodes with new versions every few seconds and writes to a table are killed, stopped, frozen and left idle.

No read is wrong or steps back. A read may fail only if no owner of its partition was available: a node with the file
that had been running and heard for a while. No acknowledged write is lost or undone by a late write, and requests that
wait at an idle node are answered in time. CHAOS_SECONDS sets the duration.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from gossipkv.client import blocking
from gossipkv.dataset.local.store import VersionStore
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import GossipKVError
from gossipkv.keyspace.partitioner import partition
from tests.ci.cluster.node_process import NodeProcess, wait_for
from tests.ci.cluster.table_records import TABLE, TROUBLE
from tests.ci.cluster.test_contents_differ import FLAGS, KEYS, PARTITIONS, publish
from tests.nightly.soak.table_clients import TableClients
from tests.ports import quiet_ports

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = float(os.environ.get("CHAOS_SECONDS", "20"))
NODES: Final = 4
LOOK_S: Final = 1.0  # The interval between checks of the threads' waits for a core.
STARVED_S: Final = 0.5  # A node with a thread that waited so long between two checks was as good as stopped.
HEARD_S: Final = 10.0  # The time in which all others hear of a restarted node and connect to it.
KEPT: Final = 6  # Versions at the source.
LATE_S: Final = 5.0  # A wait that nothing ends takes up to 10 s; otherwise 50 ms, even under a load of 12.

pytestmark = pytest.mark.timeout(SECONDS + 600)


class Failed(NamedTuple):
    at: int  # The node that was asked.
    key: bytes
    version: str  # The version of the node's last answer before.
    began_s: float
    ended_s: float
    why: str


def waited_for_cores_s(process: int) -> dict[str, float]:
    """Return how long each thread of a process has waited for a core until now."""
    waited_s = {}
    with contextlib.suppress(OSError, IndexError):  # The process, or one of its threads, has ended.
        for thread in Path(f"/proc/{process}/task").iterdir():
            waited_s[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waited_s


class Chaos:
    """The nodes, their faults, and the readers."""

    def __init__(self, place: Path, stack: contextlib.ExitStack) -> None:
        self.place, self._stack = place, stack
        self.chance = random.Random(os.environ.get("CHAOS_SEED", "1"))
        self.addresses = [f"127.0.0.1:{port}" for port in quiet_ports(NODES)]
        self.nodes: list[NodeProcess] = []
        self.well_since_s = [0.0] * NODES  # The time of a node's last fault; infinity during a fault.
        # The start of a node's last fault; minus infinity if not all nodes had heard it before.
        self.struck_s = [0.0] * NODES
        self.version = 0
        self.reads = 0
        self.failures: list[Failed] = []
        self.trouble: list[str] = []
        self.done, self._may_ask = threading.Event(), threading.Event()
        self.struck: Counter[str] = Counter()
        self._waited_s: list[dict[str, float]] = []  # The waits of each node's threads at the last check.
        self.offer()
        for at in range(NODES):
            self.nodes.append(self._started(at))
        for at in range(NODES):
            self.nodes[at].ready()
            wait_for(self.addresses[at], "geo", self.name)
        self.table = TableClients(self)
        self._may_ask.set()

    @property
    def name(self) -> str:
        return f"{self.version:06}"

    def offer(self) -> None:
        """Publish a version, and remove an old one."""
        self.version += 1
        publish(self.place / "source", self.name, self.name.encode())
        shutil.rmtree(self.place / "source" / "geo" / f"{self.version - KEPT:06}", ignore_errors=True)

    def _started(self, at: int) -> NodeProcess:
        place = self.place / str(at)
        place.mkdir(exist_ok=True)
        joins = [flag for other in self.addresses if other != self.addresses[at] for flag in ("--join", other)]
        flags = [*FLAGS, "--node", f"n{at}", "--listen", self.addresses[at], "--retire-after", "2s", *joins]
        return self._stack.enter_context(NodeProcess(place, *flags, source=self.place / "source"))

    def befall(self, at: int) -> None:
        """Kill, stop or freeze a node, and restore it."""
        now_s = time.monotonic()
        self.struck_s[at] = now_s if self.is_well(at, now_s) else -inf
        self.well_since_s[at] = inf
        what = self.chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
        self.struck[what.name] += 1
        if what == signal.SIGSTOP:
            self.nodes[at].process.send_signal(what)
            self.done.wait(self.chance.uniform(1, 30))
            self.nodes[at].process.send_signal(signal.SIGCONT)
        else:
            self.nodes[at].stop(what)
            self.done.wait(self.chance.uniform(0, 6))
            self.nodes[at] = self._started(at)
            self.nodes[at].ready()
        self.well_since_s[at] = time.monotonic()

    def watch(self) -> None:
        """Periodically check how long nodes wait for a core."""
        while not self.done.wait(LOOK_S):
            self._look()
            self._waited_s = [waited_for_cores_s(node.process.pid) for node in self.nodes]

    def _look(self) -> None:
        """Count a node that gets no core on a busy machine as faulty."""
        for at, (node, before_s) in enumerate(zip(self.nodes, self._waited_s, strict=False)):
            waited_s = waited_for_cores_s(node.process.pid)
            if any(each_s - before_s.get(thread, 0.0) >= STARVED_S for thread, each_s in waited_s.items()):
                now_s = time.monotonic()
                self.struck["starved"] += now_s - self.well_since_s[at] > LOOK_S
                self.well_since_s[at] = max(self.well_since_s[at], now_s)

    def is_well(self, at: int, when_s: float) -> bool:
        """True if a node has had no fault since then, and for a while before."""
        self._look()
        return self.well_since_s[at] + HEARD_S <= when_s

    def knows_clocks(self, at: int) -> bool:
        """True if a node heard the clocks of all others before their faults: deadlines depend on the clocks."""
        away = [struck_s for struck_s, since_s in zip(self.struck_s, self.well_since_s, strict=True) if since_s == inf]
        return self.is_well(at, min([time.monotonic(), *away]))

    def may_go_on(self) -> bool:
        """Return False at the end; first wait while all clients rest."""
        return self._may_ask.wait() and not self.done.is_set()

    def rest(self) -> None:
        """Pause all clients for some seconds, then send single waiting requests to a well node."""
        self._may_ask.clear()
        self.done.wait(self.chance.uniform(2, 8))
        self.struck["idle"] += 1
        for at in self.chance.sample(range(NODES), NODES):
            if self.is_well(at, time.monotonic()):
                with contextlib.suppress(GossipKVError), self._client(at, 60_000) as one:
                    self._wait(at, one)
                break
        self._may_ask.set()

    def _wait(self, at: int, client: blocking.Client) -> None:
        """Wait for owners, a newer map, and a write's level: each answer must come by its deadline."""
        newer, put = {"config": client.call("partition_map", TABLE)["config"] + 1}, ("put", TABLE, b"w", b"")
        asked = ("get", "geo", KEYS[0], {}), ("get", TABLE, b"w", newer), (*put, newer), (*put, {"level": "all"})
        for *request, options in asked:
            began_s, wait_ms = time.monotonic(), self.chance.choice((1, 300, 2_000))
            waits = {"timeout_ms": wait_ms} | ({"wait_ms": wait_ms} if options else {}) | options
            with contextlib.suppress(GossipKVError):
                client.call(*request, waits)
            late_s = time.monotonic() - began_s - wait_ms / 1000
            self.struck["waits"] += 1
            if late_s > LATE_S and self.is_well(at, began_s):
                self.trouble.append(f"n{at}: {request} with {waits} was {late_s:.1f} s late")

    def _client(self, at: int, timeout_ms: int) -> blocking.Client:
        """Return a client of this node and no other."""
        return blocking.Client([self.addresses[at]], timeout_ms=timeout_ms, follows=False).dial()

    def read(self, at: int) -> None:
        """Read from one node repeatedly; no answer may be wrong, or older than the last one."""
        newest, chance = "", random.Random(at)
        with self._client(at, 8_000) as client:
            data = client.dataset("geo")
            while self.may_go_on():
                key, began_s = chance.choice(KEYS), time.monotonic()
                try:
                    value, version = data.get_with_version(key)
                except GossipKVError as error:
                    self.failures.append(Failed(at, key, newest, began_s, time.monotonic(), f"{error.code} {error}"))
                    self._judge(self.failures[-1])
                    continue
                self.reads += 1
                if value != version.encode() or version < newest:
                    self.trouble.append(f"n{at}: {key!r} is {value!r} of {version}, after {newest}")
                newest = max(newest, version)

    def _had(self, at: int, version: str, name: str, when_s: float) -> bool:
        """True if a node had a file of a version then: the file may have been built since."""
        with contextlib.suppress(FileNotFoundError):
            built = (self.place / str(at) / "data" / "datasets" / "geo" / version / name).stat().st_ctime
            return built - time.time() + time.monotonic() <= when_s
        return False

    def _judge(self, failed: Failed) -> None:
        """Report a failed read if the asked node was well, and so was an owner of its active versions, then and now.

        A read has one version, also if it waits for an owner while the node switches to the next.
        """
        if not self.is_well(failed.at, failed.began_s):
            return
        found = VersionStore(self.place / str(failed.at) / "data", RealFiles()).active("geo")
        assert found is not None
        name = f"part-{partition('sequins', failed.key, PARTITIONS):05}.gkv"
        owners = [
            [
                at
                for at in range(NODES)
                if self._had(at, version, name, failed.began_s) and self.is_well(at, failed.began_s)
            ]
            for version in {failed.version, found.version}
        ]
        if all(owners):
            with contextlib.suppress(GossipKVError), blocking.connect(self.addresses[failed.at]) as client:
                self.trouble.append(f"n{failed.at} says: {client.status('geo')}")
            self.trouble.append(f"{failed}: nodes {owners} have {failed.version} and {found.version}, and were well")


def test_an_hour_of_chaos(tmp_path: Path, record_property: Callable[[str, str], None]) -> None:
    """Two nodes at a time are faulty: no read is wrong or steps back, and each failure had no available owner."""
    with contextlib.ExitStack() as stack:
        chaos = Chaos(tmp_path, stack)
        end_s = time.monotonic() + SECONDS

        def again(strike: Callable[[], None]) -> None:
            while time.monotonic() < end_s and not chaos.trouble + chaos.table.trouble:
                strike()
                chaos.done.wait(chaos.chance.uniform(1, 15))

        asks = [threading.Thread(target=ask, args=[at]) for ask in (chaos.read, chaos.table.ask) for at in range(NODES)]
        strikes = chaos.rest, *(lambda at=at: chaos.befall(chaos.chance.choice((at, at + 2))) for at in (0, 1))
        striking = [threading.Thread(target=again, args=(strike,)) for strike in strikes]
        watching = threading.Thread(target=chaos.watch)
        for thread in (*asks, *striking, watching):
            thread.start()
        while time.monotonic() < end_s and not chaos.trouble + chaos.table.trouble:
            time.sleep(chaos.chance.uniform(2, 8))
            chaos.offer()
        for thread in striking:
            thread.join()
        for address in chaos.addresses if not chaos.trouble else []:
            wait_for(address, "geo", chaos.name)
        chaos.done.set()
        for thread in (*asks, watching):
            thread.join()
        faults, counts = chaos.table.judge()
        told = f"{chaos.reads} reads, {len(chaos.failures)} failed, {chaos.version} versions; table: {counts}"
        record_property("measured", f"{told}; {dict(chaos.struck)}")
        logged = [line for node in chaos.nodes for line in node.said().splitlines()]
        faults += chaos.trouble + [line for line in logged if any(word in line for word in TROUBLE)]
        assert not faults, "\n".join(faults)
        assert chaos.reads > SECONDS
