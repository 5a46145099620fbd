"""A set of the partitions of one version, with their number N.

The set is one whole number in which bit p is partition p, so `|`, `&` and `-` on 65,536 partitions cost microseconds.
Combining sets of different N is a defect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAMED: Final = 8  # Runs in `repr`.


@final
@dataclass(frozen=True, slots=True, repr=False)  # Python refuses to write such long numbers in decimal.
class PartitionSet:
    """Some of the partitions 0 to N - 1."""

    partitions: int
    bits: int

    def __post_init__(self) -> None:
        assert self.bits >= 0, self.bits
        assert self.bits.bit_length() <= self.partitions, (self.bits.bit_length(), self.partitions)

    @classmethod
    def empty(cls, partitions: int) -> PartitionSet:
        return cls(partitions, 0)

    @classmethod
    def whole(cls, partitions: int) -> PartitionSet:
        return cls(partitions, (1 << partitions) - 1)

    @classmethod
    def of(cls, partitions: int, numbers: Iterable[int]) -> PartitionSet:
        """Return the set of these partitions; repeated ones count once."""
        bitmap = bytearray(_bitmap_bytes(partitions))
        for partition in numbers:
            assert 0 <= partition < partitions, (partition, partitions)
            bitmap[partition >> 3] |= 1 << (partition & 7)
        return cls(partitions, int.from_bytes(bitmap, "little"))

    @classmethod
    def from_bytes(cls, partitions: int, bitmap: bytes) -> PartitionSet:
        """Return the set from the result of `to_bytes`; trailing zeros may be missing.

        Raises:
            ValueError: the bitmap has bits beyond the last partition.
        """
        bits = int.from_bytes(bitmap, "little")
        if len(bitmap) > _bitmap_bytes(partitions) or bits.bit_length() > partitions:
            raise ValueError(f"a bitmap of {len(bitmap)} bytes does not fit {partitions} partitions")
        return cls(partitions, bits)

    def to_bytes(self) -> bytes:
        """Return the bitmap in ceil(N / 8) bytes: bit p & 7 of byte p >> 3 is partition p."""
        return self.bits.to_bytes(_bitmap_bytes(self.partitions), "little")

    def __contains__(self, partition: int) -> bool:
        return 0 <= partition < self.partitions and self.bits >> partition & 1 == 1

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        digits = f"{self.bits:b}"[::-1]
        partition = digits.find("1")
        while partition >= 0:
            yield partition
            partition = digits.find("1", partition + 1)

    def runs(self) -> list[tuple[int, int]]:
        """Return the maximal runs, in ascending order, each as its first partition and the one after its last."""
        return list(self._each_run())

    def in_words(self, most_runs: int) -> str:
        """Return the first runs and the number of further partitions, as in `0-5,9 and 12 more`.

        The text is empty for an empty set. The cost does not grow with the runs that are not named.
        """
        named = list(islice(self._each_run(), most_runs))
        more = len(self) - sum(end - first for first, end in named)
        return ",".join(map(_run_text, named)) + (f" and {more:,} more" if more else "")

    def __repr__(self) -> str:
        named = list(islice(self._each_run(), _NAMED + 1))
        text = ",".join(map(_run_text, named[:_NAMED]))
        return f"<{text or 'none'}{',...' * (len(named) > _NAMED)} of {self.partitions} partitions>"

    def _each_run(self) -> Iterator[tuple[int, int]]:
        return (run.span() for run in re.finditer("1+", f"{self.bits:b}"[::-1]))

    def __or__(self, other: PartitionSet) -> PartitionSet:
        return PartitionSet(self._shared_with(other), self.bits | other.bits)

    def __and__(self, other: PartitionSet) -> PartitionSet:
        return PartitionSet(self._shared_with(other), self.bits & other.bits)

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        return PartitionSet(self._shared_with(other), self.bits & ~other.bits)

    def _shared_with(self, other: PartitionSet) -> int:
        assert self.partitions == other.partitions, (self.partitions, other.partitions)
        return self.partitions


def in_at_least(count: int, partitions: int, sets: Iterable[PartitionSet]) -> PartitionSet:
    """Return the partitions that at least `count` of the sets have."""
    reached = [(1 << partitions) - 1, *[0] * count]  # Entry k has the partitions in at least k sets.
    for subset in sets:
        assert subset.partitions == partitions, (subset.partitions, partitions)
        for times in range(count, 0, -1):
            reached[times] |= reached[times - 1] & subset.bits
    return PartitionSet(partitions, reached[count])


def _run_text(run: tuple[int, int]) -> str:
    first, end = run
    return f"{first}-{end - 1}" if end - first > 1 else str(first)


def _bitmap_bytes(partitions: int) -> int:
    return (partitions + 7) // 8
