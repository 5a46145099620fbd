"""The gate of one identity: whether each of its partitions has enough owners that can be relied on now.

An owner counts for a partition when

    it is ALIVE, in the epoch in which it has answered, and has not withdrawn the partition since,
    it has answered the direct question (`question.py`) on a connection that lives, and not too long ago,
    and its file has the seal that is required, or where none is, no other owner's file of its kind has another one.

Required are the seals that are fixed (`fixed_seals.py`): by this node, once its clients may have the identity, or
before by the first member that answers what its clients have.

So a suspect, a dead owner still believed alive, one that has started anew, one about to drop its copy, and one that
holds other bytes under the same name do not count.  This node's own partitions count without a question.

Where nothing is required, of two owners with different seals for one partition neither counts, since one of them holds
wrong bytes and nobody can tell which; the one with the greater uuid builds it anew, once.  Else who differs from what
is required does.  If they still differ then, a human has to look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet, in_at_least
from gossipkv.placement.seals import differing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.dataset.cluster.question import Answer
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.seals import Seals


class Alive(NamedTuple):
    """A member that is ALIVE, and what its present life has published of the identity; its clients may have it."""

    name: str
    uuid: bytes
    epoch: int
    published: PartitionSet
    is_active: bool = False  # It has it active, whatever it holds of it.


class Dispute(NamedTuple):
    """Partitions for which two owners have files of one kind with different seals."""

    first: str
    second: str
    partitions: PartitionSet


class _Asked(NamedTuple):
    epoch: int  # Of the member, as gossip has it.
    at_ms: int


class _Heard(NamedTuple):
    uuid: bytes
    epoch: int
    asked_ms: int  # When the question left: what was so at the answer may have ceased to be so since.
    answer: Answer


@final
class Gate:
    """The answers about one identity."""

    def __init__(self, identity: Identity, *, own: str, uuid: bytes, max_age_ms: int) -> None:
        """`max_age_ms`: the probe interval; an older answer counts no more, nor is a question awaited for longer."""
        self.identity = identity
        self.held_since_ms: int | None = None  # When it held first.
        self._own, self._uuid = own, uuid
        self._max_age_ms = max_age_ms
        self._heard: dict[str, _Heard] = {}
        self._asked: dict[str, _Asked] = {}  # The last question to each.
        self._pending: set[str] = set()  # Whose answer is awaited.
        self._hurried: set[str] = set()  # To be asked again, however fresh their answers are.
        self._disputes: dict[tuple[str, str], Dispute] = {}
        self._first_asked_ms: dict[str, int] = {}
        self._required: Seals = {}
        self._wrong: dict[str, PartitionSet] = {}  # By owner, where its file has not the seal that is required.
        self.nothing = PartitionSet.empty(identity.partitions)
        self._anew = self._told = self.nothing

    # Asking

    @property
    def since_ms(self) -> int | None:
        """When anybody was first asked."""
        return min(self._first_asked_ms.values(), default=None)

    def begin(self, member: Alive, *, now_ms: int) -> None:
        """Take in that a member is asked now."""
        self._asked[member.name] = _Asked(member.epoch, now_ms)
        self._first_asked_ms.setdefault(member.name, now_ms)
        self._pending.add(member.name)
        self._hurried.discard(member.name)

    def hurry(self, names: Iterable[str] | None = None) -> None:
        """Take in that these are to be asked again at once; None: all."""
        self._hurried |= self._heard.keys() if names is None else self._heard.keys() & names

    def due_ms(self, member: Alive, *, every_ms: int) -> int | None:
        """When to ask a member: each life of its once, and again after so long; None: at once.

        If nothing came of the question, or what does not count, then half as long as an answer counts after it: there
        may be no connection, and who were asked at once would be asked without end.
        """
        asked = self._asked.get(member.name)
        if asked is not None and member.name in self._pending:
            return asked.at_ms + self._max_age_ms
        heard = self._heard.get(member.name)
        if asked is None or member.name in self._hurried:
            return None
        if heard is not None and heard.epoch == member.epoch:
            return heard.asked_ms + every_ms
        return asked.at_ms + self._max_age_ms // 2 if asked.epoch == member.epoch else None

    def is_due(self, member: Alive, *, every_ms: int, now_ms: int) -> bool:
        """Whether a member is to be asked now."""
        due_ms = self.due_ms(member, every_ms=every_ms)
        return due_ms is None or now_ms >= due_ms

    def hear(self, member: str, uuid: bytes, epoch: int, answer: Answer | None, own_seals: Seals) -> None:
        """Take in what came of a question; None: nothing.  What was not asked, or lost meanwhile, is passed over."""
        if member not in self._pending:
            return
        self._pending.discard(member)
        before = self._heard.pop(member, None)
        if answer is None:
            self._settle(member)
            return
        self._heard[member] = _Heard(uuid, epoch, self._asked[member].at_ms, answer)
        if before is None or before.answer.seals != answer.seals:
            self._compare(member, answer.seals, own_seals)

    def void(self, member: str) -> None:
        """Take in that a connection has ended, or that the member has taken something back."""
        self._asked.pop(member, None)
        self._pending.discard(member)
        if self._heard.pop(member, None) is not None:
            self._settle(member)

    # Counting

    def holds(self, alive: Sequence[Alive], mine: PartitionSet, *, least: int, now_ms: int) -> bool:
        """Whether each partition has so many owners that count now; `mine`: what this node serves itself."""
        if any(member.is_active and self._is_awaited(member.name, now_ms) for member in alive):
            return False
        disputed = self._by_owner()
        counted = [mine - disputed.get(self._own, self.nothing)]
        for member in alive:
            heard = self._heard.get(member.name)
            if heard is None or heard.answer.dropping or heard.epoch != member.epoch or heard.uuid != member.uuid:
                continue
            if now_ms <= heard.asked_ms + self._max_age_ms:
                owned = member.published & heard.answer.ready
                counted.append(owned - disputed.get(member.name, self.nothing))
        partitions = self.identity.partitions
        return in_at_least(least, partitions, counted) == PartitionSet.whole(partitions)

    def _is_awaited(self, member: str, now_ms: int) -> bool:
        """Whether a member is still to tell what its clients have, for as long as an answer counts."""
        return member not in self._heard and now_ms <= self._first_asked_ms.get(member, now_ms) + self._max_age_ms

    # Seals

    def answers(self) -> list[tuple[str, bytes, int, Answer]]:
        """Return who has answered: name, uuid, epoch, and what; the latest question first."""
        latest = sorted(self._heard.items(), key=lambda item: (-item[1].asked_ms, item[0]))
        return [(name, heard.uuid, heard.epoch, heard.answer) for name, heard in latest]

    def require(self, seals: Seals, own_seals: Seals) -> None:
        """Take in that these are fixed."""
        self._required = seals
        self._wrong.clear()
        for member, heard in self._heard.items():
            self._hold_against(member, heard.answer.seals)
        self.compare_own(own_seals)

    @property
    def disputes(self) -> list[Dispute]:
        """The owners whose files differ, and the partitions for which they do."""
        return [self._disputes[pair] for pair in sorted(self._disputes)]

    def take_anew(self) -> PartitionSet:
        """Return the partitions that this node has to build anew, since another one's files differ: each once."""
        new = self._anew - self._told
        self._told |= new
        return new

    def compare_own(self, own_seals: Seals) -> None:
        """Take in that this node has other files than before."""
        self._hold_against(self._own, own_seals)
        self._anew |= self._wrong.get(self._own, self.nothing)
        for member, heard in self._heard.items():
            self._compare_pair(self._own, own_seals, member, heard.answer.seals)
            self._judge(member, heard.uuid)

    def _hold_against(self, owner: str, seals: Seals) -> None:
        """Compare an owner's files with what is required."""
        wrong = differing(self._required, seals, self.identity.partitions)
        if wrong:
            self._wrong[owner] = wrong
        else:
            self._wrong.pop(owner, None)

    def _compare(self, member: str, seals: Seals, own_seals: Seals) -> None:
        self._settle(member)
        self._hold_against(member, seals)
        self._compare_pair(self._own, own_seals, member, seals)
        for other, heard in self._heard.items():
            if other != member:
                self._compare_pair(other, heard.answer.seals, member, seals)
        self._judge(member, self._heard[member].uuid)

    def _compare_pair(self, one: str, seals: Seals, other: str, other_seals: Seals) -> None:
        first, second = sorted((one, other))
        partitions = differing(seals, other_seals, self.identity.partitions)
        if partitions:
            self._disputes[first, second] = Dispute(first, second, partitions)
        else:
            self._disputes.pop((first, second), None)

    def _judge(self, member: str, uuid: bytes) -> None:
        first, second = sorted((self._own, member))
        dispute = self._disputes.get((first, second))
        if dispute is not None and self._uuid > uuid:
            self._anew |= self._undecided(dispute)

    def _settle(self, member: str) -> None:
        """No more disputes with a member whose answer is gone."""
        self._disputes = {pair: dispute for pair, dispute in self._disputes.items() if member not in pair}
        self._wrong.pop(member, None)

    def _undecided(self, dispute: Dispute) -> PartitionSet:
        """Return the partitions for which nothing says which of the two is wrong."""
        wrong = (self._wrong.get(name, self.nothing) for name in (dispute.first, dispute.second))
        return dispute.partitions - next(wrong) - next(wrong)

    def _by_owner(self) -> dict[str, PartitionSet]:
        found = dict(self._wrong)
        for dispute in self._disputes.values():
            for name in (dispute.first, dispute.second):
                found[name] = found.get(name, self.nothing) | self._undecided(dispute)
        return found
