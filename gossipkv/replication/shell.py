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
from typing import TYPE_CHECKING, Final, Protocol, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, Overloaded, StorageError
from gossipkv.log import Log
from gossipkv.replication.collecting import Collecting
from gossipkv.replication.comparing import Comparing
from gossipkv.replication.copy import ASIDE, IDENTITY, LOADING, MOVES, STATE, Copy, decode_identity
from gossipkv.replication.joining import JOINING, decode_joining
from gossipkv.replication.pace import Pace
from gossipkv.replication.replicas import ANSWER_S, Replicas
from gossipkv.replication.waiting import Waiting
from gossipkv.storage.engine.reading import BelowFloor
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Environment
    from gossipkv.replication.copy import Identity
    from gossipkv.replication.feed import Look
    from gossipkv.replication.outside import OnLog, OnReply
    from gossipkv.replication.store import FollowedStore
    from gossipkv.storage.engine.log_reader import Cursor
    from gossipkv.wire.rpc import Value

PLACE: Final = b"\0p"
KEEP_S: Final = 1.0  # Between two times that places are kept.
COLLECT_S: Final = 1.0  # Between two looks at tombstones, and two pages of a copy that is compared.
COMPARE_S: Final = 10.0  # Between two copies that are compared: each has its node ask all others that hold it.
MOST_CURSORS: Final = 64
FEW_SPACES: Final = 256  # Looked at before others have a turn.


