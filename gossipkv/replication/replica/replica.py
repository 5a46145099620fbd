"""A replica of a partition: the records that it accepts and the batches that it writes.

A replica lies in a space of the store, alone or beside others that a split made (`keys`).

A log *entry* is a batch's effect on one replica: the records put, and the clock before and after. An entry has either
local writes or records merged from other replicas, never both. So a reader of the log gets each origin's records in the
order of their counters. Entries merged together make one entry for each replica, all in one batch.

Merge rule: records that the clock covers are skipped. Of others the later wins by time, origin and counter. The
comparison uses *appended* records, not readable ones, since a later record may still wait for its sync. Losers leave
only their count in the clock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.placement.partition import HAD
from gossipkv.replication._replication import append_records, encode_state, host_at, sync_clock
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.intern import MAX_SHARED, shared
from gossipkv.replication.replica.keys import (
    ENDED,
    MOVES,
    ORDER_BYTES,
    RECORD,
    STATE,
    ReplicaIdentity,
    decode_state,
    suffix_of,
)
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.replica.bootstrap import Bootstrap
    from gossipkv.replication.replica.calm import CalmReplica

    Read = Callable[[int, bytes], bytes | None]  # Reads the synced value of a key in a space.

NOTHING: Final[dict[bytes, bytes]] = {}  # Shared by all replicas without unsynced records; never written to.


class AssignedReplica(NamedTuple):
    """An assignment of a partition in the placement that this node has adopted."""

    assignment: int
    node: bytes
    slot: int
    counts: bool  # INITIALIZING or AVAILABLE: its slot confirms only together with this host.
    available: bool  # AVAILABLE or LEAVING: the host answers reads.


class AssignmentRole(NamedTuple):
    """A host without its assignment id: many replicas share equal values."""

    node: bytes
    slot: int
    counts: bool
    available: bool


class Quorum(NamedTuple):
    """The slots of a partition, as levels count them; thousands of replicas share equal values."""

    slots: int  # Replication factor.
    places: tuple[tuple[int, ...], ...]  # For each slot that can confirm (`acks`): its hosts among the assigned.


class PartitionRules(NamedTuple):
    """The rest of a partition's placement; thousands of replicas share equal values."""

    slots: int = 0  # Replication factor, for levels; 0: as many as the hosts have.
    former: tuple[int, ...] = ()  # Earlier assignments that are not settled yet: clocks name them.
    # Last surviving counters of assignments lost in a force-join; None: not known yet.
    ends: tuple[tuple[int, int | None], ...] = ()
    loads: bool = False  # The local assignment is INITIALIZING.
    has_departed: bool = False  # The local assignment is gone: the replica feeds no host and will be dropped.
    smears: bool = False  # Puts may arrive long after their acceptance: tombstones are kept longer.

    def ended(self, named: Sequence[int]) -> bytes:
        """The clock of ended assignments that a clock with these names omits.

        Every replica had their records when they settled, or began with them.
        """
        if not self.ends:
            return b""
        return clock.of((origin, end) for origin, end in self.ends if end and origin not in named and origin < HAD)


NO_RULES: Final = PartitionRules()


class Lineage(NamedTuple):
    """The splits of a replica: its place beside its siblings, and its children."""

    is_beside: bool = False  # The replica lies in its parent's space; its keys end with its partition's id.
    children: tuple[Replica, ...] = ()  # Replicas that replaced this one in a split.


NO_LINEAGE: Final = Lineage()
BESIDE: Final = Lineage(is_beside=True)


class ReplicaDigest(NamedTuple):
    """A digest of a replica's live records."""

    clock: bytes
    sum: int
    records: int
    at_ms: int = 0  # Records that expire up to this time are left out; 0: no record expires.


