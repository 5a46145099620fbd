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

from gossipkv.replication._replication import LogEntry, encode_state, log_entries
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.bootstrap import Bootstrap, decode_joining
from gossipkv.replication.replica.keys import (
    ABANDONED,
    DIVIDED,
    ENDED,
    IDENTITY,
    JOINING,
    KIND_BYTES,
    MOVES,
    OWN_ROWS,
    QUARANTINED,
    STATE,
    KeyBounds,
    decode_identity,
    decode_state,
)
from gossipkv.replication.replica.replica import NO_RULES, Replica, named_in
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gossipkv.replication.replica.keys import ReplicaIdentity
    from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules
    from gossipkv.storage.engine.log_reader import Operations


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
        self.quarantined: dict[int, tuple[QuarantinedReplica, ...]] = {}
        self.divided: dict[int, dict[bytes, Divided]] = {}  # By space and suffix: parents that the log still names.
        self.abandoned: dict[tuple[int, bytes], KeyBounds] = {}  # Key ranges still to be deleted, by space and suffix.
        self.ranges: dict[bytes, _Ranges] = {}  # By table with ranges: finds replicas by key.
        self._in_order: dict[int, _Ranges] = {}  # By space: replicas that a split made.

    def index_ranges(self, table: bytes) -> None:
        """Index a table whose partitions are ranges: its replicas are found by key."""
        if table not in self.ranges:
            self.ranges[table] = _Ranges()
            beside = chain.from_iterable(replicas.values() for replicas in self._beside.values())
            for replica in chain(self._alone.values(), beside):
                if replica.partition[0] == table:
                    self._shows(replica)

    # -- replicas of spaces ------------------------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        """Add a replica to its space."""
        if replica.suffix:
            self._beside.setdefault(replica.space, {})[replica.suffix] = replica
            self._in_order.setdefault(replica.space, _Ranges()).add(replica)
        else:
            self._alone[replica.space] = replica
        self._shows(replica)

    def _take_out(self, space: int, suffix: bytes) -> None:
        if suffix:
            self._in_order[space].discard(self._beside[space].pop(suffix))
        else:
            del self._alone[space]

    def replicas_in(self, space: int) -> Collection[Replica]:
        """Return the replicas of a space."""
        replica = self._alone.get(space)
        return self._beside.get(space, {}).values() if replica is None else (replica,)

    def _shows(self, replica: Replica) -> None:
        if replica.partition[0] in self.ranges and not replica.rules.has_departed:
            self.ranges[replica.partition[0]].add(replica)

    def hides(self, replica: Replica) -> None:
        """Stop finding a replica by its keys."""
        if replica.partition[0] in self.ranges:
            self.ranges[replica.partition[0]].discard(replica)

    def remove(self, replica: Replica, space: int, suffix: bytes) -> None:
        """Remove a replica from a space where its keys had that suffix."""
        self._take_out(space, suffix)
        self.hides(replica)
        self._abandons(space, suffix, replica.bounds)

    def divide(
        self, parent: Replica, position: int, replicas: Iterable[Replica], orphans: Iterable[QuarantinedReplica]
    ) -> None:
        """Replace a split replica by its children and quarantined parts."""
        space = parent.space
        self.divided.setdefault(space, {})[parent.suffix] = Divided(parent.identity, position)
        self._take_out(space, parent.suffix)
        self.hides(parent)
        for replica in replicas:
            self.add(replica)
        self._quarantine(orphans)

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
            if ABANDONED in row:
                self.abandoned[space, suffix] = decode_identity(row[ABANDONED]).bounds
            if QUARANTINED in row:
                identity, why = decode_identity(row[IDENTITY]), row[QUARANTINED].decode()
                self._quarantine([QuarantinedReplica(space, suffix, identity, why)])
        return [_replica_of(space, suffix, row) for suffix, row in rows.items() if _is_replica(row)]

    def quarantine(self, replica: Replica, why: str) -> None:
        """Quarantine a replica in its place."""
        self._quarantine([QuarantinedReplica(replica.space, replica.suffix, replica.identity, why)])
        self._take_out(replica.space, replica.suffix)
        self.hides(replica)

    def _quarantine(self, parts: Iterable[QuarantinedReplica]) -> None:
        for part in parts:
            self.quarantined[part.space] = (*self.quarantined.get(part.space, ()), part)

    def keep(self, part: QuarantinedReplica, rest: Iterable[QuarantinedReplica]) -> None:
        """Replace a quarantined replica, part of which was revived, by the rest."""
        self.quarantined[part.space] = tuple(other for other in self.quarantined[part.space] if other is not part)
        self._quarantine(rest)

    def drop_quarantined(self, part: QuarantinedReplica) -> None:
        """Remove a quarantined replica that operators dropped."""
        self.keep(part, ())
        self._abandons(part.space, part.suffix, part.identity.bounds)

    def all_quarantined(self) -> Iterator[QuarantinedReplica]:
        """Return the quarantined replicas in the order of spaces."""
        return (part for _, parts in sorted(self.quarantined.items()) for part in parts)

    def leaves(self, replica: Replica | QuarantinedReplica, batch: Batch) -> None:
        """Add a replica's removal to a batch; a space that was made for the replica is dropped whole."""
        if not replica.suffix:
            batch.drop_space(replica.space)
            return
        for key in (*OWN_ROWS, QUARANTINED):
            batch.delete(replica.space, key + replica.suffix)
        identity = replica.identity
        batch.put(replica.space, ABANDONED + replica.suffix, identity.encode())

    def _abandons(self, space: int, suffix: bytes, bounds: KeyBounds) -> None:
        if suffix:
            self.abandoned[space, suffix] = bounds
        else:
            self.forget(space)

    def is_empty(self, space: int) -> bool:
        """Return True if a space has only abandoned records."""
        return not (self.replicas_in(space) or self.quarantined.get(space))

    def forget(self, space: int) -> None:
        """Forget a dropped space with its abandoned records."""
        for by_space in (self._beside, self._in_order, self.quarantined, self.divided):
            by_space.pop(space, None)
        self.abandoned = {key: bounds for key, bounds in self.abandoned.items() if key[0] != space}

    # -- owners of keys ----------------------------------------------------------------------------------------------

    def at(self, table: bytes, key: bytes) -> Replica | None:
        """Return the local replica that has a key of a table with ranges; None: none has, or the table has shards."""
        ranges = self.ranges.get(table)
        return None if ranges is None else ranges.at(key)

    def before(self, table: bytes, bound: bytes | None) -> Replica | None:
        """Return the local replica with the last keys before a bound, which is above the lowest key; None: the end."""
        ranges = self.ranges.get(table)
        return None if ranges is None else ranges.before(bound)

    def is_abandoned(self, replica: Replica, key: bytes) -> bool:
        """Return True if no replica in the space has the key: its row is abandoned."""
        beside = self._in_order.get(replica.space)  # Departed replicas count, which `at` does not find.
        if replica.bounds.has(key) or (beside is not None and beside.at(key) is not None):
            return False
        return not any(part.identity.bounds.has(key) for part in self.quarantined.get(replica.space, ()))

    # -- the log -----------------------------------------------------------------------------------------------------

    def read(
        self, batches: Iterable[tuple[int, Operations]], lacks: Callable[[Replica, bytes], bool]
    ) -> list[LogEntry]:
        """Return the entries of a page of the log in order; entries of split parents become entries of the children.

        `lacks`: True if the reader lacks a replica's entries up to a clock. A child's entry takes the position of its
        first batch in the page: a reader that goes back there gets the page's entries again.
        """
        found, of_divided = log_entries(batches, self._alone, self._beside, self.divided)
        parts: dict[tuple[int, bytes, int], _PageShare] = {}  # By space, suffix and config.
        for position, space, suffix, state, records in of_divided:
            _, config, after, before = decode_state(state)
            if before != after:
                share = _PageShare(self.divided[space][suffix].identity.bounds, position, before, config)
                part = parts.setdefault((space, suffix, config), share)
                part.after = after
                part.records += records
        for (space, _, _), part in parts.items():
            found += part.entries(self._in_order.get(space) or _Ranges(), lacks)
        return sorted(found, key=attrgetter("position")) if parts else found


