"""Whose ids the ring is made of: those that have stood for `time_to_converge`.

Nodes that come up together hear of each other one after the other, and a ring made too early gives everything to
everybody.  So the first ring of a node's life is the list of ids that has not changed for `time_to_converge`, all its
claims firm, while this node hears the others; a node that was told how many members to expect does not wait once so
many are there, each with an id of its own, all firm.  The ring is kept on the disk with its claims, and is what a later
start begins with.  From then on nothing waits for stillness: an id enters the ring when it has been there, firm, for
`time_to_converge`, and leaves it when it has been gone for as long, whoever else comes and goes meanwhile.  (Seed 001
waits at the start, and then again and again.)

    a node that is back before `time_to_converge` was never gone, and has the id that it had until it claims one
    a claim that becomes firm starts no new wait: the id was in the list before
    who hears nobody makes no list, until it has been alone for `retire_max`, and then goes on alone
    who was told of nobody and knows nobody waits for nobody
    a member without an id is waited for as long as for any change, and no longer: it has no part in the ring;
    this node itself is waited for

What comes of the ring, the share of a version, is computed once for each version and kept; nobody's coming or going
alters it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.dataset.cluster.members import LIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.dataset.cluster.members import Member, Membership


class Listed(NamedTuple):
    """The list that has to be still."""

    ids: frozenset[str]  # Of the members that live, or did so a moment ago.
    without: frozenset[str]  # The names of those that have none.


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
        """`settle_ms`: `time_to_converge`; `kept`: the claims of the last run's ring, by the names of their owners.

        `expected`: `expected_members`, this node among them; 0: nobody knows how many.
        """
        self._membership = membership
        self._settle_ms = settle_ms
        self._expected = expected
        self._claims = dict(kept or {})
        self._ring: frozenset[str] | None = frozenset(self._claims.values()) or None
        self._listed = Listed(frozenset(), frozenset())
        self._since_ms = now_ms  # Since when that list is as it is.
        self._lived_ms: dict[str, int] = {}  # When a member was last seen to live, by name.
        self._differs_ms: dict[str, int] = {}  # Since when an id is there that is not in the ring, or the other way.
        self._due_ms: list[int] = []  # Of these, those of ids that may enter or leave by time alone.
        self._is_firm = False
        self._waits = True
        self.waits_since_ms = now_ms  # While there is no ring: since when there is none.
        self._kept = self.claims
        self.has_settled = False  # Whether this node has come to know, in this life, who is there.

    @property
    def ids(self) -> tuple[str, ...] | None:
        """The ring's ids, sorted as strings; None: there is no ring yet, or none is to be used.

        That is so while nobody is heard, or this node is not in it: what would come of it is nothing, for good.
        """
        if self._waits or self._ring is None or self._membership.own.shard_id not in self._ring:
            return None
        return tuple(sorted(self._ring))

    def has_met_others(self, now_ms: int) -> bool:
        """Whether this node can know by now what others have, though nothing may be here for which a ring is needed.

        It has had `time_to_converge` since it met the first of them, or has waited for anybody for long enough.
        """
        since_ms = self._membership.met_since_ms
        if since_ms is None:
            return not self._membership.waits_to_be_heard(now_ms)
        return self.ids is not None or now_ms >= since_ms + self._settle_ms

    @property
    def claims(self) -> dict[str, str]:
        """The ids of the ring by the names of their owners: what is kept over a restart; nothing of a node alone."""
        ring = self._ring or frozenset()
        return {name: each for name, each in sorted(self._claims.items()) if each in ring} if len(ring) > 1 else {}

    def take_changed(self) -> bool:
        """Whether the claims are others than are kept; true once for each change."""
        before, self._kept = self._kept, self.claims
        return self._kept != before

    @property
    def wakes_at_ms(self) -> int | None:
        """When to call `step`, besides after each change of a member."""
        if self._waits or self._membership.own.shard_id is None:
            return None
        begun = list(self._due_ms)
        if not self.has_settled:
            begun += [at for name, at in self._lived_ms.items() if not self._lives(name)]
            begun += [self._since_ms] if self._is_firm else []
        return min((at + self._settle_ms for at in begun), default=None)

    def step(self, now_ms: int) -> None:
        """Look at the members, and at the time."""
        membership = self._membership
        was_used, self._waits = self.ids is not None, membership.waits_to_be_heard(now_ms)
        present = self._present(now_ms)
        owned = {member.name: shard_id for member in present if (shard_id := self._id_of(member)) is not None}
        self._claims |= owned
        listed = Listed(
            frozenset(owned.values()), frozenset(member.name for member in present if member.name not in owned)
        )  # fmt: skip
        firm = {owned[member.name] for member in present if member.name in owned and member.is_firm}
        self._is_firm = listed.ids <= firm
        if listed != self._listed or self._waits:
            self._listed, self._since_ms = listed, now_ms  # It was not still before those who might have been heard.
        if self._waits:
            self._differs_ms, self._due_ms = {}, []
        elif membership.own.shard_id is not None:  # Else its share would be none: its own place is to be in the list.
            there = frozenset(each for name, each in owned.items() if self._lives(name))
            is_still = 0 < self._expected <= len(there) or now_ms - self._since_ms >= self._settle_ms
            self._settle(there, firm, now_ms, is_still=self._is_firm and is_still)
        if self.has_settled:  # Before, those of the last run are not all known.
            self._claims = {name: each for name, each in self._claims.items() if membership.get(name) is not None}
        if was_used and self.ids is None:
            self.waits_since_ms = now_ms

    def _settle(self, there: frozenset[str], firm: set[str], now_ms: int, *, is_still: bool) -> None:
        """Have the ring be what has stood for long enough; `there`: the ids of those that live."""
        self.has_settled = self.has_settled or is_still or self._membership.knows_nobody
        if self._membership.knows_nobody:
            self._ring = there
        elif self._ring is None:
            self._ring = self._listed.ids if is_still else None
        else:
            self._differs_ms = {each: self._differs_ms.get(each, now_ms) for each in there ^ self._ring}
            may = self._ring | firm
            stood = {each for each, at in self._differs_ms.items() if each in may and now_ms - at >= self._settle_ms}
            self._ring ^= stood
            self._differs_ms = {each: at for each, at in self._differs_ms.items() if each not in stood}
            self._due_ms = [at for each, at in self._differs_ms.items() if each in may]

    def _present(self, now_ms: int) -> list[Member]:
        """Return who lives, and who did so less than `time_to_converge` ago: a restart is no departure."""
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

    def _id_of(self, member: Member) -> str | None:
        """Return a member's place; until it has claimed one in this life, the one that it had."""
        return self._claims.get(member.name) if member.shard_id is None else member.shard_id
