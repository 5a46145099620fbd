"""Fixed checksums: the files on which this node lets clients have an identity, and the owners whose files match.

Two nodes may make different files from sources that claim to be the same.  So the checksum of each file is fixed from
the moment that clients may have the identity.  From then on only files with that checksum answer for the partition,
this node's own included (promise P2).  A majority of owners does not make a file right; the file that clients have had
stays.

A kind of file without a fixed checksum takes the first one that is heard.  An owner that was found right counts until
it withdraws its files, also over restarts of the owner and of this node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import differing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.seals import Seals


class _Judged(NamedTuple):
    uuid: bytes
    epoch: int  # The epoch of the answer; 0 if there was no answer since this node started.
    right: PartitionSet
    wrong: PartitionSet


@final
class FixedSeals:
    """The fixed checksums of one identity."""

    def __init__(self, identity: VersionIdentity, seals: Seals) -> None:
        self.identity = identity
        self.seals = seals  # A new object whenever its content changes.
        self._nothing = PartitionSet.empty(identity.partitions)
        self._judged: dict[str, _Judged] = {}
        self._compared: tuple[Seals, Seals, PartitionSet] = seals, seals, self._nothing

    def contradicting(self, seals: Seals) -> PartitionSet:
        """Return the partitions for which this node's own files differ; the last result is cached."""
        if self._compared[0] is not self.seals or self._compared[1] is not seals:
            self._compared = self.seals, seals, differing(self.seals, seals, self.identity.partitions)
        return self._compared[2]

    def extend(self, seals: Seals, partitions: PartitionSet) -> None:
        """Fix the checksums of these partitions for kinds of files that have none yet."""
        for kind, of_kind in seals.items():
            fixed = self.seals.get(kind, {})
            new = {at: seal for at, seal in of_kind.items() if at not in fixed and at in partitions}
            if new:
                self.seals = {**self.seals, kind: {**fixed, **new}}

    def judge(self, name: str, uuid: bytes, epoch: int, ready: PartitionSet, seals: Seals) -> None:
        """Judge the files that an owner has answered to have, for the partitions that it serves."""
        wrong = differing(self.seals, seals, self.identity.partitions) & ready
        self.extend(seals, ready - wrong)
        self._judged[name] = _Judged(uuid, epoch, ready - wrong, wrong)

    def trust(self, name: str, uuid: bytes, partitions: PartitionSet) -> None:
        """Note that an owner was found right when this node ran last."""
        self._judged[name] = _Judged(uuid, 0, partitions, self._nothing)

    def confine(self, name: str, uuid: bytes, held: PartitionSet) -> None:
        """Note all partitions that an owner still claims; a withdrawn one is judged anew when it returns."""
        judged = self._judged.pop(name, None)
        if judged is not None and judged.uuid == uuid and (judged.right | judged.wrong) & held:
            self._judged[name] = judged._replace(right=judged.right & held, wrong=judged.wrong & held)

    def forget(self, name: str) -> None:
        self._judged.pop(name, None)

    def has_judged(self, name: str, uuid: bytes, epoch: int, published: PartitionSet) -> bool:
        """True if this incarnation of an owner need not be asked about its published files."""
        judged = self._judged.get(name)
        if judged is None or (judged.uuid, judged.epoch) != (uuid, epoch):
            return not published
        return not published - judged.right - judged.wrong

    def right(self, name: str, uuid: bytes) -> PartitionSet:
        judged = self._judged.get(name)
        return self._nothing if judged is None or judged.uuid != uuid else judged.right

    def wrong(self) -> Iterator[tuple[str, PartitionSet]]:
        """Yield the owners with different files, by name, and their differing partitions."""
        return ((name, judged.wrong) for name, judged in sorted(self._judged.items()) if judged.wrong.bits)

    def keeper(self, partitions: PartitionSet) -> str | None:
        """Return an owner that was found right for most of these partitions; None if there is none."""
        counted = {name: len(judged.right & partitions) for name, judged in sorted(self._judged.items())}
        best = max(counted, key=counted.__getitem__, default=None)
        return best if best is not None and counted[best] else None
