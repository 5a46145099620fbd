"""One run: copies are written to under faults; then all heals, and soon after it copies are equal, and it is quiet.

Everything follows from the seed.  `run` returns what was broken, and what happened; nothing of it raises but a defect
of the code under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from unittest import mock

import trio

from gossipkv.errors import GossipKVError
from gossipkv.replication import loading
from gossipkv.replication.copy import Host, Write
from gossipkv.replication.feed import TAIL_BYTES
from gossipkv.replication.levels import ALL, MAJORITY, ONE
from tests.world.logs import capture_logs
from tests.world.metadata.chance import happens
from tests.world.nodes import scheduling
from tests.world.replication.clients import Hopping
from tests.world.replication.faults import Faults
from tests.world.replication.network import Network
from tests.world.replication.node import Node, Placed
from tests.world.replication.store import OPTIONS
from tests.world.replication.witness import Witness
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager
    from random import Random

    from tests.world.replication.witness import Violation

FAULTS_S: Final = 6.0
LIVE_S: Final = 12.0  # After healing, until all copies are equal.
SETTLE_S: Final = 3.0  # Then, until it is quiet.
QUIET_S: Final = 2.0
LIMIT_S: Final = 300.0
THREE: Final = 3
SHAPES: Final = ((3, 3), (3, 3), (3, 2), (4, 3), (5, 5))  # Nodes, and slots of each partition.
KEYS: Final = 5  # Of a partition.
SHORT_BYTES: Final = 100  # What feeds have in memory, where a log that is cut leaves others behind.


class Run(NamedTuple):
    """The result of a run."""

    seed: int
    violations: list[Violation]
    counts: Counter[str]
    travelled: float | None = None  # How often a record did, where there are three copies of each.

    @property
    def command(self) -> str:
        """Repeats it."""
        return f"python -m tests.world --replication --seed {self.seed}"


def run(seed: int) -> Run:
    """Run a seed; whatever it raises says how to repeat it."""
    witness = Witness()
    try:
        with capture_logs(), small_pages():
            scheduling.run(lambda: _world(seed, witness), seed, limit_s=LIMIT_S)
    except BaseException as error:
        error.add_note(f"to replay: {Run(seed, [], witness.counts).command}")
        raise
    return Run(seed, witness.violations, witness.counts, witness.travelled if witness.counts["three of each"] else None)


def stage(play: Callable[[Cluster], Awaitable[None]], seed: int = 1, tail_bytes: int = TAIL_BYTES) -> Witness:
    """Have three nodes that hold three partitions go through something; then all heals, and is looked at as ever."""
    witness = Witness()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(seed, witness, 3, 3)
            for node in cluster.nodes:
                node.tail_bytes = tail_bytes
            cluster.begin(nursery)
            await cluster.until(lambda: cluster.is_ready)
            await play(cluster)
            Faults(cluster.nodes, cluster.network, witness, cluster.streams["faults"]).heal()
            cluster.heal()
            await _calm(cluster)
            nursery.cancel_scope.cancel()

    with small_pages():
        scheduling.run(main, seed, limit_s=LIMIT_S)
    return witness


def small_pages() -> AbstractContextManager[object]:
    """Have what is loaded come in many pages."""
    return mock.patch.multiple(loading, PAGE_RECORDS=2, PAGE_BYTES=1)


class Cluster:
    """Nodes, what the map says, and who writes."""

    def __init__(self, seed: int, witness: Witness, nodes: int, slots: int) -> None:
        self.streams = Streams(seed)
        self.witness = witness
        self.slots = slots
        random = self.streams["cluster"]
        self.network = Network(self.streams["network"], witness.counts)
        uuids = sorted(random.randbytes(16) for _ in range(nodes))
        self.nodes = [
            Node(uuid, self.network, witness, self.streams[f"node/{number}"], OPTIONS)
            for number, uuid in enumerate(uuids)
        ]
        self.map: dict[int, Placed] = {}
        for node in self.nodes:
            node.others = [uuid for uuid in uuids if uuid != node.uuid]
        for partition in range(2 if nodes > 3 else 3):
            hosts = [
                Host(100 * partition + slot + 1, uuids[(partition + slot) % nodes], slot, counts=True, available=True)
                for slot in range(slots)
            ]
            self.map[partition] = Placed(1, tuple(hosts))
        self.heal()
        self.lost: set[bytes] = set()
        self._writes = 0

    def begin(self, nursery: trio.Nursery) -> None:
        """Have all nodes live."""
        nursery.start_soon(self.network.run)
        for node in self.nodes:
            nursery.start_soon(node.run)

    async def write(self, random: Random, pause_s: float) -> None:
        """Be a client: write at random hosts, again and again."""
        while True:
            await trio.sleep(random.expovariate(1 / pause_s))
            partition = random.choice([*self.map])
            host = random.choice(self.map[partition].hosts)
            node = next(node for node in self.nodes if node.uuid == host.node)
            level = random.choice((MAJORITY, MAJORITY, MAJORITY, ALL, ONE))
            writes = [
                Write(b"key%d" % random.randrange(KEYS), None if happens(random, 0.2) else random.randbytes(8))
                for _ in range(random.choice((1, 1, 1, 3)))
            ]
            self.have(node, partition, writes, level, random.choice((0.5, 2.0)))

    def have(self, node: Node, partition: int, writes: list[Write], level: str, timeout_s: float) -> int | None:
        """Have a node write; the number of the write, if it was not refused."""
        if node.life is None or node.life.is_over or node.uuid not in self.network.lives:
            return None
        number = self.number()
        try:
            node.life.write(number, partition, writes, level, timeout_s)
        except GossipKVError as error:
            self.witness.counts[f"refused: {error.code}"] += 1
            return None
        return number

    def number(self) -> int:
        """The number of another write."""
        self._writes += 1
        return self._writes

    async def reconfigure(self, random: Random) -> None:
        """Have the map change now and then; nodes hear of it sooner or later."""
        config = 1
        while True:
            await trio.sleep(random.expovariate(1 / 2))
            config += 1
            partition = random.choice([*self.map])
            self.map[partition] = Placed(config, self._changed(random, partition))
            async with trio.open_nursery() as nursery:
                for node in self.nodes:
                    nursery.start_soon(self._tell, node, {**self.map}, random.uniform(0, 1))

    @staticmethod
    async def _tell(node: Node, map_: dict[int, Placed], after_s: float) -> None:
        await trio.sleep(after_s)
        node.learn(map_)

    def _changed(self, random: Random, partition: int) -> tuple[Host, ...]:
        """Another node joins a slot, or has loaded; or nothing has changed but the config."""
        hosts = self.map[partition].hosts
        free = [node.uuid for node in self.nodes if all(host.node != node.uuid for host in hosts)]
        if free:
            return (
                *hosts,
                Host(100 * partition + 50, free[0], random.randrange(self.slots), counts=True, available=False),
            )
        return tuple(host._replace(available=True) for host in hosts)

    def heal(self) -> None:
        """All know the map."""
        for node in self.nodes:
            node.learn({**self.map})

    def end_moves(self) -> None:
        """Who has loaded is AVAILABLE, as whoever moves partitions has it: it may be all that has what was lost."""
        moving = {p: placed for p, placed in self.map.items() if not all(host.available for host in placed.hosts)}
        for partition, (config, hosts) in moving.items():
            self.map[partition] = Placed(config + 1, tuple(host._replace(available=True) for host in hosts))
        if moving:
            self.heal()

    def lose(self, random: Random) -> None:
        """Lose a minority for good, with its disks."""
        spare = self.slots - (self.slots // 2 + 1)
        for node in random.sample(self.nodes, random.choice((0, spare))):
            node.stop()
            node.start = lambda: None  # type: ignore[method-assign]  # Whoever has lost its disk stays away.
            self.lost.add(node.uuid)

    @property
    def is_level(self) -> bool:
        """Whether all copies that are left have the same clock, and all nodes are up."""
        witness = self.witness
        for placed in self.map.values():
            hosts = [host for host in placed.hosts if host.node not in self.lost]
            clocks = [
                witness.models[host.assignment].clock if host.assignment in witness.models else None for host in hosts
            ]
            if any(clock != clocks[0] for clock in clocks):
                return False
        return all(node.life is not None for node in self.nodes if node.uuid not in self.lost)

    @property
    def appends(self) -> int:
        """How many batches were appended in the lives of now."""
        return sum(node.life.store.appends for node in self.nodes if node.life is not None)

    @property
    def is_ready(self) -> bool:
        """Whether all nodes may write, and know how far the others are."""
        lives = [node.life for node in self.nodes]
        return all(life is not None and life.is_ready(len(lives) - 1, len(self.map)) for life in lives)

    async def until(self, holds: Callable[[], bool], within_s: float = 5.0) -> None:
        """Return when it holds.  Raises AssertionError: it does not in time."""
        until_s = trio.current_time() + within_s
        while not holds():
            assert trio.current_time() < until_s, "this was to happen"
            await trio.sleep(0.005)

    def newest(self, partition: int, key: bytes) -> list[bytes | None]:
        """What each copy of a partition has of a key durably: the record."""
        return [self.witness.models[host.assignment].records.get(key) for host in self.map[partition].hosts]


async def _world(seed: int, witness: Witness) -> None:
    random = Streams(seed)["world"]
    nodes, slots = random.choice(SHAPES)
    is_calm = happens(random, 0.1)
    witness.counts["three of each"] = nodes == slots == THREE
    async with trio.open_nursery() as nursery:
        cluster = Cluster(seed, witness, nodes, slots)
        for node in cluster.nodes if happens(random, 0.5) and not is_calm else ():
            node.tail_bytes = SHORT_BYTES
        cluster.begin(nursery)
        if is_calm:  # Until all are connected, what one has from another is relayed.
            await cluster.until(lambda: cluster.is_ready or nodes > slots)
        faults = Faults(cluster.nodes, cluster.network, witness, cluster.streams["faults"])
        hopping = Hopping(cluster)
        async with trio.open_nursery() as striking:
            for number in range(random.randint(2, 4)):
                striking.start_soon(cluster.write, cluster.streams[f"client/{number}"], random.choice((0.05, 0.1, 0.2)))
            for number in range(random.choice((0, 2, 3))):
                striking.start_soon(hopping.hop, number, cluster.streams[f"session/{number}"], 0.05)
            if not is_calm:
                striking.start_soon(_run_faults, faults, random.choice((0.2, 0.5, 1.0)))
                if happens(random, 0.3):
                    striking.start_soon(cluster.reconfigure, cluster.streams["map"])
            await trio.sleep(FAULTS_S)
            striking.cancel_scope.cancel()
        cluster.lose(random) if not is_calm else None
        faults.heal()
        cluster.heal()
        await _calm(cluster)
        await hopping.end()
        if is_calm and nodes == slots == THREE:
            witness.check_travel()
        nursery.cancel_scope.cancel()


async def _run_faults(faults: Faults, pause_s: float) -> None:
    await faults.run(pause_s=pause_s)


async def _calm(cluster: Cluster) -> None:
    """Look at what must be so soon after healing."""
    witness, counts = cluster.witness, cluster.witness.counts
    until_s = trio.current_time() + LIVE_S
    while not cluster.is_level and trio.current_time() < until_s:
        await trio.sleep(0.1)
        if trio.current_time() > until_s - LIVE_S / 2:
            cluster.end_moves()
    await trio.sleep(SETTLE_S)
    witness.check_end(cluster.lost)
    witness.check_answers()
    for node in cluster.nodes:
        if node.life is not None:
            witness.check_litter(node.life.store)
    before = counts["replica_feed"], counts["replica_tell"] + counts["replica_load"], cluster.appends
    await trio.sleep(QUIET_S)
    after = counts["replica_feed"], counts["replica_tell"] + counts["replica_load"], cluster.appends
    witness.check_quiet(before, after)
