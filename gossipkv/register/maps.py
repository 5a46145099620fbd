"""The maps of one node: their bases in the store, and the exchange of decided transactions with other nodes.

    known     the base of a map as far as it is synced here: readers use it, also after a restart without a quorum
    shown     the highest place of a decided value: from then on no older placement is reported

A base is written with the next acceptance, or soon, or at once if a caller waits for it. So a stream of transactions
costs no syncs of its own. Readers are told the edits of each map that became known (`on_edits`).

    map_changes  [[register, generation, sequence, ballot or nil], ...], wait_ms
                 [[register, generation, sequence, digest, ended, acceptors, ballot, transactions or nil], ...]
                 the maps that are newer here, with the transactions since; nil: read a snapshot. A ballot is that of
                 the value with these acceptors.
    map_page     register, start    [generation, sequence, entries, first key of the next page or nil]
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, final

import trio

from gossipkv.errors import BadRequest, GossipKVError, NotReady, ProtocolError
from gossipkv.log import Log
from gossipkv.register.ballot import BELOW, ZERO, Ballot, ballot_of
from gossipkv.register.configuration import Acceptors, acceptors_of
from gossipkv.register.edits import DIGEST_BYTES, MAX_MAP_BYTES, MAX_SEQUENCE, decode_value, transactions_of
from gossipkv.register.entries import EntryMap
from gossipkv.register.messages import REGISTER_BYTES
from gossipkv.register.snapshot import SnapshotReader, page_of, snapshot_page_of
from gossipkv.register.space import MAP
from gossipkv.register.state import RegisterMap, read_map

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from gossipkv.register.configuration import AcceptorId, Value
    from gossipkv.register.edits import Edit, Transaction
    from gossipkv.register.messages import AcceptorRecord
    from gossipkv.register.space import Space
    from gossipkv.register.state import Base
    from gossipkv.wire.rpc import Value as WireValue

    # Asks a node, by its uuid, with a method, parameters and a timeout in seconds. Raises GossipKVError: the node's
    # error, or `Unavailable` without an answer.
    AskNode = Callable[[bytes, str, list[WireValue], float], Awaitable[WireValue]]
    OnEdits = Callable[[bytes, "Sequence[Edit] | None"], object]  # None: a whole map, or its acceptors alone.

T = TypeVar("T")

PAUSE_S: Final = 0.1  # Shortest time between two maps of a register that readers hear of, unless one waits.
SOON_S: Final = 0.01  # A base that no acceptance carries to the disk by then is written alone.
ASK_S: Final = 2.0
UNDECIDED_S: Final = 0.2  # An accepted value without a decision is asked about after once to twice this time,
RETRY_S: Final = 2.0  # and again after this time.
MAX_ANSWER_BYTES: Final = 1 << 20  # No more maps follow in one answer.
FEW_BYTES: Final = 1 << 20  # A larger snapshot is checked in a thread.
MAX_SNAPSHOT_BYTES: Final = 3 * MAX_MAP_BYTES  # A full map takes no growth, but outcomes: 53 MB at most.
ATTEMPTS: Final = 3  # Readings of a snapshot from one node.


class Beside(Protocol):
    """A function that runs another in a worker thread."""

    async def __call__(self, do: Callable[[], T]) -> T:
        """Run `do` in a worker thread; pass on its result or error."""


class Peers(Protocol):
    """Access to other nodes, and to worker threads."""

    @property
    def beside(self) -> Beside: ...
    @property
    def ask(self) -> AskNode: ...


class MapPosition(NamedTuple):
    """How much of a map a node has."""

    generation: int = 0
    sequence: int = -1
    shown: Ballot = BELOW  # The ballot of the acceptors that it knows.


class MapNews(NamedTuple):
    """One row of an answer to `map_changes`."""

    register: bytes
    generation: int
    sequence: int
    digest: bytes
    ended: bool
    acceptors: Acceptors
    shown: Ballot
    transactions: Sequence[Transaction] | None  # None: the history does not reach back so far.

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.sequence


class _Undecided(NamedTuple):
    """A value that was accepted here, and of whose decision nothing was heard."""

    due_s: float  # The time at which to ask about it.
    place: tuple[int, int]
    ballot: Ballot
    acceptors: Acceptors

    def is_decided_by(self, base: Base) -> bool:
        """Return True if a decided map, or its acceptors, answers the question."""
        return base.place >= self.place and (base.shown >= self.ballot or base.acceptors == self.acceptors)


@final
@dataclass(eq=False, slots=True)
class _LocalMap:
    """A map of this node, and what is under way with it."""

    map: RegisterMap = field(default_factory=RegisterMap)
    synced: Base | None = None  # A base that is synced and not known yet.
    due_s: float = math.inf  # The time at which the base is written, and becomes known.
    known_s: float = 0.0  # The time at which a base became known last.
    undecided: _Undecided | None = None
    awaited: trio.Event | None = None  # Set when a base becomes known, if a caller waits for one.
    reading: trio.Lock = field(default_factory=trio.Lock)  # Held while the map is read from another node.

    @property
    def wakes_s(self) -> float:
        """The time at which something is due."""
        return self.due_s if self.undecided is None else min(self.due_s, self.undecided.due_s)


@final
@dataclass(eq=False, slots=True)
class _LongPoll:
    positions: Mapping[bytes, MapPosition]
    changed: dict[bytes, None] = field(default_factory=dict)
    news: trio.Event = field(default_factory=trio.Event)


@final
class Maps:
    """The maps of one node."""

    def __init__(self, space: Space, me: AcceptorId, peers: Peers, random: Random, on_edits: OnEdits) -> None:
        """`on_edits`: told of each map that became known, with its edits.

        Raises:
            ProtocolError, Unavailable: the space cannot be read.
        """
        self.known: dict[bytes, Base] = {}
        self.shown: dict[bytes, tuple[int, int]] = {}
        self._space = space
        self._me = me
        self._ask, self._beside = peers.ask, peers.beside
        self._on_edits = on_edits
        self._random = random
        self._nursery: trio.Nursery | None = None
        self._local: defaultdict[bytes, _LocalMap] = defaultdict(_LocalMap)
        self._unchecked: list[bytes] = []
        self._busy: dict[bytes, _LocalMap] = {}  # Those that have a time at which something is due.
        self._more = trio.Event()
        self._wakes_s = 0.0  # The time until which `run` sleeps.
        # Called with a register of which a value was accepted here, and nothing is heard of its decision.
        self.on_undecided: Callable[[bytes], object] = lambda _: None
        self._polls: dict[_LongPoll, None] = {}
        self._lacking: set[bytes] = set()  # Maps that the local acceptor or proposer waits for.
        self._refused: set[bytes] = set()  # Nodes that have sent what is no map: each is logged once.
        self._log = Log("gossipkv.register")
        self._load()

    def _load(self) -> None:
        records: dict[bytes, list[tuple[bytes, bytes]]] = {}
        start = len(MAP)
        for key, value in self._space.scan(MAP):
            records.setdefault(key[start : start + REGISTER_BYTES], []).append((key[start + REGISTER_BYTES :], value))
        for register, theirs in records.items():
            map_, strange = read_map(theirs)
            self._local[register] = _LocalMap(map_)
            if strange:
                self._append(register, dict.fromkeys(strange))
            if (base := map_.base) is not None and base.sequence:
                self.known[register], self.shown[register] = base, base.place
                self._unchecked.append(register)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check the bases that were on the disk, and write later ones, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._check()  # A damaged base may neither be shown nor take a transaction.
            task_status.started()
            await self._write()

    async def _check(self) -> None:
        for register in self._unchecked:
            local = self._local.get(register)
            if local is not None and not await self._beside(local.map.check):
                self._log.error("map_damaged", register=register.hex())
                local.map.is_damaged = True
                self.known.pop(register, None)
                self._on_edits(register, None)

    async def _write(self) -> None:
        while True:
            self._more = trio.Event()
            now_s, self._wakes_s = trio.current_time(), trio.current_time() + RETRY_S
            for register, local in [*self._busy.items()]:
                if local.due_s <= now_s:
                    self._flush(register, local)
                if local.undecided is not None and local.undecided.due_s <= now_s:
                    local.undecided = local.undecided._replace(due_s=now_s + RETRY_S)
                    self.on_undecided(register)
                if local.wakes_s == math.inf:
                    self._busy.pop(register, None)
                self._wakes_s = min(self._wakes_s, local.wakes_s)
            with trio.move_on_at(self._wakes_s):
                await self._more.wait()

    # -- the local acceptor and proposer -------------------------------------------------------------------------------

    def map(self, register: bytes) -> RegisterMap:
        """Return the map of a register."""
        return self._local[register].map

    def has(self, register: bytes) -> bool:
        """Return True if a map of the register was begun here."""
        return register in self._local

    def registers(self) -> Sequence[bytes]:
        """Return the registers with a map here."""
        return [*self._local]

    def holds(self, register: bytes, payload: bytes) -> bool:
        """Return True if this node may accept a payload."""
        local = self._local.get(register)  # A question about a register that has no map here leaves no trace.
        try:
            return (RegisterMap() if local is None else local.map).holds(decode_value(payload))
        except GossipKVError:
            return False

    def accepted(self, register: bytes, record: AcceptorRecord) -> None:
        """Take into the base all that is decided by the value that the acceptor has accepted."""
        if record.accepted is None or record.value is None:
            return
        value, generation = decode_value(record.value.payload), record.accepted.generation
        if value.ended and not self.has(register):
            return  # The map was forgotten, or never was here: nobody needs it any more.
        # The value's acceptors may not be decided yet, but others may be unknown.
        local, acceptors = self._local[register], record.value.acceptors
        base = local.map.base
        hint = acceptors if base is None or base.acceptors is None else None
        self._decide(register, lambda map_: map_.decide(value, generation, value.decided, hint, ZERO))
        place, base = (generation, value.sequence), local.map.base
        if place > self.shown.get(register, (0, 0)) or (base is not None and base.acceptors != acceptors):
            due_s = trio.current_time() + UNDECIDED_S * (1 + self._random.random())
            local.undecided, self._busy[register] = _Undecided(due_s, place, record.accepted, acceptors), local
            if due_s < self._wakes_s:
                self._more.set()

    def kept(self, register: bytes, record: AcceptorRecord) -> tuple[Mapping[bytes, bytes | None], Callable[[], None]]:
        """Return the records that go along with an acceptor's, and the callback for their sync."""
        self.accepted(register, record)
        return self._taken(register)

    def decided(self, register: bytes, value: Value, ballot: Ballot) -> bool:
        """Take a value that a quorum has accepted in this ballot; return False if its map must be fetched."""
        decided = decode_value(value.payload)
        place = ballot.generation, decided.sequence
        self.shown[register] = max(self.shown.get(register, place), place)
        of = decided, ballot.generation, decided.sequence, value.acceptors, ballot
        return self._decide(register, lambda map_: map_.decide(*of))

    def _decide(self, register: bytes, step: Callable[[RegisterMap], bool]) -> bool:
        """Take a step of a base."""
        map_ = self._local[register].map
        before = map_.base
        is_taken = step(map_)
        if map_.base is not None and map_.base is not before:
            self._moves(register, map_.base)
        return is_taken

    def _moves(self, register: bytes, base: Base) -> None:
        self.shown[register] = max(self.shown.get(register, base.place), base.place)
        local = self._local[register]
        if local.undecided is not None and local.undecided.is_decided_by(base):
            local.undecided = None
        self._wake_at(register, local, max(trio.current_time() + SOON_S, local.known_s + PAUSE_S))
        for poll in self._polls:
            if register in poll.positions:
                poll.changed[register] = None
                poll.news.set()

    def _wake_at(self, register: bytes, local: _LocalMap, due_s: float) -> None:
        local.due_s, self._busy[register] = min(local.due_s, due_s), local
        self._more.set()

    # -- the store -----------------------------------------------------------------------------------------------------

    def _taken(self, register: bytes) -> tuple[Mapping[bytes, bytes | None], Callable[[], None]]:
        """Return the unwritten records of a base, and the callback for their sync."""
        local = self._local.get(register)
        if local is None or local.map.base is None or not local.map.has_records:
            return {}, _nothing
        records = {MAP + register + key: record for key, record in local.map.records().items()}
        return records, partial(self._on_synced, register, local, local.map.base)

    def _on_synced(self, register: bytes, local: _LocalMap, base: Base) -> None:
        if self._local.get(register) is local and base.sequence:  # Before its first transaction nobody reads a map.
            local.synced = base
            due_s = local.known_s + PAUSE_S
            if local.awaited is not None or trio.current_time() >= due_s:
                self._publish(register, local, base)
            else:
                self._wake_at(register, local, due_s)

    def _publish(self, register: bytes, local: _LocalMap, base: Base) -> None:
        """Let readers use a synced map, and tell them its edits."""
        before, steps = self.known.get(register), None
        if before is not None and before.sequence <= base.sequence:
            steps = local.map.since(*before.place)
        self.known[register], local.synced = base, None
        local.known_s = trio.current_time()
        if base is local.map.base:
            local.due_s = math.inf
        if local.awaited is not None:
            local.awaited.set()
            local.awaited = None
        if steps is None:
            self._on_edits(register, None)
        else:
            self._on_edits(register, [edit for one in steps if one.sequence <= base.sequence for edit in one.edits])

    def _flush(self, register: bytes, local: _LocalMap) -> None:
        """Write what of a base is not written, and let readers use what is."""
        if local.synced is not None:
            self._publish(register, local, local.synced)
        local.due_s = math.inf
        records, on_synced = self._taken(register)
        if records:
            with contextlib.suppress(GossipKVError):  # The store is closed: nothing becomes known any more.
                self._space.append(records, on_synced)

    def _append(self, register: bytes, records: Mapping[bytes, bytes | None]) -> None:
        self._space.append({MAP + register + key: record for key, record in records.items()}, _nothing)

    async def reached(self, register: bytes, position: MapPosition, *, at_once: bool = True) -> Base:
        """Return the known base of a map once it has this position: its place, and its acceptors.

        `at_once`: write it for this caller; otherwise wait until that happens.

        Raises:
            NotReady: the map was forgotten.
            Unavailable: the store is closed.
        """
        while (local := self._local.get(register)) is not None:
            base = self.known.get(register)
            if base is not None and base.place >= position[:2] and base.shown >= position.shown:
                return base
            self._space.check_open()
            if at_once:
                self._flush(register, local)
            if local.awaited is None:
                local.awaited = trio.Event()
            with trio.move_on_after(ASK_S):  # A store that closes wakes nobody.
                await local.awaited.wait()
        raise NotReady("this node does not know the state of this table")

    async def forget(self, register: bytes, *, but_end: bool = False) -> None:
        """Forget a map and its records; `but_end`: remember that it ended, if it has, and at which place."""
        local, base = self._local.pop(register, None), self.known.pop(register, None)
        self._busy.pop(register, None)
        but_end &= base is not None and base.ended
        if base is not None and but_end:
            self.known[register] = base._replace(entries=EntryMap())
        if local is not None and local.awaited is not None:
            local.awaited.set()
        self._on_edits(register, None)
        if local is None or local.map.base is None:
            return
        if not but_end:
            self.shown.pop(register, None)
        *batches, last = local.map.gone(but_end=but_end)
        for batch in batches:  # All are appended at once: the map may begin anew before they are written.
            self._append(register, batch)
        await self._space.write({MAP + register + key: record for key, record in last.items()})

    # -- other nodes ---------------------------------------------------------------------------------------------------

    def _base(self, register: bytes) -> Base | None:
        """Return the base of a map if it may be shown to others."""
        local = self._local.get(register)
        return None if local is None or local.map.is_damaged else local.map.base

    def position(self, register: bytes) -> MapPosition:
        """Return how much of a map is here."""
        base = self._base(register)
        return MapPosition() if base is None else MapPosition(*base.place, base.shown)

    def page(self, register: bytes, start: bytes) -> WireValue:
        """Return the page of a map that begins at a key. Raises NotReady: the map is not here."""
        base = self._base(register)
        if base is None or base.ended:
            raise NotReady("this node does not have this map")
        generation, sequence, entries, following = page_of(base, start)
        return [generation, sequence, [[key, record] for key, record in entries], following]

    async def changes(self, positions: Mapping[bytes, MapPosition], wait_s: float) -> list[WireValue]:
        """Return the news since these positions; wait until there are any, or for `wait_s`."""
        rows = self._news(positions, positions)
        if rows or not wait_s:
            return rows
        poll = _LongPoll(positions)
        self._polls[poll] = None
        try:
            with trio.move_on_after(wait_s):
                while not rows:
                    await poll.news.wait()
                    poll.news = trio.Event()
                    rows = self._news(positions, poll.changed)
        finally:
            del self._polls[poll]
        return rows

    def _news(self, positions: Mapping[bytes, MapPosition], registers: Iterable[bytes]) -> list[WireValue]:
        rows: list[WireValue] = []
        size_bytes = 0
        for register in registers:
            base, (generation, sequence, shown) = self._base(register), positions[register]
            if base is None or (base.place <= (generation, sequence) and base.shown <= shown):
                continue
            steps = None if sequence < 0 or base.ended else self._local[register].map.since(generation, sequence)
            told: WireValue = None
            if steps is not None:
                told = [[one.sequence, [[key, record] for key, record in one.edits], one.digest] for one in steps]
                size_bytes += sum(len(key) + len(record or b"") for one in steps for key, record in one.edits)
            assert base.acceptors is not None, base.place
            old, new, joint = base.acceptors
            acceptors: WireValue = [[[*one] for one in old], [[*one] for one in new], joint]
            rows.append([register, *base.place, base.digest, base.ended, acceptors, [*base.shown], told])
            if size_bytes > MAX_ANSWER_BYTES:
                break
        return rows

    def fetch_soon(self, register: bytes, value: Value) -> None:
        """Fetch what this node lacks to hold a value, in a task of its own."""
        if self._nursery is not None and register not in self._lacking:
            self._nursery.start_soon(self.fetch, register, value)

    async def fetch(self, register: bytes, value: Value) -> bool:
        """Ask the acceptors of a value in turn until this node holds it; return False if it does not then."""
        nodes = sorted({acceptor.node for acceptor in value.acceptors.everyone} - {self._me.node})
        self._random.shuffle(nodes)
        self._lacking.add(register)
        try:
            for node in nodes:
                if self.holds(register, value.payload):
                    break
                with contextlib.suppress(GossipKVError):  # Another node may answer.
                    await self.pull(register, node)
        finally:
            self._lacking.discard(register)
        return self.holds(register, value.payload)

    async def pull(self, register: bytes, node: bytes) -> None:
        """Take the map of a node if it is newer. Raises GossipKVError."""
        position = self.position(register)
        for news in await self.ask(node, {register: position}):
            if position.sequence < 0 or register in self._local:  # Otherwise the map was forgotten meanwhile.
                await self.take(node, news)

    async def ask(
        self, node: bytes, positions: Mapping[bytes, MapPosition], wait_s: float = 0, *, silence_s: float = ASK_S
    ) -> list[MapNews]:
        """Ask a node for news; it waits for `wait_s`, and is silent after `silence_s` more. Raises GossipKVError."""
        rows: list[WireValue] = [
            [register, generation, sequence, None if shown == BELOW else [*shown]]
            for register, (generation, sequence, shown) in positions.items()
        ]
        answer = await self._ask(node, "map_changes", [rows, int(wait_s * 1000)], wait_s + silence_s)
        with self._refusals_told(node):
            found = [*map(news_of, answer if isinstance(answer, list) else [])]
        return [news for news in found if news.register in positions]

    async def take(self, node: bytes, news: MapNews) -> None:
        """Take news of a node, which gives the rest if needed. Raises GossipKVError."""
        register, transactions = news.register, news.transactions
        local = self._local[register]
        base = local.map.base
        if not local.map.takes(news.place) or (base is not None and base.ended):
            return
        self.shown[register] = max(self.shown.get(register, news.place), news.place)
        if news.ended:
            self._decide(register, lambda map_: map_.end(*news.place, news.acceptors, news.shown))
            return
        if transactions is not None and base is not None:
            end = transactions[-1][::2] if transactions else (base.sequence, base.digest)
            of = news.generation, transactions, news.acceptors, news.shown
            if end == (news.sequence, news.digest) and self._decide(register, lambda map_: map_.follow(*of)):
                return
        async with local.reading:  # Others may read the same map.
            if self.position(register)[:2] < news.place:
                with self._refusals_told(node):
                    await self._read_snapshot(node, news)

    @contextlib.contextmanager
    def _refusals_told(self, node: bytes) -> Iterator[None]:
        try:
            yield
        except ProtocolError as error:
            if node not in self._refused:
                self._refused.add(node)
                self._log.warning("map_refused", node=node.hex(), reason=error.message)
            raise

    async def _read_snapshot(self, node: bytes, news: MapNews) -> None:
        register = news.register
        local = self._local[register]
        if local.map.base is None:
            self._space.check_free()  # A first map only takes room.
        for _ in range(ATTEMPTS):
            reader = SnapshotReader(MAX_SNAPSHOT_BYTES)
            while reader.start is not None:
                reader.take(snapshot_page_of(await self._ask(node, "map_page", [register, reader.start], ASK_S)))
            assert reader.first is not None
            position = MapPosition(reader.first.generation, reader.first.sequence)
            rest = [row for row in await self.ask(node, {register: position}) if row.transactions is not None]
            if not rest or rest[0].generation != reader.first.generation:
                continue
            last = rest[0]
            assert last.transactions is not None
            finish = partial(reader.finish, last.transactions, last.digest)
            read = await self._beside(finish) if reader.size_bytes > FEW_BYTES else finish()
            if self._local.get(register) is not local:
                return  # The map was forgotten meanwhile.
            base = read._replace(acceptors=last.acceptors, shown=last.shown)
            if local.map.takes(base.place):
                self._replace(register, local, base)
            return
        raise NotReady("the map changes too fast to be read", {"node": node.hex()})

    def _replace(self, register: bytes, local: _LocalMap, base: Base) -> None:
        written, gone = local.map.replace(base)
        for batch in written:
            self._append(register, batch)
        self._flush(register, local)
        for batch in gone:
            self._append(register, batch)
        self._moves(register, base)


