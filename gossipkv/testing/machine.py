"""A machine: a disk, a clock, an address, and a process that runs a core.

The process is the shell that production has without its waiting: it hands the core datagrams and answers, and the
same `Driver` (`gossip/shell/driver.py`) wakes it and has its effects performed.  What a machine may suffer:

    crash       the process ends between two steps, after a datagram, or around a step of a write; the disk stays
    power loss  the same, and the disk forgets what was not synced: nothing, unless it was writing
    refusal     a start is silent until the disk takes its epoch (a first start ends the process); what it shall keep
                later is tried again
    pause       nothing runs, datagrams wait in the socket's buffer; then all at once, the socket first
    starve      the process runs and its timers too, but nothing is sent or received until the end
    clocks      its monotonic clock is fast or slow or stands still, its wall clock jumps
    timers      come late, twice, or early

A process has a number, its *life*; whatever was set for an earlier life is ignored.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappush
from typing import TYPE_CHECKING, Protocol, final

from gossipkv.errors import GossipKVError
from gossipkv.gossip.effects import Ask, Changed, Complain, Remember, Send, Stop, Store
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.shell.driver import Driver
from gossipkv.testing.calls import Call
from gossipkv.testing.clocks import Clocks
from gossipkv.testing.disk import Disk
from gossipkv.testing.faulty_files import Crash
from gossipkv.testing.program import Boot
from gossipkv.testing.scheduler import MS, NEVER, SECOND

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.protocols import Place
    from gossipkv.node.identity import NodeRecord
    from gossipkv.testing.network import Network
    from gossipkv.testing.program import Claim, Core
    from gossipkv.testing.scheduler import Scheduler
    from gossipkv.testing.streams import Streams

SOCKET_BUFFER_BYTES = 212_992  # Linux' default; what does not fit is lost.
DATAGRAM_OVERHEAD_BYTES = 700  # What the kernel charges for one beside its content.
NEVER_MS = 1 << 60  # A core that waits for nothing says so or later.
START_US = 20 * MS
WRITE_US = 4 * MS
AGAIN_US = 500 * MS  # After a write that was refused.


class Surroundings(Protocol):
    """The world, as a machine knows it."""

    scheduler: Scheduler
    network: Network
    streams: Streams
    struck: Counter[str]

    def look_closely(self, machine: Machine) -> None: ...  # Around each change of who its process says it is.
    def changed(self, machine: Machine, change: Changed) -> None: ...
    def complained(self, machine: Machine, complaint: Complain) -> None: ...
    def process_ended(self, machine: Machine) -> None: ...  # It is about to.


@final
class Machine:
    """One machine of a world."""

    __slots__ = (
        "_addresses",
        "_driver",
        "_held",
        "_inbox",
        "_inbox_bytes",
        "_is_silent",
        "_missed_wake",
        "_network",
        "_outbox",
        "_place",
        "_scheduler",
        "_stores",
        "_waiting",
        "_wakes_at_ms",
        "_wakes_at_us",
        "_world",
        "address",
        "claim",
        "clocks",
        "cluster_id",
        "core",
        "crash_after_sends",
        "disk",
        "error",
        "heard_ms",
        "is_leaving",
        "is_paused",
        "is_starved",
        "joins",
        "kept",
        "life",
        "name",
        "number",
        "program",
        "restarts",
        "source",
        "starts",
        "timer_lag_us",
    )

    def __init__(
        self, world: Surroundings, number: int, name: str, address: Address, program: Callable[[Boot], Core]
    ) -> None:
        self._world = world
        self._scheduler, self._network, self._addresses = world.scheduler, world.network, world.network.addresses
        self.number = number
        self.name = name
        self.address = address
        self.program = program
        self.disk = Disk(name, world.streams, world.struck)
        self.joins: list[Address] = []
        self.claim: Claim | None = None  # What makes the claim of a place that goes with a core.
        self.core: Core | None = None
        self._driver: Driver | None = None  # Of the core.
        self._place: Place | None = None  # And its claim.
        self.life = 0
        self.starts = 0
        self.kept: NodeRecord | None = None
        self.cluster_id = NO_CLUSTER  # Of which its process knows that it is kept.
        self.error: Exception | None = None  # With which the core asked to be stopped, or a start could not go on.
        self.restarts = True  # Whether somebody starts the process again when it ends by itself.
        self.source = world.network.bind(address, self)
        self.heard_ms = 0  # When anything last reached the core, by its own clock.
        # Faults.
        self.clocks = Clocks(world.scheduler)
        self.is_paused = self.is_starved = self.is_leaving = False
        self.timer_lag_us: Callable[[], int] | None = None
        self.crash_after_sends: int | None = None
        # What waits.
        self._inbox: deque[tuple[bytes, int]] = deque()
        self._inbox_bytes = 0
        self._outbox: list[Send] = []
        self._waiting: list[Callable[[], None]] = []  # Calls and writes that a pause holds up.
        # What shall be kept, one at a time, and whom to tell.
        self._stores: deque[tuple[Callable[[NodeRecord], NodeRecord], Store | None]] = deque()
        self._wakes_at_us = NEVER
        self._wakes_at_ms = NEVER
        self._missed_wake = False
        self._is_silent = False  # The epoch of this start is not kept yet.
        self._held = 0  # How many pauses and famines there were.

    @property
    def now_ms(self) -> int:
        """What the process' monotonic clock says."""
        return self.clocks.now_ms

    def set_rate(self, rate: float) -> None:
        """Let the monotonic clock run so fast from now on."""
        self.clocks.set_rate(rate)
        if self._driver is not None:
            self._set_wake(self._driver.wakes_at_ms)

    # The process

    @property
    def is_up(self) -> bool:
        """Whether its process runs, paused or not."""
        return self.core is not None

    @property
    def is_held(self) -> bool:
        """Whether it runs and is kept from something."""
        return self.is_paused or self.is_starved or self.crash_after_sends is not None

    def start(self) -> None:
        """Start the process, if it does not run: it makes its epoch durable, then runs."""
        if self.core is not None:
            return
        self.life += 1
        self.error = None
        self.restarts = True
        self._later(START_US, self._boot)

    def _later(self, delay_us: int, do: Callable[[], None]) -> None:
        """Do it after a while, if this life lasts so long."""
        life = self.life

        def unless_ended() -> None:
            if self.life == life:
                do()

        self._scheduler.after(delay_us, unless_ended)

    def _boot(self) -> None:
        chance = self._world.streams[f"program/{self.name}"]
        try:
            kept, is_new = self.disk.next_life(self.name, chance, least_epoch=self.clocks.wall_ms())
        except GossipKVError as error:  # Damaged: it stays so, however often it starts.
            self.error = error
            self._world.look_closely(self)
            self.stop()
            return
        self.kept = kept
        self._is_silent = False
        try:
            self.disk.keep(kept)
        except Crash:
            self.ended_by_itself("crash")
            return
        except OSError:
            if is_new:
                self.ended_by_itself("disk")
                return
            self._is_silent = True
            self._world.struck["silent"] += 1
            self._later(AGAIN_US, self._mend)
        self.starts += 1
        cluster_id = bytes.fromhex(kept.cluster_id) or NO_CLUSTER
        uuid = bytes.fromhex(kept.uuid)
        boot = Boot(self.name, self.address, uuid, kept.epoch, cluster_id, chance, self._is_silent, kept.pinned)
        self.core = core = self.program(boot)
        self._place = place = None if self.claim is None else self.claim(core, kept)
        self._driver = Driver(core, self, place)
        self.cluster_id = boot.cluster_id
        self.heard_ms = self.now_ms
        core.start(joins=list(self.joins), remembered=self.disk.peers(), now_ms=self.now_ms)
        if place is not None:
            place.start(now_ms=self.now_ms)
        self._world.look_closely(self)
        self.after_input()

    def _mend(self) -> None:
        """Keep the epoch of a silent start, as soon as the disk takes it; then others may hear of the process."""
        assert self.kept is not None
        try:
            self.disk.keep(self.kept)
        except Crash:
            self.ended_by_itself("crash")
        except OSError:
            self._later(AGAIN_US, self._mend)
        else:
            self._is_silent = False
            self._later(WRITE_US, lambda: self.when_free(self._speak))

    def _speak(self) -> None:
        assert self.core is not None
        self.core.speak(now_ms=self.now_ms)
        if self._place is not None:
            self._place.start(now_ms=self.now_ms)
        self._world.look_closely(self)
        self.after_input()

    def crash(self, *, power: bool = False) -> None:
        """The process ends, here and now; with `power`, the machine."""
        self._end()
        if power:
            self.disk.lose_power()

    def stop(self) -> None:
        """The process ends as a shell ends it, and nobody starts it again."""
        self.restarts = False
        self._end()

    def _end(self) -> None:
        if self.core is not None:
            self._world.process_ended(self)
        if self._driver is not None:
            self._driver.is_over = True
        self.life += 1
        self.core = self._driver = None
        self.is_paused = self.is_starved = self.is_leaving = self._missed_wake = False
        self.crash_after_sends = None
        self.clocks.wake()
        self._inbox.clear()
        self._inbox_bytes = 0
        self._outbox.clear()
        self._waiting.clear()
        self._stores.clear()
        self._wakes_at_us = self._wakes_at_ms = NEVER

    def ended_by_itself(self, why: str) -> None:
        """The process ends with an error; whoever looks after it starts it again."""
        self._world.struck[f"ended: {why}"] += 1
        self._end()
        if self.restarts:
            self._later(SECOND, self.start)

    def leave(self, *, linger_us: int = SECOND) -> None:
        """Say goodbye, and end a little later."""
        core = self.core
        assert core is not None
        core.leave(now_ms=self.now_ms)
        self.restarts = False
        self.is_leaving = True
        self.after_input()
        self._later(linger_us, self._end)

    def move(self, address: Address) -> None:
        """Have another address from the next start on."""
        assert self.core is None
        self._network.unbind(self.address)
        self.address = address
        self.source = self._network.bind(address, self)

    def resolve(self, old: Address, new: Address) -> None:
        """A name that this machine was told to join leads elsewhere from now on."""
        if old in self.joins:
            self.joins[self.joins.index(old)] = new
            if self.core is not None and not self.is_paused:
                self.core.join([new], now_ms=self.now_ms)
                self.after_input()

    # Pauses

    def pause(self, *, suspend: bool = False) -> Callable[[], None]:
        """Stop the process, or the whole machine, where it stands; returns what ends this pause and no other."""
        self.is_paused = True
        self._held += 1
        if suspend:
            self.clocks.suspend()
        return self._unless_over(self.resume)

    def resume(self) -> None:
        """Let it run on: first what waits in the socket, then timers."""
        self.is_paused = False
        self.clocks.wake()
        self._catch_up()
        if self._driver is not None:
            self._set_wake(self._driver.wakes_at_ms)  # The clock may have stood still.

    def starve(self) -> Callable[[], None]:
        """Have nothing sent or received while the process and its timers run; returns what ends this."""
        self.is_starved = True
        self._held += 1
        return self._unless_over(self.feed)

    def feed(self) -> None:
        """What waited to be sent is sent, what waited to be received is received."""
        self.is_starved = False
        outbox, self._outbox = self._outbox, []
        for sent in outbox:
            self._network.send(self, sent.to, sent.packet)
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
        """Do it now, or when a pause ends, or never when the process does."""
        if self.is_paused or self.is_starved:
            self._waiting.append(do)
        elif self.core is not None:
            do()

    def heal(self) -> None:
        """No fault any more: it runs, or soon will."""
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

    # What happens to the process

    def arrive(self, packet: bytes, source: int) -> None:
        """A datagram reached this machine."""
        core, driver = self.core, self._driver
        if core is None or driver is None:
            return
        if self.is_paused or self.is_starved:
            size = len(packet) + DATAGRAM_OVERHEAD_BYTES
            if self._inbox_bytes + size > SOCKET_BUFFER_BYTES:
                self._world.struck["socket_full"] += 1
                return
            self._inbox.append((packet, source))
            self._inbox_bytes += size
        else:
            self.heard_ms = now_ms = self.clocks.now_ms
            core.receive(packet, self._addresses[source], now_ms=now_ms)
            wakes_at_ms = driver.act(now_ms)
            if wakes_at_ms < self._wakes_at_ms and not driver.is_over:
                self._set_wake(wakes_at_ms)

    def on_wake(self, _data: bytes, at_us: int) -> None:
        """The timer set for then ran out."""
        if at_us != self._wakes_at_us:
            return  # Another one was set meanwhile, or in another life.
        self._wakes_at_us = self._wakes_at_ms = NEVER
        if self.is_paused:
            self._missed_wake = True
        else:
            self._wake()

    def _wake(self) -> None:
        driver = self._driver
        if driver is not None:
            wakes_at_ms = driver.wake(self.clocks.now_ms)
            if wakes_at_ms < self._wakes_at_ms and not driver.is_over:
                self._set_wake(wakes_at_ms)

    def poke(self) -> None:
        """Wake the core, due or not."""
        core = self.core
        if core is not None and not self.is_paused:
            core.wake(now_ms=self.now_ms)
            self.after_input()

    def after_input(self) -> None:
        """Perform what the core asks for after it was called from outside."""
        driver = self._driver
        if driver is not None:
            wakes_at_ms = driver.act(self.clocks.now_ms)
            if wakes_at_ms < self._wakes_at_ms and not driver.is_over:
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

    # Effects

    def send(self, to: Address, packet: bytes) -> None:
        """Send one datagram, unless a fault keeps it from leaving."""
        if self.is_starved:
            self._outbox.append(Send(to, packet))
            return
        self._network.send(self, to, packet)
        if self.crash_after_sends is not None:
            self.crash_after_sends -= 1
            if self.crash_after_sends <= 0:
                self._world.struck["crash_after_send"] += 1
                self.ended_by_itself("crash")

    def perform(self, effect: Effect) -> None:
        """Do anything but send a datagram."""
        match effect:
            case Ask():
                Call(self._scheduler, self._network, self, effect).begin()
            case Store():
                self._keep_soon(partial(_with_life, effect), effect)
            case Remember():
                self._remember(effect)
            case Changed():
                self._world.changed(self, effect)
            case Complain():
                self._world.complained(self, effect)
            case Stop():
                self.error = effect.error
                self._world.struck["stop"] += 1
                self.stop()

    def take_place(self, shard_id: int) -> None:
        """Keep this node's place in the ring."""
        self._keep_soon(lambda kept: kept._replace(shard_id=shard_id), None)

    def _keep_soon(self, change: Callable[[NodeRecord], NodeRecord], told: Store | None) -> None:
        self._stores.append((change, told))
        if len(self._stores) == 1:
            self._later(WRITE_US, self._store)

    def _store(self) -> None:
        if self._is_silent:
            self._later(AGAIN_US, self._store)
            return
        change, told = self._stores[0]
        assert self.kept is not None
        kept = change(self.kept)
        try:
            self.disk.keep(kept)
        except Crash:
            self.ended_by_itself("crash")
            return
        except OSError:  # The core waits until it is told.
            self._later(AGAIN_US, self._store)
            return
        self.kept = kept
        self._stores.popleft()
        if self._stores:
            self._later(WRITE_US, self._store)
        if told is not None:
            self._later(WRITE_US, lambda: self.when_free(self._tell_stored(told.token, told.cluster_id)))

    def _remember(self, effect: Remember) -> None:
        try:
            self.disk.remember(effect.peers)
        except Crash:
            self.ended_by_itself("crash")
        except OSError:
            pass  # They are a convenience.

    def _tell_stored(self, token: int, cluster_id: bytes) -> Callable[[], None]:
        def tell() -> None:
            core = self.core
            if core is not None:
                self._world.look_closely(self)
                self.cluster_id = cluster_id
                core.stored(token, now_ms=self.now_ms)
                self._world.look_closely(self)
                self.after_input()

        return tell

    def set_fuse(self, sends: int) -> None:
        """Crash exactly after so many datagrams from now on."""
        self.crash_after_sends = sends


def _with_life(said: Store, kept: NodeRecord) -> NodeRecord:
    pinned = kept.pinned or said.pinned
    return kept._replace(epoch=said.epoch, cluster_id=said.cluster_id.hex(), pinned=pinned)
