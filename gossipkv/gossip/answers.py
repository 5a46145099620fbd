"""What is told to a node that lacks it: in a few datagrams, or over TCP."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip import packets
from gossipkv.gossip.packets import MAX_PART_BYTES, MORE, PART_HEAD_BYTES, REPLY
from gossipkv.gossip.packing import MAX_UNPACKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.gossip.digests import Differences, Knowledge
    from gossipkv.gossip.packets import Known
    from gossipkv.gossip.tree.tree import Tree

DATAGRAMS: Final = 4  # So many make an answer; what is more goes faster and surer over TCP.
MOST_KNOWN_BYTES: Final = 40  # Of one member in a want.
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

    def add(self, parts: Sequence[bytes]) -> bool:
        """Put these in, in order, those of one call into as many messages as it takes; false: none of them fits."""
        left, more = self._left, 0
        for part in parts:
            size = len(part)
            if size > self._room:
                return False
            if size > left:
                left, more = self._room, more + 1
            left -= size
        if len(self.bodies) + more > self._most:
            return False
        for part in parts:
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
        fit = all(letters.add((packets.record(member), age)) for member, age in zip(found.records, ages, strict=True))
        heads = []
        for owner, epoch, version in found.branches:
            deltas = self._tree.deltas(owner, epoch, version, part_bytes=self._room)
            too_large = self._tree.is_large(owner, epoch, version, DATAGRAMS * self._room)
            if too_large or not letters.add(tuple(islice(deltas, DATAGRAMS + 1))):
                heads.append(packets.head(self._tree.head(owner)))
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

    def _lacking(self, found: Differences, now_ms: int) -> Iterator[bytes]:
        for member in found.records:
            yield packets.record(member)
        yield from self._knowledge.ages(found.records, now_ms)
        for owner, epoch, version in found.branches:
            yield from self._tree.deltas(owner, epoch, version, part_bytes=MAX_PART_BYTES)


def wants(wanted: Sequence[Known], most_bytes: int) -> list[bytes]:
    """These as parts."""
    each = max(1, (most_bytes - PART_HEAD_BYTES) // MOST_KNOWN_BYTES)
    return [
        packets.want([packets.known(known) for known in wanted[begin : begin + each]])
        for begin in range(0, len(wanted), each)
    ]