@final
class Replica:
    """A replica of a partition in this node's store.

    A node holds thousands: equal values share one object where that is cheap, and a replica at rest keeps no empty
    dicts.
    """

    __slots__ = (
        "appended",
        "assigned",
        "assignment",
        "barred",
        "bounds",
        "calm",
        "config",
        "digest",
        "ended",
        "is_frozen",
        "is_new",
        "joining",
        "lineage",
        "made_at",
        "named",
        "originates",
        "partition",
        "quorum",
        "requests",
        "role",
        "roles",
        "rules",
        "settled",
        "sharers",
        "space",
        "synced",
        "synced_config",
        "synced_joining",
        "taken_config",
        "time",
        "unsynced",
    )

    def __init__(
        self,
        space: int,
        identity: ReplicaIdentity,
        state: bytes,
        made_at: int = 0,
        joining: Bootstrap | None = None,
        *,
        suffix: bytes = b"",
    ) -> None:
        """Begin with the value under `STATE`; the log has nothing of the replica before position `made_at`.

        `joining`: the bootstrap state; None: the replica is complete. `suffix`: the end of the replica's own keys
        (`keys`).

        Raises:
            ProtocolError: the state is malformed.
        """
        self.space = space
        self.lineage = BESIDE if suffix else NO_LINEAGE
        self.bounds = shared(identity.bounds)
        self.made_at = made_at
        self.is_new = made_at > 0  # The replica was made in this run, so no node has older records of it.
        self.is_frozen = False  # Frozen: accepts and originates nothing while its bulk load ends.
        self.partition = (shared(identity.table), identity.partition)
        time, config, self.appended, _ = decode_state(state)
        self.config = shared(config)
        self.synced, self.synced_config = self.appended, self.config
        self.taken_config = self.config  # Newest config of accepted records or of a garbage-collected tombstone.
        self.time = time  # The greatest hybrid time seen.
        self.joining = self.synced_joining = joining
        self.rules = NO_RULES
        self.ended = b""  # Ended assignments that the clock omits, as a clock; at startup set from the store.
        # Assignments of the clock in order, former ones included; and without these.
        self.named = self.assigned = tuple(origin for origin, _ in clock.entries(self.appended))
        self.roles: tuple[AssignmentRole, ...] = ()  # In the order of the assigned; empty before a placement is known.
        self.role: AssignmentRole | None = None  # None: no placement is known, or it does not name `assignment`.
        self.quorum = shared(Quorum(0, ()))
        self.originates = joining is None  # AVAILABLE by the adopted placement; at startup set from the store.
        self.sharers: tuple[bytes, ...] = ()  # Other nodes that hold the partition.
        self.barred: str | None = None  # The reason why the replica never originates again.
        self.settled: tuple[int, bytes] | None = None  # A cache of `table.records.token_compaction`.
        self.requests = 0  # Client requests since the last count, without those that serving loops answered.
        self.calm: CalmReplica | None = None  # Shown to the serving loops while the replica is calm.
        self.digest: ReplicaDigest | None = None  # Last result of `DigestExchange`.
        self.assignment = self.id_here(identity.assignment)  # The local assignment, under which it originates.
        self.unsynced = NOTHING  # The last record of each unsynced key.

    @property
    def identity(self) -> ReplicaIdentity:
        """The replica's identity."""
        return ReplicaIdentity(*self.partition, self.assignment, self.bounds)

    @property
    def suffix(self) -> bytes:
        """The end of the replica's own keys: empty, or the partition's id."""
        return suffix_of(self.partition[1]) if self.lineage.is_beside else b""

    @property
    def children(self) -> tuple[Replica, ...]:
        """The replicas that replaced this one in a split."""
        return self.lineage.children

    def put(self, batch: Batch, key: bytes, value: bytes) -> None:
        """Put one of the replica's own keys."""
        batch.put(self.space, key + self.suffix, value)

    def remove(self, batch: Batch, key: bytes) -> None:
        """Delete one of the replica's own keys."""
        batch.delete(self.space, key + self.suffix)

    @property
    def hosts(self) -> tuple[AssignedReplica, ...]:
        """The assignments of the partition in order, by the adopted placement."""
        return tuple([AssignedReplica(id_, *role) for id_, role in self.assigned_roles()])

    @hosts.setter
    def hosts(self, hosts: Iterable[AssignedReplica]) -> None:
        in_order, former = sorted(hosts), self.rules.former
        named = named_in(in_order, former)
        self.named = self.named if named == self.named else named
        assigned = [host.assignment for host in in_order]
        self.assigned = tuple(assigned) if former else self.named
        own = assigned.index(self.assignment) if self.assignment in assigned else None
        self.roles, self.quorum, self.sharers = _seating(tuple([host[1:] for host in in_order]), own, self.rules.slots)
        self.role = None if own is None else self.roles[own]
        self.originates = self.role is None or (self.role.available and self.role.counts)

    def assigned_roles(self) -> Iterable[tuple[int, AssignmentRole]]:
        """Yield the hosts without building an object for each."""
        return zip(self.assigned, self.roles, strict=bool(self.roles))

    def role_of(self, assignment: int) -> AssignmentRole | None:
        """Return the role of a host; None: no placement was adopted yet, or it does not name the assignment."""
        is_named = self.roles and assignment in self.assigned
        return self.roles[self.assigned.index(assignment)] if is_named else None

    def host_at(self, node: bytes) -> int:
        """Return the assignment of a host; 0: the node has none."""
        return host_at(self.assigned, self.roles, node)

    def departs(self) -> None:
        """Mark the assignment as gone: all other replicas have its records, even if their clocks do not say so."""
        self.leave_fast_path()
        self.rules = shared(self.rules._replace(has_departed=True))

    def feeds(self, assignment: int) -> bool:
        """Return True if the assignment is a host that this replica feeds."""
        return assignment in self.assigned and not self.rules.has_departed

    @property
    def reach(self) -> bytes:
        """The clock up to which all is here, ended and force-joined assignments included."""
        return clock.merge(self.appended, self.ended)

    def marks(self) -> Iterable[tuple[bytes, bytes]]:
        """Return the replica's own rows except for identity and state."""
        return [*([] if self.originates else [(MOVES, b"")]), *([(ENDED, self.ended)] if self.ended else [])]

    @property
    def reported_clock(self) -> bytes:
        """The clock that is reported to other nodes: zero while the replica is incomplete."""
        return self.synced if self.synced_joining is None else clock.named(b"", self.named)

    def id_here(self, assignment: int) -> int:
        """Return the equal assignment id that is kept here already, to share one object."""
        return self.named[self.named.index(assignment)] if assignment in self.named else assignment

    def adopting(self, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules = NO_RULES) -> Batch | None:
        """Return the batch that adopts a placement, to be appended before `adopts`; None: nothing changes in the store.

        The clock has an entry, perhaps 0, for each present or former assignment in the placement, and no other.
        """
        named = named_in(hosts, rules.former)
        assert any(host.assignment == self.assignment for host in hosts), self.identity
        if (config, named) == (self.config, self.named):
            return None
        clock_now = clock.named(self.appended, named)
        batch = Batch()
        batch.relieves = True  # Moves and garbage collection wait for the new assignments.
        self.put(batch, STATE, encode_state(self.time, config, clock_now, clock_now))
        if ended_now := rules.ended(named):
            self.put(batch, ENDED, ended_now)
        is_available_now = is_available(self.assignment, hosts)
        if is_available_now and not self.originates:
            self.remove(batch, MOVES)
        elif self.originates and not is_available_now:
            self.put(batch, MOVES, b"")
        return batch

    def adopts(self, config: int, hosts: Sequence[AssignedReplica], rules: PartitionRules = NO_RULES) -> None:
        """Adopt a placement; its batch is appended."""
        self.leave_fast_path()
        self.rules = shared(rules)
        self.hosts = tuple(hosts)
        self.config = shared(config)
        self.appended = clock.named(self.appended, self.named)
        self.ended = shared(rules.ended(self.named))
        sync_clock(self, self.synced)

    def has_adopted(self, config: int) -> None:
        """Confirm under a config from now on: its batch is synced."""
        self.synced_config = shared(config)

    def moves(self, space: int, joined: bytes, position: int, joining: Bootstrap | None) -> None:
        """Switch to a loaded space and its joined clock; the batch is synced."""
        assert self.is_frozen
        assert self.joining is not None or clock.covers(joined, self.appended), "a clock never goes back"
        self.space, self.made_at, self.is_frozen = space, position, False
        self.lineage = NO_LINEAGE
        self.appended = self.synced = joined
        self.joining = self.synced_joining = _left(joining)
        self.taken_config = self.config
        self.digest = self.settled = None

    @property
    def is_unsynced(self) -> bool:
        """True if something appended is not synced yet."""
        return bool(self.unsynced) or self.appended != self.synced or self.joining is not self.synced_joining

    def is_pending(self, key: bytes) -> bool:
        """Return True if a record of a key is appended and not synced."""
        return key in self.unsynced

    def order_of(self, key: bytes, read: Read) -> bytes | None:
        """Return time, origin and counter of a key's last appended record; None: the key has none."""
        data = self.unsynced.get(key) or read(self.space, RECORD + key)
        return None if data is None else data[:ORDER_BYTES]

    # -- entries of other replicas -----------------------------------------------------------------------------------

    def never_gave_out(self, other: bytes) -> bool:
        """Return True if a peer's clock has more records of this assignment than the replica knows to have originated.

        Then this store is an older copy, or the peer errs. False for a barred replica: its store is such a copy.
        """
        given = clock.counter(self.appended, self.assignment)
        return self.barred is None and clock.counter(other, self.assignment) > given

    def covers_synced(self, other: bytes) -> bool:
        """Return True if all up to a clock is synced, ended assignments aside."""
        return clock.covers(self.synced, clock.named(other, self.named))

    def appends_merged(self, entry: LogEntry) -> None:
        """Continue from an entry of other replicas whose batch is appended."""
        assert self.appended == entry.before, "one batch after the other"
        append_records(self, entry.records, entry.after)
        if entry.joining is not None:
            self.joining = _left(entry.joining)

    def take_config(self) -> None:
        """Take note that a record was accepted, or a tombstone collected, under the present config."""
        self.taken_config = self.config
        if self.calm is not None:
            self.calm.takes(self.taken_config)

    def leave_fast_path(self) -> None:
        """Let no serving loop answer from this replica, since something other than clocks is about to change."""
        if self.calm is not None:
            self.requests += self.calm.ends()
            self.calm = None

    def inherits(self, parent: Replica) -> None:
        """Take over all records of the parent in this child's range, synced or not."""
        self.time = max(self.time, parent.time)
        self.synced_config, self.taken_config = parent.synced_config, parent.taken_config
        self.is_new = parent.is_new
        self.unsynced = {key: data for key, data in parent.unsynced.items() if self.bounds.has(key)} or NOTHING
        sync_clock(self, parent.synced)