@final
class _PageShare:
    """A log page's entries of a replica that was split since."""

    def __init__(self, bounds: KeyBounds, position: int, before: bytes, config: int) -> None:
        self._bounds = bounds
        self._position, self._config = position, config
        self._before = self.after = before
        self.records: list[tuple[bytes, bytes]] = []  # Includes records of siblings in the same batches.

    def entries(self, ranges: _Ranges, lacks: Callable[[Replica, bytes], bool]) -> Iterator[LogEntry]:
        wanted: dict[Replica, list[tuple[bytes, bytes]]] = {
            replica: [] for replica in ranges.inside(self._bounds) if lacks(replica, self.after)
        }
        for row in self.records if wanted else ():
            replica = ranges.at(row[0])
            if replica is not None and replica in wanted:
                wanted[replica].append(row)
        for replica, rows in wanted.items():
            clocks = self._before, self.after
            yield LogEntry(replica, (*rows,), *clocks, is_own=False, position=self._position, config=self._config)


@final
class _Ranges:
    def __init__(self) -> None:
        self._firsts: list[bytes] = []
        self._replicas: list[Replica] = []

    def add(self, replica: Replica) -> None:
        at = bisect_right(self._firsts, replica.bounds.first)
        self._firsts.insert(at, replica.bounds.first)
        self._replicas.insert(at, replica)

    def discard(self, replica: Replica) -> None:
        at = bisect_left(self._firsts, replica.bounds.first)
        while at < len(self._firsts) and self._firsts[at] == replica.bounds.first:
            if self._replicas[at] is replica:
                del self._firsts[at], self._replicas[at]
                return
            at += 1

    def starting(self, bounds: KeyBounds) -> Sequence[Replica]:
        """Return the replicas whose first key is within bounds, in order."""
        start = bisect_left(self._firsts, bounds.first)
        end = len(self._firsts) if bounds.end is None else bisect_left(self._firsts, bounds.end)
        return self._replicas[start:end]

    def inside(self, bounds: KeyBounds) -> Sequence[Replica]:
        return [replica for replica in self.starting(bounds) if bounds.covers(replica.bounds)]

    def at(self, key: bytes) -> Replica | None:
        at = bisect_right(self._firsts, key) - 1
        return self._replicas[at] if at >= 0 and self._replicas[at].bounds.has(key) else None

    def before(self, bound: bytes | None) -> Replica | None:
        at = (len(self._firsts) if bound is None else bisect_left(self._firsts, bound)) - 1
        if at < 0:
            return None
        end = self._replicas[at].bounds.end
        return self._replicas[at] if end is None or (bound is not None and bound <= end) else None


