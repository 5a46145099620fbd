"""The ring of one node: the ids among which the partitions of new versions are shared.

Nodes that start together discover each other one by one, and a ring made too early would give each of them every
partition.  A node therefore makes its first ring when the list of ids has not changed for `time_to_converge`, all
claims to ids are firm, and it hears another node.  With `expected_members` it makes the ring as soon as that many ids
are live and firm.  A member without an id delays the ring like a change.  The ring and its claims are kept on disk.

Later an id enters the ring after it was live and firm for `time_to_converge`, and leaves it after the same time of
absence.  A node that hears no other makes no ring until it was alone for `retire_max`; one that was told of no other
does not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.dataset.cluster.members import LIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.dataset.cluster.members import DatasetMember, Membership


class _IdList(NamedTuple):
    """The list that must be stable before the first ring."""

    ids: frozenset[str]  # Ids of members that live, or did so less than `time_to_converge` ago.
    without: frozenset[str]  # Names of members without an id.


@final
class Convergence:
    """The ring of one node."""

    def __init__(
        self,
        membership: Membership,
        *,
        settle_ms: int,
        now_ms: int,
        kept: Mapping[str, str] | None = None,
        expected: int = 0,
    ) -> None:
        """Create it; `settle_ms` is `time_to_converge`, `kept` the claims of the last run's ring by owner.

        `expected`: `expected_members`, including this node; 0: unknown.
        """
        self._membership = membership
        self._settle_ms = settle_ms
        self._expected = expected
        self._claims = dict(kept or {})
        self._ring: frozenset[str] | None = frozenset(self._claims.values()) or None
        self._listed = _IdList(frozenset(), frozenset())
        self._since_ms = now_ms  # The list is unchanged since then.
        self._lived_ms: dict[str, int] = {}  # When a member was last seen alive, by name.
        self._differs_ms: dict[str, int] = {}  # The time since when each id should enter or leave the ring.
        self._due_ms: list[int] = []  # The times of those ids in `_differs_ms` that need only time.
        self._is_firm = False
        self._waits = True
        self.waits_since_ms = now_ms  # There has been no ring since then.
        self._kept = self.claims
        self.has_settled = False  # True once the members are known since this node started.

    @property
    def ids(self) -> tuple[str, ...] | None:
        """Return the ring's ids, sorted as strings; None: there is no usable ring.

        The ring is not usable while no other node is heard, or while this node is not in the ring, as its share would
        be empty.
        """
        if self._waits or self._ring is None or self._membership.own.shard_id not in self._ring:
            return None
        return tuple(sorted(self._ring))

    def has_met_others(self, now_ms: int) -> bool:
        """True if this node must know by now what others have, even if it needs no ring.

        This node must know `time_to_converge` after it met the first other node, or after a long enough wait to be
        heard.
        """
        since_ms = self._membership.met_since_ms
        if since_ms is None:
            return not self._membership.waits_to_be_heard(now_ms)
        return self.ids is not None or now_ms >= since_ms + self._settle_ms

    @property
    def claims(self) -> dict[str, str]:
        """Return the ring's ids by owner, which are kept over a restart; empty for a node alone."""
        ring = self._ring or frozenset()
        return {name: claim for name, claim in sorted(self._claims.items()) if claim in ring} if len(ring) > 1 else {}

    def take_changed(self) -> bool:
        """True once for each change of the claims."""
        before, self._kept = self._kept, self.claims
        return self._kept != before

    @property
    def wakes_at_ms(self) -> int | None:
        """Return when to call `step`, besides after each change of a member."""
        if self._waits or self._membership.own.shard_id is None:
            return None
        begun = list(self._due_ms)
        if not self.has_settled:
            begun += [at for name, at in self._lived_ms.items() if not self._lives(name)]
            begun += [self._since_ms] if self._is_firm else []
        return min((at + self._settle_ms for at in begun), default=None)

    def step(self, now_ms: int) -> None:
        """Update the ring from the members and the time."""
        membership = self._membership
        was_used, self._waits = self.ids is not None, membership.waits_to_be_heard(now_ms)
        present = self._present(now_ms)
        owned = {member.name: shard_id for member in present if (shard_id := self._id_of(member)) is not None}
        self._claims |= owned
        listed = _IdList(
            frozenset(owned.values()), frozenset(member.name for member in present if member.name not in owned)
        )  # fmt: skip
        firm = {owned[member.name] for member in present if member.name in owned and member.is_firm}
        self._is_firm = listed.ids <= firm
        if listed != self._listed or self._waits:
            # A member that might have been heard may still change the list.
            self._listed, self._since_ms = listed, now_ms
        if self._waits:
            self._differs_ms, self._due_ms = {}, []
        elif membership.own.shard_id is not None:  # The share would be empty without this node's own id in the list.
            there = frozenset(shard_id for name, shard_id in owned.items() if self._lives(name))
            is_still = 0 < self._expected <= len(there) or now_ms - self._since_ms >= self._settle_ms
            self._settle(there, firm, now_ms, is_still=self._is_firm and is_still)
        if self.has_settled:  # Before that, the owners of the kept claims are not all known.
            self._claims = {name: claim for name, claim in self._claims.items() if membership.get(name) is not None}
        if was_used and self.ids is None:
            self.waits_since_ms = now_ms

    def _settle(self, there: frozenset[str], firm: set[str], now_ms: int, *, is_still: bool) -> None:
        """Move ids that were stable for long enough into or out of the ring; `there`: the ids of live members."""
        self.has_settled = self.has_settled or is_still or self._membership.knows_nobody
        if self._membership.knows_nobody:
            self._ring = there
        elif self._ring is None:
            self._ring = self._listed.ids if is_still else None
        else:
            self._differs_ms = {shard_id: self._differs_ms.get(shard_id, now_ms) for shard_id in there ^ self._ring}
            may = self._ring | firm
            due = {id_ for id_, at in self._differs_ms.items() if id_ in may and now_ms - at >= self._settle_ms}
            self._ring ^= due
            self._differs_ms = {shard_id: at for shard_id, at in self._differs_ms.items() if shard_id not in due}
            self._due_ms = [at for shard_id, at in self._differs_ms.items() if shard_id in may]

    def _present(self, now_ms: int) -> list[DatasetMember]:
        """Return the members that live, or did so less than `time_to_converge` ago: a restart is no departure."""
        for member in self._membership:
            if member.state in LIVE:
                self._lived_ms[member.name] = now_ms
        self._lived_ms = {
            name: at for name, at in self._lived_ms.items() if self._lives(name) or at + self._settle_ms > now_ms
        }  # fmt: skip
        return [member for member in self._membership if member.name in self._lived_ms]

    def _lives(self, name: str) -> bool:
        member = self._membership.get(name)
        return member is not None and member.state in LIVE

    def _id_of(self, member: DatasetMember) -> str | None:
        """Return a member's id; until its present incarnation claims one, its former id."""
        return self._claims.get(member.name) if member.shard_id is None else member.shard_id
