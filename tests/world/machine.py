"""A machine: a disk, a clock, an address, and a process.

The rig (`rig.py`) knows the process.  Any machine may suffer these faults:

crash: the process ends between two steps, after a send, or around a step of a write; the disk stays
power loss: a crash after which the disk also forgets unsynced data
pause: nothing runs, datagrams wait in the socket's buffer; then all of it runs at once, the socket first
starve: the process and its timers run, but nothing is sent or received until the end
clocks: the monotonic clock is fast or slow or stands still, the wall clock jumps
timers: timers come late, twice, or early

A process has a number, its *life*; timers and calls of an earlier life are ignored.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush
from typing import TYPE_CHECKING, Protocol, final

from tests.world.rig import NEVER_MS
from tests.world.scheduler import MS, NEVER, SECOND

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from gossipkv.address import Address
    from tests.world.network import Network
    from tests.world.rig import MachineDisk, Rig
    from tests.world.scheduler import Scheduler
    from tests.world.streams import Streams


_WALL_AT_ZERO_MS = 1_700_000_000_000


@final
class Clocks:
    """The clocks of one machine; an `environment.Clock`."""

    __slots__ = ("_asleep_at_us", "_rate_from_us", "_scheduler", "offset_us", "rate", "wall_offset_ms")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_us = 0  # The monotonic clock's offset; it changes only by a sleep and at the machine's creation.
        self.wall_offset_ms = 0
        self.rate = 1.0
        self._rate_from_us = 0
        self._asleep_at_us: int | None = None

    def monotonic_ns(self) -> int:
        return self._local_us(self._scheduler.now_us) * 1000

    def wall_ms(self) -> int:
        return _WALL_AT_ZERO_MS + self.now_ms + self.wall_offset_ms

    @property
    def now_ms(self) -> int:
        if self.rate == 1.0:
            return (self._scheduler.now_us + self.offset_us) // MS
        return self._local_us(self._scheduler.now_us) // MS

    def set_rate(self, rate: float) -> None:
        now_us = self._scheduler.now_us
        self.offset_us = self._local_us(now_us) - now_us
        self.rate = rate
        self._rate_from_us = now_us

    def suspend(self) -> None:
        """Put the machine to sleep: its monotonic clock stands still until `wake`."""
        self._asleep_at_us = self._local_us(self._scheduler.now_us)

    def wake(self) -> None:
        """Continue the monotonic clock from where it stood."""
        if self._asleep_at_us is not None:
            self.offset_us -= self._local_us(self._scheduler.now_us) - self._asleep_at_us
            self._asleep_at_us = None

    def world_us(self, local_ms: int) -> int:
        """Return the world's first microsecond at which the monotonic clock shows `local_ms`."""
        since_us = local_ms * MS - self.offset_us
        if self.rate == 1.0:
            return since_us
        return self._rate_from_us + int((since_us - self._rate_from_us) / self.rate) + 1

    def _local_us(self, at_us: int) -> int:
        if self.rate == 1.0:
            return at_us + self.offset_us
        return at_us + self.offset_us + int((at_us - self._rate_from_us) * (self.rate - 1))


SOCKET_BUFFER_BYTES = 212_992  # Linux's default; datagrams that do not fit are lost.
DATAGRAM_OVERHEAD_BYTES = 700  # The kernel's charge for a datagram besides its content.
START_US = 20 * MS
RETRY_DELAY_US = SECOND  # The delay before a process that ended by itself is started again.


class Surroundings(Protocol):
    """The world, as a machine sees it."""

    scheduler: Scheduler
    network: Network
    streams: Streams
    struck: Counter[str]

    def look_closely(self, machine: Machine) -> None: ...  # Called around each change of the process's identity.
    def told(self, machine: Machine, what: object) -> None: ...
    def process_ended(self, machine: Machine) -> None: ...  # Called just before the process ends.


