"""One life of a node: its environment, and the end of that environment with the life.

A killed process cannot be stopped within a step here: its tasks are cancelled, and unwind.  Until then none of their
actions has an effect: their disk raises `Crash`, their sockets reach no peer.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, final

import trio

from gossipkv.environment.memory import Room
from gossipkv.environment.seam import Environment
from tests.world.faulty_files import FaultyFiles
from tests.world.nodes.sockets import SimulatedSockets

if TYPE_CHECKING:
    import random
    import signal
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.world.nodes.network import SimulatedNetwork
    from tests.world.simulated_files import SimulatedFiles

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

WALL_AT_ZERO_MS: Final = 1_700_000_000_000

# The errors of clocks: rates beyond those of any quartz, and wall clocks that were set by hand.
MAX_DRIFT: Final = 0.05
MAX_WALL_OFFSET_MS: Final = 3_600_000

# The time of a worker thread, from one that finds all in memory to one that waits for a busy disk.
MIN_WORK_S: Final = 0.0001
MAX_WORK_S: Final = 0.02


@final
class SimulatedClock:
    """A machine's clocks over Trio's."""

    def __init__(self, offset_s: float = 0.0, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self._offset_ns = int(offset_s * 1e9)  # Machines have come up at different times.
        self._rate = rate
        self._wall_offset_ms = wall_offset_ms

    def monotonic_ns(self) -> int:
        return round(trio.current_time() * self._rate * 1e6) * 1000 + self._offset_ns

    def wall_ms(self) -> int:
        return WALL_AT_ZERO_MS + math.floor(trio.current_time() * 1000) + self._wall_offset_ms


@final
class SimulatedThreads:
    """Worker threads that take virtual time; their work is done in one step somewhere within it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._limiter = trio.CapacityLimiter(40)  # Trio's default.

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        async with limiter or self._limiter:
            with trio.CancelScope(shield=not abandon_on_cancel):
                await self._work()
                result = function(*arguments)
                await self._work()
        return result

    async def _work(self) -> None:
        await trio.sleep(self._chance.uniform(MIN_WORK_S, MAX_WORK_S) * self._chance.random() ** 3)


@final
class SimulatedMemory:
    """A machine's memory, of unknown size at first."""

    def __init__(self) -> None:
        self.room_bytes: int | None = None

    def room(self) -> Room | None:
        return None if self.room_bytes is None else Room("simulated", self.room_bytes)


@final
class SimulatedSignals:
    """Signals to the process; by default they end it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._receivers: list[tuple[frozenset[signal.Signals], trio.MemorySendChannel[int]]] = []

    @contextlib.contextmanager
    def receive(self, *numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
        send, receive = trio.open_memory_channel[int](math.inf)
        entry = frozenset(numbers), send
        self._receivers.append(entry)
        try:
            yield receive
        finally:
            self._receivers.remove(entry)

    def send(self, number: signal.Signals) -> None:
        receivers = [channel for numbers, channel in self._receivers if number in numbers]
        for channel in receivers:
            channel.send_nowait(number)
        if not receivers:
            self._end()


@final
class Process:
    def __init__(
        self,
        network: SimulatedNetwork,
        host: str,
        disk: SimulatedFiles,
        chance: random.Random,
        die: Callable[[], None],
        *,
        memory: SimulatedMemory,
    ) -> None:
        """`die` is called when the process crashes by itself: at a fault of its disk, or by a signal."""
        self._network = network
        self._disk = disk
        self.is_gone = False
        self.files = FaultyFiles(disk, die=die)
        self.sockets = SimulatedSockets(network, host)
        self.signals = SimulatedSignals(die)
        self.environment = Environment(
            SimulatedClock(
                chance.uniform(0, 1e6),
                chance.uniform(1 - MAX_DRIFT, 1 + MAX_DRIFT),
                chance.randrange(-MAX_WALL_OFFSET_MS, MAX_WALL_OFFSET_MS),
            ),
            chance,
            self.files,
            self.sockets,
            SimulatedThreads(chance),
            self.signals,
            memory,
        )

    def end(self, *, silently: bool) -> None:
        """End the process: none of its actions has an effect any more."""
        if self.is_gone:
            return
        self.is_gone = True
        self.files.dead = True
        self.sockets.end(silently=silently)
        self._disk.close_all()
        self._network.trace.note(self.sockets.host, "gone", "disk", "\n".join(self.files.trace).encode())
