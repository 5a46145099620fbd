"""The faults of a run: the enabled kinds, their times, victims and durations.

Swarm testing: each seed draws a subset, since a fault that is always on hides bugs that show only without it (if
packets are always lost at times, none is ever merely late).  Each fault draws from its own stream, so a fault that
`without` or the shrinker switches off leaves the times and victims of the others unchanged.

A fault counts in `World.struck` under its name when it really struck, not when it was on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from tests.world.machine import Machine
    from tests.world.world import World

LINK_FAULTS: Final = ("loss", "heavy_delay", "duplicate", "reorder", "corrupt")
MAX_RATE = 0.4  # The maximum of the link faults; most seeds draw much less.
SMALL_MTU_BYTES = 576  # Every IPv4 host must accept this; some paths pass no more, and do not report it.

WITH_POWER = 0.7  # The share of crashes around a write step that take the power with them.
# The share of strikes on a running process, which writes when it wants to; the others strike at a start.
WHILE_RUNNING = 0.25


class Strike(NamedTuple):
    period_s: float  # The mean time between two strikes, when it is on.
    strike: Callable[[Faults, Random], None]


@final
class Faults:
    """The faults of one run, between `begin` and `end`."""

    def __init__(
        self, world: World, on: Collection[str], strikes: Mapping[str, Strike] | None = None, *, pace: float = 1
    ) -> None:
        """`strikes`: the faults beside those of links, in the order in which they begin; the default is `STRIKES`.

        `pace`: the factor by which they come and go faster than in `STRIKES`.
        """
        self.world = world
        self.on = frozenset(on)
        self._strikes = STRIKES if strikes is None else strikes
        self._pace = pace
        self._is_over = True

    def begin(self) -> None:
        self._is_over = False
        for name in LINK_FAULTS:
            if name in self.on:
                chance = self.world.streams[f"faults/{name}"]
                setattr(self.world.network.usual, name, MAX_RATE * chance.random() ** 3)
        self.world.network.changed()
        for name, fault in self._strikes.items():
            if name in self.on:
                self._again(name, fault)

    def end(self) -> None:
        """Heal everything; every machine is up afterwards or starting."""
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

        self.world.scheduler.after(int(chance.expovariate(1 / fault.period_s) * SECOND / self._pace), strike)

    # For strikes: victims and durations

    def struck(self, name: str) -> None:
        self.world.struck[name] += 1

    def up(self, chance: Random) -> Machine | None:
        up = [machine for machine in self.world.machines if machine.is_up and not machine.is_held]
        drawn = chance.random()  # Draw in any case, so that the stream advances by the same number of draws.
        return up[int(drawn * len(up))] if up else None

    def pair(self, chance: Random) -> tuple[Machine, Machine]:
        first, second = chance.sample(self.world.machines, 2)
        return first, second

    def undo_later(self, chance: Random, mean_s: float, undo: Callable[[], None]) -> None:
        """Call `undo` after a time with a long tail, unless `end` comes first and undoes everything."""
        for_us = int(min(20 * mean_s, chance.lognormvariate(0, 1) * mean_s) * SECOND / self._pace)
        self.world.scheduler.after(for_us, lambda: None if self._is_over else undo())

    def restart_later(self, chance: Random, machine: Machine) -> None:
        """Start the machine again soon, or much later."""
        mean_s = chance.choice((0.05, 1.0, 10.0, 30.0))
        self.undo_later(chance, mean_s, machine.start)


# The network


def _cut(faults: Faults, chance: Random) -> None:
    link = faults.world.network.link(*faults.pair(chance))
    link.cut = True
    _undo_link(faults, chance, 10, lambda: setattr(link, "cut", False))


def _cut_datagrams(faults: Faults, chance: Random) -> None:
    first, second = faults.pair(chance)
    links = [faults.world.network.link(first, second), faults.world.network.link(second, first)]
    for link in links:
        link.datagrams_cut = True
    faults.struck("cut_datagrams")

    def undo() -> None:
        for link in links:
            link.datagrams_cut = False

    _undo_link(faults, chance, 20, undo)


def _partition(faults: Faults, chance: Random) -> None:
    machines = chance.sample(faults.world.machines, len(faults.world.machines))
    at = chance.randrange(1, len(machines))
    one_way = chance.randrange(3) == 0
    faults.world.network.partition(machines[:at], machines[at:], one_way=one_way)
    faults.struck("partition_one_way" if one_way else "partition")
    _undo_link(faults, chance, 20, lambda: faults.world.network.join(machines))


def _clog(faults: Faults, chance: Random) -> None:
    link = faults.world.network.link(*faults.pair(chance))
    link.clogged_until_us = faults.world.now_us + int(chance.expovariate(1 / 3) * SECOND)
    faults.world.network.changed()


def _mtu(faults: Faults, chance: Random) -> None:
    link = faults.world.network.link(*faults.pair(chance))
    before, link.mtu_bytes = link.mtu_bytes, SMALL_MTU_BYTES
    _undo_link(faults, chance, 30, lambda: setattr(link, "mtu_bytes", before))


def _undo_link(faults: Faults, chance: Random, mean_s: float, undo: Callable[[], None]) -> None:
    faults.world.network.changed()

    def both() -> None:
        undo()
        faults.world.network.changed()

    faults.undo_later(chance, mean_s, both)


# Processes


def _crash(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("crash")
        machine.crash()
        faults.restart_later(chance, machine)


def _lose_power(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("power_loss")
        machine.crash(power=True)
        faults.restart_later(chance, machine)


def _crash_after_send(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        machine.set_fuse(chance.randrange(1, 8))


def _crash_at_sync(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    how = faults.world.streams["faults/crash_at_sync/how"]
    power, running = how.random() < WITH_POWER, how.random() < WHILE_RUNNING
    if machine is not None:
        machine.disk.crash_soon(power=power)
        if not running:  # A running process may not write for a while, but every start writes.
            machine.crash()
            faults.restart_later(chance, machine)


def _refuse_write(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    running = faults.world.streams["faults/refused_write/how"].random() < WHILE_RUNNING
    if machine is not None:
        machine.disk.fail_next(full=bool(chance.randrange(2)))
        if not running:
            machine.crash()
            faults.restart_later(chance, machine)


def _lose_disk(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("lose_disk")
        machine.crash()
        machine.disk.wipe()
        faults.restart_later(chance, machine)


def _move(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("move")
        machine.crash()
        old, new = machine.address, faults.world.free_address()
        machine.move(new)
        for other in faults.world.machines:
            other.resolve(old, new)
        faults.restart_later(chance, machine)


def _leave(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("leave")
        machine.leave()
        faults.restart_later(chance, machine)


def _pause(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("pause")
        faults.undo_later(chance, 4, machine.pause())


def _suspend(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("suspend")
        faults.undo_later(chance, 4, machine.pause(suspend=True))


def _starve(faults: Faults, chance: Random) -> None:
    machine = faults.up(chance)
    if machine is not None:
        faults.struck("starve")
        faults.undo_later(chance, 8, machine.starve())


# Clocks and timers


def _change_rate(faults: Faults, chance: Random) -> None:
    machine = chance.choice(faults.world.machines)
    machine.set_rate(1 + chance.uniform(-0.1, 0.1))
    faults.struck("clock_rate")


def _jump(faults: Faults, chance: Random) -> None:
    chance.choice(faults.world.machines).clocks.wall_offset_ms += chance.randrange(-3_600_000, 3_600_000)
    faults.struck("wall_jump")


def _lag(faults: Faults, chance: Random) -> None:
    machine = chance.choice(faults.world.machines)
    lags = faults.world.streams["faults/lags"]
    most_us = chance.choice((10 * MS, 300 * MS, 3 * SECOND))
    machine.timer_lag_us = lambda: int(lags.random() * most_us)
    faults.struck("timer_lag")
    faults.undo_later(chance, 10, lambda: setattr(machine, "timer_lag_us", None))


def _poke(faults: Faults, chance: Random) -> None:
    machine = chance.choice(faults.world.machines)
    if machine.is_up and not machine.is_paused:
        faults.struck("timer_doubled")
        for _ in range(chance.randrange(1, 4)):
            machine.poke()


STRIKES: Final[Mapping[str, Strike]] = {
    "cut": Strike(15, _cut),
    "cut_datagrams": Strike(30, _cut_datagrams),
    "partition": Strike(40, _partition),
    "clog": Strike(10, _clog),
    "mtu": Strike(20, _mtu),
    "crash": Strike(15, _crash),
    "power_loss": Strike(20, _lose_power),
    "crash_after_send": Strike(20, _crash_after_send),
    "crash_at_sync": Strike(15, _crash_at_sync),
    "refused_write": Strike(30, _refuse_write),
    "lose_disk": Strike(40, _lose_disk),
    "move": Strike(30, _move),
    "leave": Strike(30, _leave),
    "pause": Strike(15, _pause),
    "suspend": Strike(20, _suspend),
    "starve": Strike(20, _starve),
    "clock_rate": Strike(30, _change_rate),
    "wall_jump": Strike(30, _jump),
    "timer_lag": Strike(20, _lag),
    "timer_doubled": Strike(5, _poke),
}

FAULTS: Final = (*LINK_FAULTS, *STRIKES)


def drawn(chance: Random, faults: Iterable[str] = FAULTS) -> frozenset[str]:
    """Draw the faults of one seed: none, a few, or many."""
    share = chance.choice((0.0, 0.1, 0.25, 0.5))
    return frozenset(name for name in faults if chance.random() < share)
