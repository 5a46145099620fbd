"""A node that holds replicas: its lives, and the writes of its clients.

It does the work of `table.records.endpoints` and `table.records.write`, over a simulated store, network and METADATA.
Reconciler, migrator and rebalancer are production's (`table.controllers.reconciler`, `controllers.migrator`, `moving`).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

import msgpack
import trio

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    NotServed,
    Overloaded,
    StorageError,
    Unavailable,
    Unknown,
)
from gossipkv.placement.measures import MeasureLimits
from gossipkv.register.metadata.known import keys_of
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.replica.acks import slots_needed
from gossipkv.replication.shell import Replication
from gossipkv.replication.snapshot.transfer import LoadPage, serve
from gossipkv.replication.stream.log_tail import TAIL_BYTES, LogTail
from gossipkv.settings.tables import TableSettings
from gossipkv.storage.engine.shell import Batch
from gossipkv.table.controllers.load_stats import LoadStats
from gossipkv.table.controllers.local_tables import LocalTables
from gossipkv.table.controllers.migrator import Migrator
from gossipkv.table.controllers.move_step import report_of
from gossipkv.table.controllers.plan import RangeHosts
from gossipkv.table.controllers.rebalancer import Rebalancer
from gossipkv.table.controllers.reconciler import Reconciler
from gossipkv.table.controllers.write_stats import WriteStats
from gossipkv.table.records.forward import held
from gossipkv.wire.arguments import Arguments
from tests.world.metadata.chance import happens
from tests.world.replication.clients import TABLE, Serving
from tests.world.replication.eye import Eye
from tests.world.replication.feeds import feeds_of
from tests.world.replication.register import Catalogue, Maps
from tests.world.replication.store import OPTIONS, Disk, Mood, RunningStore
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.environment.seam import Environment
    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata import catalogue
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.nodes import NodeList
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value
    from tests.world.replication.copies import Dot
    from tests.world.replication.network import Network
    from tests.world.replication.register import Register
    from tests.world.replication.witness import Witness
    from tests.world.simulated_files import SimulatedFiles

RELAY_S: Final = 0.2
STALL_S: Final = 2.0
MAX_WAITING: Final = 1 << 20
FILLS: Final = 3  # Batches that end two segments: all older entries of the log are trimmed.
EPOCH_MS: Final = 1_700_000_000_000
RECORD_AT: Final = 3  # The index in an entry of a message.
MAX_MOVES: Final = 2
LOOK_S: Final = 0.5  # The longest time between two reconciliations without news.
ASKED_S: Final = 0.5  # Between two reads of a register with a newer map.


T = TypeVar("T")


@dataclass(eq=False)
class Surroundings:
    """The clock and randomness of a life; see `Environment`."""

    random: Random
    skew_ms: Callable[[], float]

    @property
    def clock(self) -> Surroundings:
        return self

    def wall_ms(self) -> int:
        return int(EPOCH_MS + trio.current_time() * 1000 + self.skew_ms())


@final
class Life:
    """One life of a node: from its start to a crash."""

    def __init__(self, node: Node) -> None:
        self.node = node.uuid
        self.is_over = False
        self._of = node
        self.random = Streams(node.random.getrandbits(64))["life"]
        self._nursery: trio.Nursery | None = None
        self.store = RunningStore(node.disk, node.mood, self.random, node.eye, self._strike, node.options)
        node.witness.opened(node.eye, self.store)
        surroundings = Surroundings(self.random, lambda: node.skew_ms)
        self.replication = Replication(
            self.store,
            self._ask,
            cast("Environment", surroundings),
            self.node,
            ReplicationLimits(RELAY_S, STALL_S),
            waiting=ParkedRequests(MAX_WAITING),
        )
        self.serving = Serving(self)
        self._news = trio.Event()
        self._asked_at: dict[bytes, float] = {}
        self.maps = Maps(node.register, self.node, self.random, node.known)
        self.maps.on_edits = self._edited
        self.feeding = feeds_of(self)
        last_hour = WriteStats()
        local = LocalTables(
            cast("Metadata", self.maps),
            cast("catalogue.Catalogue", Catalogue(self.maps, cast("NodeList", None))),
            self.replication,
            TableSettings(max_moves=MAX_MOVES, move_stall=int(STALL_S * 1000)),
            self.random,
            self._ask_soon,
            _beside,
            node.alive,
            self.look_at,
            set,
        )
        self.holding = Reconciler(local, last_hour)
        self.replication.replicas.on_newer = self.look_at
        self._stepping = Migrator(local, self.holding)
        self.measuring = LoadStats(local._replace(ask=self._ask_sizes), last_hour)
        hosts = RangeHosts(self.measuring.of, _divides_nothing, MeasureLimits(0, 0), is_on=True)
        self._moving = Rebalancer(local, hosts)
        self.replication.replicas.tail = LogTail(self.store.synced_position, most_bytes=node.tail_bytes)

    async def _ask_sizes(self, node: bytes, method: str, params: list[Value], _timeout_s: float) -> Value:
        """Ask a running node for the sizes of its replicas."""
        life = self._of.network.lives.get(node)
        if life is None:
            raise Unavailable("it is down")
        table = params[0]
        assert method == "table_sizes", method
        assert isinstance(table, bytes), table
        packed: bytes = msgpack.packb(await life.measuring.rows(table))
        return packed

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.store.run)
            nursery.start_soon(self.replication.waiting.run)
            await nursery.start(self.replication.run)
            if happens(self.random, 0.8):
                await self._adopt()
            if self.is_over:
                return
            self._of.network.lives[self.node] = self
            for task in (self._dial, self._hold, self._hear, self._stepping.run, self._moving.run):
                nursery.start_soon(task)

    def end(self, *, power: bool = False) -> None:
        if self.is_over:
            return
        self.is_over = self.store.is_over = True
        self._of.network.ended(self)
        self._of.disk.end(self._of.random.getrandbits(32) if power else None)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def is_ready(self, others: set[bytes], partitions: int) -> bool:
        """Return True if the life may write to this many partitions, and is connected to the others."""
        replicas = self.replication.replicas
        copies = replicas.by_partition.values()
        return (
            all(map(replicas.reaches, others))
            and len(copies) == partitions
            and all(replicas.may_originate(copy) for copy in copies)
        )

    def _strike(self) -> bool:
        """Crash around a sync or a send, now and then; return True if this life is over."""
        self._of.strikes += 1
        is_now = self._of.strikes == self._of.crashes_at or happens(self._of.random, self._of.crashes)
        if not self.is_over and is_now:
            self._of.witness.counts["crashes around a sync or a send"] += 1
            self.end(power=happens(self._of.random, 0.5))
        return self.is_over

    def fill(self, left: int = FILLS, space: int = 0) -> None:
        """Fill the log with unrelated batches, one after the other."""
        batch = Batch()
        if not space:
            space = self.store.reserve_space()
            batch.new_space(space)
        batch.put(space, b"filler", bytes(self.store.options.segment_bytes * 2 // 3))
        if left == 1:
            batch.drop_space(space)
        with contextlib.suppress(Overloaded, StorageError):
            self.store.append(batch, lambda _: self.fill(left - 1, space) if left > 1 else None)

    # # -- maps --------------------------------------------------------------------------------------------------------

    async def _adopt(self) -> None:
        """Reconcile the replicas with the maps that this node knows."""
        try:
            await self.holding.look()
        except GossipKVError:
            self._of.witness.counts["not adopted"] += 1

    def _edited(self, register: bytes, edits: Sequence[Edit] | None) -> None:
        self.holding.edited(register, keys_of(edits))
        self._news.set()

    async def _hold(self) -> None:
        while True:
            self._news = trio.Event()
            await self._adopt()
            with trio.move_on_after(LOOK_S):
                await self._news.wait()

    async def _hear(self) -> None:
        while True:
            await trio.sleep(self.random.uniform(0.02, 0.15))
            for register in self.maps.behind():
                if happens(self.random, self._of.hears):
                    await self._read(register)
            self.maps.forget_ended()

    async def _read(self, register: bytes) -> None:
        with contextlib.suppress(GossipKVError):
            await self.maps.quorum_read(register)

    def look_at(self, register: bytes, node: bytes = b"", config: int = 0) -> None:
        """Read a register whose map is newer elsewhere."""
        del node
        now = trio.current_time()
        if self._nursery is not None and now >= self._asked_at.get(register, now - ASKED_S) + ASKED_S:
            self._asked_at[register] = now
            self._nursery.start_soon(self._read, register)

    async def _dial(self) -> None:
        while True:
            await trio.sleep(self.random.uniform(0.02, 0.15))
            for other in self._of.others:
                if self._of.network.connect(self, other):
                    self.replication.connected(other)

    # # -- messages to and from others ---------------------------------------------------------------------------------

    def _ask(
        self, node: bytes, method: str, params: list[Value], timeout_s: float, complete: Completion[Value]
    ) -> None:
        if self._strike():
            return
        if method == "replica_feed":
            self._look_at(params)
        self._of.network.ask(self, node, method, params, timeout_s=timeout_s, complete=complete)
        self._strike()

    async def _ask_soon(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        answered = trio.Event()
        told: list[Value | GossipKVError] = []

        def complete(answer: Value | GossipKVError) -> None:
            told.append(answer)
            answered.set()

        self._ask(node, method, params, timeout_s, complete)
        await answered.wait()
        if isinstance(told[0], GossipKVError):
            raise told[0]
        return told[0]

    def _look_at(self, params: list[Value]) -> None:
        match params:
            case [bytes(), int(), bytes(packed)]:
                flat = [part for entry in msgpack.unpackb(packed) for part in entry[RECORD_AT]]
                self._of.witness.sends(self.node, flat[1::2])

    def disconnected(self, node: bytes) -> None:
        self.replication.disconnected(node)

    def answer(self, method: str, params: list[Value], told: Callable[[Value], object]) -> None:
        match method, params:
            case "replica_tell", [bytes(node), int(link), int(whole), bytes(rows)]:
                told(self.replication.replicas.take_report(node, link, msgpack.unpackb(rows), whole=bool(whole)))
            case "replica_feed", [bytes(node), int(link), bytes(entries)]:
                self.replication.replicas.take_entries(node, link, msgpack.unpackb(entries), told)
            case "table_changes", _:
                arguments = Arguments(method.encode(), msgpack.packb(params))
                self.feeding.changes_here(arguments).begin(lambda page: told(cast("Value", page)))
            case "table_changed", _:
                told(self.feeding.changed_here(Arguments(method.encode(), msgpack.packb(params))))
            case "replica_load", [bytes(), bytes(table), int(partition), int(space), int(position), bytes(key)]:
                copy = self.replication.replicas.by_partition.get((table, partition))
                if copy is None:
                    raise NotServed("not held here")
                page = LoadPage(space, position, key)
                serve(self.replication, copy, page, lambda it: told(None if isinstance(it, GossipKVError) else it))
            case "replica_report", [bytes(), bytes(table), bytes(packed)]:
                copies = self.replication.replicas.by_partition
                held = [copies[table, one] for one in msgpack.unpackb(packed) if (table, one) in copies]
                told(msgpack.packb([[copy.partition[1], *report_of(copy)] for copy in held]))
            case "replica_digest", [bytes(), bytes(table), int(partition), bytes(at), int(at_ms)]:
                copy = self.replication.replicas.by_partition.get((table, partition))
                told(None if copy is None else self.replication.digests.digest(copy, at, at_ms))
            case _:
                raise BadRequest(method)

    # # -- for clients -------------------------------------------------------------------------------------------------

    def write(
        self,
        number: int,
        partition: int,
        writes: list[RecordWrite],
        level: str,
        timeout_s: float,
        *,
        on_end: Callable[[GossipKVError | None], object] = lambda _: None,
    ) -> dict[int, int]:
        """Write records, and report the outcome to the witness; return the last counters, by assignment.

        Raises:
            GossipKVError: nothing was applied.
        """
        replicas, witness = self.replication.replicas, self._of.witness
        table = next((table for table, number in replicas.by_partition if number == partition), TABLE)
        copies: dict[Replica, list[RecordWrite]] = {}  # Several, if the asker has not heard of a split.
        for one in writes:
            copies.setdefault(held(replicas, table, partition, one.key), []).append(one)
        for copy in copies:
            self._check(copy, level)
        began = trio.current_time()
        left = [*copies]

        def late() -> None:
            self._of.answered(number, Unknown("late"))
            on_end(Unknown("late"))

        def reached(copy: Replica) -> None:
            left.remove(copy)
            witness.reached(number, copy, dots[copy], level)
            if not left and waiter.on_late is not None:
                self.replication.waiting.end(waiter)
                for one in copies:
                    witness.told(one, dots[one], level)
                witness.latencies.append((partition, self.node, began, trio.current_time() - began))
                witness.counts["told of several copies"] += len(copies) > 1
                self._of.answered(number, None)
                on_end(None)

        waiter: ParkedRequest = self.replication.waiting.begin(began + timeout_s, 100, late)
        try:
            counters = dict(replicas.originate(copies))
        except GossipKVError:
            self.replication.waiting.end(waiter)
            raise
        self._of.open.add(number)
        witness.asked[number] += 1
        dots: dict[Replica, list[Dot]] = {}
        for copy, some in copies.items():
            last = counters[copy.assignment]
            dots[copy] = [(copy.assignment, last - place) for place in reversed(range(len(some)))]
            replicas.acks[copy].wait(level, last, partial(reached, copy))
        return counters

    def _check(self, copy: Replica, level: str) -> None:
        """Check that a replica may write.  Raises NotServed, NotReady, Unavailable."""
        replicas = self.replication.replicas
        if not copy.originates:
            raise NotServed("not held as an origin")
        if not replicas.may_originate(copy):
            raise NotReady("not yet")
        levels = replicas.acks[copy]
        if levels.confirming(replicas.confirms) < slots_needed(level, copy.quorum.slots):
            raise Unavailable("too few are connected")


async def _divides_nothing(_table: bytes, _node: bytes, _partition: int) -> None:
    """Do nothing: no partition is too large or busy here."""


async def _beside(do: Callable[[], T]) -> T:
    """Run a long computation beside the loop."""
    await trio.lowlevel.checkpoint()
    return do()


@final
class Node:
    """A node: a disk, and its lives on it."""

    def __init__(self, uuid: bytes, network: Network, register: Register, witness: Witness, random: Random) -> None:
        self.uuid = uuid
        self.disk = Disk()
        self.mood = Mood()
        self.network = network
        self.register = register
        self.witness = witness
        self.random = random
        self.options = OPTIONS
        self.eye = Eye(witness, uuid)
        self.others: list[bytes] = []
        self.tail_bytes = TAIL_BYTES  # The log bytes that feeds have in memory; feeds read older entries from the log.
        self.known: dict[bytes, KnownMap] = {}  # The maps that it knows.
        self.hears = 0.5  # The chance, ten times a second, that it hears of a newer map.
        self.skew_ms = 0.0
        self.crashes = 0.0  # The chance of a crash at each side of a sync or a send.
        self.strikes, self.crashes_at = 0, 0  # The number of such sides so far, and the one at which it crashes.
        self.life: Life | None = None
        self.open: set[int] = set()  # Writes that this life has not answered.
        self.is_wanted = True  # True if it should be up.
        self.is_lost = False  # True if it must stay down.
        self._wanted = trio.Event()

    async def run(self) -> None:
        while True:
            while not self.is_wanted:
                self._wanted = trio.Event()
                await self._wanted.wait()
            self.life = Life(self)
            await self.life.run()
            self.life = None
            for number in sorted(self.open):
                self.answered(number, Unknown("the node crashed"))
            await trio.sleep(self.random.uniform(0.05, 1.0))

    def put_back(self, files: SimulatedFiles) -> None:
        """Replace the disk by an older copy, while the node is down."""
        assert self.life is None
        self.disk.files = files
        self.eye.is_put_back = True

    def answered(self, number: int, error: GossipKVError | None) -> None:
        self.open.discard(number)
        self.witness.answered[number] += 1
        self.witness.counts["done" if error is None else error.code] += 1

    def stop(self, *, power: bool = False) -> None:
        self.is_wanted = False
        if self.life is not None:
            self.life.end(power=power)

    def start(self) -> None:
        if not self.is_lost:
            self.is_wanted = True
            self._wanted.set()

    def alive(self) -> list[bytes]:
        """Return the nodes that seem to be up, as this node sees it."""
        seem = self.network.lives.keys() - self.network.wrongly_dead
        return sorted(seem | {self.uuid})
