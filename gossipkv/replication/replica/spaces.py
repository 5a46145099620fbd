"""Spaces of the store: the replicas in each, their quarantined siblings, and the owners of keys and log entries.

Most spaces have one replica. After a split (`maintenance.split`) the children share the parent's space, each with the
records of its own keys. Quarantined parts stay there until operators drop them. Abandoned records are deleted page by
page, and an empty space is dropped (`maintenance.range_cleanup`).

Log entries from before a split belong to each child inside the parent's bounds. Thousands of batches would make entries
for a thousand children each, most without records. So a page of the log is read at once: each child gets one entry with
all its records of the page, and only if its reader wants the entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.replication.replica.bootstrap import decode_joining
from gossipkv.replication.replica.keys import (
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
    KeyBounds,
    decode_identity,
    decode_state,
)
from gossipkv.replication.replica.replica import LogEntry, Replica
from gossipkv.storage.engine.shell import PUT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gossipkv.replication.replica.keys import ReplicaIdentity
    from gossipkv.storage.engine.log_reader import Operations
    from gossipkv.storage.engine.shell import Batch


class QuarantinedReplica(NamedTuple):
    """A quarantined replica: never read, accepts and gives nothing."""

    space: int
    suffix: bytes  # Suffix of the replica's keys.
    identity: ReplicaIdentity
    why: str

    @property
    def name(self) -> str:
        """The name for operators, unique on the node."""
        return f"{self.space:x}" + (f".{self.suffix.hex()}" if self.suffix else "")


class Divided(NamedTuple):
    """A parent of a split, still named by the log."""

    identity: ReplicaIdentity
    position: int  # Log position behind which no entry names the parent.


@final
class Spaces:
    """The spaces of a node's store."""

    def __init__(self) -> None:
        self._alone: dict[int, Replica] = {}  # By space: the replica for which the space was made.
        self._beside: dict[int, dict[bytes, Replica]] = {}  # By space and suffix: replicas that a split made.
        self.aside: dict[int, tuple[QuarantinedReplica, ...]] = {}
        self.divided: dict[int, dict[bytes, Divided]] = {}  # By space and suffix: parents that the log still names.
        self.left: dict[tuple[int, bytes], KeyBounds] = {}  # Key ranges still to be deleted, by space and suffix.
        self.ranges: dict[bytes, _Ranges] = {}  # By table with ranges: finds replicas by key.
        self._in_order: dict[int, _Ranges] = {}  # By space: replicas that a split made.

    def has_ranges(self, table: bytes) -> None:
        """Index a table whose partitions are ranges: its replicas are found by key."""
        if table not in self.ranges:
            self.ranges[table] = _Ranges()
            beside = chain.from_iterable(copies.values() for copies in self._beside.values())
            for copy in chain(self._alone.values(), beside):
                if copy.partition[0] == table:
                    self._shows(copy)

    # -- replicas of spaces ------------------------------------------------------------------------------------------

    def add(self, copy: Replica) -> None:
        """Add a replica to its space."""
        if copy.suffix:
            self._beside.setdefault(copy.space, {})[copy.suffix] = copy
            self._in_order.setdefault(copy.space, _Ranges()).add(copy)
        else:
            self._alone[copy.space] = copy
        self._shows(copy)

    def _take_out(self, space: int, suffix: bytes) -> None:
        if suffix:
            self._in_order[space].discard(self._beside[space].pop(suffix))
        else:
            del self._alone[space]

    def copies_in(self, space: int) -> Collection[Replica]:
        """Return the replicas of a space."""
        copy = self._alone.get(space)
        return self._beside.get(space, {}).values() if copy is None else (copy,)

    def _shows(self, copy: Replica) -> None:
        if copy.partition[0] in self.ranges and not copy.rules.has_departed:
            self.ranges[copy.partition[0]].add(copy)

    def hides(self, copy: Replica) -> None:
        """Stop finding a replica by its keys."""
        if copy.partition[0] in self.ranges:
            self.ranges[copy.partition[0]].discard(copy)

    def remove(self, copy: Replica, space: int, suffix: bytes) -> None:
        """Remove a replica from a space where its keys had that suffix."""
        self._take_out(space, suffix)
        self.hides(copy)
        self._has_left(space, suffix, copy.bounds)

    def divide(
        self, parent: Replica, position: int, copies: Iterable[Replica], orphans: Iterable[QuarantinedReplica]
    ) -> None:
        """Replace a split replica by its children and quarantined parts."""
        space = parent.space
        self.divided.setdefault(space, {})[parent.suffix] = Divided(parent.identity, position)
        self._take_out(space, parent.suffix)
        self.hides(parent)
        for copy in copies:
            self.add(copy)
        if orphans := [*orphans]:
            self.aside[space] = (*self.aside.get(space, ()), *orphans)

    def forget_divided(self, space: int, suffixes: Iterable[bytes]) -> None:
        """Forget parents that the log no longer names."""
        for suffix in suffixes:
            del self.divided[space][suffix]
        if not self.divided[space]:
            del self.divided[space]

    def found(self, space: int, kept: Iterable[tuple[bytes, bytes]], position: int) -> list[Replica]:
        """Read a space's own rows at startup; return its replicas."""
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
                one = QuarantinedReplica(space, suffix, decode_identity(row[IDENTITY]), row[ASIDE].decode())
                self.aside[space] = (*self.aside.get(space, ()), one)
        return [_copy_of(space, suffix, row) for suffix, row in rows.items() if _is_copy(row)]

    def set_aside(self, copy: Replica, why: str) -> None:
        """Quarantine a replica in its place."""
        one = QuarantinedReplica(copy.space, copy.suffix, copy.identity, why)
        self.aside[copy.space] = (*self.aside.get(copy.space, ()), one)
        self._take_out(copy.space, copy.suffix)
        self.hides(copy)

    def keep(self, one: QuarantinedReplica, rest: Iterable[QuarantinedReplica]) -> None:
        """Replace a quarantined replica, part of which was revived, by the rest."""
        self.aside[one.space] = (*(other for other in self.aside[one.space] if other is not one), *rest)

    def dropped_aside(self, one: QuarantinedReplica) -> None:
        """Remove a quarantined replica that operators dropped."""
        self.aside[one.space] = tuple(other for other in self.aside[one.space] if other is not one)
        self._has_left(one.space, one.suffix, one.identity.bounds)

    def all_aside(self) -> Iterator[QuarantinedReplica]:
        """Return the quarantined replicas in the order of spaces."""
        return (one for _, there in sorted(self.aside.items()) for one in there)

    def leaves(self, copy: Replica | QuarantinedReplica, batch: Batch) -> None:
        """Add a replica's removal to a batch; a space that was made for the replica is dropped whole."""
        if not copy.suffix:
            batch.drop_space(copy.space)
            return
        for key in (*OF_COPY, ASIDE):
            batch.delete(copy.space, key + copy.suffix)
        identity = copy.identity
        batch.put(copy.space, LEFT + copy.suffix, identity.encode())

    def _has_left(self, space: int, suffix: bytes, bounds: KeyBounds) -> None:
        if suffix:
            self.left[space, suffix] = bounds
        else:
            self.is_dropped(space)

    def is_empty(self, space: int) -> bool:
        """Return True if a space has only abandoned records."""
        return not (self.copies_in(space) or self.aside.get(space))

    def is_dropped(self, space: int) -> None:
        """Forget a dropped space with its abandoned records."""
        for by_space in (self._beside, self._in_order, self.aside, self.divided):
            by_space.pop(space, None)
        self.left = {key: bounds for key, bounds in self.left.items() if key[0] != space}

    # -- owners of keys ----------------------------------------------------------------------------------------------

    def at(self, table: bytes, key: bytes) -> Replica | None:
        """Return the local replica that has a key of a table with ranges; None: none has, or the table has shards."""
        ranges = self.ranges.get(table)
        return None if ranges is None else ranges.at(key)

    def before(self, table: bytes, bound: bytes | None) -> Replica | None:
        """Return the local replica with the last keys before a bound (not the lowest key; None: the end)."""
        ranges = self.ranges.get(table)
        return None if ranges is None else ranges.before(bound)

    def is_nobodys(self, copy: Replica, key: bytes) -> bool:
        """Return True if no replica in the space has the key: its row is abandoned."""
        beside = self._in_order.get(copy.space)  # Departed replicas count, which `at` does not find.
        if copy.bounds.has(key) or (beside is not None and beside.at(key) is not None):
            return False
        return not any(one.identity.bounds.has(key) for one in self.aside.get(copy.space, ()))

    # -- the log -----------------------------------------------------------------------------------------------------

    def read(
        self, batches: Iterable[tuple[int, Operations]], lacks: Callable[[Replica, bytes], bool]
    ) -> list[LogEntry]:
        """Return the entries of a page of the log in order; entries of split parents become entries of the children.

        `lacks`: True if the reader lacks a replica's entries up to a clock. A child's entry takes the position of its
        first batch in the page: a reader that goes back there gets the page's entries again.
        """
        found: list[LogEntry] = []
        parts: dict[tuple[int, bytes], _PageShare] = {}
        for position, operations in batches:
            states: list[tuple[int, bytes, bytes]] = []
            records: dict[int, list[tuple[bytes, bytes]]] = {}
            for kind, space, key, value in operations:
                if kind == PUT and key[:1] == RECORD:
                    records.setdefault(space, []).append((key[1:], value))
                elif kind == PUT and key[:KIND_BYTES] == STATE:
                    states.append((space, key[KIND_BYTES:], value))
            for space, suffix, state in states:
                here = records.get(space, ())
                if (one := self.divided.get(space, {}).get(suffix)) is not None:
                    _, _, after, before = decode_state(state)
                    if before != after:
                        part = parts.setdefault((space, suffix), _PageShare(one.identity.bounds, position, before))
                        part.after = after
                        part.records += here
                    continue
                copy = self._beside.get(space, {}).get(suffix) if suffix else self._alone.get(space)
                entry = None if copy is None else copy.entry_of(position, here, state)
                if entry is not None:
                    found.append(entry)
        for (space, _), part in parts.items():
            found += part.entries(self._in_order.get(space) or _Ranges(), lacks)
        return sorted(found, key=attrgetter("position")) if parts else found


