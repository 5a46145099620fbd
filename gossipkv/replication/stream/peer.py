"""Another node, as the copies here know it: what it was told and has told on its links, and what it sent too early."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import ProtocolError
from gossipkv.replication.replica import clock
from gossipkv.replication.stream.messages import ReplicaState, counters_of, span_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.replication.replica.replica import LogEntry, Replica
    from gossipkv.replication.stream.messages import StatusRow
    from gossipkv.replication.stream.sender import LogSender
    from gossipkv.wire.rpc import Value

FEW_ROWS: Final = 4096
MAX_ROWS: Final = 1 << 17  # That a peer numbers on a link: more copies than a node can hold.
KEPT_BYTES: Final = 8 << 20  # Of entries of one peer.


@final
@dataclass(slots=True, eq=False)
class PeerReplica:
    """A copy as a peer has told of it on its link; there may be none here yet."""

    partition: tuple[bytes, int]
    assignment: int  # The peer's.
    ids: tuple[int, ...]  # Of the counters of its clocks.
    answered: ReplicaState | None = None  # What an answer to a feed has said last of the copy here.
    is_new: bool = True  # Nothing was answered yet.


@final
class Numbered:
    """Copies by number, each with the assignments of its clock as they were then: two lists, and no pair for each."""

    __slots__ = ("_copies", "_ids")

    def __init__(self) -> None:
        self._copies: list[Replica] = []
        self._ids: list[tuple[int, ...]] = []

    def append(self, copy: Replica, ids: tuple[int, ...]) -> int:
        """Give a copy the next number, and return it."""
        self._copies.append(copy)
        self._ids.append(ids)
        return len(self._copies) - 1

    def __len__(self) -> int:
        return len(self._copies)

    def __getitem__(self, number: int) -> tuple[Replica, tuple[int, ...]]:
        return self._copies[number], self._ids[number]


@final
class EarlyEntries:
    """Entries that came ahead of what they go on from, in the order in which they came, as far as there is room."""

    __slots__ = ("_bytes", "entries")

    def __init__(self) -> None:
        self.entries: deque[tuple[float, LogEntry]] = deque()  # Each with when it came.
        self._bytes = 0

    def add(self, at: float, entry: LogEntry) -> None:
        """Keep an entry; what there is no room for comes again."""
        if self._bytes + entry.size_bytes <= KEPT_BYTES:
            self.entries.append((at, entry))
            self._bytes += entry.size_bytes

    def forget(self, now: float, after_s: float) -> None:
        """Let go of what came so long ago."""
        while self.entries and self.entries[0][0] + after_s <= now:  # As in `due`: rounded otherwise it is never due.
            self._bytes -= self.entries.popleft()[1].size_bytes

    def let_go(self, copy: Replica) -> None:
        """The copy is no more."""
        if self.entries:
            self.entries = deque(one for one in self.entries if one[1].copy is not copy)
            self._bytes = sum(entry.size_bytes for _, entry in self.entries)


@final
@dataclass(slots=True, eq=False)
class ReplicaPeer:
    """Another node."""

    node: bytes
    feed: LogSender
    link: int = 0  # Drawn for the connection from here; 0: there is none.
    greeted: bool = False  # It has answered the first question on it.
    again_at: float | None = None  # When the link is begun anew.
    numbers: dict[Replica, int] = field(default_factory=dict)  # As told on it,
    numbered: Numbered = field(default_factory=Numbered)  # and the other way, with the ids.
    stands: dict[int, ReplicaState] = field(default_factory=dict)  # By number: what an answer to a feed has said last.
    untold: dict[Replica, None] = field(default_factory=dict)  # Whose clocks differ from what was told last, by age.
    tell_at: float | None = None
    clock_at: float = inf  # When it is asked for its time, if nothing is told before.
    asked: float = 0.0  # When that was asked to which it answers.
    their_link: int = 0
    rows: dict[int, PeerReplica] = field(default_factory=dict)  # By its numbers;
    newer: dict[int, int] = field(default_factory=dict)  # by which config those go for which it is newer than here.
    kept: EarlyEntries = field(default_factory=EarlyEntries)

    def let_go(self, copy: Replica) -> None:
        """A copy here is no more."""
        self.feed.let_go(copy)
        self.kept.let_go(copy)
        self.untold.pop(copy, None)
        self.numbers.pop(copy, None)

    @property
    def tells_at(self) -> float:
        """When it is told something next."""
        return min(self.clock_at, self.tell_at) if self.untold and self.tell_at is not None else self.clock_at

    @property
    def is_littered(self) -> bool:
        """Whether most numbers that were given on the link from here are of copies that have others by now."""
        return len(self.numbered) > 2 * len(self.numbers) + FEW_ROWS and self.greeted and self.feed.is_level

    def is_named(self, copy: Replica) -> bool:
        """Whether it was told of a copy with the assignments that its clock has now."""
        number = self.numbers.get(copy)
        return number is not None and self.numbered[number][1] == copy.named

    def row_of(self, said: StatusRow, copies: Mapping[tuple[bytes, int], Replica]) -> PeerReplica | None:
        """The copy that a row is of, as the peer has told of it on its link.  Raises ProtocolError: too many."""
        row = self.rows.get(said.number)
        if said.whole is not None:
            if len(self.rows) >= MAX_ROWS:
                raise ProtocolError(f"a link has {MAX_ROWS} rows at most")
            partition, id_, named = said.whole
            copy = copies.get(partition)
            if copy is None:
                row = PeerReplica(partition, id_, named)
            else:  # What is here already is not kept twice.
                row = PeerReplica(copy.partition, copy.id_here(id_), copy.named if copy.named == named else named)
            self.rows[said.number] = row
        copy = None if row is None else copies.get(row.partition)
        if copy is None or said.config > copy.config:
            self.newer[said.number] = said.config
        else:
            self.newer.pop(said.number, None)
        return row


def rows_of(peer: ReplicaPeer, copies: Iterable[Replica]) -> list[Value]:
    """What a peer is told of copies, which are not untold then."""
    rows: list[Value] = []
    for copy in copies:
        below = peer.feed.is_below(copy)
        counters: list[Value] = [count for _, count in clock.entries(copy.told_clock)]
        span = span_row(copy, copy.host_at(peer.node), copy.named)
        if peer.is_named(copy):
            rows.append([peer.numbers[copy], copy.synced_config, counters, not copy.stands_still, below, *span])
        else:
            number = peer.numbers[copy] = peer.numbered.append(copy, copy.named)
            whole: list[Value] = [*copy.partition, copy.assignment, copy.synced_config, [*copy.named]]
            rows.append([number, *whole, counters, not copy.stands_still, below, *span])
        peer.untold.pop(copy, None)
    return rows


def entry_rows(peer: ReplicaPeer, entries: Iterable[LogEntry]) -> list[Value]:
    """What a peer is fed of copies of which it was told."""
    rows: list[Value] = []
    last: dict[int, bytes] = {}
    for entry in entries:
        number = peer.numbers[entry.copy]
        ids = peer.numbered[number][1]
        before = None if last.get(number) == entry.before else counters_of(entry.before, ids)
        after = None if entry.is_own else counters_of(entry.after, ids)
        last[number] = entry.after
        rows.append([number, before, after, [part for pair in entry.records_of(ids) for part in pair]])
    return rows


def answer_row(peer: ReplicaPeer, number: int, row: PeerReplica, copy: Replica, *, is_fed: bool = False) -> Value:
    """What a peer is answered of a copy here, of which it has told a row; it is not untold then."""
    peer.untold.pop(copy, None)
    stand = ReplicaState(copy.assignment, copy.synced_config, not copy.stands_still)
    counters = counters_of(copy.told_clock, row.ids)
    if is_fed and row.answered == stand and copy.synced_joining is None:
        return [number, counters]
    row.answered = stand if is_fed else row.answered
    return [number, counters, *stand, *span_row(copy, row.assignment, row.ids)]