class OnAnswer(Protocol):
    """What becomes of a question: the result, or why there is none."""

    def __call__(self, result: Value, error: GossipKVError | None, /) -> object: ...


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
        most_skew_s: float = 60.0,
    ) -> None:
        """`me`: this node's uuid; `relay_s`: after how long what lies is relayed; `most_waiting_bytes`: of requests."""
        self._store = store
        self._ask_node = ask
        self._clock = environment.clock
        self._log = Log("gossipkv.replication")
        self._news = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._places: int | None = None  # The space of places.
        self._kept: dict[bytes, bytes] = {}
        self.maps: dict[bytes, int] = {}  # By table: the config id of the map that its copies here go by.
        self.departed: dict[Copy, None] = {}  # Copies that are not there by their map any more.
        self.aside: dict[int, tuple[Identity, str]] = {}  # Copies that are set aside, by space: what each was, and why.
        self.waiting = Waiting(most_waiting_bytes)
        self.gives = Pace(transfer)  # Of what loads of other nodes take here.
        self._cursors: dict[tuple[int, int], Cursor] = {}  # Of loads, by space and position.
        self.replicas = Replicas(
            me,
            self,
            environment.random,
            store.synced_position,
            relay_s=relay_s,
            stall_s=stall_s,
            transfer=transfer,
            most_skew_s=most_skew_s,
        )
        self.collecting = Collecting(self.replicas, self)
        self.comparing = Comparing(self.replicas, self)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Find the copies in the store, and replicate, until cancelled."""
        await self._find()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._keep_places)
            nursery.start_soon(self._collect)
            nursery.start_soon(self._compare)
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

    def sizes(self, table: bytes) -> dict[int, int]:
        """About how many bytes each copy of a table takes, by partition.  Raises StorageError, Corrupt."""
        copies = [copy for copy in self.replicas.copies.values() if copy.partition[0] == table]
        return {copy.partition[1]: self.size_bytes(copy.space) for copy in copies}

    def size_bytes(self, space: int) -> int:
        """About how many bytes a space takes; 0 of one that is not synced yet.  Raises StorageError, Corrupt."""
        try:
            return self._store.size_bytes(space)
        except ValueError:  # Of a load that has just begun.
            return 0

    def departs(self, copy: Copy) -> None:
        """A copy is not there any more by its map: it feeds nobody, and is dropped when that is sure."""
        self.departed[copy] = None
        copy.departs()
        for peer in self.replicas.peers.values():
            peer.feed.adopted(copy, self.now())

    def let_go(self, copy: Copy, *, why: str = "") -> None:
        """Drop a copy; or, if it is said `why`, set it aside for people to look at.

        Raises:
            NotReady, Overloaded, StorageError: it stays, and may be let go of later.
        """
        self.replicas.loading.tear(copy)
        batch = Batch()
        if why:
            batch.put(copy.space, ASIDE, why.encode())
        else:
            batch.drop_space(copy.space)
        self.append(batch, lambda: None)
        if why:
            self.aside[copy.space] = copy.identity, why
        self.departed.pop(copy, None)
        self.replicas.drop(copy, Batch())  # Of its space something was done already.

    async def drop_aside(self, space: int) -> None:
        """Drop a copy that is set aside; returns when that is synced.  Raises Overloaded, StorageError."""
        synced, batch = trio.Event(), Batch()
        batch.drop_space(space)
        self.append(batch, synced.set)
        await synced.wait()
        del self.aside[space]

    def goes_by(self, table: bytes, config: int) -> None:
        """All copies of a table are placed as its map of that config id says."""
        self.maps[table] = config
        for copy in self.replicas.copies.values():
            if copy.identity.table == table:
                self.replicas.on_moved(copy)

    async def _find(self) -> None:
        for number, space in enumerate(self._store.spaces()):
            if number % FEW_SPACES == 0:
                await trio.lowlevel.checkpoint()
            identity = self._store.get(space, IDENTITY)
            state = self._store.get(space, STATE)
            if identity is not None and (why := self._store.get(space, ASIDE)) is not None:
                self.aside[space] = decode_identity(identity), why.decode()
            elif identity is not None and state is not None:
                joining = self._store.get(space, JOINING)
                copy = Copy(
                    space,
                    decode_identity(identity),
                    state,
                    joining=None if joining is None else decode_joining(joining),
                )
                copy.was_available = self._store.get(space, MOVES) is None
                self.replicas.found(copy)
            elif self._store.get(space, LOADING) is not None:
                self.replicas.loading.litter.append(space)
            elif self._store.get(space, PLACE) is not None:
                self._places = space
                self._read_places(space)

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

    async def _keep_places(self) -> None:
        """Have the places synced now and then: a feed goes on near where it was."""
        while True:
            await trio.sleep(KEEP_S)
            places = {node: msgpack.packb(one) for node, one in self.replicas.kept_places().items()}
            changed = {node: value for node, value in places.items() if self._kept.get(node) != value}
            if not changed or self._store.first_space is None:  # The first space is of what is decided.
                continue
            batch, space = Batch(), self._places
            if space is None:
                space = self._store.reserve_space()
                batch.new_space(space)
                batch.put(space, PLACE, b"")
            for node, value in changed.items():
                batch.put(space, PLACE + node, value)
            try:
                self.append(batch, partial(self._kept.update, changed))
            except Overloaded:
                continue
            except StorageError:
                return
            self._places = space

    async def _collect(self) -> None:
        """Have a few copies looked at now and then."""
        while True:
            await trio.sleep(COLLECT_S)
            self.collecting.look()

    async def _compare(self) -> None:
        """Have one copy after the other compared."""
        while True:
            await trio.sleep(COLLECT_S if self.comparing.is_amid else COMPARE_S)
            self.comparing.look()

    # -- the world of the copies -------------------------------------------------------------------------------------

    def append(self, batch: Batch, on_synced: Callable[[], object]) -> int:
        """Append a batch.  Raises Overloaded, StorageError."""

        def told(error: StorageError | None) -> None:
            if error is None:
                on_synced()

        return self._store.append(batch, told)

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
            if len(self._cursors) >= MOST_CURSORS:
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

    def look(self, node: bytes, look: Look) -> None:
        """Have the log read for the feed to a node."""
        assert self._nursery is not None
        self._nursery.start_soon(self._look, node, look)

    async def _look(self, node: bytes, look: Look) -> None:
        replicas = self.replicas
        copies = [look.lane.copy] if look.lane.copy is not None else replicas.peers[node].feed.told
        spaces, is_cut = frozenset(copy.space for copy in copies), False
        cursor = look.lane.cursor
        if cursor is None or (cursor.spaces, cursor.position) != (spaces, look.position):
            cursor = look.lane.cursor = self._store.follow(spaces, look.position)
        try:
            batches, position = await self._store.read_log(cursor)
        except BelowFloor as error:
            floor = error.details["floor"]
            assert isinstance(floor, int), floor
            look.lane.cursor = None
            batches, position, is_cut = [], floor, True
        except GossipKVError as error:
            self._log.error("log_not_read", reason=error.message)
            await trio.sleep(KEEP_S)
            batches, position, look.lane.cursor = [], look.position, None
        entries = [
            entry
            for at, operations in batches
            for space in {operation[1] for operation in operations}
            if (copy := replicas.spaces.get(space)) is not None and (entry := copy.entry_of(at, operations)) is not None
        ]
        replicas.peers[node].feed.read(look, entries, position, is_cut=is_cut)
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

    def set_aside(self, copy: Copy) -> None:
        """Tell people."""
        self._log.error("copy_set_aside", partition=copy.identity.partition, reason=copy.aside)

    def loads(self, copy: Copy, source: bytes, what: str) -> None:
        """Tell people."""
        self._log.info("copy_loads", partition=copy.identity.partition, source=source.hex(), what=what)

    def differs(self, copy: Copy, node: bytes) -> None:
        """Tell people."""
        self._log.error("copies_differ", partition=copy.identity.partition, node=node.hex())

    def log_too_small(self, copy: Copy) -> None:
        """Tell people."""
        self._log.error("table_log_too_small", partition=copy.identity.partition)
