"""Known heads of maps: the one state on which transactions build, which reads use, and which other nodes hear of.

    shown   a full round has shown it, or it was written here: from then on no older placement is reported
    known   its map is also held and synced here: reads use it, also after a restart without a quorum

A shown head is *learned*: a task holds the map and syncs the head. Then unneeded pins end, waiters are woken, and
`on_known` is called. If a map keeps changing, a head is learned at once when a caller waits for it. Otherwise only the
newest is learned, `PAUSE_S` after the last one, so the cost does not grow with the number of changes. No shown or known
head is ever replaced by an older one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import GossipKVError, ProtocolError, UnknownDatabase
from gossipkv.register.configuration import Acceptors, members_of
from gossipkv.register.metadata.head import MapHead, decode_head
from gossipkv.register.metadata.pages import config_id, pack, sequence_of, unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gossipkv.register.space import Space

    Step = Callable[[bytes, "KnownMap"], Awaitable[None]]  # Called with a register and a head.

KNOWN: Final = b"k"  # Key in the space, before the register, of the known head and its acceptors.
MAX_KNOWN_BYTES: Final = 8 << 10
PAUSE_S: Final = 0.1


class KnownMap(NamedTuple):
    """The head and the acceptors of a map, as a full round has shown or written them."""

    head: MapHead
    acceptors: Acceptors
    generation: int  # The generation of the ballot: a forced head may have a lower config id than the lost one.

    @property
    def config(self) -> int:
        """The config id for operations: a force raises its generation before any change in the map."""
        return config_id(self.generation, sequence_of(self.head.config))

    @property
    def place(self) -> tuple[int, int, bool]:
        """Position of this head among all heads of the register; it never falls."""
        return self.generation, self.head.config, self.head.ended

    def encode(self) -> bytes:
        """Return the record."""
        acceptors = self.acceptors
        return pack((self.head.encode(), acceptors.old, acceptors.new, acceptors.joint, self.generation))


@final
@dataclass(eq=False, slots=True)
class _Standing:
    """State of one map beside its known head."""

    shown: KnownMap
    written: bool = False  # This node has written the head, and has heard of no other since.
    learning: bool = False  # A task is learning the head.
    failed: GossipKVError | None = None  # Why the shown head could not be learned; the next `show` tries again.
    moved: trio.Event = field(default_factory=trio.Event)  # Set when the head is known, or has failed.
    wanted: trio.Event = field(default_factory=trio.Event)  # Set when a caller waits.


@final
class Heads:
    """The heads of all maps of a node."""

    def __init__(self, space: Space, hold: Step, settle: Step) -> None:
        """`hold` makes this node hold the map of a head; `settle` ends the pins that a known head makes unnecessary.

        Both raise GossipKVError. Raises ProtocolError, Unavailable: the space cannot be read.
        """
        self._space = space
        self._hold = hold
        self._settle = settle
        # The known heads, by register; only this object changes them.
        self.known = {key[len(KNOWN) :]: known_of(value) for key, value in space.scan(KNOWN)}
        self._standings = {register: _Standing(known_map) for register, known_map in self.known.items()}
        self._nursery: trio.Nursery | None = None
        self.on_known: Callable[[], None] | None = None  # Called when more is known, to tell other nodes.
        self.on_changed: Callable[[bytes], object] = lambda _: None  # Called at once with the register of a new head.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn shown heads, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def shown(self, register: bytes) -> KnownMap | None:
        """Return the newest head that a full round has shown, or that was written here."""
        standing = self._standings.get(register)
        return None if standing is None else standing.shown

    def written(self, register: bytes) -> KnownMap | None:
        """Return the head if this node has written it and has heard of no other: the next change may build on it."""
        standing = self._standings.get(register)
        return standing.shown if standing is not None and standing.written else None

    def doubt(self, register: bytes) -> None:
        """Note that another node may have written a head."""
        standing = self._standings.get(register)
        if standing is not None:
            standing.written = False

    def show(self, register: bytes, known_map: KnownMap, *, written: bool = False) -> KnownMap:
        """Process a head that a full round has shown or, if `written`, that was written here; return the newest."""
        standing = self._standings.get(register)
        if standing is None:
            standing = self._standings[register] = _Standing(known_map)
        if known_map.place >= standing.shown.place:
            standing.written = written or (standing.written and known_map == standing.shown)
            standing.shown = known_map
        standing.failed = None
        if not standing.learning and standing.shown != self.known.get(register) and self._nursery is not None:
            standing.learning = True
            self._nursery.start_soon(self._learn, register, standing)
        return standing.shown

    async def learn(self, register: bytes, known_map: KnownMap) -> KnownMap:
        """Make the head of a full round, or a newer one, known; return the known head.

        Raises:
            NotReady: a page of the map cannot be fetched now, and the known head stays.
            Unavailable: the store is closed.
            UnknownDatabase: the map was forgotten.
        """
        wanted, standing = self.show(register, known_map), self._standings[register]
        while self._standings.get(register) is standing:
            found = self.known.get(register)
            if found is not None and (found == wanted or found.place > wanted.place):
                return found
            if standing.failed is not None:
                raise standing.failed
            await self._wait_for_change(standing)
        raise UnknownDatabase("the table was dropped")

    async def reached(self, register: bytes, config: int) -> KnownMap:
        """Return the known head of a map once its config id is at least `config`; wait as long as it takes.

        Raises:
            UnknownDatabase: no head of the map was ever shown, or the table was dropped.
        """
        while (standing := self._standings.get(register)) is not None and not standing.shown.head.ended:
            found = self.known.get(register)
            if found is not None and found.config >= config:
                return found
            await self._wait_for_change(standing)
        raise UnknownDatabase("this node knows no such table")

    def forget(self, register: bytes, *, but_shown: bool) -> None:
        """Forget the head of a map in memory; with `but_shown`, remember the shown head."""
        self.known.pop(register, None)
        self.on_changed(register)
        standing = self._standings.pop(register, None)
        if standing is not None:
            if but_shown:
                self._standings[register] = _Standing(standing.shown)
            standing.moved.set()

    async def _wait_for_change(self, standing: _Standing) -> None:
        standing.wanted.set()
        await standing.moved.wait()

    async def _learn(self, register: bytes, standing: _Standing) -> None:
        """Learn the shown head, until it is known or cannot be."""
        while self._standings.get(register) is standing and standing.shown != self.known.get(register):
            shown = standing.shown
            standing.wanted = trio.Event()
            try:
                await self._store(register, standing, shown)
            except GossipKVError as error:
                if standing.shown == shown:
                    standing.failed = error
                    break
                continue
            self._wake_waiters(standing)
            if self.on_known is not None:
                self.on_known()
            with trio.move_on_after(PAUSE_S):
                await standing.wanted.wait()
        standing.learning = False
        self._wake_waiters(standing)

    async def _store(self, register: bytes, standing: _Standing, shown: KnownMap) -> None:
        if not shown.head.ended:
            await self._hold(register, shown)
        if self._standings.get(register) is not standing:
            return

        def synced() -> None:
            if self._standings.get(register) is standing:
                self.known[register] = shown
                self.on_changed(register)

        await self._space.write({KNOWN + register: shown.encode()}, synced)
        if self._standings.get(register) is standing:
            await self._settle(register, shown)

    @staticmethod
    def _wake_waiters(standing: _Standing) -> None:
        moved, standing.moved = standing.moved, trio.Event()
        moved.set()


def known_of(value: bytes) -> KnownMap:
    """Read the record of a known head.

    Raises:
        ProtocolError: the value is no result of `KnownMap.encode`.
    """
    match unpack(value, MAX_KNOWN_BYTES):
        case (bytes(payload), tuple(old), tuple(new), int(joint), int(generation)):
            before, after = map(members_of, (old, new))
            return KnownMap(decode_head(payload), Acceptors(before, after if joint else before, joint), generation)
    raise ProtocolError("a known head must be [head, old acceptors, new acceptors, joint id, generation]")
