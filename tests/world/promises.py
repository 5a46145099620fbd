"""Broken promises: checkers record each one with its time and machine, and never raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from tests.world.scheduler import SECOND

if TYPE_CHECKING:
    from tests.world.network import Host
    from tests.world.world import World

MAX_VIOLATIONS: Final = 100


class BrokenPromise(NamedTuple):
    checker: str
    at_us: int
    machine: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_us / SECOND:9.3f} s  {self.machine}: {self.checker}: {self.what}"


@final
class Promises:
    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[BrokenPromise] = []

    def found(self, checker: str, machine: Host | None, what: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            name = "-" if machine is None else machine.name
            self.violations.append(BrokenPromise(checker, self._world.now_us, name, what))