@final
class Machine:
    __slots__ = (
        "_addresses",
        "_held",
        "_inbox",
        "_inbox_bytes",
        "_missed_wake",
        "_network",
        "_outbox",
        "_scheduler",
        "_waiting",
        "_wakes_at_ms",
        "_wakes_at_us",
        "address",
        "clocks",
        "core",
        "crash_after_sends",
        "disk",
        "error",
        "heard_ms",
        "is_leaving",
        "is_paused",
        "is_starved",
        "joins",
        "life",
        "name",
        "number",
        "restarts",
        "rig",
        "source",
        "starts",
        "timer_lag_us",
        "world",
    )

    def __init__(
        self,
        world: Surroundings,
        number: int,
        name: str,
        address: Address,
        *,
        rig: Callable[[Machine], Rig],
        disk: MachineDisk,
    ) -> None:
        self.world = world
        self._scheduler, self._network, self._addresses = world.scheduler, world.network, world.network.addresses
        self.number = number
        self.name = name
        self.address = address
        self.disk = disk
        self.joins: list[Address] = []  # The peers that the machine is told to join.
        self.core: object | None = None  # The core that its rig runs.
        self.life = 0
        self.starts = 0
        self.error: Exception | None = None  # The reason why the process asked to be stopped, or could not start.
        self.restarts = True  # A supervisor restarts the process when it ends by itself.
        self.source = world.network.bind(address, self)
        self.heard_ms = 0  # When the last input reached the process, by its own clock.
        # Faults.
        self.clocks = Clocks(world.scheduler)
        self.is_paused = self.is_starved = self.is_leaving = False
        self.timer_lag_us: Callable[[], int] | None = None
        self.crash_after_sends: int | None = None
        # Waiting input and output.
        self._inbox: deque[tuple[bytes, int]] = deque()
        self._inbox_bytes = 0
        self._outbox: list[tuple[Address, bytes]] = []
        self._waiting: list[Callable[[], None]] = []  # Calls and writes that a pause holds up.
        self._wakes_at_us = NEVER
        self._wakes_at_ms = NEVER
        self._missed_wake = False
        self._held = 0  # The number of pauses and starvations so far.
        self.rig = rig(self)

    @property
    def now_ms(self) -> int:
        return self.clocks.now_ms

    def set_rate(self, rate: float) -> None:
        self.clocks.set_rate(rate)
        if self.core is not None:
            self._set_wake(self.rig.wakes_at_ms)

    # The process

    @property
    def is_up(self) -> bool:
        return self.core is not None

    @property
    def is_held(self) -> bool:
        """True if the process runs under a fault: paused, starved, or about to crash."""
        return self.is_paused or self.is_starved or self.crash_after_sends is not None

    def start(self) -> None:
        if self.core is not None:
            return
        self.life += 1
        self.error = None
        self.restarts = True
        self.later(START_US, self.rig.boot)

    def later(self, delay_us: int, do: Callable[[], None]) -> None:
        """Run `do` after a delay, unless this life ends first."""
        life = self.life

        def unless_ended() -> None:
            if self.life == life:
                do()

        self._scheduler.after(delay_us, unless_ended)

    def began(self, core: object) -> None:
        """Note that the rig's process runs."""
        assert self.core is None
        self.core = core
        self.starts += 1
        self.heard_ms = self.now_ms

    def crash(self, *, power: bool = False) -> None:
        """End the process at once; with `power`, the machine loses power too."""
        self._end()
        if power:
            self.disk.lose_power()

    def stop(self) -> None:
        """End the process as a shell does, without a restart."""
        self.restarts = False
        self._end()

    def _end(self) -> None:
        if self.core is not None:
            self.world.process_ended(self)
        self.rig.end()
        self.disk.process_ended()
        self.life += 1
        self.core = None
        self.is_paused = self.is_starved = self.is_leaving = self._missed_wake = False
        self.crash_after_sends = None
        self.clocks.wake()
        self._inbox.clear()
        self._inbox_bytes = 0
        self._outbox.clear()
        self._waiting.clear()
        self._wakes_at_us = self._wakes_at_ms = NEVER

    def ended_by_itself(self, why: str) -> None:
        """End the process with an error; its supervisor starts it again."""
        self.world.struck[f"ended: {why}"] += 1
        self._end()
        if self.restarts:
            self.later(RETRY_DELAY_US, self.start)

    def leave(self, *, linger_us: int = SECOND) -> None:
        assert self.core is not None
        self.rig.leave(now_ms=self.now_ms)
        self.restarts = False
        self.is_leaving = True
        self.after_input()
        self.later(linger_us, self._end)

    def move(self, address: Address) -> None:
        """Take another address, used from the next start."""
        assert self.core is None
        self._network.unbind(self.address)
        self.address = address
        self.source = self._network.bind(address, self)

    def resolve(self, old: Address, new: Address) -> None:
        """Point a name that this machine was told to join to a new address."""
        if old in self.joins:
            self.joins[self.joins.index(old)] = new
            if self.core is not None and not self.is_paused:
                self.rig.join([new], now_ms=self.now_ms)
                self.after_input()

    # Pauses

    def pause(self, *, suspend: bool = False) -> Callable[[], None]:
        """Stop the process, or the whole machine; return a function that ends this pause and no other."""
        self.is_paused = True
        self._held += 1
        if suspend:
            self.clocks.suspend()
        return self._unless_over(self.resume)

    def resume(self) -> None:
        """Resume: first the datagrams that wait in the socket, then the timers."""
        self.is_paused = False
        self.clocks.wake()
        self._catch_up()
        if self.core is not None:
            self._set_wake(self.rig.wakes_at_ms)  # The clock may have stood still.

    def starve(self) -> Callable[[], None]:
        """Stop all sending and receiving while the process and its timers run; return a function that ends this."""
        self.is_starved = True
        self._held += 1
        return self._unless_over(self.feed)

    def feed(self) -> None:
        """Deliver the waiting input and send the waiting output."""
        self.is_starved = False
        outbox, self._outbox = self._outbox, []
        for to, packet in outbox:
            self._network.send(self, to, packet)
        self._catch_up()

    def _unless_over(self, end: Callable[[], None]) -> Callable[[], None]:
        held = self._held

        def end_this() -> None:
            if self._held == held and (self.is_paused or self.is_starved):
                end()

        return end_this

    def _catch_up(self) -> None:
        if self.is_paused:
            return
        if not self.is_starved:
            waiting, self._waiting = self._waiting, []
            life = self.life
            while self._inbox and self.life == life:
                packet, source = self._inbox.popleft()
                self._inbox_bytes -= len(packet) + DATAGRAM_OVERHEAD_BYTES
                self.arrive(packet, source)
            for do in waiting:
                if self.life == life:
                    do()
        if self._missed_wake:
            self._missed_wake = False
            self._wake()

    def when_free(self, do: Callable[[], None]) -> None:
        """Run `do` now, or when a pause ends, or never if the process ends first."""
        if self.is_paused or self.is_starved:
            self._waiting.append(do)
        elif self.core is not None:
            do()

    def heal(self) -> None:
        """End all faults; the process runs, or soon will."""
        self.disk.calm()
        self.timer_lag_us = self.crash_after_sends = None
        self.restarts = True
        self.set_rate(1.0)
        if self.is_leaving:
            self.crash()
        if self.core is None:
            self.start()
        if self.is_paused:
            self.resume()
        if self.is_starved:
            self.feed()

    # Events of the process

    def arrive(self, packet: bytes, source: int) -> None:
        if self.core is None:
            return
        if self.is_paused or self.is_starved:
            size = len(packet) + DATAGRAM_OVERHEAD_BYTES
            if self._inbox_bytes + size > SOCKET_BUFFER_BYTES:
                self.world.struck["socket_full"] += 1
                return
            self._inbox.append((packet, source))
            self._inbox_bytes += size
        else:
            self.heard_ms = now_ms = self.clocks.now_ms
            self._wake_by(self.rig.receive(packet, self._addresses[source], now_ms=now_ms))

    def on_wake(self, _data: bytes, at_us: int) -> None:
        if at_us != self._wakes_at_us:
            return  # A later call, or another life, replaced this timer.
        self._wakes_at_us = self._wakes_at_ms = NEVER
        if self.is_paused:
            self._missed_wake = True
        else:
            self._wake()

    def _wake(self) -> None:
        if self.core is not None:
            self._wake_by(self.rig.wake(now_ms=self.clocks.now_ms))

    def poke(self) -> None:
        if self.core is not None and not self.is_paused:
            self.rig.poke(now_ms=self.now_ms)
            self.after_input()

    def after_input(self) -> None:
        """Perform the effects of a call from outside."""
        if self.core is not None:
            self._wake_by(self.rig.act(now_ms=self.clocks.now_ms))

    def _wake_by(self, wakes_at_ms: int) -> None:
        if wakes_at_ms < self._wakes_at_ms and self.core is not None:
            self._set_wake(wakes_at_ms)

    def _set_wake(self, wakes_at_ms: int) -> None:
        if wakes_at_ms >= NEVER_MS:
            return
        scheduler = self._scheduler
        at_us = max(self.clocks.world_us(wakes_at_ms), scheduler.now_us)
        if self.timer_lag_us is not None:
            at_us += self.timer_lag_us()
        self._wakes_at_ms, self._wakes_at_us = wakes_at_ms, at_us
        heappush(scheduler.events, (at_us, scheduler.next_number(), self.on_wake, b"", at_us))

    # Output

    def send(self, to: Address, packet: bytes) -> None:
        """Send one datagram, unless a fault keeps it from leaving."""
        if self.is_starved:
            self._outbox.append((to, packet))
            return
        self._network.send(self, to, packet)
        self.burn_fuse()

    def set_fuse(self, sends: int) -> None:
        """Crash after exactly this many further datagrams and messages."""
        self.crash_after_sends = sends

    def burn_fuse(self) -> None:
        """Count a send, and crash if it was the last that the fuse allows."""
        if self.crash_after_sends is not None:
            self.crash_after_sends -= 1
            if self.crash_after_sends <= 0:
                self.world.struck["crash_after_send"] += 1
                self.ended_by_itself("crash")
