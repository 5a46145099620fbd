"""The gate of one identity: it holds while each partition has enough owners that can be relied on now.

An owner counts for a partition if all of these are true; this node's own partitions count without a question:

* It is ALIVE in the epoch in which it has answered, is not about to drop its copy, and has not withdrawn the partition.
* It answered the direct question (`question.py`) within the age limit, on a connection that still lives.
* Its file has the required checksum.  If none is required, no other owner has a different file of the same kind (format
  and compression).

A checksum is required once it is fixed (`fixed_seals.py`), here or at a member whose clients get the identity.  An
owner with a different file rebuilds it once.  If nothing is required, either of two owners may be wrong: neither
counts, and the one with the greater uuid rebuilds.  Files that differ again are reported: an operator must decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet, in_at_least
from gossipkv.placement.seals import differing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.dataset.cluster.question import MemberAnswer
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.seals import Seals


class Alive(NamedTuple):
    """An ALIVE member, with the partitions that its present incarnation has published."""

    name: str
    uuid: bytes
    epoch: int
    published: PartitionSet
    is_active: bool = False  # The member has the version active, whatever it holds of it.


class Dispute(NamedTuple):
    """Partitions for which two owners have files of one kind with different checksums."""

    first: str
    second: str
    partitions: PartitionSet


class _Question(NamedTuple):
    epoch: int  # The member had this epoch in gossip.
    at_ms: int


class _HeardAnswer(NamedTuple):
    uuid: bytes
    epoch: int
    asked_ms: int  # When the question left: the answer may have become outdated since.
    answer: MemberAnswer


@final
class Gate:
    """The answers about one identity."""

    def __init__(self, identity: VersionIdentity, *, own: str, uuid: bytes, max_age_ms: int) -> None:
        """Create it; answers older than `max_age_ms` (the probe interval) do not count, and questions expire alike."""
        self.identity = identity
        self.held_since_ms: int | None = None  # When the gate first held.
        self._own, self._uuid = own, uuid
        self._max_age_ms = max_age_ms
        self._heard: dict[str, _HeardAnswer] = {}
        self._asked: dict[str, _Question] = {}  # The last question to each member.
        self._pending: set[str] = set()  # Members with an unanswered question are in this set.
        self._hurried: set[str] = set()  # Members to ask again, however fresh their answers are.
        self._disputes: dict[tuple[str, str], Dispute] = {}
        self._first_asked_ms: dict[str, int] = {}
        self._required: Seals = {}
        # The partitions for which each owner's files lack the required checksum.
        self._wrong: dict[str, PartitionSet] = {}
        self.nothing = PartitionSet.empty(identity.partitions)
        self._anew = self._handed_out = self.nothing

    # Asking

    @property
    def since_ms(self) -> int | None:
        return min(self._first_asked_ms.values(), default=None)

    def begin(self, member: Alive, *, now_ms: int) -> None:
        self._asked[member.name] = _Question(member.epoch, now_ms)
        self._first_asked_ms.setdefault(member.name, now_ms)
        self._pending.add(member.name)
        self._hurried.discard(member.name)

    def hurry(self, names: Iterable[str] | None = None) -> None:
        """Ask these members again at once; None: all."""
        self._hurried |= self._heard.keys() if names is None else self._heard.keys() & names

    def due_ms(self, member: Alive, *, every_ms: int) -> int | None:
        """Return when to ask a member: once for each incarnation, and then every `every_ms`; None: at once.

        After no answer, or one that does not count, the next question waits half the age limit of answers.  There may
        be no connection, and asking at once would repeat without end.
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
        due_ms = self.due_ms(member, every_ms=every_ms)
        return due_ms is None or now_ms >= due_ms

    def hear(self, member: str, uuid: bytes, epoch: int, answer: MemberAnswer | None, own_seals: Seals) -> None:
        """Note the answer to a question, None if there was none; ignore it if no question is pending."""
        if member not in self._pending:
            return
        self._pending.discard(member)
        before = self._heard.pop(member, None)
        if answer is None:
            self._settle(member)
            return
        self._heard[member] = _HeardAnswer(uuid, epoch, self._asked[member].at_ms, answer)
        if before is None or before.answer.seals != answer.seals:
            self._compare(member, answer.seals, own_seals)

    def void(self, member: str) -> None:
        """Note that a connection has ended, or that the member has withdrawn a partition."""
        self._asked.pop(member, None)
        self._pending.discard(member)
        if self._heard.pop(member, None) is not None:
            self._settle(member)

    # Counting

    def holds(self, alive: Sequence[Alive], mine: PartitionSet, *, least: int, now_ms: int) -> bool:
        """True if at least `least` owners of each partition count now; `mine`: the partitions served by this node."""
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
        """True if a member may still report its clients' files, within the age limit of answers."""
        return member not in self._heard and now_ms <= self._first_asked_ms.get(member, now_ms) + self._max_age_ms

    # Checksums

    def answers(self) -> list[tuple[str, bytes, int, MemberAnswer]]:
        """Return the answers with their member's name, uuid and epoch; the latest question first."""
        latest = sorted(self._heard.items(), key=lambda item: (-item[1].asked_ms, item[0]))
        return [(name, heard.uuid, heard.epoch, heard.answer) for name, heard in latest]

    def require(self, seals: Seals, own_seals: Seals) -> None:
        self._required = seals
        self._wrong.clear()
        for member, heard in self._heard.items():
            self._hold_against(member, heard.answer.seals)
        self.compare_own(own_seals)

    @property
    def disputes(self) -> list[Dispute]:
        """Return the owners whose files differ, and the partitions for which they do."""
        return [self._disputes[pair] for pair in sorted(self._disputes)]

    def take_anew(self) -> PartitionSet:
        """Return, each once, the partitions that this node must rebuild since another owner's files differ."""
        new = self._anew - self._handed_out
        self._handed_out |= new
        return new

    def compare_own(self, own_seals: Seals) -> None:
        self._hold_against(self._own, own_seals)
        self._anew |= self._wrong.get(self._own, self.nothing)
        for member, heard in self._heard.items():
            self._compare_pair(self._own, own_seals, member, heard.answer.seals)
            self._judge(member, heard.uuid)

    def _hold_against(self, owner: str, seals: Seals) -> None:
        """Compare an owner's files with the required checksums."""
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

    def _compare_pair(self, owner: str, seals: Seals, other: str, other_seals: Seals) -> None:
        first, second = sorted((owner, other))
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
        """Remove disputes with a member whose answer is gone."""
        self._disputes = {pair: dispute for pair, dispute in self._disputes.items() if member not in pair}
        self._wrong.pop(member, None)

    def _undecided(self, dispute: Dispute) -> PartitionSet:
        """Return the disputed partitions for which neither owner is known to be wrong."""
        wrong = (self._wrong.get(name, self.nothing) for name in (dispute.first, dispute.second))
        return dispute.partitions - next(wrong) - next(wrong)

    def _by_owner(self) -> dict[str, PartitionSet]:
        found = dict(self._wrong)
        for dispute in self._disputes.values():
            for name in (dispute.first, dispute.second):
                found[name] = found.get(name, self.nothing) | self._undecided(dispute)
        return found
