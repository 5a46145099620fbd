"""The gate of one identity: whether each of its partitions has enough owners that can be relied on now.

An owner counts for a partition when

    it is ALIVE, in the epoch in which it has answered, and has not withdrawn the partition since,
    it has answered the direct question (`question.py`) on a connection that lives, and not too long ago,
    and no other owner has a file for it of the same kind with another seal.

So a suspect, a dead owner still believed alive, one that has started anew, one about to drop its copy, and one that
holds other bytes under the same name do not count.  This node's own partitions count without a question.

Of two owners with different seals for one partition neither counts, since one of them holds wrong bytes and nobody can
tell which.  The one with the greater uuid builds it anew, once; if they still differ then, a human has to look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet, in_at_least

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.cluster.question import Answer, Seals
    from gossipkv.placement.identity import Identity


class Alive(NamedTuple):
    """A member that is ALIVE, and what its present life has published of the identity."""

    name: str
    uuid: bytes
    epoch: int
    published: PartitionSet


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
        self.since_ms: int | None = None  # When anybody was first asked.
        self.held_since_ms: int | None = None  # When it held first.
        self._own, self._uuid = own, uuid
        self._max_age_ms = max_age_ms
        self._heard: dict[str, _Heard] = {}
        self._asked: dict[str, _Asked] = {}  # The last question to each.
        self._pending: set[str] = set()  # Whose answer is awaited.
        self._hurried: set[str] = set()  # To be asked again, however fresh their answers are.
        self._disputes: dict[tuple[str, str], Dispute] = {}
        self.nothing = PartitionSet.empty(identity.partitions)
        self._anew = self._told = self.nothing

    # Asking

    def begin(self, member: Alive, *, now_ms: int) -> None:
        """Take in that a member is asked now."""
        self.since_ms = now_ms if self.since_ms is None else self.since_ms
        self._asked[member.name] = _Asked(member.epoch, now_ms)
        self._pending.add(member.name)
        self._hurried.discard(member.name)

    def hurry(self) -> None:
        """Take in that all are to be asked again at once."""
        self._hurried = set(self._heard)

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

    def holds(self, alive: Iterable[Alive], mine: PartitionSet, *, least: int, now_ms: int) -> bool:
        """Whether each partition has so many owners that count now; `mine`: what this node serves itself."""
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

    # Seals

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
        for member, heard in self._heard.items():
            self._compare_pair(self._own, own_seals, member, heard.answer.seals)
            self._judge(member, heard.uuid)

    def _compare(self, member: str, seals: Seals, own_seals: Seals) -> None:
        self._settle(member)
        self._compare_pair(self._own, own_seals, member, seals)
        for other, heard in self._heard.items():
            if other != member:
                self._compare_pair(other, heard.answer.seals, member, seals)
        self._judge(member, self._heard[member].uuid)

    def _compare_pair(self, one: str, seals: Seals, other: str, other_seals: Seals) -> None:
        first, second = sorted((one, other))
        differing = [
            partition
            for kind in seals.keys() & other_seals.keys()
            if seals[kind] != other_seals[kind]
            for partition in seals[kind].keys() & other_seals[kind].keys()
            if seals[kind][partition] != other_seals[kind][partition]
        ]
        if differing:
            partitions = PartitionSet.of(self.identity.partitions, differing)
            self._disputes[first, second] = Dispute(first, second, partitions)
        else:
            self._disputes.pop((first, second), None)

    def _judge(self, member: str, uuid: bytes) -> None:
        first, second = sorted((self._own, member))
        dispute = self._disputes.get((first, second))
        if dispute is not None and self._uuid > uuid:
            self._anew |= dispute.partitions

    def _settle(self, member: str) -> None:
        """No more disputes with a member whose answer is gone."""
        self._disputes = {pair: dispute for pair, dispute in self._disputes.items() if member not in pair}

    def _by_owner(self) -> dict[str, PartitionSet]:
        found: dict[str, PartitionSet] = {}
        for dispute in self._disputes.values():
            for name in (dispute.first, dispute.second):
                found[name] = found.get(name, self.nothing) | dispute.partitions
        return found
