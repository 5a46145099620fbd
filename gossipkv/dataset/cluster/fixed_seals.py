"""The seals on which this node lets clients have an identity, and which owners' files have them.

Two nodes may make different files from one source that says it is the same.  So what clients get of an identity is
fixed, file by file, from the moment that they may have it: from then on a partition is answered by files with its seal
and by no others, those of this node included (promise P2).  What most owners have is not right because of that; what
clients have had stays.

A kind of file of which nothing is fixed yet is taken from whoever is heard first.  An owner that was found right counts
until it takes back what it has: also when it starts again, and when this node does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import differing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.placement.identity import Identity
    from gossipkv.placement.seals import Seals


class _Judged(NamedTuple):
    uuid: bytes
    epoch: int  # Of the answer; 0: of none in this run of this node.
    right: PartitionSet
    wrong: PartitionSet


@final
class FixedSeals:
    """The fixed seals of one identity."""

    def __init__(self, identity: Identity, seals: Seals) -> None:
        self.identity = identity
        self.seals = seals  # Another object whenever there is another one in it.
        self._nothing = PartitionSet.empty(identity.partitions)
        self._judged: dict[str, _Judged] = {}
        self._compared: tuple[Seals, Seals, PartitionSet] = seals, seals, self._nothing

    def contradicting(self, seals: Seals) -> PartitionSet:
        """Return the partitions of which this node's own files are others; what was asked last is remembered."""
        if self._compared[0] is not self.seals or self._compared[1] is not seals:
            self._compared = self.seals, seals, differing(self.seals, seals, self.identity.partitions)
        return self._compared[2]

    def extend(self, seals: Seals, partitions: PartitionSet) -> None:
        """Fix the kinds of files of these partitions of which nothing is fixed yet."""
        for kind, of_kind in seals.items():
            known = self.seals.get(kind, {})
            new = {at: seal for at, seal in of_kind.items() if at not in known and at in partitions}
            if new:
                self.seals = {**self.seals, kind: {**known, **new}}

    def judge(self, name: str, uuid: bytes, epoch: int, ready: PartitionSet, seals: Seals) -> None:
        """Take in the files that an owner has answered to have, of the partitions that it serves."""
        wrong = differing(self.seals, seals, self.identity.partitions) & ready
        self.extend(seals, ready - wrong)
        self._judged[name] = _Judged(uuid, epoch, ready - wrong, wrong)

    def trust(self, name: str, uuid: bytes, partitions: PartitionSet) -> None:
        """Take in that an owner was found right when this node ran last."""
        self._judged[name] = _Judged(uuid, 0, partitions, self._nothing)

    def confine(self, name: str, uuid: bytes, held: PartitionSet) -> None:
        """Take in all that an owner still says that it has: what it takes back is judged anew when it has it again."""
        judged = self._judged.pop(name, None)
        if judged is not None and judged.uuid == uuid and (judged.right | judged.wrong) & held:
            self._judged[name] = judged._replace(right=judged.right & held, wrong=judged.wrong & held)

    def forget(self, name: str) -> None:
        """Take in that a member is known no longer."""
        self._judged.pop(name, None)

    def has_judged(self, name: str, uuid: bytes, epoch: int, published: PartitionSet) -> bool:
        """Whether this life of an owner need not be asked about the files that it has published."""
        judged = self._judged.get(name)
        if judged is None or (judged.uuid, judged.epoch) != (uuid, epoch):
            return not published
        return not published - judged.right - judged.wrong

    def right(self, name: str, uuid: bytes) -> PartitionSet:
        """Return the partitions for which an owner may be asked."""
        judged = self._judged.get(name)
        return self._nothing if judged is None or judged.uuid != uuid else judged.right

    def wrong(self) -> Iterator[tuple[str, PartitionSet]]:
        """Return the owners with other files, by name, and of which partitions."""
        return ((name, judged.wrong) for name, judged in sorted(self._judged.items()) if judged.wrong)

    def keeper(self, partitions: PartitionSet) -> str | None:
        """Return an owner that was found right for most of these partitions; None: none was for any."""
        counted = {name: len(judged.right & partitions) for name, judged in sorted(self._judged.items())}
        best = max(counted, key=counted.__getitem__, default=None)
        return best if best is not None and counted[best] else None
