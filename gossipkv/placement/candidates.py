"""Whom to ask for a partition that is not here, in which order.

Everybody who has said that it holds it and has not withdrawn that, whatever gossip thinks of it: a member that is
wrongly taken for dead may be the last one that has it.  First those that are ALIVE, then SUSPECT, then DEAD, each group
shuffled, so that the load of one that is lost spreads over all others.  Who was slow goes last, whatever its state: it
let a stage pass, or said that it is busy, and has not answered since.

The serving loop goes by the same rule; this is its statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.placement.holders import HolderState


class Random(Protocol):
    """A `random.Random`, seeded in tests."""

    def shuffle(self, x: list[str], /) -> None:
        """Put a list into any order, in place."""


def candidates(holders: Mapping[str, HolderState], slow: Collection[str], random: Random) -> list[str]:
    """Return the holders of a partition, named by their members, in the order in which they are asked."""
    names = sorted(holders)  # Or a seed would not say what it draws.
    random.shuffle(names)
    return sorted(names, key=lambda name: (name in slow, holders[name]))
