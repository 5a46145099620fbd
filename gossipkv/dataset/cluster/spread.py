"""The `status` of a database that is spread over nodes, apart from its local copies.

All values come from the database's view (`view.py`) at its core's last step: the owners' own statements, and the states
of members.  Reports on up to 65,536 partitions use counts and first runs instead of single partitions, and long lists
of nodes are truncated.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.placement.holders import LIVE, HolderState
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.cluster.members import DatasetMember
    from gossipkv.dataset.cluster.view import DatabaseView, NameConflict
    from gossipkv.errors import Detail
    from gossipkv.placement.holders import Holders, VersionHolder

MAX_NODES: Final = 64  # The most nodes named in one list; a partition has at most as many owners.
MAX_RUNS: Final = 256  # The most runs of a set in a program's report: enough for any set of 512 partitions.
FEW_RUNS: Final = 8  # The most runs of a set in a sentence.


@final
class Spread:
    """A report on a database's view.

    With `bitmaps`, sets are given in full as bitmaps, which is cheaper than words, and no node is omitted.
    """

    def __init__(self, view: DatabaseView, *, bitmaps: bool = False) -> None:
        self._view = view
        self._format = as_bitmap if bitmaps else _in_runs
        self._most_nodes = sys.maxsize if bitmaps else MAX_NODES
        self._conflicts = {conflict.version: conflict for conflict in view.conflicts}
        self._disputes = view.disputes
        self._left_out = frozenset(view.left_out)

    def of_database(self) -> dict[str, Detail]:
        """Return the entry of all versions together: the active version of each node."""
        members = [member for member in self._view.membership if member.state is not MemberStanding.LEFT]
        members.sort(key=lambda member: (member.state, member.name))
        return {
            "replication": self._view.terms.replication,
            "min_replication": self._view.terms.min_replication,
            "nodes": [self._node(member) for member in members[: self._most_nodes]],
            "nodes_not_named": len(members[self._most_nodes :]),
        }

    def of_version(self, version: str) -> dict[str, Detail]:
        """Return the entry of one version; empty if no member has made a statement about it."""
        entry: dict[str, Detail] = {}
        holders = self._view.holders(version)
        if holders is not None:
            entry |= self._owners(holders)
        return entry | self._differences(version)

    def faults(self, version: str, *, is_active: bool) -> dict[str, Detail]:
        """Return the faults of a version: differing files, and too few owners of the active version."""
        entry = self._differences(version)
        holders = self._view.holders(version)
        if holders is not None and is_active:
            replication, is_alone = self._view.terms.replication, len(self._view.membership.others) == 0
            few = holders.under_replicated(replication)
            if holders.missing:
                entry["missing"] = self._format(holders.missing)
            if few and not is_alone:
                entry["under_replicated"] = self._format(few)
                terms = self._view.terms
                entry |= {"replication": replication, "reassign_after_ms": terms.reassign_after_ms}
                entry["repair_after_ms"] = terms.repair_after_ms
            if "missing" in entry or "under_replicated" in entry:
                lost = [holder.name for holder in holders.all if holder.state not in LIVE and holder.ready & few]
                entry["away"] = _names(lost)
        if holders is not None and entry:
            entry["partition_count"] = holders.identity.partitions
        return entry

    def _differences(self, version: str) -> dict[str, Detail]:
        """Return the differences between files of one version name, and any unpublished statement."""
        entry: dict[str, Detail] = {}
        if version in self._conflicts:
            entry["conflicts"] = _contents(self._conflicts[version])
        if version in self._disputes:
            entry["disputes"] = [self._dispute(dispute) for dispute in self._disputes[version]]
        if version in self._left_out:
            entry["unpublished"] = True
        return entry

    def kept_by(self, version: str, now_ms: int) -> Detail:
        """Return the nodes that keep an old version from going."""
        return _names(self._view.needed_by(version, now_ms=now_ms))

    def _owners(self, holders: Holders) -> dict[str, Detail]:
        identity = holders.identity
        return {
            "digest": identity.digest,
            "function": identity.function,
            "regrouped": identity.regrouped,
            "partition_count": identity.partitions,
            "owners": [self._owner(holder) for holder in holders.all[: self._most_nodes]],
            "owners_not_named": len(holders.all[self._most_nodes :]),
            "missing": self._format(holders.missing),
            "single_owner": self._format(holders.under_replicated(2) - holders.missing),
            "under_replicated": self._format(holders.under_replicated(self._view.terms.replication)),
        }

    def _owner(self, holder: VersionHolder) -> Detail:
        return {
            "node": holder.name,
            "state": holder.state.name.lower(),
            "ready": self._format(holder.ready),
            "building": self._format(holder.building),
        }

    def _dispute(self, dispute: Dispute) -> Detail:
        return {"nodes": [dispute.first, dispute.second], "partitions": self._format(dispute.partitions)}

    def _node(self, member: DatasetMember) -> Detail:
        view, is_own = self._view, member.name == self._view.membership.own.name
        named = view.active
        return {
            "node": member.name,
            "state": member.state.name.lower(),
            "active": (None if named is None else named.version) if is_own else view.needs_of(member.name).active,
        }

    # Wait conditions

    def share_waits_until(self) -> str | None:
        """Return the condition before this node knows its share of a version, in words; None if it holds."""
        if self._view.has_ring:
            return None
        condition = "the list of members has not changed for time_to_converge"
        if self._view.waits_to_be_heard:
            condition = "this node has heard from another node"
        return f"{condition} (it has waited {self._view.ring_awaited_s} s)"

    def gate_waits_until(self, version: str) -> str | None:
        """Return the condition before a version's gate passes, in words; None if no statement exists."""
        holders = self._view.holders(version)
        if holders is None:
            return None
        uncovered, least = self._uncovered(holders), self._view.terms.min_replication
        if uncovered:
            owners, found = ("an owner", "none") if least == 1 else (f"{least} owners", "fewer")
            has = "has" if len(uncovered) == 1 else "have"
            counted = f"{len(uncovered):,} of {uncovered.partitions:,} partitions {has} {found}"
            return f"every partition has {owners}: {counted} ({_sentence(uncovered)})"
        if version in self._disputes:
            first, second, partitions = self._disputes[version][0]
            return f"the files of {first} and {second} agree: partitions {_sentence(partitions)} differ"
        replication, patience_ms = self._view.terms.replication, self._view.terms.switch_patience_ms
        if patience_ms and (few := holders.under_replicated(replication)) and self._view.passed(version):
            wanted = f"every partition has {replication} owners, or switch_patience has passed"
            return f"{wanted}: {len(few):,} of {few.partitions:,} partitions have fewer owners"
        return "the owners of every partition have confirmed that they serve the version"

    @property
    def is_active_elsewhere(self) -> bool:
        """True if a member that may be alive states that it has a version active."""
        return any(
            self._view.needs_of(member.name).active is not None
            for member in self._view.membership
            if member.state in {MemberStanding.ALIVE, MemberStanding.SUSPECT}
        )

    def is_brought_by_others(self, version: str) -> bool:
        """True if every partition has, or will soon have, the owners that its gate wants, without this node."""
        holders = self._view.holders(version)
        return holders is not None and not self._uncovered(holders) - holders.building

    def _uncovered(self, holders: Holders) -> PartitionSet:
        """Return the partitions with too few ALIVE owners."""
        alive = {holder.name for holder in holders.all if holder.state is HolderState.ALIVE}
        least, count = self._view.terms.min_replication, holders.identity.partitions
        return PartitionSet.whole(count) - holders.at_least(least, alive)