@final
class _PageShare:
    """A log page's entries of a replica that was split since."""

    def __init__(self, bounds: KeyBounds, position: int, before: bytes) -> None:
        self._bounds = bounds
        self._position = position
        self._before = self.after = before
        self.records: list[tuple[bytes, bytes]] = []  # Includes records of siblings in the same batches.

    def entries(self, ranges: _Ranges, lacks: Callable[[Replica, bytes], bool]) -> Iterator[LogEntry]:
        wanted: dict[Replica, list[tuple[bytes, bytes]]] = {
            copy: [] for copy in ranges.inside(self._bounds) if lacks(copy, self.after)
        }
        for row in self.records if wanted else ():
            copy = ranges.at(row[0])
            if copy is not None and copy in wanted:
                wanted[copy].append(row)
        for copy, rows in wanted.items():
            yield LogEntry(copy, (*rows,), self._before, self.after, is_own=False, position=self._position)


@final
class _Ranges:
    def __init__(self) -> None:
        self._firsts: list[bytes] = []
        self._copies: list[Replica] = []

    def add(self, copy: Replica) -> None:
        at = bisect_right(self._firsts, copy.bounds.first)
        self._firsts.insert(at, copy.bounds.first)
        self._copies.insert(at, copy)

    def discard(self, copy: Replica) -> None:
        at = bisect_left(self._firsts, copy.bounds.first)
        while at < len(self._firsts) and self._firsts[at] == copy.bounds.first:
            if self._copies[at] is copy:
                del self._firsts[at], self._copies[at]
                return
            at += 1

    def inside(self, bounds: KeyBounds) -> Sequence[Replica]:
        start = bisect_left(self._firsts, bounds.first)
        end = len(self._firsts) if bounds.end is None else bisect_left(self._firsts, bounds.end)
        return [copy for copy in self._copies[start:end] if bounds.covers(copy.bounds)]

    def at(self, key: bytes) -> Replica | None:
        at = bisect_right(self._firsts, key) - 1
        return self._copies[at] if at >= 0 and self._copies[at].bounds.has(key) else None

    def before(self, bound: bytes | None) -> Replica | None:
        at = (len(self._firsts) if bound is None else bisect_left(self._firsts, bound)) - 1
        if at < 0:
            return None
        end = self._copies[at].bounds.end
        return self._copies[at] if end is None or (bound is not None and bound <= end) else None


def _is_copy(row: Mapping[bytes, bytes]) -> bool:
    return IDENTITY in row and STATE in row and ASIDE not in row


def _copy_of(space: int, suffix: bytes, row: Mapping[bytes, bytes]) -> Replica:
    joining = row.get(JOINING)
    copy = Replica(
        space,
        decode_identity(row[IDENTITY]),
        row[STATE],
        joining=None if joining is None else decode_joining(joining),
        suffix=suffix,
    )
    copy.was_available = MOVES not in row
    copy.ended = row.get(ENDED, b"")
    return copy
