"""A model of pumps: threads that serve, the thread of Trio, and generations of what is served.

It came before the code, to find the rules.  A number makes a run: three pumps, clients with a connection to each, gets,
batches that are read in slices, scans by pages, requests that Python answers, and publications all the while.
`python -m tests.world.models.pumps FIRST COUNT [PLANTED...]` counts verdicts, with those rules broken.  A step of a
thread is what lies between two `yield`s; which goes on is drawn, mostly the same one, as mutexes are unfair.

The rules: a pump is somebody's *turn*, its own thread's for a round or Trio's, which goes before when it waits.  A
generation is published while Trio has all turns.  What is read in slices goes on with the generation it began with, and
holds it; a cursor names a version.  A file is closed when no table of any pump holds it.  The bell is silenced before
one looks, and who gives work to a pump wakes it.

    backwards   a client got an older generation than one it had had, over any connection
    torn        an answer is of two generations
    freed       a file was read after it was closed
    held        a file that nobody can read any more is not closed
    starved     a pump served on and on while Trio waited for its turn
    stuck       a request was never answered
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, final

from tests.world.models.copies import Broken
from tests.world.models.counting import count_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    Steps = Iterator[bool]  # Whether the thread could go on.

PLANTED = {  # A rule that is broken: a seed that shows it, and by what.
    "published_one_by_one": (12, "backwards"),
    "amid_a_round": (0, "torn"),
    "slices_of_two_generations": (1, "torn"),
    "freed_with_readers": (1, "freed"),
    "freed_by_the_first_pump": (1, "freed"),
    "cursor_of_a_table": (0, "freed"),
    "readers_forgotten": (0, "held"),
    "no_priority": (0, "starved"),
    "silenced_behind_the_look": (0, "stuck"),
    "not_woken": (9, "stuck"),
}
PUMPS = 3
CLIENTS = (1, 4)
ASKED = 40  # By each client.
GENERATIONS = 12
SLICES = 3
LONG = 40  # Steps of a round that takes long.
STAYS = (0.3, 0.7, 0.95)  # How likely the same thread goes on.
MOST_ROUNDS = 1  # Of a pump while Trio waits for it.
MOST_STEPS = 200_000


@final
class Turn:
    """Whose a pump is: its own thread's, or Trio's, which comes first when it waits.  All of it under one mutex."""

    def __init__(self) -> None:
        self.is_taken = self.is_wanted = False

    def take(self, *, first: bool) -> Steps:
        """Wait for it; `first`: before whoever is not."""
        yield True
        self.is_wanted |= first
        while self.is_taken or (self.is_wanted and not first):
            yield False
        self.is_taken = True
        self.is_wanted &= not first

    def give(self) -> None:
        """Let go of it."""
        self.is_taken = False


@final
class Table:
    """What a pump serves in one generation: the version of that number, and the one before for who reads it yet."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.readers = 0
        self.is_released = False


@final
class Request:
    """What a client has asked, and what it is answered: the generations of what was read."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.table: Table | None = None  # Which a batch reads, or which a cursor is of.
        self.version = -1  # That a cursor names.
        self.read: list[int] = []
        self.is_answered = False


@final
class Pump:
    """A thread that serves, and what Trio's has to do for it."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.table = Table(0)
        self.retired: list[Table] = []
        self.arrived: deque[Request] = deque()
        self.slices: deque[Request] = deque()
        self.backlog: deque[Request] = deque()  # What Python is to answer.
        self.held: deque[Request] = deque()  # Behind what Python answers, until it has.
        self.is_woken = self.has_rung = False
        self.rounds = 0