def _is_replica(row: Mapping[bytes, bytes]) -> bool:
    return IDENTITY in row and STATE in row and QUARANTINED not in row


def _replica_of(space: int, suffix: bytes, row: Mapping[bytes, bytes]) -> Replica:
    joining = row.get(JOINING)
    replica = Replica(
        space,
        decode_identity(row[IDENTITY]),
        row[STATE],
        joining=None if joining is None else decode_joining(joining),
        suffix=suffix,
    )
    replica.originates = MOVES not in row
    replica.ended = row.get(ENDED, b"")
    return replica


def first_batch(
    space: int,
    identity: ReplicaIdentity,
    config: int,
    hosts: Sequence[AssignedReplica],
    rules: PartitionRules = NO_RULES,
) -> tuple[Batch, bytes, Bootstrap | None]:
    """Return the batch that makes a replica, its first state, and its bootstrap state (None: complete)."""
    empty = clock.named(b"", named_in(hosts, rules.former))
    batch = Batch()
    batch.new_space(space)
    batch.put(space, IDENTITY, identity.encode())
    state = encode_state(0, config, empty, empty)
    batch.put(space, STATE, state)
    if ended := rules.ended([origin for origin, _ in clock.entries(empty)]):
        batch.put(space, ENDED, ended)
    if any(host.available for host in hosts if host.assignment == identity.assignment):
        return batch, state, None
    batch.put(space, MOVES, b"")
    joining = Bootstrap()
    joining.put(batch, space)
    return batch, state, joining
