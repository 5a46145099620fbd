"""The method of measuring: GossipKV and its peers do the same work, once a round.

The figure that counts is a ratio within a round, since a disturbance on a shared machine affects both sides of a round.
The report has the median over the rounds, with the least and the greatest ratio beside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

    # One figure, or one per row if the same work gives several.
    Figures = float | Mapping["Row", float]

OURS = "GossipKV"
ITSELF = ""  # A limit for GossipKV's own figure rather than for a ratio.
SEED = 42


class WrongAnswerError(Exception):
    """An engine that answers wrongly, or not at all, is not measured."""


class Row(str):
    """The name of a measurement, with its unit, the side that is GossipKV's, and its limits.

    Smaller is better. `limits` has the greatest ratio to a peer, or the greatest figure for `ITSELF`.
    """

    __slots__ = ("limits", "ours", "unit")

    def __new__(
        cls, name: str, unit: str, limits: float | Mapping[str, float] | None = None, *, ours: str = OURS
    ) -> Self:
        row = super().__new__(cls, name)
        row.unit, row.ours = unit, ours
        row.limits = limits if isinstance(limits, dict) else {} if limits is None else {ITSELF: limits}
        return row


class Ratio(NamedTuple):
    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Measurement:
    """The figures of a row: `samples[side]` has one of each round."""

    row: Row
    samples: dict[str, list[float]]

    def ratio(self, peer: str) -> Ratio:
        pairs = zip(self.samples[self.row.ours], self.samples[peer], strict=True)
        ratios = [ours / theirs if theirs else inf for ours, theirs in pairs]
        return Ratio(median(ratios), min(ratios), max(ratios))

    def typical(self, name: str) -> float:
        return median(self.samples[name])

    @property
    def peers(self) -> list[str]:
        return [name for name in self.samples if name != self.row.ours]


class Bench:
    """One part of a run: the directory of its files, its figures and its notes."""

    def __init__(self, directory: Path, peers: frozenset[str] | None = None, core: int | None = None) -> None:
        self.directory = directory
        self.peers = peers  # The permitted peers; None permits all that are installed.
        self.core = core
        self.notes: list[str] = []
        self._samples: dict[Row, dict[str, list[float]]] = {}

    def add(self, row: Row, figure: float, side: str = "") -> None:
        """Add one round's figure of a side, by default GossipKV's."""
        self._samples.setdefault(row, {row.ours: []}).setdefault(side or row.ours, []).append(figure)

    def compare(self, title: Row, sides: Mapping[str, Callable[[], Figures]], rounds: int, *, warm: int = 1) -> None:
        """Let every side do its work once a round, in random order; the first `warm` rounds do not count.

        Each side returns its figure of the row `title`, or those of several rows. A peer without a limit in the row
        takes no part.
        """
        machine.say(f"  {title}")
        sides = {name: side for name, side in sides.items() if name == title.ours or name in title.limits}
        chance = random.Random(f"{SEED} {title}")
        for number in range(warm + rounds):
            found = {name: sides[name]() for name in chance.sample([*sides], len(sides))}
            for name in sides if number >= warm else ():
                figures = found[name] if isinstance(found[name], dict) else {title: found[name]}
                for row, figure in figures.items():
                    self.add(row, figure, name)

    def takes_part(self, name: str, missing: str | None) -> bool:
        """Return True if a peer is present; else note its missing package."""
        if missing is not None:
            machine.say(f"  {name} takes no part; it needs: {missing}")
            self.notes.append(f"{name} takes no part; it needs: {missing}")
        return missing is None

    def measurements(self) -> list[Measurement]:
        return [Measurement(row, samples) for row, samples in self._samples.items()]