@final
class Run:
    """One run of the model."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset()) -> None:
        assert planted <= PLANTED.keys(), planted
        self.planted, self.chance = planted, Random(seed)
        self.counts: Counter[str] = Counter()
        self.pumps = [Pump() for _ in range(PUMPS)]
        self.generation = 0  # Python's.
        self.bell = False
        self.closed: set[int] = set()  # Versions whose files are.
        self.clients_left = self.chance.choice(CLIENTS)

    def verdict(self) -> str:
        """Run it, and say in a word what came of it."""
        threads = [self._trio(), *map(self._serve, self.pumps), *(self._client() for _ in range(self.clients_left))]
        try:
            self._run(threads)
            self._check()
        except Broken as broken:
            return str(broken)
        return "right"

    def _run(self, threads: list[Steps]) -> None:
        current, idle, stays = threads[0], 0, self.chance.choice(STAYS)
        for _ in range(MOST_STEPS):
            if not self.clients_left and self.generation == GENERATIONS:
                return
            if idle or self.chance.random() > stays:
                current = self.chance.choice(threads)
            idle = 0 if next(current) else idle + 1
            if idle > 100 * len(threads):
                raise Broken("stuck")
        raise Broken("stuck")

    # -- threads -----------------------------------------------------------------------------------------------------

    def _serve(self, pump: Pump) -> Steps:
        while True:
            if not (pump.arrived or pump.slices or pump.is_woken):
                yield False
                continue
            yield from pump.turn.take(first=False)
            pump.is_woken = False
            pump.rounds += 1
            yield from self._round(pump)
            pump.turn.give()
            if pump.backlog and not pump.has_rung:
                pump.has_rung = self.bell = True
            yield True

    def _round(self, pump: Pump) -> Steps:
        for request in [*pump.slices]:
            yield True
            self._read_slice(pump, request)
        arrived = [*pump.held, *pump.arrived]
        pump.held.clear()
        pump.arrived.clear()
        for request in arrived:
            if pump.backlog:
                pump.held.append(request)
            elif request.kind == "python":
                pump.backlog.append(request)
            elif request.kind == "batch":
                request.table = pump.table
                pump.table.readers += 1
                pump.slices.append(request)
            else:
                before = pump.table.generation
                for _ in range(self.chance.choice((1, 1, LONG))):
                    yield True
                self._read(pump, request)
                if before != pump.table.generation:
                    raise Broken("torn")

    def _read_slice(self, pump: Pump, request: Request) -> None:
        if "slices_of_two_generations" not in self.planted:
            assert request.table is not None
            self._read_of(request, request.table.generation)
        else:
            self._read_of(request, pump.table.generation)
        if len(request.read) == SLICES:
            if "readers_forgotten" not in self.planted:
                assert request.table is not None
                request.table.readers -= 1
            pump.slices.remove(request)
            request.is_answered = True

    def _read(self, pump: Pump, request: Request) -> None:
        version = pump.table.generation
        if request.kind == "scan" and request.version >= 0:
            if "cursor_of_a_table" in self.planted:
                assert request.table is not None
                version = request.table.generation
            elif version - request.version <= 1:
                version = request.version
            else:
                self.counts["cursors of what is gone"] += 1
        request.table, request.version = pump.table, version
        self._read_of(request, version)
        request.is_answered = True

    def _read_of(self, request: Request, version: int) -> None:
        if version in self.closed:
            raise Broken("freed")
        request.read.append(version)

    def _trio(self) -> Steps:
        while True:
            yield True
            if self.generation < GENERATIONS and self.chance.random() < 0.05:
                yield from self._publish()
            if self.bell:
                self.bell = False
                for pump in self.pumps:
                    yield from self._answer(pump)

    def _answer(self, pump: Pump) -> Steps:
        if "silenced_behind_the_look" not in self.planted:
            pump.has_rung = False
        yield from self._wait_for(pump)
        answered = len(pump.backlog)
        while pump.backlog:
            request = pump.backlog.popleft()
            self._read_of(request, self.generation)
            request.is_answered = True
            self.counts["answered by Python"] += 1
        has_work = answered and pump.held
        self._release(pump)
        pump.turn.give()
        for _ in range(self.chance.choice((1, LONG))):
            yield True
        if "silenced_behind_the_look" in self.planted:
            pump.has_rung = False
        if has_work and "not_woken" not in self.planted:
            pump.is_woken = True

    def _wait_for(self, pump: Pump) -> Steps:
        before = None
        for could in pump.turn.take(first="no_priority" not in self.planted):
            yield could
            before = pump.rounds if before is None else before  # It waits from now on.
            if pump.rounds > before + MOST_ROUNDS:
                raise Broken("starved")

    def _publish(self) -> Steps:
        alone = "published_one_by_one" in self.planted or "amid_a_round" in self.planted
        for pump in () if "amid_a_round" in self.planted else self.pumps:
            yield from self._wait_for(pump)
            if alone:
                self._swap(pump, self.generation + 1)
                pump.turn.give()
        self.generation += 1
        for pump in self.pumps if not alone or "amid_a_round" in self.planted else ():
            self._swap(pump, self.generation)
            if not alone:
                pump.turn.give()
        self.counts["published"] += 1

    def _swap(self, pump: Pump, generation: int) -> None:
        pump.retired.append(pump.table)
        pump.table = Table(generation)
        self._release(pump)

    def _release(self, pump: Pump) -> None:
        """Let go of the tables that nobody reads, and close the files that no table has."""
        for table in pump.retired:
            table.is_released |= not table.readers or "freed_with_readers" in self.planted
        pump.retired = [table for table in pump.retired if not table.is_released]
        tables = [pump] if "freed_by_the_first_pump" in self.planted else self.pumps
        served = {
            table.generation - back for each in tables for table in (each.table, *each.retired) for back in (0, 1)
        }
        self.closed |= set(range(max(served))) - served

    def _client(self) -> Steps:
        seen = 0
        cursor = Request("scan")
        for _ in range(ASKED):
            request = Request(self.chance.choice(["get", "get", "batch", "scan", "python"]))
            if request.kind == "scan" and self.chance.random() < 0.7:
                request.table, request.version = cursor.table, cursor.version
            asked = self.chance.choice(self.pumps)
            asked.arrived.append(request)
            yield True
            while not request.is_answered:
                yield False
            self.counts[request.kind] += 1
            if len(set(request.read)) != 1:
                raise Broken("torn")
            if request.kind == "scan":
                cursor = request
            elif request.read[0] < seen and request.kind != "batch":
                raise Broken("backwards")
            else:
                seen = max(seen, request.read[0])
        self.clients_left -= 1
        while True:
            yield False

    def _check(self) -> None:
        """What nobody can read is closed, once Trio has looked."""
        for pump in self.pumps:
            self._release(pump)
        if self.closed != set(range(GENERATIONS - 1)):
            raise Broken("held")


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds."""
    count_verdicts(Run, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