def _nothing() -> None:
    pass


def position_of(row: object) -> tuple[bytes, MapPosition]:
    """Read a row of a question for news. Raises BadRequest: the row does not have that form."""
    match row:
        case [bytes(register), int(generation), int(sequence), shown] if len(register) == REGISTER_BYTES:
            with contextlib.suppress(ProtocolError):
                return register, MapPosition(generation, sequence, BELOW if shown is None else ballot_of(shown))
    raise BadRequest("a position must be [register, generation, sequence, ballot or nil]", {"got": repr(row)[:80]})


def news_of(row: WireValue) -> MapNews:
    """Read a row of an answer. Raises ProtocolError: the row does not have that form."""
    match row:
        case [bytes(register), int(generation), int(sequence), bytes(digest), bool(ended), of, shown, rows] if (
            len(register) == REGISTER_BYTES and generation >= 0 <= sequence <= MAX_SEQUENCE
            and len(digest) == DIGEST_BYTES
        ):  # fmt: skip
            acceptors, transactions = acceptors_of(of), None if rows is None else transactions_of(rows)
            return MapNews(register, generation, sequence, digest, ended, acceptors, ballot_of(shown), transactions)
    form = "[register, generation, sequence, digest, ended, acceptors, ballot, transactions]"
    raise ProtocolError(f"news of a map must be {form}", {"got": repr(row)[:80]})
