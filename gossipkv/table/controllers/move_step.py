"""The next step of a partition that moves: a pure function of reports by its hosts (`replica_report`, never gossip).

    PROPOSED       advances once AVAILABLE hosts of a majority of slots have adopted its config; from then on it gets
                   all acknowledged writes, by the log or by a load
    INITIALIZING   advances once it is whole and covers the clocks that such hosts report afterwards, and the clock of
                   its slot's other host, if that host answers in time (hazard 34: a host that has not adopted the
                   config may have confirmed writes since)
    LEAVING        is removed once every AVAILABLE host has adopted that state, and covers all its records
    former         settles once all assigned replicas report the same counter for it
    lost for good  is removed by force; each open end is the highest counter of AVAILABLE hosts of a majority of slots
                   that have adopted the removal, since none of them confirms anything for the assignment afterwards
    stalled        a target that acknowledges nothing is given up

The clock of an incomplete replica counts nowhere. A majority is of the planned slots, or all slots with an AVAILABLE
host if those are fewer: else a two-replica table never recovers from a loss. The first answering host in slot order
takes a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.replication.replica import clock
from gossipkv.replication.replica.acks import MAJORITY, slots_needed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gossipkv.replication.replica.replica import AssignedReplica, Replica

INITIALIZING, AVAILABLE = 2, 3  # Encoding of the states in operations on maps.


class ReplicaReport(NamedTuple):
    """A host's report about its replica."""

    assignment: int
    config: int  # The config id that the replica has adopted durably.
    clock: bytes  # The clock of its synced records.
    is_whole: bool


class Advance(NamedTuple):
    """Change the state of an assignment."""

    assignment: int
    state: int


class Unassign(NamedTuple):
    """Remove an assignment."""

    assignment: int
    by_force: bool = False


class SetEnds(NamedTuple):
    """Set the last counters of assignments that were removed by force."""

    counters: tuple[tuple[int, int], ...]


class RemoveFormer(NamedTuple):
    """Remove former assignments that have settled."""

    counters: tuple[tuple[int, int], ...]  # The counters on which all replicas agree.


Step = Advance | Unassign | SetEnds | RemoveFormer


@dataclass(frozen=True, slots=True)
class MoveView:
    """A host's knowledge of its partition, apart from its own replica."""

    reports: Mapping[bytes, ReplicaReport]  # Reports of nodes that answered, with the replica's own.
    gone: Collection[bytes] = ()  # Nodes that are lost for good.
    stalled: Collection[int] = ()  # Targets that have acknowledged nothing for too long.
    waited: bool = False  # True if the wait for the slot's other host is over.


def report_of(copy: Replica) -> ReplicaReport:
    """Return the report about a local replica."""
    return ReplicaReport(copy.assignment, copy.synced_config, copy.reported_clock, copy.synced_joining is None)


def next_step(copy: Replica, known: MoveView) -> Step | None:
    """Return the next step for a replica's partition; None if there is nothing to do now.

    Requires: the hosts were asked for `known.reports` when the replica was already in its present state.
    """
    own = copy.role
    if own is None or copy.synced_config != copy.config:
        return None
    hosts = copy.hosts
    if not own.available:
        return _of_target(copy, known, hosts)
    if not own.counts:
        return _of_leaving(copy, known, hosts)
    return _of_all(copy, known, hosts) if _is_first(copy, known, hosts) else None


def _of_target(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    adopted = [host for host in hosts if _is_available(host) and (_said(copy, known, host) is not None)]
    if not copy.rules.loads:
        return Advance(copy.assignment, INITIALIZING) if _are_enough(copy, hosts, adopted) else None
    if copy.synced_joining is not None:
        return None
    covered = [host for host in adopted if _covers(copy.synced, _clock(copy, known, host), copy)]
    own_slot = next(host.slot for host in hosts if host.assignment == copy.assignment)
    source = next((host for host in hosts if host.slot == own_slot and _is_available(host)), None)
    is_covered = source is None or source in covered or (source not in adopted and known.waited)
    return Advance(copy.assignment, AVAILABLE) if is_covered and _are_enough(copy, hosts, covered) else None


def _of_leaving(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    others = [host for host in hosts if _is_available(host) and host.node not in known.gone]
    final = copy.synced
    if others and all(_said(copy, known, host) and _covers(_clock(copy, known, host), final, copy) for host in others):
        return Unassign(copy.assignment)
    return None


def _of_all(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    for host in hosts:
        if host.node in known.gone and host.assignment != copy.assignment:
            return Unassign(host.assignment, by_force=host.available)
    for host in hosts:
        if host.assignment in known.stalled and not host.available:
            return Unassign(host.assignment)
    return _ended(copy, known, hosts) or _settled(copy, known, hosts)


def _ended(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> SetEnds | None:
    """Return the missing ends, from the clocks of AVAILABLE hosts of a majority of slots."""
    unknown = [assignment for assignment, end in copy.rules.ends if end is None]
    said = [host for host in hosts if _is_available(host) and _said(copy, known, host) is not None]
    if not unknown or not _are_enough(copy, hosts, said):
        return None
    whole = reduce(clock.merge, (_clock(copy, known, host) for host in said))
    return SetEnds(tuple((one, clock.counter(whole, one)) for one in unknown))


def _settled(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> RemoveFormer | None:
    """Return the former assignments for which all assigned replicas report the same counter under this config."""
    said = [known.reports.get(host.node) for host in hosts]
    clocks = [one.clock for one in said if one is not None and one.config == copy.config and one.is_whole]
    if len(clocks) < len(hosts):
        return None
    counters = {one: {clock.counter(each, one) for each in clocks} for one in copy.rules.former}
    rows = tuple((one, max(told)) for one, told in sorted(counters.items()) if len(told) == 1)
    return RemoveFormer(rows) if rows else None


def _is_first(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> bool:
    """Return True if this is the first AVAILABLE host, in the order of slots, that answers."""
    answering = [host for host in hosts if _is_available(host) and host.node in known.reports]
    return min(answering, key=lambda host: host.slot, default=None) == next(
        host for host in hosts if host.assignment == copy.assignment
    )


def _is_available(host: AssignedReplica) -> bool:
    return host.available and host.counts


def _said(copy: Replica, known: MoveView, host: AssignedReplica) -> ReplicaReport | None:
    """Return a host's report if the host has adopted this replica's config or a newer one."""
    report = known.reports.get(host.node)
    is_of = report is not None and report.assignment == host.assignment and report.config >= copy.config
    return report if is_of else None


def _clock(copy: Replica, known: MoveView, host: AssignedReplica) -> bytes:
    report = _said(copy, known, host)
    assert report is not None, host
    return report.clock


def _covers(one: bytes, other: bytes, copy: Replica) -> bool:
    return clock.covers(one, clock.named(other, copy.named))


def _are_enough(copy: Replica, hosts: tuple[AssignedReplica, ...], some: Iterable[AssignedReplica]) -> bool:
    """Return True if these AVAILABLE hosts have a majority of slots."""
    slots, available = {host.slot for host in some}, {host.slot for host in hosts if _is_available(host)}
    return len(slots) >= min(slots_needed(MAJORITY, copy.rules.slots or len(available)), len(available)) > 0
