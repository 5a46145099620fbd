"""The members of the cluster as reported to this node: their states, their ids in the ring, and their silences.

One table serves all databases of a node: a member's change is reported once, and costs the same whatever it holds.
The terms are our own, independent of gossip: the caller that binds a node to its cluster translates.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.address import Address
from gossipkv.placement.holders import HolderState

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemberStanding(enum.IntEnum):
    """A state of a member, the best first."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3  # The member announced its departure itself.


LIVE = frozenset({MemberStanding.ALIVE, MemberStanding.SUSPECT})

SILENT_EPOCH = 0  # Epoch of a node that cannot keep its epoch: it may ask and be asked, and counts in no gate.


class DatasetMember(NamedTuple):
    """One member."""

    name: str
    uuid: bytes
    epoch: int
    address: Address
    state: MemberStanding = MemberStanding.ALIVE
    shard_id: str | None = None  # Its id in the ring is None if unknown, or not claimed yet.
    is_firm: bool = False  # Its claim is configured or confirmed.
    is_leaving: bool = False  # It is about to leave, and answers until then.

    @property
    def standing(self) -> HolderState:
        """Return the trust in the member: a leaving one counts like a suspect, one that has left like the dead."""
        state = HolderState(min(self.state, MemberStanding.DEAD))
        return max(state, HolderState.SUSPECT) if self.is_leaving else state


def alone() -> Membership:
    """Return the members of a cluster that always consists of this node alone."""
    own = DatasetMember("alone", bytes(16), 1, Address("127.0.0.1", 0), shard_id="1", is_firm=True)
    return Membership(own, expects_others=False, retire_max_ms=0, now_ms=0)


@final
class Membership:
    """All members, this node among them."""

    def __init__(self, own: DatasetMember, *, expects_others: bool, retire_max_ms: int, now_ms: int) -> None:
        """Begin at `now_ms`.

        `expects_others`: this node was told to join or to expect members, or remembers one from its last run.
        `retire_max_ms`: the longest wait for dead members, and of an isolated node to be heard.
        """
        self._own = own.name
        self._members = {own.name: own}
        self._expects_others = expects_others
        self._retire_max_ms = retire_max_ms
        self._dead_since_ms: dict[str, int] = {}
        # When the present incarnation of each other member was first heard of.
        self._lives_since_ms: dict[str, int] = {}
        self._alone_since_ms: int | None = now_ms if expects_others else None
        self._has_heard = False
        self.met_since_ms: int | None = None  # This node knows another member that lives, or once did, since then.
        self.isolated = False
        self.leaving_since_ms: int | None = None  # When this node began to leave.
        self.revision = 0  # The number grows with every change of a member.

    # Inputs

    def tell(self, member: DatasetMember, *, now_ms: int) -> None:
        """Note the present state of a member, which may be this node itself."""
        if self._members.get(member.name) == member:
            return
        before = self._members.get(member.name)
        self._members[member.name] = member
        if self.met_since_ms is None and member.name != self._own and member.state in LIVE:
            self.met_since_ms = now_ms
        if before is None or (before.uuid, before.epoch) != (member.uuid, member.epoch):
            self._lives_since_ms[member.name] = now_ms
        if member.state is MemberStanding.DEAD:
            self._dead_since_ms.setdefault(member.name, now_ms)
        else:
            self._dead_since_ms.pop(member.name, None)
        if member.name != self._own and member.state in LIVE and not self._has_heard:
            self._has_heard = True
            if not self.isolated:
                self._alone_since_ms = None
        self.revision += 1

    def forget(self, name: str) -> None:
        assert name != self._own
        if self._members.pop(name, None) is not None:
            self._dead_since_ms.pop(name, None)
            self._lives_since_ms.pop(name, None)
            self.revision += 1

    def isolate(self, *, isolated: bool, now_ms: int) -> None:
        """Note whether this node, knowing others, hears none of them."""
        if isolated == self.isolated:
            return
        self.isolated = isolated
        awaits = self._expects_others and not self._has_heard
        if isolated and self._alone_since_ms is None:
            self._alone_since_ms = now_ms
        elif not isolated and not awaits:
            self._alone_since_ms = None
        self.revision += 1

    def leave(self, *, now_ms: int) -> None:
        """Note that this node is about to leave: it still answers, but no other node should count on it."""
        self.leaving_since_ms = now_ms
        self.revision += 1

    # Questions

    def __iter__(self) -> Iterator[DatasetMember]:
        return iter(self._members.values())

    def get(self, name: str) -> DatasetMember | None:
        return self._members.get(name)

    @property
    def own(self) -> DatasetMember:
        return self._members[self._own]

    @property
    def others(self) -> list[DatasetMember]:
        return [member for name, member in self._members.items() if name != self._own]

    @property
    def awaited(self) -> list[DatasetMember]:
        return [member for member in self.others if member.state is not MemberStanding.LEFT]

    @property
    def staying(self) -> frozenset[str]:
        """Return the names of ALIVE members that are not leaving, this node among them."""
        names = {member.name for member in self if member.standing is HolderState.ALIVE}
        return frozenset(names - ({self._own} if self.leaving_since_ms is not None else set()))

    @property
    def leaving(self) -> frozenset[str]:
        """Return the names of other members that are leaving and still live."""
        return frozenset(member.name for member in self.others if member.is_leaving and member.state in LIVE)

    @property
    def expects_others(self) -> bool:
        return self._expects_others

    @property
    def knows_nobody(self) -> bool:
        """True if this node was told of no member and knows none, so that it waits for none."""
        return not self._expects_others and not self.awaited

    def waits_to_be_heard(self, now_ms: int) -> bool:
        """True if this node hears no other, and has not been alone for long enough to go on by itself."""
        return self._alone_since_ms is not None and now_ms < self._alone_since_ms + self._retire_max_ms

    def is_given_up(self, name: str, now_ms: int, *, is_heard: bool) -> bool:
        """True if no node waits for a member any more: it has long been dead, or not `is_heard` for as long."""
        since_ms = self._dead_since_ms.get(name)
        if since_ms is None and not is_heard:
            since_ms = self._lives_since_ms.get(name)
        return since_ms is not None and now_ms >= since_ms + self._retire_max_ms

    def wakes_at_ms(self, now_ms: int) -> int | None:
        """Return when time alone changes a result of the two methods above."""
        times = [*self._dead_since_ms.values(), *self._lives_since_ms.values()]
        if self._alone_since_ms is not None:
            times.append(self._alone_since_ms)
        return min((at + self._retire_max_ms for at in times if at + self._retire_max_ms > now_ms), default=None)
