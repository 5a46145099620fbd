"""What two nodes tell each other of what they know, what each lacks, and how it is told to the one that lacks it.

A digest says all that its sender knows of a range of ids, so that what it leaves out is unknown there; ranges fit
messages, and one that is lost costs only itself.  Who reads it finds what the sender lacks, and tells it as records
and deltas, in a few datagrams or over TCP, and what it lacks itself, and says so: a want.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.gossip.member import GONE, ID_BYTES, State
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.packets.messages import MAX_PART_BYTES, MORE, PART_HEAD_BYTES, REPLY, Digest, Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.members import Members
    from gossipkv.gossip.profile import Profile
    from gossipkv.gossip.tree.tree import Tree

FIRST: Final = bytes(ID_BYTES)
LAST: Final = b"\xff" * ID_BYTES

_RANGE_BYTES: Final = PART_HEAD_BYTES + 2 * ID_BYTES
DATAGRAMS: Final = 4  # So many make an answer; what is more goes faster and surer over TCP.
MOST_KNOWN_BYTES: Final = 40  # Of one member in a want.
# Changes of branches that are looked at for an answer and do not fit; one branch may have more.
MOST_UNSENT_CHANGES: Final = 4096
MOST_REPLY_BYTES: Final = MAX_UNPACKED_BYTES // 2  # In one reply over TCP; the asker comes again for the rest.

# Near its end a memory of the dead is not told: who has forgotten it just now would learn it anew.
_NOT_TOLD_MS: Final = 60_000


class Differences(NamedTuple):
    """What a comparison found, by id."""

    records: list[Member]  # The other lacks these.
    branches: list[tuple[bytes, int, int]]  # And of these what is after an epoch and a version.
    wanted: list[Known]  # What this node has of what it lacks.


@final
class Knowledge:
    """What this node knows, as others are told it."""

    def __init__(self, members: Members, tree: Tree, profile: Profile) -> None:
        self._members = members
        self._tree = tree
        self._profile = profile

    def known(self, id_: bytes, now_ms: int) -> Known:
        """What is known of one member as far as others should care; epoch 0 for nothing."""
        member = self._members.get(id_)
        if member is None:
            return Known(id_, State.ALIVE, 0, 0, 0, 0)
        head = self._tree.head(id_)
        version = head.version if head.epoch == member.epoch else 0
        return Known(id_, member.state, member.incarnation, member.epoch, version, self._age_s(member, now_ms))

    def digest(self, most_bytes: int, now_ms: int) -> list[bytes]:
        """All of it, as parts of at most `most_bytes`."""
        most = min(most_bytes, MAX_PART_BYTES) - _RANGE_BYTES
        parts: list[bytes] = []
        first, size = FIRST, 0
        taken: list[bytes] = []
        for id_ in self._ids_to_tell(now_ms):
            known = messages.known(self.known(id_, now_ms))
            if taken and size + len(known) > most:
                before = _before(id_)
                parts.append(messages.digest(first, before, taken))
                first, taken, size = id_, [], 0
            taken.append(known)
            size += len(known)
        parts.append(messages.digest(first, LAST, taken))
        return parts

    def ages(self, members: Iterable[Member], now_ms: int) -> Iterator[bytes]:
        """A digest of each of these alone, for how old what is said of it is."""
        for member in members:
            yield messages.digest(member.id, member.id, (messages.known(self.known(member.id, now_ms)),))

    def compare(self, digests: Iterable[Digest], now_ms: int) -> Differences:
        """What the sender of these lacks, and what this node does.

        They are those of one message, in order: no id is compared twice, however often a message speaks of it.
        """
        found = Differences([], [], [])
        ids = self._ids_to_tell(now_ms)
        end = b""
        for digest in digests:
            if not end < digest.first <= digest.last:
                continue
            end = digest.last
            theirs = {known.id: known for known in digest.known if digest.first <= known.id <= end}
            for id_ in ids[bisect_left(ids, digest.first) : bisect_right(ids, digest.last)]:
                known = theirs.pop(id_, None) or Known(id_, State.ALIVE, 0, 0, 0, 0)
                self._compare(known, found, now_ms)
            for known in theirs.values():
                if not (known.state in GONE and self._is_old(known.age_s * 1000)):
                    self._compare(known, found, now_ms)
        return found

    def contradicting(self, records: Iterable[Member]) -> Iterable[Member]:
        """What this node says instead of these, each once.

        Digests do not show who is meant: a node that lost its disk may be in the very epoch of its past, and must hear
        of that.
        """
        found: dict[bytes, Member] = {}
        for record in records:
            mine = self._members.get(record.id)
            if mine is not None and mine.uuid != record.uuid:
                found[record.id] = mine
        return found.values()

    def newer(self, wanted: Iterable[Known], now_ms: int) -> Differences:
        """What a sender of these wants lacks; of several wants of one id the last counts."""
        found = Differences([], [], [])
        for known in {known.id: known for known in wanted}.values():
            self._compare(known, found, now_ms)
        found.wanted.clear()  # It asked.
        return found

    def _compare(self, theirs: Known, found: Differences, now_ms: int) -> None:
        member = self._members.get(theirs.id)
        if member is None:
            found.wanted.append(self.known(theirs.id, now_ms))
            return
        mine, other = _rank(member), _rank(theirs)
        if mine > other:
            found.records.append(member)
        head = self._tree.head(theirs.id)
        here, there = (head.epoch, head.version), (theirs.epoch, theirs.version)
        # Of the dead with the record only: the shard id that one of them claimed is not free.
        told = member.state not in GONE or not theirs.epoch
        if told and head.version and here > there:
            found.branches.append((theirs.id, theirs.epoch, theirs.version))
        if other > mine or (theirs.state not in GONE and member.state not in GONE and there > here):
            found.wanted.append(self.known(theirs.id, now_ms))

    def _ids_to_tell(self, now_ms: int) -> list[bytes]:
        return sorted(
            member.id
            for member in self._members
            if member.state not in GONE or not self._is_old(self._age_ms(member, now_ms))
        )

    def _is_old(self, age_ms: int) -> bool:
        return age_ms >= self._profile.dead_retention_ms - _NOT_TOLD_MS

    def _age_ms(self, member: Member, now_ms: int) -> int:
        peer = self._members.peers.get(member.id)
        if peer is None:
            return 0
        return max(0, now_ms - (peer.since_ms if member.state in GONE else peer.heard_ms))

    def _age_s(self, member: Member, now_ms: int) -> int:
        """Never told too young what lives, nor too old what is dead, however often it is told on."""
        age_ms = self._age_ms(member, now_ms)
        if member.id == self._members.own.id or member.state in GONE:
            return age_ms // 1000
        return age_ms // 1000 + 1


@final
class DatagramBodies:
    """Parts in bodies of at most `body_bytes` each, at most `most` of them."""

    __slots__ = ("_body_bytes", "_left", "_most", "bodies")

    def __init__(self, body_bytes: int, most: int) -> None:
        self._body_bytes = body_bytes
        self._most = most
        self._left = 0
        self.bodies: list[list[bytes]] = []

    def add(self, part: bytes) -> bool:
        """Put this in behind all others; false: it does not fit."""
        size = len(part)
        if size > self._left:
            if size > self._body_bytes or len(self.bodies) == self._most:
                return False
            self.bodies.append([])
            self._left = self._body_bytes
        self.bodies[-1].append(part)
        self._left -= size
        assert 0 <= self._left < self._body_bytes, self._left
        assert len(self.bodies) <= self._most, self._most
        return True


@final
class Replies:
    """The parts that tell differences."""

    def __init__(self, knowledge: Knowledge, tree: Tree, body_bytes: int) -> None:
        """`body_bytes`: for the parts of a SYNC in a datagram."""
        self._knowledge = knowledge
        self._tree = tree
        self._body_bytes = body_bytes

    def datagrams(self, found: Differences, now_ms: int) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Flags and parts of a few SYNCs: what another lacks, and what is wanted."""
        datagrams = DatagramBodies(self._body_bytes, DATAGRAMS)
        ages = self._knowledge.ages(found.records, now_ms)
        # Together: an age that comes later, or is lost, is not the one of the first word.
        fit = all(datagrams.add(messages.record(member) + age) for member, age in zip(found.records, ages, strict=True))
        heads = []
        unsent = 0
        # Those with few changes first: what may not fit must not keep out what does.
        for behind, owner, epoch, version in sorted((self._behind(*branch), *branch) for branch in found.branches):
            if unsent <= MOST_UNSENT_CHANGES and not self._tree.is_large(owner, epoch, version, self._body_bytes):
                delta, *rest = islice(self._tree.deltas(owner, epoch, version, part_bytes=self._body_bytes), 2)
                if not rest and datagrams.add(delta):
                    continue
                unsent += behind
            heads.append(messages.head(self._tree.head(owner)))
        for body in datagrams.bodies:
            yield REPLY, body
        if heads or not fit:
            by_name = fit and sum(map(len, heads)) <= self._body_bytes
            yield REPLY | MORE, heads if by_name else ()
        for part in wants(found.wanted, self._body_bytes):
            yield REPLY, (part,)

    def over_tcp(self, found: Differences, now_ms: int) -> tuple[list[bytes], bool]:
        """What another lacks, as parts of one message over TCP; and whether there is more."""
        parts: list[bytes] = []
        size = 0
        for together in self._lacking(found, now_ms):
            size += sum(map(len, together))
            if size > MOST_REPLY_BYTES:
                assert parts, size  # Or it would never come.
                return parts, True
            parts += together
        return parts, False

    def _behind(self, owner: bytes, epoch: int, version: int) -> int:
        """How many changes of a branch are after these, at most."""
        head = self._tree.head(owner)
        return head.version - version if head.epoch == epoch else head.version

    def _lacking(self, found: Differences, now_ms: int) -> Iterator[Sequence[bytes]]:
        """All of it; the pieces of a branch, which mean nothing without each other, together."""
        for member in found.records:
            yield (messages.record(member),)
        for age in self._knowledge.ages(found.records, now_ms):
            yield (age,)
        for owner, epoch, version in found.branches:
            yield tuple(self._tree.deltas(owner, epoch, version, part_bytes=MAX_PART_BYTES))


def wants(wanted: Sequence[Known], most_bytes: int) -> list[bytes]:
    """These as parts."""
    each = max(1, (most_bytes - PART_HEAD_BYTES) // MOST_KNOWN_BYTES)
    return [
        messages.want([messages.known(known) for known in wanted[begin : begin + each]])
        for begin in range(0, len(wanted), each)
    ]


def _rank(said: Member | Known) -> tuple[int, bool, int, bool]:
    """What counts in an exchange: a suspicion does not."""
    return said.epoch, said.state is State.LEFT, said.incarnation, said.state is State.DEAD


def _before(id_: bytes) -> bytes:
    return (int.from_bytes(id_, "big") - 1).to_bytes(ID_BYTES, "big")
