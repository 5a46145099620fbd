"""Another node, as the copies here know it: what it was told and has told on its links, and what it sent too early."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from gossipkv.replication.copy import Copy, Entry
    from gossipkv.replication.feed import Feed


class Stand(NamedTuple):
    """What seldom changes of what is told of a copy."""

    assignment: int
    config: int
    can_take: bool


@final
@dataclass(slots=True, eq=False)
class Row:
    """A copy as a peer has told of it on its link; there may be none here yet."""

    partition: tuple[bytes, int]
    assignment: int  # The peer's.
    ids: tuple[int, ...]  # Of the counters of its clocks.
    answered: Stand | None = None  # What an answer to a feed has said last of the copy here.
    is_new: bool = True  # Nothing was answered yet.


@final
class Numbered:
    """Copies by number, each with the assignments of its clock as they were then: two lists, and no pair for each."""

    __slots__ = ("_copies", "_ids")

    def __init__(self) -> None:
        self._copies: list[Copy] = []
        self._ids: list[tuple[int, ...]] = []

    def append(self, copy: Copy, ids: tuple[int, ...]) -> int:
        """Give a copy the next number, and return it."""
        self._copies.append(copy)
        self._ids.append(ids)
        return len(self._copies) - 1

    def __len__(self) -> int:
        return len(self._copies)

    def __getitem__(self, number: int) -> tuple[Copy, tuple[int, ...]]:
        return self._copies[number], self._ids[number]


@final
@dataclass(slots=True, eq=False)
class Peer:
    """Another node."""

    node: bytes
    feed: Feed
    link: int = 0  # Drawn for the connection from here; 0: there is none.
    greeted: bool = False  # It has answered the first question on it.
    again_at: float | None = None  # When the link is begun anew.
    numbers: dict[Copy, int] = field(default_factory=dict)  # As told on it,
    numbered: Numbered = field(default_factory=Numbered)  # and the other way, with the ids.
    stands: dict[int, Stand] = field(default_factory=dict)  # By number: what an answer to a feed has said last.
    untold: dict[Copy, None] = field(default_factory=dict)  # Whose clocks differ from what was told last, by age.
    tell_at: float | None = None
    their_link: int = 0
    rows: dict[int, Row] = field(default_factory=dict)  # By its numbers.
    kept: deque[tuple[float, Entry]] = field(default_factory=deque)  # Ahead of what is here, and when they came.
    kept_bytes: int = 0
