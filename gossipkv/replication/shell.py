r"""Replication under Trio: connects a node's replicas with its store and with other nodes.

    replication = Replication(store, ask, environment, me, ReplicationLimits(relay_s=0.2), waiting=waiting)
    await nursery.start(replication.run)            # returns once the store's replicas are loaded
    replication.replicas.place(identity, config, hosts)
    replication.connected(node)                     # and `disconnected`

The log senders' resume positions and cursors are saved each second in a space of their own, under `\0p` and the uuid of
the node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack
import trio

from gossipkv.environment.ticks import QUIET_S, rest
from gossipkv.errors import GossipKVError, NotReady, Overloaded, StorageError
from gossipkv.log import Log
from gossipkv.processes.pace import RateLimit
from gossipkv.replication._replication import LogPage
from gossipkv.replication.changes.pages import ChangeFeeds
from gossipkv.replication.maintenance.digests import DigestExchange
from gossipkv.replication.maintenance.expiry import expiry_rule
from gossipkv.replication.maintenance.range_cleanup import RangeCleanup
from gossipkv.replication.maintenance.tombstone_gc import TombstoneCollector
from gossipkv.replication.replica.keys import ENDED, IDENTITY, JOINING, KIND_BYTES, LOADING, QUARANTINED, RECORD, STATE
from gossipkv.replication.replica.replica import Replica
from gossipkv.replication.replica_set import ANSWER_S, ReplicaSet
from gossipkv.storage.engine.reading import BelowFloor
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.environment.seam import Environment
    from gossipkv.replication.deadlines import ParkedRequests
    from gossipkv.replication.ports import OnLog, ReplicationLimits
    from gossipkv.replication.replica.hlc import ClockSkew
    from gossipkv.replication.replica.keys import KeyBounds
    from gossipkv.replication.replica.spaces import QuarantinedReplica
    from gossipkv.replication.store import FollowedStore
    from gossipkv.replication.stream.cursors import LogRead
    from gossipkv.storage.engine.log_reader import LogCursor
    from gossipkv.storage.engine.shell import View
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

PLACE: Final = b"\0p"
SMEARED: Final = b"\0w"
KEEP_S: Final = 1.0  # Interval at which resume positions are saved.
TIME_BYTES: Final = 8
COLLECT_S: Final = 1.0  # Interval of garbage collection, and of pages of a digest.
CLEAR_S: Final = 0.05  # Interval of cleanup pages.
COMPARE_S: Final = 10.0  # Interval between replicas compared: each comparison asks all other hosts.
RETRY_S: Final = 60.0  # Delay after an error of the store.
MAX_CURSORS: Final = 64
MAX_LOG_READS: Final = 8  # Reads of the log for bulk loads and feeds at a time; each holds a part of 128 KiB.
FEW_SPACES: Final = 256  # Spaces read before other tasks run.


class Measured(NamedTuple):
    """The approximate size of a replica."""

    bytes: int
    rows: int


class AskNode(Protocol):
    """A function that asks a node; `complete` is called once."""

    def __call__(
        self, node: bytes, method: str, params: list[Value], timeout_s: float, complete: Completion[Value], /
    ) -> None: ...


@final
class Replication:
    """The replicas of a node, under Trio."""

    def __init__(
        self,
        store: FollowedStore,
        ask: AskNode,
        environment: Environment,
        me: bytes,
        limits: ReplicationLimits,
        *,
        waiting: ParkedRequests,
        skew: ClockSkew | None = None,
    ) -> None:
        """Begin for node `me` (uuid)."""
        self._store = store
        self.extend = store.extend
        self.get = store.get  # Returns the synced value of a key in a space.
        self._ask_node = ask
        self._clock = environment.clock
        self.now = trio.current_time
        self._log = Log("gossipkv.replication")
        self._news = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._places: int | None = None  # The space of resume positions.
        # The space of puts that wait to be forwarded (`table.controllers.smear_buffer`).
        self.smeared: int | None = None
        self._kept: dict[bytes, bytes] = {}
        # By look: set after a pump, since anything may have changed.
        self._on_pump: dict[Callable[[], object], trio.Event] = {}
        self.departed: dict[Replica, None] = {}  # Replicas whose assignment is gone.
        self.waiting = waiting
        self.gives = RateLimit(limits.transfer)  # Limits what other nodes' loads read here.
        # Cursors of bulk loads and change feeds, by spaces and position.
        self._cursors: dict[tuple[frozenset[int], int], LogCursor] = {}
        self._log_reads = trio.CapacityLimiter(MAX_LOG_READS)
        self.replicas = ReplicaSet(me, self, environment.random, store.synced_position, limits, skew=skew)
        self.maps = self.replicas.maps  # By table: the config id of the placement that its local replicas follow.
        self.cleanup = RangeCleanup(self.replicas.spaces, self, RateLimit(limits.transfer))
        self.collector = TombstoneCollector(self.replicas, self)
        self.digests = DigestExchange(self.replicas, self)
        self.feeds = ChangeFeeds(self.replicas, self)
        store.expire_by(expiry_rule(self.replicas, self))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the replicas from the store and replicate until cancelled."""
        await self._find()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            comparing, spaces, unswept = self.digests, self.replicas.spaces, self.replicas.dirty.unswept
            nursery.start_soon(self._repeat, self.keep_places, lambda: KEEP_S, lambda: False)
            nursery.start_soon(self._repeat, self.collector.look, lambda: COLLECT_S, lambda: unswept)
            nursery.start_soon(self._repeat, comparing.look, lambda: COLLECT_S if comparing.is_amid else COMPARE_S)
            nursery.start_soon(
                self._repeat, self._clear, lambda: CLEAR_S if spaces.abandoned else COLLECT_S, lambda: spaces.abandoned
            )
            task_status.started()
            while True:
                self._news = trio.Event()
                self.replicas.pump()
                while self._on_pump:
                    self._on_pump.popitem()[1].set()
                with trio.move_on_at(self.replicas.due):
                    await self._news.wait()

    @property
    def is_writing(self) -> bool:
        """True if a batch has to wait for the sync of others now."""
        return self._store.is_writing

    def connected(self, node: bytes) -> None:
        """Start replication on a new connection to a node."""
        self.replicas.connected(node)

    def disconnected(self, node: bytes) -> None:
        """Stop replication to a node."""
        self.replicas.disconnected(node)
        self.feeds.lost(node)

    @property
    def refusal(self) -> str | None:
        """The reason why the store refuses writes; None: it accepts them."""
        return self._store.refusal

    def size_bytes(self, space: int, bounds: KeyBounds) -> int:
        """Return about how many bytes of a space are within bounds; 0 for a space that is not synced yet.

        Raises:
            StorageError, Corrupt: the space cannot be read.
        """
        try:
            return self._store.size_bytes(space, *bounds.records)
        except ValueError:  # A bulk load has just begun.
            return 0

    def measure(self, replica: Replica) -> Measured:
        """Return a replica's approximate size, replaced and deleted records included. Raises as `size_bytes`."""
        space, within = replica.space, replica.bounds.records
        try:
            return Measured(self._store.size_bytes(space, *within), self._store.rows(space, *within))
        except ValueError:  # The space is not synced yet, or is dropped.
            return Measured(0, 0)

    def middle_of(self, replica: Replica) -> bytes | None:
        """Return a user's key in the middle of a replica; None: it has one key. Raises StorageError, Corrupt."""
        key = self._store.middle_key(replica.space, *replica.bounds.records)
        return None if key is None else key[len(RECORD) :]

    def departs(self, replica: Replica) -> None:
        """Stop feeding from a replica whose assignment is gone; it is dropped later, once that is safe."""
        self.departed[replica] = None
        replica.departs()
        self.replicas.spaces.hides(replica)
        self.replicas.adopted(replica)

    def let_go(self, replica: Replica, *, why: str = "") -> None:
        """Drop a replica; with a reason `why`, quarantine it for operators instead.

        Raises:
            NotReady, Overloaded, StorageError: the replica stays and may be dropped later.
        """
        self.replicas.loader.abort(replica)
        batch = Batch()
        batch.relieves = True
        spaces = self.replicas.spaces
        if why:
            replica.put(batch, QUARANTINED, why.encode())
        else:
            spaces.leaves(replica, batch)
        self.append(batch, lambda: None)
        if why:
            spaces.quarantine(replica, why)
        else:
            spaces.remove(replica, replica.space, replica.suffix)
        self.departed.pop(replica, None)
        self.replicas.forget(replica, Batch())  # The load was aborted above.

    def kept(self, part: QuarantinedReplica) -> Replica | None:
        """Return a quarantined replica as a `Replica`; None: it was incomplete.

        Raises:
            NotReady: the quarantine is not synced yet.
        """
        if self._store.get(part.space, IDENTITY + part.suffix) is None:
            raise NotReady("a replica is about to be quarantined")
        state = self._store.get(part.space, STATE + part.suffix)
        if state is None or self._store.get(part.space, JOINING + part.suffix) is not None:
            return None
        replica = Replica(part.space, part.identity, state, suffix=part.suffix)
        replica.ended = self._store.get(part.space, ENDED + part.suffix) or b""
        return replica

    async def drop_quarantined(self, part: QuarantinedReplica) -> None:
        """Drop a quarantined replica; return once that is synced. Raises Overloaded, StorageError."""
        synced, batch, spaces = trio.Event(), Batch(), self.replicas.spaces
        batch.relieves = True
        spaces.leaves(part, batch)
        self.append(batch, synced.set)
        spaces.drop_quarantined(part)
        await synced.wait()

    def goes_by(self, table: bytes, config: int) -> None:
        """Take note that all replicas of a table follow its placement of that config id."""
        self.replicas.maps[table] = config
        for replica in {replica: None for _, watched in self.replicas.watchers for replica in watched}:
            if self.replicas.by_partition.get(replica.partition) is replica and replica.partition[0] == table:
                self.replicas.moved(replica)

    async def _find(self) -> None:
        for number, space in enumerate(self._store.spaces()):
            if number % FEW_SPACES == 0:
                await trio.lowlevel.checkpoint()
            rows = self._rows_of(space)
            for replica in self.replicas.spaces.found(space, rows, self._store.synced_position):
                self.replicas.found(replica)
            kinds = {key[:KIND_BYTES] for key, _ in rows}
            if LOADING in kinds:
                self.replicas.loader.litter.append(space)
            elif PLACE in kinds:
                self._places = space
                self._kept = {key[KIND_BYTES:]: value for key, value in rows}
                self.replicas.skew.expires_from(int.from_bytes(self._kept.pop(b"", b""), "big"))
            elif SMEARED in kinds:
                self.smeared = space
        for node, value in self._kept.items():
            place, positions = msgpack.unpackb(value, strict_map_key=False)
            self.replicas.places[node] = place, positions

    def _rows_of(self, space: int) -> list[tuple[bytes, bytes]]:
        """Return the rows of a space before its records."""
        found: list[tuple[bytes, bytes]] = []
        start: bytes | None = b""
        while start is not None:
            rows, start = self._store.scan(space, start, RECORD)
            found += rows
        return found

    # -- periodic work -----------------------------------------------------------------------------------------------

    async def _repeat(
        self, look: Callable[[], object], pause_s: Callable[[], float], has_work: Callable[[], object] = lambda: True
    ) -> None:
        """Call `look` repeatedly until cancelled, seldom without work; log a repeated error of the store once."""
        why = ""
        while True:
            news = trio.Event()
            self._on_pump[look] = news
            await rest(pause_s())
            if not (news.is_set() or has_work()):
                await rest(QUIET_S, news)
            try:
                look()
                why = ""
            except Overloaded:
                pass
            except GossipKVError as error:  # The store is damaged, or its disk failed.
                if error.message != why:
                    self._log.error("upkeep_waits", reason=error.message)
                why = error.message
                await trio.sleep(RETRY_S)

    def keep_places(self, *, is_read: bool = False) -> None:
        """Save changed resume positions, and the time of expiry. Raises Overloaded, StorageError.

        After a restart with a slower clock, an expired record must not be read again. `is_read`: clients read since
        the last call.
        """
        places = {node: msgpack.packb(place) for node, place in self.replicas.kept_places().items()}
        changed = {node: value for node, value in places.items() if self._kept.get(node) != value}
        if not (changed or is_read) or self._store.first_space is None:  # The first space belongs to the registers.
            return
        batch, space = Batch(), self._places
        if space is None:
            space = self._store.reserve_space()
            batch.new_space(space)
        batch.put(space, PLACE, self.replicas.skew.expiry_ms().to_bytes(TIME_BYTES, "big"))
        for node, value in changed.items():
            batch.put(space, PLACE + node, value)
        self.append(batch, partial(self._kept.update, changed))
        self._places = space

    def _clear(self) -> None:
        self.cleanup.look()
        if self.replicas.spaces.divided:
            self.cleanup.forget_divided(self._store.log_floor)

    def fail(self, error: GossipKVError | OSError) -> None:
        """Fail the store as if its log had failed; it is reopened later."""
        self._store.fail(str(error))

    # -- as `ReplicationPorts` ---------------------------------------------------------------------------------------

    def append(self, batch: Batch, on_synced: Callable[[], object]) -> int:
        """Append a batch.  Raises Overloaded, LimitExceeded, StorageError."""
        return self._store.append(batch, lambda error: None if error is not None else on_synced())

    def append_told(self, batch: Batch, on_told: Callable[[StorageError | None], object]) -> int:
        """Append a batch; `on_told` also gets the error if it was not synced. Raises as `append`."""
        return self._store.append(batch, on_told)

    def scan(
        self, space: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return a page of synced rows."""
        return self._store.scan(space, start, end, reverse=reverse, limit=limit)

    def view(self, spaces: Iterable[int]) -> View:
        """Return the view of all synced rows, for reads of these spaces before anything changes."""
        return self._store.view(spaces)

    def synced(self) -> int:
        """Return the position up to which the log is synced."""
        return self._store.synced_position

    def log_floor(self) -> int:
        """Return the position behind which the log begins."""
        return self._store.log_floor

    def read_log(self, spaces: frozenset[int], position: int, on_log: OnLog) -> None:
        """Read a part of the log of spaces behind a position."""
        assert self._nursery is not None
        self._nursery.start_soon(self._read_log, spaces, position, on_log)

    async def _read_log(self, spaces: frozenset[int], position: int, on_log: OnLog) -> None:
        cursor = self._cursors.pop((spaces, position), None) or self._store.follow(spaces, position)
        try:
            async with self._log_reads:
                batches, behind = await self._store.read_log(cursor)
        except BelowFloor:
            on_log(None, position)
            return
        except GossipKVError as error:
            self._log.error("log_not_read", reason=error.message)
            await trio.sleep(KEEP_S)
            batches, behind = [], position
        else:
            if len(self._cursors) >= MAX_CURSORS:
                self._cursors.clear()
            self._cursors[spaces, behind] = cursor
        on_log(batches, behind)
        self.wake()

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may create."""
        return self._store.reserve_space()

    def ask(
        self,
        node: bytes,
        method: str,
        params: list[Value],
        complete: Completion[Value],
        timeout_s: float = ANSWER_S,
    ) -> None:
        """Send a request to a node."""
        self._ask_node(node, method, params, timeout_s, complete)

    def look(self, node: bytes, request: LogRead) -> None:
        """Read the log for a node's log sender."""
        assert self._nursery is not None
        self._nursery.start_soon(self._read_for_sender, node, request)

    async def _read_for_sender(self, node: bytes, request: LogRead) -> None:
        replicas, peer = self.replicas, self.replicas.peers[node]
        sender = peer.sender
        fed = request.cursor.replicas or sender.statuses
        spaces, is_cut = frozenset(replica.space for replica in fed), False
        # Another read for this catch-up cursor may start meanwhile; on one store cursor each would get only a part.
        log_cursor, request.cursor.log_cursor = request.cursor.log_cursor, None
        if log_cursor is None or (log_cursor.spaces, log_cursor.position) != (spaces, request.position):
            log_cursor = self._store.follow(spaces, request.position)
        page, position, is_cut = LogPage(), request.position, False
        ends = self.now() + replicas.relay_s / 4  # Another node would feed the target if nothing came for longer.
        try:
            for _ in range(request.slices):
                begins = position
                batches, position = await self._store.read_log(log_cursor)
                read = replicas.spaces.read(batches, sender.lacks)
                page.add([entry for entry in read if entry.replica.space in spaces], joins=request.slices > 1)
                if position == begins or request.is_stale or self.now() >= ends:
                    break
        except BelowFloor as error:
            floor = error.details["floor"]
            assert isinstance(floor, int), floor
            if position == request.position:
                position, is_cut = floor, True
        except GossipKVError as error:
            self._log.error("log_not_read", reason=error.message)
            await trio.sleep(KEEP_S)
        else:
            if not request.is_stale:
                request.cursor.log_cursor = log_cursor
        sender.read(request, page.entries, position, is_cut=is_cut)
        peer.due = 0.0
        self.wake()

    def wake(self) -> None:
        """Wake the loop that pumps."""
        self._news.set()

    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return self._clock.wall_ms()

    def barred(self, replica: Replica) -> None:
        """Log that a replica is barred."""
        self._log.error("copy_set_aside", partition=replica.identity.partition, reason=replica.barred)

    def loads(self, replica: Replica, source: bytes, what: str) -> None:
        """Log the progress of a bulk load."""
        self._log.info("copy_loads", partition=replica.identity.partition, source=source.hex(), what=what)

    def differs(self, replica: Replica, node: bytes) -> None:
        """Log replicas that differ."""
        self._log.error("copies_differ", partition=replica.identity.partition, node=node.hex())

    def log_too_small(self, replica: Replica) -> None:
        """Log that `table_log` is too small to load a replica."""
        self._log.error("table_log_too_small", partition=replica.identity.partition)
