"""What is told to a node that lacks it: in a few datagrams, or over TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.packets.messages import MAX_PART_BYTES, MORE, PART_HEAD_BYTES, REPLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gossipkv.gossip.anti_entropy.digests import Differences, Knowledge
    from gossipkv.gossip.packets.messages import Known
    from gossipkv.gossip.tree.tree import Tree

DATAGRAMS: Final = 4  # So many make an answer; what is more goes faster and surer over TCP.
MOST_KNOWN_BYTES: Final = 40  # Of one member in a want.
# Changes of branches that are looked at for an answer and do not fit; one branch may have more.
MOST_IN_VAIN: Final = 4096
MOST_TOLD_BYTES: Final = MAX_UNPACKED_BYTES // 2  # In one reply over TCP; the asker comes again for the rest.


@final
class Letters:
    """Messages of at most `room` bytes of parts each, at most `most` of them."""

    __slots__ = ("_left", "_most", "_room", "bodies")

    def __init__(self, room: int, most: int) -> None:
        self._room = room
        self._most = most
        self._left = 0
        self.bodies: list[list[bytes]] = []

    def add(self, parts: Iterable[bytes]) -> bool:
        """Put these in, in order, those of one call into as many messages as it takes; false: none of them fits.

        No more of them is drawn than it takes to know that.
        """
        left, more = self._left, 0
        drawn: list[bytes] = []
        for part in parts:
            size = len(part)
            if size > left:
                left, more = self._room, more + 1
                if size > left or len(self.bodies) + more > self._most:
                    return False
            left -= size
            drawn.append(part)
        for part in drawn:
            if len(part) > self._left:
                self.bodies.append([])
                self._left = self._room
            self.bodies[-1].append(part)
            self._left -= len(part)
        return True


@final
class Answers:
    """Finds the parts that tell differences."""

    def __init__(self, knowledge: Knowledge, tree: Tree, room: int) -> None:
        """`room`: for the parts of a SYNC in a datagram."""
        self._knowledge = knowledge
        self._tree = tree
        self._room = room

    def datagrams(self, found: Differences, now_ms: int) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Flags and parts of a few SYNCs: what another lacks, and what is wanted."""
        letters = Letters(self._room, DATAGRAMS)
        ages = self._knowledge.ages(found.records, now_ms)
        # Together: an age that comes later, or is lost, is not the one of the first word.
        fit = all(
            letters.add((messages.record(member) + age,)) for member, age in zip(found.records, ages, strict=True)
        )
        heads = []
        in_vain = 0
        # Those with few changes first: what may not fit must not keep out what does.
        for behind, owner, epoch, version in sorted((self._behind(*branch), *branch) for branch in found.branches):
            if in_vain <= MOST_IN_VAIN and not self._tree.is_large(owner, epoch, version, DATAGRAMS * self._room):
                if letters.add(self._tree.deltas(owner, epoch, version, part_bytes=self._room)):
                    continue
                in_vain += behind
            heads.append(messages.head(self._tree.head(owner)))
        for body in letters.bodies:
            yield REPLY, body
        if heads or not fit:
            by_name = fit and sum(map(len, heads)) <= self._room
            yield REPLY | MORE, heads if by_name else ()
        for part in wants(found.wanted, self._room):
            yield REPLY, (part,)

    def told(self, found: Differences, now_ms: int) -> tuple[list[bytes], bool]:
        """What another lacks, for TCP; and whether there is more."""
        told: list[bytes] = []
        size = 0
        for part in self._lacking(found, now_ms):
            size += len(part)
            if size > MOST_TOLD_BYTES:
                return told, True
            told.append(part)
        return told, False

    def _behind(self, owner: bytes, epoch: int, version: int) -> int:
        """How many changes of a branch are after these, at most."""
        head = self._tree.head(owner)
        return head.version - version if head.epoch == epoch else head.version

    def _lacking(self, found: Differences, now_ms: int) -> Iterator[bytes]:
        for member in found.records:
            yield messages.record(member)
        yield from self._knowledge.ages(found.records, now_ms)
        for owner, epoch, version in found.branches:
            yield from self._tree.deltas(owner, epoch, version, part_bytes=MAX_PART_BYTES, goes_on=True)


def wants(wanted: Sequence[Known], most_bytes: int) -> list[bytes]:
    """These as parts."""
    each = max(1, (most_bytes - PART_HEAD_BYTES) // MOST_KNOWN_BYTES)
    return [
        messages.want([messages.known(known) for known in wanted[begin : begin + each]])
        for begin in range(0, len(wanted), each)
    ]