def _left(joining: Bootstrap | None) -> Bootstrap | None:
    return None if joining is None or joining.is_over else joining


@lru_cache(maxsize=MAX_SHARED)
def _seating(
    hosts: tuple[tuple[bytes, int, bool, bool], ...], own: int | None, slots: int
) -> tuple[tuple[AssignmentRole, ...], Quorum, tuple[bytes, ...]]:
    """Return the roles of a placement's hosts, its quorum, and the nodes other than that of the host `own`."""
    roles = tuple(shared(AssignmentRole(*host)) for host in hosts)
    counting = [(at, role.slot) for at, role in enumerate(roles) if role.counts]
    confirming = dict.fromkeys(role.slot for role in roles if role.counts and role.available)
    places = tuple(tuple(at for at, other in counting if other == slot) for slot in confirming)
    quorum = Quorum(slots or len({role.slot for role in roles}), places)
    return shared(roles), shared(quorum), shared(tuple(role.node for at, role in enumerate(roles) if at != own))


def named_in(hosts: Iterable[AssignedReplica], former: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the assignments that a clock names, in order."""
    return tuple(sorted([*[host.assignment for host in hosts], *former]))


def is_available(assignment: int, hosts: Iterable[AssignedReplica]) -> bool:
    """Return True if an assignment is AVAILABLE."""
    return any(host.counts and host.available for host in hosts if host.assignment == assignment)
