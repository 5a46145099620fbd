"""The next step of a partition that moves: a pure function of reports by its hosts (`replica_report`, never gossip).

    PROPOSED       advances once AVAILABLE hosts of a majority of slots have adopted its config; from then on it gets
                   all acknowledged writes, by the log or by a load
    INITIALIZING   advances once it is complete and covers the clocks that such hosts report afterwards, and that of
                   its slot's other host, if that host answers in time (a host that has not adopted the config may
                   have confirmed writes since)
    LEAVING        is removed once every AVAILABLE host has adopted that state, and covers all its records
    former         settles once all assigned replicas report the same counter for it
    lost for good  is removed by force; each open end is the highest counter of AVAILABLE hosts of a majority of slots
                   that have adopted the removal, since none of them confirms anything for the assignment afterwards
    stalled        a target that acknowledges nothing is given up

The clock of an incomplete replica counts nowhere. A majority is of the planned slots. If fewer slots have an AVAILABLE
host, all of these must agree: else a two-replica table never recovers from a loss. Targets and LEAVING hosts take their
own steps; the first answering AVAILABLE host in slot order takes the others.
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


def report_of(replica: Replica) -> ReplicaReport:
    """Return the report about a local replica."""
    return ReplicaReport(
        replica.assignment, replica.synced_config, replica.reported_clock, replica.synced_joining is None
    )


def next_step(replica: Replica, view: MoveView) -> Step | None:
    """Return the next step for a replica's partition; None if there is nothing to do now.

    Requires: the hosts were asked for `view.reports` when the replica was already in its present state.
    """
    own = replica.role
    if own is None or replica.synced_config != replica.config:
        return None
    hosts = replica.hosts
    if not own.available:
        return _of_target(replica, view, hosts)
    if not own.counts:
        return _of_leaving(replica, view, hosts)
    return _of_all(replica, view, hosts) if _is_first(replica, view, hosts) else None


def _of_target(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    adopted = [host for host in hosts if _is_available(host) and (_adopted_report(replica, view, host) is not None)]
    if not replica.rules.loads:
        return Advance(replica.assignment, INITIALIZING) if _are_enough(replica, hosts, adopted) else None
    if replica.synced_joining is not None:
        return None
    covered = [host for host in adopted if _covers(replica.synced, _clock(replica, view, host), replica)]
    own_slot = next(host.slot for host in hosts if host.assignment == replica.assignment)
    source = next((host for host in hosts if host.slot == own_slot and _is_available(host)), None)
    is_covered = source is None or source in covered or (source not in adopted and view.waited)
    return Advance(replica.assignment, AVAILABLE) if is_covered and _are_enough(replica, hosts, covered) else None


def _of_leaving(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    available = [host for host in hosts if _is_available(host) and host.node not in view.gone]
    final = replica.synced
    adopted = [host for host in available if _adopted_report(replica, view, host) is not None]
    covering = [host for host in adopted if _covers(_clock(replica, view, host), final, replica)]
    return Unassign(replica.assignment) if available and covering == available else None


def _of_all(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> Step | None:
    for host in hosts:
        if host.node in view.gone and host.assignment != replica.assignment:
            return Unassign(host.assignment, by_force=host.available)
    for host in hosts:
        if host.assignment in view.stalled and not host.available:
            return Unassign(host.assignment)
    return _ended(replica, view, hosts) or _settled(replica, view, hosts)


def _ended(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> SetEnds | None:
    """Return the missing ends, from the clocks of AVAILABLE hosts of a majority of slots."""
    unknown = [assignment for assignment, end in replica.rules.ends if end is None]
    adopted = [host for host in hosts if _is_available(host) and _adopted_report(replica, view, host) is not None]
    if not unknown or not _are_enough(replica, hosts, adopted):
        return None
    whole = reduce(clock.merge, (_clock(replica, view, host) for host in adopted))
    return SetEnds(tuple((assignment, clock.counter(whole, assignment)) for assignment in unknown))


def _settled(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> RemoveFormer | None:
    """Return the former assignments for which all assigned replicas report the same counter under this config."""
    reports = [view.reports.get(host.node) for host in hosts]
    clocks = [report.clock for report in reports if report and report.config == replica.config and report.is_whole]
    if len(clocks) < len(hosts):
        return None
    counters = {former: {clock.counter(seen, former) for seen in clocks} for former in replica.rules.former}
    rows = tuple((former, max(counts)) for former, counts in sorted(counters.items()) if len(counts) == 1)
    return RemoveFormer(rows) if rows else None


def _is_first(replica: Replica, view: MoveView, hosts: tuple[AssignedReplica, ...]) -> bool:
    """Return True if this is the first AVAILABLE host, in the order of slots, that answers."""
    answering = [host for host in hosts if _is_available(host) and host.node in view.reports]
    return min(answering, key=lambda host: host.slot, default=None) == next(
        host for host in hosts if host.assignment == replica.assignment
    )


def _is_available(host: AssignedReplica) -> bool:
    return host.available and host.counts


def _adopted_report(replica: Replica, view: MoveView, host: AssignedReplica) -> ReplicaReport | None:
    """Return a host's report if the host has adopted this replica's config or a newer one."""
    report = view.reports.get(host.node)
    is_of = report is not None and report.assignment == host.assignment and report.config >= replica.config
    return report if is_of else None


def _clock(replica: Replica, view: MoveView, host: AssignedReplica) -> bytes:
    report = _adopted_report(replica, view, host)
    assert report is not None, host
    return report.clock


def _covers(whole: bytes, part: bytes, replica: Replica) -> bool:
    return clock.covers(whole, clock.named(part, replica.named))


def _are_enough(replica: Replica, hosts: tuple[AssignedReplica, ...], agreeing: Iterable[AssignedReplica]) -> bool:
    """Return True if these AVAILABLE hosts have a majority of slots."""
    slots, available = {host.slot for host in agreeing}, {host.slot for host in hosts if _is_available(host)}
    return len(slots) >= min(slots_needed(MAJORITY, replica.rules.slots or len(available)), len(available)) > 0
