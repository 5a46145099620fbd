"""Whose ids the ring is made of: the list of members, as it last was when it was still.

Nodes that come up together hear of each other one after the other, and a ring made too early gives everything to
everybody.  So a list of ids counts when it has not changed for `time_to_converge`, all its claims are firm, and this
node hears the others.  From then on there always is one: the next version does not wait for stillness, it takes the
list that was still last (seed 001 waits at the start, and then again and again).

    a claim that becomes firm starts no new wait: the id was in the list before
    who hears nobody makes no list, until it has been alone for `retire_max`, and then goes on alone
    who was told of nobody and knows nobody waits for nobody
    a member without an id is waited for as long as for any change, and no longer: it has no part in the ring;
    this node itself is waited for

What comes of the list, the share of a version, is computed once for each version and kept; nobody's coming or going
alters it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.dataset.cluster.members import LIVE

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.members import Membership


class Listed(NamedTuple):
    """The list that has to be still."""

    ids: tuple[str, ...]  # Of the members that live: each once, sorted as strings.
    without: frozenset[str]  # The names of those that have none.


@final
class Convergence:
    """The list of ids of one node."""

    def __init__(self, membership: Membership, *, settle_ms: int, now_ms: int) -> None:
        """`settle_ms`: `time_to_converge`."""
        self._membership = membership
        self._settle_ms = settle_ms
        self._listed = Listed((), frozenset())
        self._since_ms = now_ms
        self._is_firm = False
        self._still: tuple[str, ...] | None = None
        self._waits = True

    @property
    def ids(self) -> tuple[str, ...] | None:
        """The last still list, sorted; None: there was none yet, or nobody is heard, and none is to be used."""
        return None if self._waits else self._still

    @property
    def has_settled(self) -> bool:
        """Whether there ever was a still list."""
        return self._still is not None

    @property
    def wakes_at_ms(self) -> int | None:
        """When to call `step`, besides after each change of a member."""
        ids = self._listed.ids
        if self._waits or not self._is_firm or self._membership.own.shard_id is None or self._still == ids:
            return None
        return self._since_ms + self._settle_ms

    def step(self, now_ms: int) -> None:
        """Look at the members, and at the time."""
        membership = self._membership
        living = [member for member in membership if member.state in LIVE]
        ids = {member.shard_id for member in living if member.shard_id is not None}
        listed = Listed(
            tuple(sorted(ids)), frozenset(member.name for member in living if member.shard_id is None)
        )  # fmt: skip
        self._is_firm = all(member.is_firm for member in living if member.shard_id is not None)
        self._waits = membership.waits_to_be_heard(now_ms)
        if listed != self._listed:
            self._listed, self._since_ms = listed, now_ms
        if self._waits:
            self._since_ms = now_ms  # It was not still before those who might have been heard.
        elif membership.own.shard_id is None:
            return  # Its own place is to be in the list, or its share would be none.
        elif membership.knows_nobody or (self._is_firm and now_ms - self._since_ms >= self._settle_ms):
            self._still = listed.ids
