"""One run: replicas are written to under faults; then the world heals, and soon replicas are equal and quiet.

Everything follows from the seed.  `run` returns the violations and counts; only a defect of the code under test raises.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest import mock

import trio

from gossipkv.errors import GossipKVError
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata import tables
from gossipkv.register.metadata.known import ENTRY, META, stamped
from gossipkv.register.metadata.nodes import placed
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationOutcome
from gossipkv.register.metadata.partitions import HASH, RANGE, TableMeta, decode_partition, first_edits, shard_key
from gossipkv.register.metadata.tables import NamedNode, NamedTable
from gossipkv.replication.changes import pages
from gossipkv.replication.maintenance import range_cleanup
from gossipkv.replication.replica.acks import ALL, MAJORITY, ONE
from gossipkv.replication.replica.hlc import ClockSkew
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica_set import ReplicaSet
from gossipkv.replication.snapshot import transfer
from gossipkv.replication.stream.log_tail import TAIL_BYTES
from gossipkv.storage.engine import policy
from gossipkv.table.controllers import rebalancer
from gossipkv.table.controllers.reconciler import hosts_of, parts_of
from tests.world.logs import capture_logs
from tests.world.metadata.chance import happens
from tests.world.nodes import scheduling
from tests.world.replication.clients import TABLE, Hopping
from tests.world.replication.commands import Operator
from tests.world.replication.faults import Faults
from tests.world.replication.feeds import Following
from tests.world.replication.network import Network
from tests.world.replication.node import Node
from tests.world.replication.ranges import FIRSTS, keys_in
from tests.world.replication.register import CATALOGUE, FIRST, Register
from tests.world.replication.witness import Witness
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from random import Random

    from gossipkv.replication.replica.replica import AssignedReplica
    from tests.world.replication.witness import Violation

FAULTS_S: Final = 6.0
MOVES_S: Final = 3.0  # Additional time if something moves.
LIVE_S: Final = 60.0  # After healing: until the wanted map is reached, and all replicas are equal.
MOVER_S: Final = 1.5  # A little more than the time between two looks of the mover.
SETTLE_S: Final = 3.0  # Afterwards, until the world is quiet.
QUIET_S: Final = 2.0
CLEARED_S: Final = 6.0  # Before that: a node without news looks at what replicas left each 5 s, with some room.
GIVEN_UP_S: Final = 8.0  # Additional time until moves to a lost node are given up.
LIMIT_S: Final = 300.0
EXPIRED_MS: Final = 300.0  # Expired records may leave so much later.
THREE: Final = 3
# Nodes, slots of each partition, and spare nodes, which may be added.
SHAPES: Final = ((3, 3, 0), (3, 3, 1), (3, 3, 2), (3, 2, 0), (3, 2, 1), (4, 3, 1), (4, 2, 1), (5, 5, 1))
REFOUNDED: Final = ((4, 2, 1), (5, 2, 0), (3, 2, 1))  # The shapes of runs with force-joins.
SHARD_KEYS: Final = tuple(b"key%d" % number for number in range(5))  # The keys of each shard.
MAX_BURST: Final = 12  # Requests of a client at once, if they happen to go to one node.
FEEDS: Final = 2  # Change feeds of a run.
SHORT_BYTES: Final = 100  # The feeds' memory in runs where a trimmed log leaves others behind.


class Run(NamedTuple):
    seed: int
    violations: list[Violation]
    counts: Counter[str]
    travelled: float | None = None  # The mean sends per record, if there are three replicas of each partition.
    refounds: bool = False

    @property
    def command(self) -> str:
        return f"python -m tests.world --{'refounding' if self.refounds else 'replication'} --seed {self.seed}"


def run(seed: int, *, refounds: bool = False) -> Run:
    """Run a seed; errors carry a note with the command that repeats it.  `refounds`: with force-joins."""
    witness = Witness()
    try:
        with capture_logs(), small_pages(), short_times(), counted_turns(witness.counts):
            scheduling.run(lambda: _world(seed, witness, refounds=refounds), seed, limit_s=LIMIT_S)
    except BaseException as error:
        error.add_note(f"to replay: {Run(seed, [], witness.counts, refounds=refounds).command}")
        raise
    travelled = witness.travelled if witness.counts["three of each"] else None
    return Run(seed, witness.violations, witness.counts, travelled, refounds)


def stage(
    play: Callable[[Cluster], Awaitable[None]],
    seed: int = 1,
    tail_bytes: int = TAIL_BYTES,
    *,
    slots: int = THREE,
    spare: int = 0,
    ranges: int = 0,
) -> Witness:
    """Play on three nodes that hold three partitions; then heal, and check as in every run.

    `spare`: additional nodes, which hold nothing yet; `ranges`: the number of ranges, in place of the partitions.
    """
    witness = Witness()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(seed, witness, (THREE, slots, spare), ranges=ranges)
            for node in cluster.nodes:
                node.tail_bytes = tail_bytes
            cluster.begin(nursery)
            await cluster.until(lambda: cluster.is_ready)
            await play(cluster)
            await _calm(cluster, Faults(cluster, cluster.streams["faults"]))
            nursery.cancel_scope.cancel()

    with small_pages(), short_times(), counted_turns(witness.counts):
        scheduling.run(main, seed, limit_s=LIMIT_S)
    return witness


def small_pages() -> AbstractContextManager[object]:
    """Split loads and clean-ups into many small pages."""
    small = contextlib.ExitStack()
    small.enter_context(mock.patch.multiple(transfer, PAGE_RECORDS=2, PAGE_BYTES=1))
    small.enter_context(mock.patch.object(range_cleanup, "PAGE_RECORDS", 2))
    small.enter_context(mock.patch.object(pages, "SCAN_ROWS", 2))
    return small


def short_times() -> AbstractContextManager[object]:
    """Pass over given-up targets for a few seconds, ask for sizes often, and merge and drop expired records soon."""
    past_ms, short = ClockSkew.past_ms, contextlib.ExitStack()

    def soon(skew: ClockSkew, nodes: Iterable[bytes]) -> int:
        with mock.patch.object(skew, "most_ms", EXPIRED_MS):
            return past_ms(skew, nodes)

    short.enter_context(mock.patch.multiple(rebalancer, PASSED_OVER_S=5.0, ASK_S=1.0))
    short.enter_context(mock.patch.object(ClockSkew, "past_ms", soon))
    short.enter_context(mock.patch.object(policy, "YOUNG_AIM", 2))
    return short


def counted_turns(counts: Counter[str]) -> AbstractContextManager[object]:
    """Count the nodes' looks for work."""
    pump = ReplicaSet.pump

    def counted(replicas: ReplicaSet) -> None:
        counts["turns"] += 1
        pump(replicas)

    return mock.patch.object(ReplicaSet, "pump", counted)


