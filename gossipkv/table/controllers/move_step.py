"""The next step of a partition that moves, as one of its hosts finds it: pure, from what hosts say when they are asked.

A host asks the others directly (`replica_report`), never gossip, and steps by what it has adopted itself:

    PROPOSED       goes on when AVAILABLE hosts of a majority of slots have adopted the config that names it: from then
                   on whatever is acknowledged is fed to it, or is there to be loaded
    INITIALIZING   is AVAILABLE when it is whole and covers what such hosts of a majority of slots say after that, and
                   what its slot's other host says, if that answers in time (hazard 34: who has not adopted may have
                   confirmed something since)
    LEAVING        goes when every AVAILABLE host has adopted that, and covers all that it has
    former         are settled when all assigned copies say the same of them
    gone for good  is taken by force; its end, and that of each former one, is the highest counter that AVAILABLE hosts
                   of a majority of slots say once they have adopted that: none of them confirms any of it from then on
    stalled        a target that confirms nothing is given up

Only who is whole says anything by its clock.  A majority is one of the slots that there are to be; or all that still
have an AVAILABLE host, where those are fewer: else a table of two replicas would never recover from a lost one.
Of what any AVAILABLE host may do, the first one does it that answers, in the order of slots.
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

INITIALIZING, AVAILABLE = 2, 3  # As operations on maps say them.


class ReplicaReport(NamedTuple):
    """What a host says of its copy, when it is asked."""

    assignment: int
    config: int  # That it has adopted, durably.
    clock: bytes  # What is synced.
    is_whole: bool


class Advance(NamedTuple):
    """An assignment is to have another state."""

    assignment: int
    state: int


class Unassign(NamedTuple):
    """An assignment is to go."""

    assignment: int
    by_force: bool = False


class SetEnds(NamedTuple):
    """It is known where assignments end that were taken by force."""

    counters: tuple[tuple[int, int], ...]


class RemoveFormer(NamedTuple):
    """Former assignments have ended."""

    counters: tuple[tuple[int, int], ...]  # With what all copies say of each.


Step = Advance | Unassign | SetEnds | RemoveFormer


@dataclass(frozen=True, slots=True)
class MoveView:
    """What a host knows beside its copy."""

    reports: Mapping[bytes, ReplicaReport]  # By node, of those that answered; the copy's own among them.
    gone: Collection[bytes] = ()  # Nodes that are gone for good.
    stalled: Collection[int] = ()  # Targets that have confirmed nothing for too long.
    waited: bool = False  # For the slot's other host, long enough.


def report_of(copy: Replica) -> ReplicaReport:
    """What a copy here says."""
    return ReplicaReport(copy.assignment, copy.synced_config, copy.told_clock, copy.synced_joining is None)


def next_step(copy: Replica, known: MoveView) -> Step | None:
    """What is to be done for a copy's partition by its host; None: nothing now.

    Requires: `known.reports` came after all that the copy has by now: it was asked when the copy was as it is.
    """
    own = copy.seat
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
    """The ends that are not known yet, by what AVAILABLE hosts of a majority of slots have."""
    unknown = [assignment for assignment, end in copy.rules.ends if end is None]
    said = [host for host in hosts if _is_available(host) and _said(copy, known, host) is not None]
    if not unknown or not _are_enough(copy, hosts, said):
        return None
    whole = reduce(clock.merge, (_clock(copy, known, host) for host in said))
    return SetEnds(tuple((one, clock.counter(whole, one)) for one in unknown))


def _settled(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> RemoveFormer | None:
    """Former assignments of which every assigned copy, dead or alive, says the same under this very config."""
    said = [known.reports.get(host.node) for host in hosts]
    clocks = [one.clock for one in said if one is not None and one.config == copy.config and one.is_whole]
    if len(clocks) < len(hosts):
        return None
    counters = {one: {clock.counter(each, one) for each in clocks} for one in copy.rules.former}
    rows = tuple((one, max(told)) for one, told in sorted(counters.items()) if len(told) == 1)
    return RemoveFormer(rows) if rows else None


def _is_first(copy: Replica, known: MoveView, hosts: tuple[AssignedReplica, ...]) -> bool:
    """Whether this is the first AVAILABLE host, in the order of slots, that answers."""
    answering = [host for host in hosts if _is_available(host) and host.node in known.reports]
    return min(answering, key=lambda host: host.slot, default=None) == next(
        host for host in hosts if host.assignment == copy.assignment
    )


def _is_available(host: AssignedReplica) -> bool:
    return host.available and host.counts


def _said(copy: Replica, known: MoveView, host: AssignedReplica) -> ReplicaReport | None:
    """What a host has said, if it has adopted what this copy goes by."""
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
    """Whether AVAILABLE hosts are of a majority of slots."""
    slots, available = {host.slot for host in some}, {host.slot for host in hosts if _is_available(host)}
    return len(slots) >= min(slots_needed(MAJORITY, copy.rules.slots or len(available)), len(available)) > 0
