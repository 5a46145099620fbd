"""The faults of a run: which are on, when they strike, whom, and for how long.

Swarm testing: each seed draws a subset, since a fault that is always on hides what shows only without it (where
everything is lost at times, nothing is ever merely late).  Each fault draws from a stream of its own, so one that is
switched off, by `without` or by the shrinker, leaves the others' times and victims as they were.

A fault counts in `World.struck` under its name when it really struck, not when it was on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.testing.scheduler import SECOND
from gossipkv.testing.strikes import STRIKES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

    from gossipkv.testing.machine import Machine
    from gossipkv.testing.strikes import Strike
    from gossipkv.testing.world import World

LINK_FAULTS: Final = ("loss", "heavy_delay", "duplicate", "reorder", "corrupt")
FAULTS: Final = (*LINK_FAULTS, *STRIKES)
MOST_RATE = 0.4  # Of link faults; most seeds have much less.


def drawn(chance: Random) -> frozenset[str]:
    """The faults of one seed: none, a few, or many."""
    share = chance.choice((0.0, 0.1, 0.25, 0.5))
    return frozenset(name for name in FAULTS if chance.random() < share)


@final
class Faults:
    """The faults of one run, between `begin` and `end`."""

    def __init__(self, world: World, on: Collection[str]) -> None:
        self.world = world
        self.on = frozenset(on)
        self._is_over = True

    def begin(self) -> None:
        """From now on they strike."""
        self._is_over = False
        for name in LINK_FAULTS:
            if name in self.on:
                chance = self.world.streams[f"faults/{name}"]
                setattr(self.world.network.usual, name, MOST_RATE * chance.random() ** 3)
        self.world.network.changed()
        for name, fault in STRIKES.items():
            if name in self.on:
                self._again(name, fault)

    def end(self) -> None:
        """Everything is healed, and every machine up or on its way."""
        self._is_over = True
        self.world.network.heal()
        for machine in self.world.machines:
            machine.heal()

    def _again(self, name: str, fault: Strike) -> None:
        chance = self.world.streams[f"faults/{name}"]

        def strike() -> None:
            if not self._is_over:
                fault.strike(self, chance)
                self._again(name, fault)

        self.world.scheduler.after(int(chance.expovariate(1 / fault.period_s) * SECOND), strike)

    # For strikes: whom, and for how long

    def struck(self, name: str) -> None:
        """Count one that struck."""
        self.world.struck[name] += 1

    def up(self, chance: Random) -> Machine | None:
        """Some machine whose process runs freely."""
        up = [machine for machine in self.world.machines if machine.is_up and not machine.is_held]
        drawn = chance.random()  # Whoever is up: the stream goes on by the same number of draws.
        return up[int(drawn * len(up))] if up else None

    def pair(self, chance: Random) -> tuple[Machine, Machine]:
        """Two different machines."""
        first, second = chance.sample(self.world.machines, 2)
        return first, second

    def undo_later(self, chance: Random, mean_s: float, undo: Callable[[], None]) -> None:
        """Undo it after a time with a long tail, unless the end comes first and undoes everything."""
        for_us = int(min(20 * mean_s, chance.lognormvariate(0, 1) * mean_s) * SECOND)
        self.world.scheduler.after(for_us, lambda: None if self._is_over else undo())

    def restart_later(self, chance: Random, machine: Machine) -> None:
        """Start it again soon, or a good while later."""
        mean_s = chance.choice((0.05, 1.0, 10.0, 30.0))
        self.undo_later(chance, mean_s, machine.start)