class Placed(NamedTuple):
    """A partition by the latest decided map."""

    version: int
    hosts: tuple[AssignedReplica, ...]


class Cluster:
    """Nodes, the decided maps of the table, and the writers."""

    def __init__(self, seed: int, witness: Witness, shape: tuple[int, int, int], *, ranges: int = 0) -> None:
        """`shape` is one of `SHAPES`; spare nodes are not named at first.  `ranges`: the initial number; 0: shards."""
        nodes, slots, spare = shape
        self._ranges = ranges
        self.streams = Streams(seed)
        self.witness = witness
        self.slots = slots
        random = self.streams["cluster"]
        self.network = Network(self.streams["network"], witness.counts)
        self.register = Register(self.network, self.streams["register"], witness.counts)
        self.register.on_changed = witness.moves.changed
        uuids = sorted(random.randbytes(16) for _ in range(nodes))
        more = [random.randbytes(16) for _ in range(spare)]
        self.nodes = [
            Node(uuid, self.network, self.register, witness, self.streams[f"node/{number}"])
            for number, uuid in enumerate(uuids + more)
        ]
        for node in self.nodes:
            node.others = [other.uuid for other in self.nodes if other is not node]
        self.servers = {*uuids[: nodes if nodes % 2 else nodes - 1]}
        self.register.serve(self.servers)
        self.lost = witness.moves.lost  # Nodes that are lost for good, with their disks.
        self._writes = 0
        self.table = TABLE
        self._make_table(uuids)
        self._found_catalogue(uuids)
        self.operator = Operator(self, self.streams["operator"])

    def _make_table(self, uuids: Sequence[bytes], first: int = 0) -> None:
        """Make the table on these nodes, with partitions numbered from `first`."""
        count = self._ranges or (2 if len(uuids) > THREE else THREE)
        keys = FIRSTS[:count] if self.is_range else [*map(shard_key, range(count))]
        made = {}
        for number, key in enumerate(keys):
            id_ = first + number
            seats = [(slot, uuids[(number * self.slots + slot) % len(uuids)]) for slot in range(self.slots)]
            hosts = [Assignment(100 * id_ + slot + 1, node, slot, AssignmentState.AVAILABLE) for slot, node in seats]
            made[key] = Partition(id_, tuple(hosts))
        described = TableMeta(self.table, "t", self.kind, self.slots, 0 if self.is_range else count)
        self.register.found(self.table, first_edits(described, made, FIRST))

    def _found_catalogue(self, uuids: Sequence[bytes]) -> None:
        servers = self.register.maps[TABLE].acceptors.new
        named = {b"t": NamedTable(TABLE, self.kind, servers, FIRST).encode()}
        named |= {tables.NODE + uuid: NamedNode(uuid.hex(), "", 1).encode() for uuid in uuids}
        edits = [(ENTRY + key, stamped(FIRST, record)) for key, record in sorted(named.items())]
        self.register.found(CATALOGUE, [*edits, (META, stamped(FIRST, b""))])
        for node in self.nodes:
            node.known |= self.register.maps

    def make_anew(self, table: bytes, first: int) -> None:
        """Drop the table, and make another of the same name on the nodes that hold partitions."""
        self.witness.moves.dropped |= self.partitions.keys()
        self.register.end(self.table)
        nodes = sorted({one.node for partition in self.partitions.values() for one in partition.assignments})
        old, self.table = self.table, table
        self._make_table(nodes, first)
        named = NamedTable(table, self.kind, self.register.maps[table].acceptors.new, FIRST)
        for name, argument in (("remove_table", (b"t", old)), ("add_table", (b"t", *named))):
            base = self.register.maps[CATALOGUE].config
            operation = Operation(self.streams["tables"].randbytes(OPERATION_ID_BYTES), base, name, 1, argument)
            assert self.register.judge(CATALOGUE, [operation])[0].outcome is OperationOutcome.DONE

    @property
    def is_range(self) -> bool:
        return self._ranges > 0

    @property
    def kind(self) -> str:
        return RANGE if self.is_range else HASH

    @property
    def partitions(self) -> dict[int, Partition]:
        return {
            one.id: one for entry in self.register.view(self.table).scan() for one in [decode_partition(entry.record)]
        }

    @property
    def map(self) -> dict[int, Placed]:
        found = [(entry.version, decode_partition(entry.record)) for entry in self.register.view(self.table).scan()]
        return {one.id: Placed(version, tuple(hosts_of(one))) for version, one in found}

    def begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.network.run)
        for node in self.nodes:
            nursery.start_soon(node.run)

    async def write(self, random: Random, pause_s: float) -> None:
        """Run a client that writes at random hosts, again and again."""
        while True:
            await trio.sleep(random.expovariate(1 / pause_s))
            targets = [self._target(random) for _ in range(random.choice((1, 1, 1, MAX_BURST)))]
            once = b"" if happens(self.streams["once"], 0.5) else b"/%d" % self._writes
            for partition, node, keys in targets:
                level = random.choice((MAJORITY, MAJORITY, MAJORITY, ALL, ONE))
                writes = [
                    RecordWrite(
                        random.choice(keys) + once,
                        None if happens(random, 0.2) else random.randbytes(8),
                        expiry=self.streams["expiry"].choice((0, 0, -1, -1000)),
                    )
                    for _ in range(random.choice((1, 1, 1, 3)))
                ]
                if node is targets[0][1]:  # The store of one node takes them as one batch.
                    self.have(node, partition, writes, level, random.choice((0.5, 2.0)))

    def _target(self, random: Random) -> tuple[int, Node, Sequence[bytes]]:
        """Draw a partition, a node with it, and its keys: of ranges by the present map, or by a node's known one."""
        if self.is_range:
            node, other = random.choices(self.nodes, k=2)
            by = random.choice((None, node.known.get(self.table), other.known.get(self.table)))
            parts = [part for part in parts_of(self.register.view(self.table, by)) if keys_in(part)]
            here = [part for part in parts if any(one.node == node.uuid for one in part.partition.assignments)]
            part = random.choice(here or parts)
            return part.partition.id, node, keys_in(part)
        map_ = self.map
        partition = random.choice([*map_])
        host = random.choice(map_[partition].hosts)
        node = next(node for node in self.nodes if node.uuid == host.node)
        return partition, node, self.keys_of(partition)

    def keys_of(self, partition: int) -> list[bytes]:
        """Return the keys of a partition by the present map."""
        if self.is_range:
            return next(
                keys_in(part) for part in parts_of(self.register.view(self.table)) if part.partition.id == partition
            )
        return [b"%d %s" % (self.witness.moves.lineage.shard(partition), key) for key in SHARD_KEYS]

    def has(self, partition: int, key: bytes) -> bool:
        """Return True if a partition has a key: those of a shard begin with its number."""
        lineage = self.witness.moves.lineage
        return lineage.has(partition, key) if self.is_range else key.startswith(b"%d " % lineage.shard(partition))

    def have(self, node: Node, partition: int, writes: list[RecordWrite], level: str, timeout_s: float) -> int | None:
        """Write through a node; return the number of the write, or None if it was refused."""
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
        self._writes += 1
        return self._writes

    def lose(self, random: Random) -> None:
        """Lose a minority for good, with its disks."""
        spare = self.slots - (self.slots // 2 + 1)
        for node in random.sample(self.nodes, random.choice((0, spare))):
            self.operator.lose(node, spared=self.slots)

    @property
    def is_caught_up(self) -> bool:
        """True if all remaining replicas have the same clock, and all nodes are up."""
        models = self.witness.models
        for partition in self.partitions.values():
            hosts = [models.get(one.id) for one in partition.assignments if one.node not in self.lost]
            clocks = [None if one is None or one.joining else one.clock for one in hosts]
            if any(clock is None or clock != clocks[0] for clock in clocks):
                return False
        return all(node.life is not None for node in self.nodes if node.uuid not in self.lost)

    @property
    def is_short(self) -> bool:
        """True if a lost node stays named because no other node can replace it."""
        named = self.operator.named()
        return any(named[uuid].weight for uuid in self.lost & named.keys())

    @property
    def is_placed(self) -> bool:
        """True if the map is as wanted, with no move under way, as far as that is possible."""
        named, tree = self.operator.named(), self.register.view(self.table)
        if self.is_short:
            return True
        found = self.partitions.values()
        is_at_rest = all(one.state is AssignmentState.AVAILABLE for partition in found for one in partition.assignments)
        is_settled = not any(one.former or any(end.counter is None for end in one.ends) for one in found)
        return is_at_rest and is_settled and not rebalancer.planned(tree, placed(named)).moves()

    @property
    def is_done(self) -> bool:
        """True if nothing is left to be moved or fed, and no node waits for an answer of the register.

        A mover whose transaction was lost waits for its answer, and plans the next moves only after that.
        """
        return self.is_caught_up and self.is_placed and not self.register.unanswered

    @property
    def is_cleared(self) -> bool:
        """True if nodes have deleted what replicas left behind, and forgotten the split parents that no log names."""
        for life in [node.life for node in self.nodes if node.life is not None]:
            spaces = life.replication.replicas.spaces
            parents = [parent for divided in spaces.divided.values() for parent in divided.values()]
            if spaces.abandoned or any(parent.position <= life.store.log_floor for parent in parents):
                return False
        return True

    @property
    def appends(self) -> int:
        """The number of batches appended in the present lives."""
        return sum(node.life.store.appends for node in self.nodes if node.life is not None)

    @property
    def is_ready(self) -> bool:
        """True if all nodes may write, and know the positions of the others."""
        hosts = [{one.node for one in partition.assignments} for partition in self.partitions.values()]
        for node in self.nodes:
            held = [some for some in hosts if node.uuid in some]
            others = set().union(*held) - {node.uuid}
            if node.life is None or not node.life.is_ready(others, len(held)):
                return False
        return True

    async def until(self, holds: Callable[[], bool], within_s: float = 5.0) -> None:
        """Return when `holds` is true.  Raises AssertionError if that takes too long."""
        until_s = trio.current_time() + within_s
        while not holds():
            assert trio.current_time() < until_s, "this was to happen"
            await trio.sleep(0.005)

    def newest(self, partition: int, key: bytes) -> list[bytes | None]:
        """Return the durable record of a key in each replica of a partition."""
        return [self.witness.models[host.assignment].records.get(key) for host in self.map[partition].hosts]


async def _world(seed: int, witness: Witness, *, refounds: bool) -> None:
    random = Streams(seed)["world"]
    nodes, slots, spare = random.choice(REFOUNDED if refounds else SHAPES)
    is_calm = happens(random, 0.1) and not refounds
    kind = Streams(seed)["kind"]
    ranges = kind.randint(1, len(FIRSTS)) if happens(kind, 0.5) or (refounds and happens(kind, 0.5)) else 0
    witness.counts["three of each"] = (nodes, slots) == (THREE, THREE) and not spare
    async with trio.open_nursery() as nursery:
        cluster = Cluster(seed, witness, (nodes, slots, spare), ranges=ranges)
        for node in cluster.nodes if happens(random, 0.5) and not is_calm else ():
            node.tail_bytes = SHORT_BYTES
        cluster.begin(nursery)
        if is_calm:  # Until all are connected, writes are relayed.
            await cluster.until(lambda: cluster.is_ready)
        faults = Faults(cluster, cluster.streams["faults"])
        if refounds:
            cluster.register.is_elsewhere = True
            faults.refound()
        hopping, following = Hopping(cluster), Following(cluster)
        async with trio.open_nursery() as striking:
            for number in range(random.randint(2, 4)):
                striking.start_soon(cluster.write, cluster.streams[f"client/{number}"], random.choice((0.05, 0.1, 0.2)))
            for number in range(random.choice((0, 2, 3))):
                striking.start_soon(hopping.hop, number, cluster.streams[f"session/{number}"], 0.05)
            for number in range(FEEDS):
                striking.start_soon(following.follow, cluster.streams[f"feed/{number}"])
            if not is_calm:
                cluster.register.is_unwell = happens(random, 0.5)
                striking.start_soon(faults.run, random.choice((0.2, 0.5, 1.0)))
            await trio.sleep(FAULTS_S + (MOVES_S if faults.moves else 0.0))
            striking.cancel_scope.cancel()
        if not is_calm:
            cluster.lose(random)
        await _calm(cluster, faults)
        await hopping.end()
        await following.end()
        if is_calm and witness.counts["three of each"]:
            witness.check_travel()
        nursery.cancel_scope.cancel()


async def _calm(cluster: Cluster, faults: Faults) -> None:
    """Heal all, and check the promises that must hold soon after."""
    witness, counts = cluster.witness, cluster.witness.counts
    faults.heal()
    await cluster.operator.heal()
    until_s = trio.current_time() + LIVE_S
    decided = -1
    while decided != cluster.register.transactions and trio.current_time() < until_s:
        while not cluster.is_done and trio.current_time() < until_s:
            await trio.sleep(0.1)
        decided = cluster.register.transactions
        await trio.sleep(MOVER_S)  # Moves that were planned for the earlier map may still follow.
    # With many ranges the remaining moves do not all run at once.
    await trio.sleep(SETTLE_S + (GIVEN_UP_S + len(cluster.partitions) if cluster.is_short else 0.0))
    witness.check_end(cluster.lost, is_placed=not cluster.is_short)
    witness.check_answers()
    if not cluster.is_placed:
        witness.found("wanted", f"the map is not as it is wanted: {cluster.partitions}")
    await cluster.until(lambda: cluster.is_cleared, CLEARED_S)
    for node in cluster.nodes:
        if node.life is not None:
            witness.check_litter(node.life.store)
            if node.life.replication.digests.differ:
                witness.found("digests", f"they differ: {node.life.replication.digests.differ}")

    def done() -> tuple[int, ...]:
        told = counts["replica_tell"] + counts["replica_load"]
        return counts["replica_feed"], told, cluster.appends, cluster.register.transactions

    before, turns, times_asked = done(), counts["turns"], cluster.network.times_asked.copy()
    await trio.sleep(QUIET_S)
    asked_since = cluster.network.times_asked - times_asked
    witness.check_quiet(before, done())
    witness.check_rest(len(cluster.nodes), counts["turns"] - turns, max(asked_since.values(), default=0))
    for node in cluster.nodes:
        if node.life is not None:
            witness.check_turn(node.life.replication.replicas)
