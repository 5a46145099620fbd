"""Differences between two nodes: digests of knowledge, their comparison, and the replies.

A digest lists all members that its sender knows in a range of ids, so a missing id is unknown there. Ranges fit
messages, and a lost one costs only itself. The receiver finds the sender's gaps and fills them by records and deltas,
in a few datagrams or over TCP, and names its own gaps in a *want*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.gossip.member import GONE, ID_BYTES, MemberState
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.packets.messages import MAX_PART_BYTES, MORE, PART_HEAD_BYTES, REPLY, KnownMember, MemberDigest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.members import MemberTable
    from gossipkv.gossip.profile import TimingProfile
    from gossipkv.gossip.tree.tree import GossipTree

FIRST: Final = bytes(ID_BYTES)
LAST: Final = b"\xff" * ID_BYTES

_RANGE_BYTES: Final = PART_HEAD_BYTES + 2 * ID_BYTES
DATAGRAMS: Final = 4  # Datagrams in an answer; a larger answer is faster and safer over TCP.
MAX_KNOWN_BYTES: Final = 40  # Bounds one member in a want.
# Bounds the changes of branches that are examined for an answer and do not fit; one branch may have more.
MAX_UNSENT_CHANGES: Final = 4096
MAX_REPLY_BYTES: Final = MAX_UNPACKED_BYTES // 2  # Bounds one reply over TCP; the asker comes again for the rest.

# The memory of a dead member is not told near its end: a node that has just forgotten it would learn it anew.
_NOT_TOLD_MS: Final = 60_000


class Differences(NamedTuple):
    """Result of a comparison, by id."""

    records: list[Member]  # Records that the other node lacks.
    branches: list[tuple[bytes, int, int]]  # Branches of which the other lacks all after an epoch and a version.
    wanted: list[KnownMember]  # State of this node, of which the other has a newer one.


@final
class Knowledge:
    """The knowledge of this node, in the form in which it is told."""

    def __init__(self, members: MemberTable, tree: GossipTree, profile: TimingProfile) -> None:
        self._members = members
        self._tree = tree
        self._profile = profile

    def known_member(self, id_: bytes, now_ms: int) -> KnownMember:
        """Return the knowledge about one member as far as it matters to others; epoch 0 if it is unknown."""
        member = self._members.get(id_)
        if member is None:
            return KnownMember(id_, MemberState.ALIVE, 0, 0, 0, 0)
        head = self._tree.head(id_)
        version = head.version if head.epoch == member.epoch else 0
        return KnownMember(id_, member.state, member.incarnation, member.epoch, version, self._age_s(member, now_ms))

    def digest(self, most_bytes: int, now_ms: int) -> list[bytes]:
        """Return the knowledge about all members, as parts of at most `most_bytes`."""
        most = min(most_bytes, MAX_PART_BYTES) - _RANGE_BYTES
        parts: list[bytes] = []
        first, size = FIRST, 0
        members: list[bytes] = []
        for id_ in self._ids_to_tell(now_ms):
            encoded = messages.known_member(self.known_member(id_, now_ms))
            if members and size + len(encoded) > most:
                before = _before(id_)
                parts.append(messages.digest(first, before, members))
                first, members, size = id_, [], 0
            members.append(encoded)
            size += len(encoded)
        parts.append(messages.digest(first, LAST, members))
        return parts

    def ages(self, members: Iterable[Member], now_ms: int) -> Iterator[bytes]:
        """Yield a digest of each of these members alone, which tells the age of the statement about it."""
        for member in members:
            yield messages.digest(member.id, member.id, (messages.known_member(self.known_member(member.id, now_ms)),))

    def compare(self, digests: Iterable[MemberDigest], now_ms: int) -> Differences:
        """Return the differences to the sender of these digests.

        The digests are those of one message, in order. No id is compared twice, however often a message names it.
        """
        found = Differences([], [], [])
        ids = self._ids_to_tell(now_ms)
        end = b""
        for digest in digests:
            if not end < digest.first <= digest.last:
                continue
            end = digest.last
            theirs = {entry.id: entry for entry in digest.entries if digest.first <= entry.id <= end}
            for id_ in ids[bisect_left(ids, digest.first) : bisect_right(ids, digest.last)]:
                entry = theirs.pop(id_, None) or KnownMember(id_, MemberState.ALIVE, 0, 0, 0, 0)
                self._compare(entry, found, now_ms)
            for entry in theirs.values():
                if not (entry.state in GONE and self._is_old(entry.age_s * 1000)):
                    self._compare(entry, found, now_ms)
        return found

    def contradicting(self, records: Iterable[Member]) -> Iterable[Member]:
        """Return this node's records that contradict these by another uuid, each once.

        Digests do not show the uuid: a node that lost its disk may be in the very epoch of its past, and must hear of
        that.
        """
        found: dict[bytes, Member] = {}
        for record in records:
            mine = self._members.get(record.id)
            if mine is not None and mine.uuid != record.uuid:
                found[record.id] = mine
        return found.values()

    def newer(self, wanted: Iterable[KnownMember], now_ms: int) -> Differences:
        """Return the state that the sender of these wants lacks; of several wants of one id the last counts."""
        found = Differences([], [], [])
        for entry in {entry.id: entry for entry in wanted}.values():
            self._compare(entry, found, now_ms)
        found.wanted.clear()  # The sender has asked for these itself.
        return found

    def _compare(self, theirs: KnownMember, found: Differences, now_ms: int) -> None:
        member = self._members.get(theirs.id)
        if member is None:
            found.wanted.append(self.known_member(theirs.id, now_ms))
            return
        mine, other = _rank(member), _rank(theirs)
        if mine > other:
            found.records.append(member)
        head = self._tree.head(theirs.id)
        my_version, their_version = (head.epoch, head.version), (theirs.epoch, theirs.version)
        # The branch of a dead member goes with its record only: its shard id is not free.
        may_tell = member.state not in GONE or not theirs.epoch
        if may_tell and head.version and my_version > their_version:
            found.branches.append((theirs.id, theirs.epoch, theirs.version))
        if other > mine or (theirs.state not in GONE and member.state not in GONE and their_version > my_version):
            found.wanted.append(self.known_member(theirs.id, now_ms))

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
        """Round the age so that forwarding makes no live member look younger and no dead one older."""
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
        """Append a part; return False if it does not fit."""
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
    """Encodes differences as parts."""

    def __init__(self, knowledge: Knowledge, tree: GossipTree, body_bytes: int) -> None:
        """`body_bytes`: room for the parts of a SYNC in a datagram."""
        self._knowledge = knowledge
        self._tree = tree
        self._body_bytes = body_bytes

    def datagrams(self, found: Differences, now_ms: int) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Yield flags and parts of a few SYNCs: the state that the other node lacks, and wants."""
        datagrams = DatagramBodies(self._body_bytes, DATAGRAMS)
        ages = self._knowledge.ages(found.records, now_ms)
        # A record and its age go together: an age that comes later does not count as the first statement.
        fit = all(datagrams.add(messages.record(member) + age) for member, age in zip(found.records, ages, strict=True))
        heads = []
        unsent = 0
        # Send short branches first, so that one that may not fit does not displace those that do.
        for behind, owner, epoch, version in sorted((self._behind(*branch), *branch) for branch in found.branches):
            if unsent <= MAX_UNSENT_CHANGES and not self._tree.is_large(owner, epoch, version, self._body_bytes):
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
        """Return the state that the other node lacks, as parts of one message over TCP, and True if there is more."""
        parts: list[bytes] = []
        size = 0
        for pieces in self._lacking(found, now_ms):
            size += sum(map(len, pieces))
            if size > MAX_REPLY_BYTES:
                assert parts, size  # An empty reply would never make progress.
                return parts, True
            parts += pieces
        return parts, False

    def _behind(self, owner: bytes, epoch: int, version: int) -> int:
        """Return an upper bound of the changes of a branch after this position."""
        head = self._tree.head(owner)
        return head.version - version if head.epoch == epoch else head.version

    def _lacking(self, found: Differences, now_ms: int) -> Iterator[Sequence[bytes]]:
        """Yield all parts; the pieces of a branch come together, since a piece alone is useless."""
        for member in found.records:
            yield (messages.record(member),)
        for age in self._knowledge.ages(found.records, now_ms):
            yield (age,)
        for owner, epoch, version in found.branches:
            yield tuple(self._tree.deltas(owner, epoch, version, part_bytes=MAX_PART_BYTES))


def wants(wanted: Sequence[KnownMember], most_bytes: int) -> list[bytes]:
    """Return these as WANT parts."""
    per_part = max(1, (most_bytes - PART_HEAD_BYTES) // MAX_KNOWN_BYTES)
    return [
        messages.want([messages.known_member(entry) for entry in wanted[begin : begin + per_part]])
        for begin in range(0, len(wanted), per_part)
    ]


def _rank(statement: Member | KnownMember) -> tuple[int, bool, int, bool]:
    """Return the rank without a suspicion, which does not count in an exchange."""
    return (
        statement.epoch,
        statement.state is MemberState.LEFT,
        statement.incarnation,
        statement.state is MemberState.DEAD,
    )


def _before(id_: bytes) -> bytes:
    return (int.from_bytes(id_, "big") - 1).to_bytes(ID_BYTES, "big")
