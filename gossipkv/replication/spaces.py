"""Spaces: which copies lie in each space of the store, beside what else, and what of its log and its keys is whose.

Most spaces have one copy.  Since a range was divided (`dividing`) its heirs lie side by side in the space of it: each
has the records of its own keys.  Parts that are set aside lie there as well, until people drop them.  What one leaves
behind is deleted by pages, and with the last of them the space goes (`clearing`).

An entry of the log from before a division is read as one of *each* copy that lies inside the bounds of what it was of.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.replication.copy import Copy
from gossipkv.replication.joining import decode_joining
from gossipkv.replication.keys import (
    ASIDE,
    DIVIDED,
    ENDED,
    IDENTITY,
    JOINING,
    KIND_BYTES,
    LEFT,
    MOVES,
    OF_COPY,
    RECORD,
    STATE,
    decode_identity,
)
from gossipkv.storage.engine.shell import PUT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gossipkv.replication.copy import Entry
    from gossipkv.replication.keys import Bounds, Identity
    from gossipkv.storage.engine.log_reader import Operations
    from gossipkv.storage.engine.shell import Batch


class Aside(NamedTuple):
    """What is set aside in a space: nobody reads it, and it takes and gives nothing."""

    space: int
    suffix: bytes  # Of its keys.
    identity: Identity
    why: str

    @property
    def name(self) -> str:
        """How people name it, at its node."""
        return f"{self.space:x}" + (f".{self.suffix.hex()}" if self.suffix else "")


class Divided(NamedTuple):
    """What was divided in a space."""

    identity: Identity
    position: int  # In the log: behind it nothing is of it.


@final
class Spaces:
    """What lies where in a node's store."""

    def __init__(self) -> None:
        self._alone: dict[int, Copy] = {}  # By space: those that it was made for.
        self._beside: dict[int, dict[bytes, Copy]] = {}  # Those that came by a division, by the end of their keys, too.
        self.aside: dict[int, tuple[Aside, ...]] = {}
        self.divided: dict[int, dict[bytes, Divided]] = {}  # What the log names that was divided, likewise.
        self.left: dict[tuple[int, bytes], Bounds] = {}  # What is still to be deleted, by space and likewise.
        self.ranges: dict[bytes, _Ranges | None] = {}  # By table, of those that have ranges; None: to be made anew.

    def has_ranges(self, table: bytes) -> None:
        """The keys of a table are in ranges, and not in shards: copies are found by them."""
        self.ranges.setdefault(table, None)

    # -- what lies where ---------------------------------------------------------------------------------------------

    def add(self, copy: Copy) -> None:
        """There is a copy in a space."""
        if copy.suffix:
            self._beside.setdefault(copy.space, {})[copy.suffix] = copy
        else:
            self._alone[copy.space] = copy
        self.changes(copy)

    def _take_out(self, space: int, suffix: bytes) -> None:
        if suffix:
            del self._beside[space][suffix]
        else:
            del self._alone[space]

    def copies_in(self, space: int) -> Collection[Copy]:
        """The copies that lie in a space."""
        copy = self._alone.get(space)
        return self._beside.get(space, {}).values() if copy is None else (copy,)

    def changes(self, copy: Copy) -> None:
        """A copy came, or goes, or nobody is to find it by its keys any more."""
        table = copy.partition[0]
        if table in self.ranges:
            self.ranges[table] = None

    def remove(self, copy: Copy, space: int, suffix: bytes) -> None:
        """It is not in that space any more, where it stood behind that."""
        self._take_out(space, suffix)
        self.changes(copy)
        self._has_left(space, suffix, copy.bounds)

    def divide(self, parent: Copy, position: int, copies: Iterable[Copy], orphans: Iterable[Aside]) -> None:
        """Copies lie in the place of one that was divided, and parts of it that are set aside."""
        space = parent.space
        self.divided.setdefault(space, {})[parent.suffix] = Divided(parent.identity, position)
        self._take_out(space, parent.suffix)
        for copy in copies:
            self.add(copy)
        if orphans := [*orphans]:
            self.aside[space] = (*self.aside.get(space, ()), *orphans)
        self.changes(parent)

    def forget_divided(self, space: int, suffixes: Iterable[bytes]) -> None:
        """The log names these no more."""
        for suffix in suffixes:
            del self.divided[space][suffix]
        if not self.divided[space]:
            del self.divided[space]

    def found(self, space: int, kept: Iterable[tuple[bytes, bytes]], position: int) -> list[Copy]:
        """Take in what stands in a space at the start: its keys that say so; returns its copies."""
        rows: dict[bytes, dict[bytes, bytes]] = {}
        for key, value in kept:
            rows.setdefault(key[KIND_BYTES:], {})[key[:KIND_BYTES]] = value
        for suffix, row in rows.items():
            if DIVIDED in row:
                identity = decode_identity(row[DIVIDED])
                self.divided.setdefault(space, {})[suffix] = Divided(identity, position)
            if LEFT in row:
                self.left[space, suffix] = decode_identity(row[LEFT]).bounds
            if ASIDE in row:
                one = Aside(space, suffix, decode_identity(row[IDENTITY]), row[ASIDE].decode())
                self.aside[space] = (*self.aside.get(space, ()), one)
        return [_copy_of(space, suffix, row) for suffix, row in rows.items() if _is_copy(row)]

    def set_aside(self, copy: Copy, why: str) -> None:
        """It is set aside where it lies."""
        one = Aside(copy.space, copy.suffix, copy.identity, why)
        self.aside[copy.space] = (*self.aside.get(copy.space, ()), one)
        self._take_out(copy.space, copy.suffix)
        self.changes(copy)

    def keep(self, one: Aside, rest: Iterable[Aside]) -> None:
        """A range goes on with a part of what was set aside."""
        self.aside[one.space] = (*(other for other in self.aside[one.space] if other is not one), *rest)

    def dropped_aside(self, one: Aside) -> None:
        """People have dropped what was set aside."""
        self.aside[one.space] = tuple(other for other in self.aside[one.space] if other is not one)
        self._has_left(one.space, one.suffix, one.identity.bounds)

    def all_aside(self) -> Iterator[Aside]:
        """All that is set aside here, in the order of spaces."""
        return (one for _, there in sorted(self.aside.items()) for one in there)

    def leaves(self, copy: Copy | Aside, batch: Batch) -> None:
        """Have the batch take a copy out of its space; who made that shares it with nobody, and takes it along."""
        if not copy.suffix:
            batch.drop_space(copy.space)
            return
        for key in (*OF_COPY, ASIDE):
            batch.delete(copy.space, key + copy.suffix)
        identity = copy.identity
        batch.put(copy.space, LEFT + copy.suffix, identity.encode())

    def _has_left(self, space: int, suffix: bytes, bounds: Bounds) -> None:
        if suffix:
            self.left[space, suffix] = bounds
        else:
            self.is_dropped(space)

    def is_empty(self, space: int) -> bool:
        """Whether nothing lies in a space but what was left behind."""
        return not (self.copies_in(space) or self.aside.get(space))

    def is_dropped(self, space: int) -> None:
        """A space is no more, with all that was left behind in it."""
        for by_space in (self._beside, self.aside, self.divided):
            by_space.pop(space, None)
        self.left = {key: bounds for key, bounds in self.left.items() if key[0] != space}

    # -- whose a key is ----------------------------------------------------------------------------------------------

    def at(self, table: bytes, key: bytes) -> Copy | None:
        """The copy here that has a key of a table with ranges; None: there is none, or its keys are in shards."""
        ranges = self._ranges_of(table)
        return None if ranges is None else ranges.at(key)

    def _ranges_of(self, table: bytes) -> _Ranges | None:
        if table in self.ranges and self.ranges[table] is None:
            beside = chain.from_iterable(copies.values() for copies in self._beside.values())
            here = (copy for copy in chain(self._alone.values(), beside) if copy.partition[0] == table)
            self.ranges[table] = _Ranges.of(copy for copy in here if not copy.rules.has_departed)
        return self.ranges.get(table)

    def before(self, table: bytes, bound: bytes | None) -> Copy | None:
        """The copy here that has the last keys before a bound, which is not the lowest key; None: the last of all."""
        ranges = self._ranges_of(table)
        return None if ranges is None else ranges.before(bound)

    def is_nobodys(self, copy: Copy, key: bytes) -> bool:
        """Whether nothing that lies in a copy's space has a key: what stands there was left behind."""
        found = self.at(copy.partition[0], key)
        if found is not None and found.space == copy.space:
            return False
        bounds = [
            one.bounds for one in self.copies_in(copy.space)
        ]  # Of who has departed, too: `at` does not find that.
        bounds += [one.identity.bounds for one in self.aside.get(copy.space, ())]
        return not any(one.has(key) for one in bounds)

    # -- the log -----------------------------------------------------------------------------------------------------

    def read(self, position: int, operations: Operations) -> list[Entry]:
        """The entries of a batch of the log, each of the copies here that lie inside what it was of."""
        states: list[tuple[int, bytes, bytes]] = []
        records: dict[int, list[tuple[bytes, bytes]]] = {}
        for kind, space, key, value in operations:
            if kind == PUT and key[:1] == RECORD:
                records.setdefault(space, []).append((key[1:], value))
            elif kind == PUT and key[:KIND_BYTES] == STATE:
                states.append((space, key[KIND_BYTES:], value))
        found: list[Entry] = []
        for space, suffix, state in states:
            for copy in self._copies_of(space, suffix):
                entry = copy.entry_of(position, records.get(space, ()), state)
                if entry is not None:
                    found.append(entry)
        return found

    def _copies_of(self, space: int, suffix: bytes) -> Iterable[Copy]:
        """The copies of which something is read that the log has of a copy, or of what it was before."""
        one = self.divided.get(space, {}).get(suffix)
        if one is not None:
            return [copy for copy in self.copies_in(space) if one.identity.bounds.covers(copy.bounds)]
        copy = self._beside.get(space, {}).get(suffix) if suffix else self._alone.get(space)
        return () if copy is None else (copy,)


