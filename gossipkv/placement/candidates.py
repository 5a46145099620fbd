"""Candidates: the nodes to ask for a partition that is not here, in order.

Every node counts that has claimed the partition and not withdrawn the claim, whatever its state in gossip: a member
wrongly taken for dead may be the last one that has it. ALIVE nodes come first, then SUSPECT, then DEAD. Each group is
shuffled, so that the load of a lost node spreads over all others. A slow node goes last, whatever its state: it missed
a stage or was busy, and has not answered since. The serving loop implements the same rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.placement.holders import HolderState


class CandidateRandom(Protocol):
    """The part of `random.Random` that is needed here: a caller passes one, and tests seed it."""

    def shuffle(self, x: list[str], /) -> None:
        """Shuffle a list in place."""


def candidates(holders: Mapping[str, HolderState], slow: Collection[str], random: CandidateRandom) -> list[str]:
    """Return the holders of a partition, by names of members, in the order in which they are asked."""
    names = sorted(holders)  # Sorted, so that a seed determines the order.
    random.shuffle(names)
    return sorted(names, key=lambda name: (name in slow, holders[name]))
