"""What a node knows of the head of each map: one notion, for who builds on it, reads by it, or tells others of it.

    shown   a full round has shown it, or has written it here: from then on nothing older is said of placement
    known   it is held and synced here, too: reads go by it, also after a restart in the dark

Whatever a round shows is *learned*: a task holds the map, and has it synced; then the pins that nobody can need any
more end, who waits is woken, and whoever tells others is told.  Of a map that changes again and again every state that
somebody waits for is learned, and else the newest, `PAUSE_S` after the last: what that costs does not grow with the
changes.  Neither a shown nor a known head ever falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.errors import GossipKVError, ProtocolError, UnknownDatabase
from gossipkv.register.configuration import Acceptors, members_of
from gossipkv.register.metadata.head import Head, decode_head
from gossipkv.register.metadata.pages import config_id, pack, sequence_of, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gossipkv.register.space import Space

KNOWN: Final = b"k"  # In the space, with a register: the head that is known, and its acceptors.
MOST_KNOWN_BYTES: Final = 8 << 10
PAUSE_S: Final = 0.05


class Known(NamedTuple):
    """The head and the acceptors of a map, as a full round has shown or written them."""

    head: Head
    acceptors: Acceptors
    generation: int  # Of the ballot: a forced head may have a lower config id than the one that was lost.

    @property
    def config(self) -> int:
        """The config id that operations go by: a force raises its generation before anything is changed in it."""
        return config_id(self.generation, sequence_of(self.head.config))

    @property
    def place(self) -> tuple[int, int, bool]:
        """The place of this head among all that the register had: it never falls."""
        return self.generation, self.head.config, self.head.ended

    def encode(self) -> bytes:
        """The record."""
        acceptors = self.acceptors
        return pack((self.head.encode(), acceptors.old, acceptors.new, acceptors.joint, self.generation))


class Hold(Protocol):
    """A function that has the map of a head held here."""

    async def __call__(self, register: bytes, known: Known) -> None:
        """Hold it.  Raises MissingPage, ProtocolError, Unavailable."""
        ...


class Settle(Protocol):
    """A function that lets go of what nobody needs behind a head that is known."""

    async def __call__(self, register: bytes, known: Known) -> None:
        """Let go of it.  Raises Unavailable: the store is closed."""
        ...


@final
@dataclass(eq=False, slots=True)
class _Standing:
    """What is known of one map beside its known head."""

    shown: Known
    written: bool = False  # It was written by this node, and nobody was faster since.
    learning: bool = False  # A task is at it.
    failed: GossipKVError | None = None  # Why what is shown is not known; the next that shows it tries again.
    moved: trio.Event = field(default_factory=trio.Event)  # It is known, or has failed.
    wanted: trio.Event = field(default_factory=trio.Event)  # Somebody waits.


@final
class Heads:
    """The heads of all maps of a node."""

    def __init__(self, space: Space, hold: Hold, settle: Settle) -> None:
        """Raises ProtocolError, Unavailable: what the space has cannot be read."""
        self._space = space
        self._hold = hold
        self._settle = settle
        self._known = {key[len(KNOWN) :]: known_of(value) for key, value in space.scan(KNOWN)}
        self._standings = {register: _Standing(known) for register, known in self._known.items()}
        self._nursery: trio.Nursery | None = None
        self.on_known: Callable[[], None] | None = None  # Called when more is known: whoever tells others looks.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Learn what is shown, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    @property
    def known(self) -> Mapping[bytes, Known]:
        """The heads that are known, by register."""
        return self._known

    def shown(self, register: bytes) -> Known | None:
        """The newest head that a full round has shown, or written here."""
        standing = self._standings.get(register)
        return None if standing is None else standing.shown

    def written(self, register: bytes) -> Known | None:
        """The head, if this node has written it, and has not heard of another: the next change may build on it."""
        standing = self._standings.get(register)
        return standing.shown if standing is not None and standing.written else None

    def doubt(self, register: bytes) -> None:
        """Take in that somebody else may have written a head."""
        standing = self._standings.get(register)
        if standing is not None:
            standing.written = False

    def show(self, register: bytes, known: Known, *, written: bool = False) -> Known:
        """Take in what a full round has shown, or, if it was `written`, written here; returns the newest."""
        standing = self._standings.get(register)
        if standing is None:
            standing = self._standings[register] = _Standing(known)
        if known.place >= standing.shown.place:
            standing.written = written or (standing.written and known == standing.shown)
            standing.shown = known
        standing.failed = None
        if not standing.learning and standing.shown != self._known.get(register) and self._nursery is not None:
            standing.learning = True
            self._nursery.start_soon(self._learn, register, standing)
        return standing.shown

    async def learn(self, register: bytes, known: Known) -> Known:
        """Know what a full round has shown, or newer; returns what is known then.

        Raises:
            NotReady: a page of the map is nowhere to be had now; what was known before stays.
            Unavailable: the store is closed.
            UnknownDatabase: it was let go of.
        """
        wanted, standing = self.show(register, known), self._standings[register]
        while self._standings.get(register) is standing:
            found = self._known.get(register)
            if found is not None and (found == wanted or found.place > wanted.place):
                return found
            if standing.failed is not None:
                raise standing.failed
            await self._move(standing)
        raise UnknownDatabase("the table was dropped")

    async def reached(self, register: bytes, config: int) -> Known:
        """Return what is known of a map once its config id is at least this; waits for it as long as it takes.

        Raises:
            UnknownDatabase: nothing was ever shown of it, or it was dropped.
        """
        while (standing := self._standings.get(register)) is not None and not standing.shown.head.ended:
            found = self._known.get(register)
            if found is not None and found.config >= config:
                return found
            await self._move(standing)
        raise UnknownDatabase("there is no such table, as far as this node knows")

    def forget(self, register: bytes, *, but_shown: bool) -> None:
        """Know nothing of a map any more, in memory; `but_shown`: its place is remembered."""
        self._known.pop(register, None)
        standing = self._standings.pop(register, None)
        if standing is not None:
            if but_shown:
                self._standings[register] = _Standing(standing.shown)
            standing.moved.set()

    async def _move(self, standing: _Standing) -> None:
        standing.wanted.set()
        await standing.moved.wait()

    async def _learn(self, register: bytes, standing: _Standing) -> None:
        """Learn what is shown, until that is known, or cannot be."""
        while self._standings.get(register) is standing and standing.shown != self._known.get(register):
            shown = standing.shown
            standing.wanted = trio.Event()
            try:
                await self._have_known(register, standing, shown)
            except GossipKVError as error:
                if standing.shown == shown:
                    standing.failed = error
                    break
                continue
            self._tell(standing)
            if self.on_known is not None:
                self.on_known()
            with trio.move_on_after(PAUSE_S):
                await standing.wanted.wait()
        standing.learning = False
        self._tell(standing)

    async def _have_known(self, register: bytes, standing: _Standing, shown: Known) -> None:
        if not shown.head.ended:
            await self._hold(register, shown)
        if self._standings.get(register) is not standing:
            return

        def synced() -> None:
            if self._standings.get(register) is standing:
                self._known[register] = shown

        await self._space.write({KNOWN + register: shown.encode()}, synced)
        if self._standings.get(register) is standing:
            await self._settle(register, shown)

    @staticmethod
    def _tell(standing: _Standing) -> None:
        moved, standing.moved = standing.moved, trio.Event()
        moved.set()


def known_of(value: bytes) -> Known:
    """Read a record of what is known.

    Raises:
        ProtocolError: it is not what `Known.encode` writes.
    """
    match unpack(value, MOST_KNOWN_BYTES):
        case (bytes(payload), tuple(old), tuple(new), int(joint), int(generation)):
            before, after = map(members_of, (old, new))
            return Known(decode_head(payload), Acceptors(before, after if joint else before, joint), generation)
    raise ProtocolError("what is known of a map is [head, old acceptors, new ones, joint id, generation]")