def as_bitmap(partitions: PartitionSet) -> Detail:
    """Return a set of partitions in full, as a bitmap."""
    return {"count": len(partitions), "bitmap": partitions.to_bytes()}


def _in_runs(partitions: PartitionSet) -> Detail:
    return {"count": len(partitions), "runs": partitions.in_words(MAX_RUNS)}


def gaps(view: DatabaseView, version: str) -> dict[str, Detail]:
    """Return the number of partitions without a live owner, and with too few, for `info`."""
    holders = view.holders(version)
    if holders is None:
        return {}
    few = holders.under_replicated(view.terms.replication)
    return {"missing_partitions": len(holders.missing), "under_replicated_partitions": len(few)}


def _sentence(partitions: PartitionSet) -> str:
    return partitions.in_words(FEW_RUNS).replace(",", ", ")


def _contents(conflict: NameConflict) -> Detail:
    """Return each of the identities with one name, and its nodes."""
    return [
        {
            "digest": identity.digest,
            "partition_count": identity.partitions,
            "function": identity.function,
            "regrouped": identity.regrouped,
            "nodes": _names(owners),
        }
        for identity, owners in sorted(conflict.owners.items(), key=lambda item: item[0].wire_id)
    ]


def _names(names: Sequence[str]) -> Detail:
    return list(names[:MAX_NODES])
