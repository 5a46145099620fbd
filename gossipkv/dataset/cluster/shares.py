"""The partitions of each version that should be on this node.

A version's share is computed once, from the ring (`convergence`), and kept in its manifest; later changes of members do
not alter it.  Only partitions without an owner, or with too few for long, are added (`reassignment`), and those whose
last owners are leaving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.dataset.cluster.reassignment import Reassignment, Ring
from gossipkv.placement.holders import LIVE
from gossipkv.placement.ring import share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.cluster.convergence import Convergence
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.survey import Availability
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.holders import Holders
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.partition_set import PartitionSet


@final
class VersionShares:
    """The shares of one database's versions."""

    def __init__(self, membership: Membership, convergence: Convergence, terms: Terms) -> None:
        self._membership = membership
        self._convergence = convergence
        self._terms = terms
        self._computed: dict[tuple[str, int], PartitionSet] = {}  # The keys are a version and its number of partitions.
        self._reassigned: dict[str, PartitionSet] = {}  # Partitions that were reassigned to this node.
        # By version: of partitions without owner, and of those with too few.
        self._reassignments: dict[VersionIdentity, tuple[Reassignment, Reassignment]] = {}

    def of(self, copy: OwnCopy) -> PartitionSet | None:
        """Return the partitions wanted here of a version; None: not known yet."""
        base = copy.share
        partitions = copy.partitions if base is None else base.partitions
        if partitions is None:
            return None
        if base is not None:
            # Keep the share in case the files go and the version is built again.
            self._computed[copy.version, partitions] = base
        else:
            base = self._computed.get((copy.version, partitions))
        if base is None:
            base = self._compute(copy.version, partitions)
        reassigned = self._reassigned.get(copy.version)
        return base if base is None or reassigned is None or reassigned.partitions != partitions else base | reassigned

    def _compute(self, version: str, partitions: int) -> PartitionSet | None:
        ids, own_id = self._convergence.ids, self._membership.own.shard_id
        if ids is None:
            return None
        computed = share(ids, own_id or "", partitions, self._terms.replication)
        self._computed[version, partitions] = computed
        return computed

    def drop(self, version: str) -> None:
        self._reassigned.pop(version, None)
        self._computed = {key: share for key, share in self._computed.items() if key[0] != version}

    def step(self, awaited: Iterable[Availability], *, now_ms: int) -> int | None:
        """Update the shares of active and awaited versions; return when time alone adds partitions."""
        ids, own_id = self._convergence.ids, self._membership.own.shard_id
        if ids is None or own_id is None:
            self._reassignments.clear()  # No other node is heard, so unowned partitions are unknown.
            return None
        before, self._reassignments = self._reassignments, {}
        terms, least = self._terms, self._terms.min_replication
        times: list[int] = []
        for identity, holders, *_ in awaited:
            reassignment, repair = self._reassignments[identity] = before.get(identity) or (
                Reassignment(identity.partitions, terms.reassign_after_ms),
                Reassignment(identity.partitions, terms.repair_after_ms),
            )
            reassignment.step(holders.under_replicated(least) - holders.building, now_ms=now_ms)
            if terms.repair_after_ms:
                repair.step(holders.under_replicated(terms.replication) - holders.building, now_ms=now_ms)
            due_ms = reassignment.due_ms(now_ms), repair.due_ms(now_ms)
            times += [time_ms for time_ms in due_ms if time_ms is not None]
            ring = Ring(own_id, ids, self._ready(holders), terms.replication, least)
            mine = reassignment.mine(ring, now_ms=now_ms) | repair.mine(ring._replace(least=1), now_ms=now_ms)
            mine |= self._left_to_this(holders, reassignment, ring)
            if mine:
                earlier = self._reassigned.get(identity.version, mine)
                self._reassigned[identity.version] = mine | earlier if earlier.partitions == mine.partitions else mine
        return min(times, default=None)

    def _left_to_this(self, holders: Holders, reassignment: Reassignment, ring: Ring) -> PartitionSet:
        """Return this node's part of the partitions that only leaving members have, and no staying member builds."""
        left = holders.at_least(1, self._membership.leaving)
        if not left:
            return left
        staying = self._membership.staying
        left -= holders.at_least(1, staying) | holders.building_at(staying)
        shard_ids = {member.shard_id for member in self._membership if member.name in staying}
        return reassignment.falling_to(left, ring._replace(ids=[id_ for id_ in ring.ids if id_ in shard_ids]))

    def _ready(self, holders: Holders) -> dict[str, PartitionSet]:
        """Return the partitions that the live members of each shard id have ready."""
        found: dict[str, PartitionSet] = {}
        for holder in holders.all:
            member = self._membership.get(holder.name)
            if holder.state in LIVE and member is not None and member.shard_id is not None:
                ready = found.get(member.shard_id, holder.ready)
                found[member.shard_id] = ready | holder.ready
        return found
