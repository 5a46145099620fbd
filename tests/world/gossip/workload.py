"""What members publish in a run: a key now and then, a burst, a withdrawal."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.errors import TooLarge
from tests.world.gossip.history import PLACES
from tests.world.scheduler import SECOND

if TYPE_CHECKING:
    from random import Random

    from tests.world.gossip.history import History
    from tests.world.machine import Machine
    from tests.world.world import World

KEYS = 12  # Few, so that a key is withdrawn and published again, and several owners have the same.
BURST = 40  # More than rumours carry one by one.
LARGE_BYTES = 700  # Two of these do not share a packet.


@final
class Workload:
    """The users of a world."""

    def __init__(self, world: World, history: History, chance: Random) -> None:
        self._world = world
        self._history = history
        self._chance = chance
        self._period_s = chance.choice((0.2, 1.0, 5.0))
        self._serial = 0
        self.is_over = False

    def begin(self) -> None:
        """Publish something now and then from now on."""
        self._again()

    def _again(self) -> None:
        def act() -> None:
            if not self.is_over:
                self.act()
                self._again()

        self._world.scheduler.after(int(self._chance.expovariate(1 / self._period_s) * SECOND), act)

    def act(self) -> None:
        """One user does one thing."""
        chance = self._chance
        machine = chance.choice(self._world.machines)
        what = chance.choices(("burst", "clear", "withdraw", "publish"), (1, 1, 6, 12))[0]
        path = f"{chance.choice(PLACES)}/{chance.randrange(KEYS)}"
        value = chance.choices((b"", bytes(LARGE_BYTES)), (9, 1))[0]
        if not machine.is_up or machine.is_paused or machine.is_leaving:
            return
        if what == "burst":
            for number in range(BURST):
                self._publish(machine, f"{PLACES[0]}/burst{number}", b"")
        elif what == "clear":
            for old in self._history.published(machine):
                self._history.withdraw(machine, old)
        elif what == "withdraw":
            self._history.withdraw(machine, path)
        else:
            self._publish(machine, path, value)

    def _publish(self, machine: Machine, path: str, value: bytes) -> None:
        """Every value is a new one, so that a view shows which state it is of."""
        self._serial += 1
        try:
            self._history.publish(machine, path, b"%d:" % self._serial + value)
        except TooLarge:
            self._world.struck["publish_refused"] += 1