class _Ranges(NamedTuple):
    """Copies of one table in the order of their keys."""

    firsts: list[bytes]
    copies: list[Copy]

    @classmethod
    def of(cls, copies: Iterable[Copy]) -> _Ranges:
        in_order = sorted(copies, key=_first)
        return cls([copy.bounds.first for copy in in_order], in_order)

    def at(self, key: bytes) -> Copy | None:
        at = bisect_right(self.firsts, key) - 1
        return self.copies[at] if at >= 0 and self.copies[at].bounds.has(key) else None

    def before(self, bound: bytes | None) -> Copy | None:
        at = (len(self.firsts) if bound is None else bisect_left(self.firsts, bound)) - 1
        if at < 0:
            return None
        end = self.copies[at].bounds.end
        return self.copies[at] if end is None or (bound is not None and bound <= end) else None


def _is_copy(row: Mapping[bytes, bytes]) -> bool:
    """Whether a copy stands there that takes part."""
    return IDENTITY in row and STATE in row and ASIDE not in row


def _copy_of(space: int, suffix: bytes, row: Mapping[bytes, bytes]) -> Copy:
    joining = row.get(JOINING)
    copy = Copy(
        space,
        decode_identity(row[IDENTITY]),
        row[STATE],
        joining=None if joining is None else decode_joining(joining),
        suffix=suffix,
    )
    copy.was_available = MOVES not in row
    copy.ended = row.get(ENDED, b"")
    return copy


def _first(copy: Copy) -> bytes:
    return copy.bounds.first
