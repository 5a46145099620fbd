"""What is measured, and how: the same thing done by us and by others, once a round.

The figure that counts is a ratio, and it is taken within a round, since what disturbs a round on a shared machine
disturbs both sides of it; the median over the rounds is reported, with the least and the greatest beside it.
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

    # One figure, or one of each row that the same work gives a figure for.
    Figures = float | Mapping["Row", float]

OURS = "GossipKV"
ITSELF = ""  # A limit for our own figure rather than for a ratio.
SEED = 42


class WrongAnswerError(Exception):
    """Who answers wrongly, or not at all, is not measured."""


class Row(str):
    """The name of what is measured, with its unit, the side that is ours, and what our figure may be at most.

    Smaller is better.  `limits` has the greatest ratio to a peer, or the greatest figure for `ITSELF`.
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
    """Ours over theirs."""

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
    """One part of a run: where its files go, what it has measured, and what there is to say beside the figures."""

    def __init__(self, directory: Path, peers: frozenset[str] | None = None, core: int | None = None) -> None:
        self.directory = directory
        self.peers = peers  # Those that may take part; None: all that are here.
        self.core = core
        self.notes: list[str] = []
        self._samples: dict[Row, dict[str, list[float]]] = {}

    def add(self, row: Row, figure: float, side: str = "") -> None:
        """Take in one round's figure of a side; none: ours."""
        self._samples.setdefault(row, {row.ours: []}).setdefault(side or row.ours, []).append(figure)

    def compare(self, title: Row, sides: Mapping[str, Callable[[], Figures]], rounds: int, *, warm: int = 1) -> None:
        """Let every side do its work once a round, in another order each time; the first `warm` rounds do not count.

        Each returns its figure of the row `title`, or those of several rows.  A side that is not ours and for which
        the row has no limit takes no part.
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
        """Whether a peer is here; else a note says what it needs."""
        if missing is not None:
            machine.say(f"  {name} takes no part; it needs: {missing}")
            self.notes.append(f"{name} takes no part; it needs: {missing}")
        return missing is None

    def measurements(self) -> list[Measurement]:
        return [Measurement(row, samples) for row, samples in self._samples.items()]
