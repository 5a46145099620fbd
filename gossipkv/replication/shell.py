r"""Replication under Trio: a node's copies in its store, and the ways to other nodes.

    replication = Replication(store, ask, environment, me, relay_s=0.2)
    await nursery.start(replication.run)            # the copies that are in the store are found by then
    replication.replicas.place(identity, config, hosts)
    replication.connected(node)                     # and `disconnected`

Where feeds are is kept, once a second, in a space of its own: under `\0p` and a node's uuid its place, and the lanes.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, NotReady, Overloaded, StorageError
from gossipkv.log import Log
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.maintenance.digests import DigestExchange
from gossipkv.replication.maintenance.range_cleanup import RangeCleanup
from gossipkv.replication.maintenance.tombstone_gc import TombstoneCollector
from gossipkv.replication.replica.keys import ASIDE, ENDED, IDENTITY, JOINING, KIND_BYTES, LOADING, RECORD, STATE
from gossipkv.replication.replica.replica import Replica
from gossipkv.replication.replica_set import ANSWER_S, ReplicaSet
from gossipkv.replication.snapshot.rate_limit import RateLimit
from gossipkv.storage.engine.reading import BelowFloor
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Environment
    from gossipkv.replication.ports import OnLog, OnReply
    from gossipkv.replication.replica.hlc import ClockSkew
    from gossipkv.replication.replica.keys import KeyBounds
    from gossipkv.replication.replica.spaces import QuarantinedReplica
    from gossipkv.replication.store import FollowedStore
    from gossipkv.replication.stream.cursors import LogRead
    from gossipkv.storage.engine.log_reader import LogCursor
    from gossipkv.wire.rpc import Value

PLACE: Final = b"\0p"
SMEARED: Final = b"\0w"
KEEP_S: Final = 1.0  # Between two times that places are kept.
COLLECT_S: Final = 1.0  # Between two looks at tombstones, and two pages of a copy that is compared.
CLEAR_S: Final = 0.05  # Between two pages of what was left, and until it is looked for again many times that.
COMPARE_S: Final = 10.0  # Between two copies that are compared: each has its node ask all others that hold it.
RETRY_S: Final = 60.0  # Until what could not be deleted is tried again.
MAX_CURSORS: Final = 64
FEW_SPACES: Final = 256  # Looked at before others have a turn.


class OnAnswer(Protocol):
    """What becomes of a question: the result, or why there is none."""

    def __call__(self, result: Value, error: GossipKVError | None, /) -> object: ...


class Measured(NamedTuple):
    """About how much a copy has."""

    bytes: int
    rows: int


class AskNode(Protocol):
    """A function that asks a node; `on_answer` is called once."""

    def __call__(
        self, node: bytes, method: str, params: list[Value], timeout_s: float, on_answer: OnAnswer, /
    ) -> None: ...


@final
class Replication:
    """The copies of a node, under Trio."""

    def __init__(
        self,
        store: FollowedStore,
        ask: AskNode,
        environment: Environment,
        me: bytes,
        *,
        relay_s: float,
        most_waiting_bytes: int,
        stall_s: float = 60.0,
        transfer: float = inf,
        skew: ClockSkew | None = None,
    ) -> None:
        """`me`: this node's uuid; `relay_s`: after how long what lies is relayed; `most_waiting_bytes`: of requests."""
        self._store = store
        self._ask_node = ask
        self._clock = environment.clock
        self._log = Log("gossipkv.replication")
        self._news = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._places: int | None = None  # The space of places,
        self.smeared: int | None = (
            None  # and that of puts which wait to be forwarded (`table.controllers.smear_buffer`).
        )
        self._kept: dict[bytes, bytes] = {}
        self.departed: dict[Replica, None] = {}  # Copies that are not there by their map any more.
        self.waiting = ParkedRequests(most_waiting_bytes, self.wake)
        self.gives = RateLimit(transfer)  # Of what loads of other nodes take here.
        self._cursors: dict[tuple[int, int], LogCursor] = {}  # Of loads, by space and position.
        self.replicas = ReplicaSet(
            me,
            self,
            environment.random,
            store.synced_position,
            relay_s=relay_s,
            stall_s=stall_s,
            transfer=transfer,
            skew=skew,
        )
        self.clearing = RangeCleanup(self.replicas.spaces, self, RateLimit(transfer))
        self.collecting = TombstoneCollector(self.replicas, self)
        self.comparing = DigestExchange(self.replicas, self)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Find the copies in the store, and replicate, until cancelled."""
        await self._find()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            comparing, left = self.comparing, self.replicas.spaces
            nursery.start_soon(self._repeat, self._keep_places, lambda: KEEP_S)
            nursery.start_soon(self._repeat, self.collecting.look, lambda: COLLECT_S)
            nursery.start_soon(self._repeat, comparing.look, lambda: COLLECT_S if comparing.is_amid else COMPARE_S)
            nursery.start_soon(self._repeat, self._clear, lambda: CLEAR_S if left.left else CLEAR_S * 20)
            task_status.started()
            while True:
                self._news = trio.Event()
                now = self.now()
                self.replicas.pump()
                self.waiting.wake(now)
                dues = [due for due in (self.replicas.due, self.waiting.due) if due is not None]
                with trio.move_on_at(min(dues, default=now + 3600.0)):
                    await self._news.wait()

    def connected(self, node: bytes) -> None:
        """There is a connection to a node."""
        self.replicas.connected(node)

    def disconnected(self, node: bytes) -> None:
        """There is none any more."""
        self.replicas.disconnected(node)

    @property
    def refusal(self) -> str | None:
        """Why the store takes no writes now; None: it does."""
        return self._store.refusal

    def size_bytes(self, space: int, bounds: KeyBounds) -> int:
        """About how many bytes of a space are within bounds; 0 of one that is not synced yet.

        Raises:
            StorageError, Corrupt: it cannot be read.
        """
        try:
            return self._store.size_bytes(space, *bounds.records)
        except ValueError:  # Of a load that has just begun.
            return 0

    def measure(self, copy: Replica) -> Measured:
        """About how much a copy has, those records among it that were replaced or deleted.  Raises as `size_bytes`."""
        return Measured(self.size_bytes(copy.space, copy.bounds), self._store.rows(copy.space, *copy.bounds.records))

    def middle_of(self, copy: Replica) -> bytes | None:
        """A user's key with about half of a copy before it; None: it has one key.  Raises StorageError, Corrupt."""
        key = self._store.middle_key(copy.space, *copy.bounds.records)
        return None if key is None else key[len(RECORD) :]

    def departs(self, copy: Replica) -> None:
        """A copy is not there any more by its map: it feeds nobody, and is dropped when that is sure."""
        self.departed[copy] = None
        copy.departs()
        self.replicas.spaces.hides(copy)
        for peer in self.replicas.peers.values():
            peer.feed.adopted(copy, self.now())
        self.wake()

    def let_go(self, copy: Replica, *, why: str = "") -> None:
        """Drop a copy; or, if it is said `why`, set it aside for people to look at.

        Raises:
            NotReady, Overloaded, StorageError: it stays, and may be let go of later.
        """
        self.replicas.loading.tear(copy)
        batch = Batch()
        batch.relieves = True
        spaces = self.replicas.spaces
        if why:
            copy.put(batch, ASIDE, why.encode())
        else:
            spaces.leaves(copy, batch)
        self.append(batch, lambda: None)
        if why:
            spaces.set_aside(copy, why)
        else:
            spaces.remove(copy, copy.space, copy.suffix)
        self.departed.pop(copy, None)
        self.replicas.forget(copy, Batch())  # It loads nothing any more.

    def kept(self, one: QuarantinedReplica) -> Replica | None:
        """What is set aside, as the copy that it was; None: it was not whole.

        Raises:
            NotReady: it is not synced yet that it is.
        """
        if self._store.get(one.space, IDENTITY + one.suffix) is None:
            raise NotReady("a copy is about to be set aside")
        state = self._store.get(one.space, STATE + one.suffix)
        if state is None or self._store.get(one.space, JOINING + one.suffix) is not None:
            return None
        copy = Replica(one.space, one.identity, state, suffix=one.suffix)
        copy.ended = self._store.get(one.space, ENDED + one.suffix) or b""
        return copy

    async def drop_aside(self, one: QuarantinedReplica) -> None:
        """Drop what is set aside; returns when that is synced.  Raises Overloaded, StorageError."""
        synced, batch, spaces = trio.Event(), Batch(), self.replicas.spaces
        batch.relieves = True
        spaces.leaves(one, batch)
        self.append(batch, synced.set)
        spaces.dropped_aside(one)
        await synced.wait()

    def goes_by(self, table: bytes, config: int) -> None:
        """All copies of a table are placed as its map of that config id says."""
        self.replicas.maps[table] = config
        for copy in self.replicas.copies.values():
            if copy.partition[0] == table:
                self.replicas.on_moved(copy)

    @property
    def maps(self) -> dict[bytes, int]:
        """By table: the config id of the map that its copies here go by."""
        return self.replicas.maps

    async def _find(self) -> None:
        for number, space in enumerate(self._store.spaces()):
            if number % FEW_SPACES == 0:
                await trio.lowlevel.checkpoint()
            kept = self._kept_in(space)
            for copy in self.replicas.spaces.found(space, kept, self._store.synced_position):
                self.replicas.found(copy)
            kinds = {key[:KIND_BYTES] for key, _ in kept}
            if LOADING in kinds:
                self.replicas.loading.litter.append(space)
            elif PLACE in kinds:
                self._places = space
                self._read_places(space)
            elif SMEARED in kinds:
                self.smeared = space

    def _kept_in(self, space: int) -> list[tuple[bytes, bytes]]:
        """What stands in a space before the records."""
        kept: list[tuple[bytes, bytes]] = []
        start: bytes | None = b""
        while start is not None:
            rows, start = self._store.scan(space, start, RECORD)
            kept += rows
        return kept

    # -- places ------------------------------------------------------------------------------------------------------

    def _read_places(self, space: int) -> None:
        start: bytes | None = PLACE
        while start is not None:
            records, start = self._store.scan(space, start, PLACE + b"\xff" * 17)
            for key, value in records:
                node = key[len(PLACE) :]
                if node:
                    place, lanes = msgpack.unpackb(value, strict_map_key=False)
                    self.replicas.places[node] = place, lanes
                    self._kept[node] = value

    async def _repeat(self, look: Callable[[], object], pause_s: Callable[[], float]) -> None:
        """Look now and then, until cancelled; what the store does not give or take ends nothing, and is told once."""
        why = ""
        while True:
            await trio.sleep(pause_s())
            try:
                look()
                why = ""
            except Overloaded:
                pass
            except GossipKVError as error:  # A page of the store is damaged, or its disk has failed.
                if error.message != why:
                    self._log.error("upkeep_waits", reason=error.message)
                why = error.message
                await trio.sleep(RETRY_S)

    def _keep_places(self) -> None:
        """Have the places synced: a feed goes on near where it was.  Raises Overloaded, StorageError."""
        places = {node: msgpack.packb(one) for node, one in self.replicas.kept_places().items()}
        changed = {node: value for node, value in places.items() if self._kept.get(node) != value}
        if not changed or self._store.first_space is None:  # The first space is of what is decided.
            return
        batch, space = Batch(), self._places
        if space is None:
            space = self._store.reserve_space()
            batch.new_space(space)
            batch.put(space, PLACE, b"")
        for node, value in changed.items():
            batch.put(space, PLACE + node, value)
        self.append(batch, partial(self._kept.update, changed))
        self._places = space

    def _clear(self) -> None:
        self.clearing.look()
        if self.replicas.spaces.divided:
            self.clearing.forget_divided(self._store.log_floor)

    def fail(self, error: GossipKVError | OSError) -> None:
        """Have the store end as if its log had failed: it is opened again by and by."""
        self._store.fail(str(error))

    # -- the world of the copies -------------------------------------------------------------------------------------

    def append(self, batch: Batch, on_synced: Callable[[], object]) -> int:
        """Append a batch.  Raises Overloaded, StorageError."""
        return self.append_told(batch, lambda error: None if error is not None else on_synced())

    def append_told(self, batch: Batch, on_told: Callable[[StorageError | None], object]) -> int:
        """Append a batch; `on_told` hears also why it was not synced.  Raises Overloaded, StorageError."""
        return self._store.append(batch, on_told)

    def get(self, space: int, key: bytes) -> bytes | None:
        """What is synced."""
        return self._store.get(space, key)

    def scan(
        self, space: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """A page of what is synced."""
        return self._store.scan(space, start, end, reverse=reverse, limit=limit)

    def synced(self) -> int:
        """Up to which position all is synced."""
        return self._store.synced_position

    def read_log(self, space: int, position: int, on_log: OnLog) -> None:
        """Read what the log has of a space behind a position."""
        assert self._nursery is not None
        self._nursery.start_soon(self._read_log, space, position, on_log)

    async def _read_log(self, space: int, position: int, on_log: OnLog) -> None:
        cursor = self._cursors.pop((space, position), None) or self._store.follow(frozenset([space]), position)
        try:
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
            self._cursors[space, behind] = cursor
        on_log(batches, behind)
        self.wake()

    def reserve_space(self) -> int:
        """The number of a space that a batch may make."""
        return self._store.reserve_space()

    def ask(self, node: bytes, method: str, params: list[Value], on_reply: OnReply) -> None:
        """Ask a node."""
        self.ask_whole(node, method, params, ANSWER_S, lambda result, error: on_reply(None if error else result))

    def ask_whole(self, node: bytes, method: str, params: list[Value], timeout_s: float, on_answer: OnAnswer) -> None:
        """Ask a node what its answer, or its error, is wanted of."""
        self._ask_node(node, method, params, timeout_s, on_answer)

    def look(self, node: bytes, look: LogRead) -> None:
        """Have the log read for the feed to a node."""
        assert self._nursery is not None
        self._nursery.start_soon(self._look, node, look)

    async def _look(self, node: bytes, look: LogRead) -> None:
        replicas = self.replicas
        feed = replicas.peers[node].feed
        copies = look.lane.copies or feed.told
        spaces, is_cut = frozenset(copy.space for copy in copies), False
        # Nobody else's meanwhile: the lane may look anew before this is read, and two on one cursor have each a part.
        cursor, look.lane.cursor = look.lane.cursor, None
        if cursor is None or (cursor.spaces, cursor.position) != (spaces, look.position):
            cursor = self._store.follow(spaces, look.position)
        try:
            batches, position = await self._store.read_log(cursor)
        except BelowFloor as error:
            floor = error.details["floor"]
            assert isinstance(floor, int), floor
            batches, position, is_cut = [], floor, True
        except GossipKVError as error:
            self._log.error("log_not_read", reason=error.message)
            await trio.sleep(KEEP_S)
            batches, position = [], look.position
        else:
            if not look.is_stale:
                look.lane.cursor = cursor
        entries = [entry for entry in replicas.spaces.read(batches, feed.lacks) if entry.copy.space in spaces]
        feed.read(look, entries, position, is_cut=is_cut)
        self.wake()

    def wake(self) -> None:
        """Have the pump run soon."""
        self._news.set()

    def now(self) -> float:
        """Trio's clock."""
        return trio.current_time()

    def now_ms(self) -> int:
        """The time of day."""
        return self._clock.wall_ms()

    def set_aside(self, copy: Replica) -> None:
        """Tell people."""
        self._log.error("copy_set_aside", partition=copy.identity.partition, reason=copy.aside)

    def loads(self, copy: Replica, source: bytes, what: str) -> None:
        """Tell people."""
        self._log.info("copy_loads", partition=copy.identity.partition, source=source.hex(), what=what)

    def differs(self, copy: Replica, node: bytes) -> None:
        """Tell people."""
        self._log.error("copies_differ", partition=copy.identity.partition, node=node.hex())

    def log_too_small(self, copy: Replica) -> None:
        """Tell people."""
        self._log.error("table_log_too_small", partition=copy.identity.partition)
