"""The Trio shell of gossip: a socket, a clock and a disk for a core that has none.

One task waits until a datagram is there or the core wants to be woken.  It hands over everything that was waiting
before it tells the core that a time has run out: after a stall the answers lie in the socket, and whoever looked at
the clock first would take its own silence for that of the others.

What the core leaves behind is done at once and in order: datagrams are sent (what the system refuses is counted, and
was lost like any other), requests go over TCP in tasks of their own, a few at a time, and what must be durable goes
through one task to a worker thread.  Nothing here decides anything about the protocol.
"""

from __future__ import annotations

import errno
import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from gossipkv.environment import MOST_DATAGRAM_BYTES
from gossipkv.errors import GossipKVError, StorageError
from gossipkv.gossip.asking import ask
from gossipkv.gossip.effects import Ask, Changed, Complain, Remember, Send, Stop, Store
from gossipkv.gossip.seeds import Seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment import Datagrams, Environment
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.member import Member, State

# Handed over before Trio's other tasks have a turn: about two milliseconds.
BATCH: Final = 100

# A receive buffer holds no more: so many later than the alarm, everything that was waiting then has been heard.
MOST_WAITING: Final = 16_384

# Requests over TCP at once; an answer may take some MiB.
MOST_ASKS: Final = 8

# Refusals by others that are told of; further ones are only counted.
MOST_REFUSALS: Final = 100

# Between two attempts to write what must be durable.
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0


class Members(Protocol):
    """The part of `membership.members.Members` that a shell looks at."""

    @property
    def reachable(self) -> int: ...
    def live(self) -> Sequence[Member]: ...


class Core(Protocol):
    """The part of `core.Gossip` that a shell drives."""

    counters: Counter[str]

    @property
    def members(self) -> Members: ...
    @property
    def wakes_at_ms(self) -> int: ...
    def start(self, *, joins: Sequence[Address], remembered: Sequence[Address], lone: bool, now_ms: int) -> None: ...
    def join(self, addresses: Sequence[Address], *, now_ms: int) -> None: ...
    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None: ...
    def reply(self, request: bytes, *, now_ms: int) -> bytes | None: ...
    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None: ...
    def stored(self, token: int, *, now_ms: int) -> None: ...
    def wake(self, *, now_ms: int) -> None: ...
    def leave(self, *, now_ms: int) -> None: ...
    def take(self) -> list[Effect]: ...


class Keeper(Protocol):
    """Where a node keeps what must survive it; each may raise `StorageError`, and blocks."""

    def keep(self, *, epoch: int | None = None, cluster_id: str | None = None, shard_id: int | None = None) -> None: ...
    def remember(self, peers: Sequence[Address]) -> None: ...
    def peers(self) -> list[Address]: ...


class Place(Protocol):
    """A node's claim of a place in the ring: a second thing that has a time of its own."""

    @property
    def wakes_at_ms(self) -> int | None: ...
    def start(self, *, now_ms: int) -> None: ...
    def step(self, *, now_ms: int) -> int | None: ...


@final
class Agent:
    """Drives a core."""

    def __init__(
        self,
        core: Core,
        datagrams: Datagrams,
        environment: Environment,
        keeper: Keeper,
        joins: Sequence[Address],
        *,
        place: Place | None = None,
    ) -> None:
        """`joins`: names or addresses of some members; without any this node is alone until others join it."""
        self._core = core
        self._place = place
        self._seeds = Seeds(joins, environment.sockets)
        self._datagrams = datagrams
        self._sockets = environment.sockets
        self._threads = environment.threads
        self._clock = environment.clock
        self._keeper = keeper
        self._log = structlog.get_logger("gossipkv.gossip")
        self._counters: Counter[str] = Counter()
        self._refusals: set[str] = set()
        self._asking = trio.CapacityLimiter(MOST_ASKS)
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.CancelScope()
        self._put, self._to_keep = trio.open_memory_channel[Store | Remember | int](math.inf)  # int: a shard id.
        self._stop: GossipKVError | None = None
        self._stopped = trio.Event()

    def now_ms(self) -> int:
        """The time that the core is told."""
        return self._clock.monotonic_ns() // 1_000_000

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Gossip until cancelled.

        Raises:
            GossipKVError: this node must not go on under its name, or in its cluster.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            remembered = await self._threads.run(self._keeper.peers)
            await self._seeds.look_up()
            self._core.start(
                joins=self._seeds.addresses,
                remembered=remembered,
                lone=not self._seeds.names,
                now_ms=self.now_ms(),
            )
            if self._place is not None:
                self._place.start(now_ms=self.now_ms())
            nursery.start_soon(self._keep_all)
            nursery.start_soon(self._serve)
            nursery.start_soon(self._seeds.watch, self._join, self._has_joined)
            self.act()
            task_status.started()
            await self._stopped.wait()
            assert self._stop is not None
            raise self._stop

    # What others of this node ask

    def reply(self, request: bytes) -> bytes | None:
        """The answer to a request of another node; None when it is refused.  Raises what the core has to say of it."""
        reply = self._core.reply(request, now_ms=self.now_ms())
        self.act()
        return reply

    async def leave(self, wait_s: float) -> None:
        """Tell the others that this node goes; returns when that had time to spread, at once if there are none."""
        self._core.leave(now_ms=self.now_ms())
        self.act()
        if self._core.members.reachable > 1:
            await trio.sleep(wait_s)

    def counters(self) -> dict[str, int]:
        """What was dropped, refused and lost, by reason, and what else the core counts."""
        found = self._core.counters + self._counters
        found["lost_by_system"] = self._datagrams.lost
        return {f"gossip_{name}": found[name] for name in sorted(found)}

    def close(self) -> None:
        """Nothing is heard any more."""
        self._datagrams.close()

    def _join(self, addresses: Sequence[Address]) -> None:
        self._core.join(addresses, now_ms=self.now_ms())
        self.act()

    def _has_joined(self) -> bool:
        return any(member.address in self._seeds.addresses for member in self._core.members.live())

    # The task that hears

    async def _serve(self) -> None:
        core = self._core
        while True:
            with trio.CancelScope() as self._alarm:
                self._set_alarm()
                await self._sockets.wait_readable(self._datagrams)
            await self._hear()
            now_ms = self.now_ms()
            if core.wakes_at_ms <= now_ms:
                core.wake(now_ms=now_ms)
                self.act()

    async def _hear(self) -> None:
        """Everything that waits in the socket."""
        receive, hear = self._datagrams.receive, self._core.receive
        for _ in range(0, MOST_WAITING, BATCH):
            now_ms = self.now_ms()
            try:
                for _ in range(BATCH):
                    packet, source = receive()
                    if len(packet) < MOST_DATAGRAM_BYTES:
                        hear(packet, source, now_ms=now_ms)
                    else:
                        self._counters["dropped_oversized"] += 1
            except BlockingIOError:
                self.act()
                return
            except OSError as error:  # Of a datagram that was sent before; it says nothing about those that wait.
                self._counters[f"receive_failed_{_name(error)}"] += 1
            self.act()
            await trio.lowlevel.checkpoint()

    def _set_alarm(self) -> None:
        due_ms = self._core.wakes_at_ms
        if self._place is not None and (place_ms := self._place.wakes_at_ms) is not None:
            due_ms = min(due_ms, place_ms)
        self._alarm.deadline = trio.current_time() + max(0, due_ms - self.now_ms()) / 1000

    # What the core leaves behind

    def act(self) -> None:
        """Do it, see to this node's place, and find out when there is more to do; after everything the core is told."""
        self._perform()
        if self._place is not None:
            due_ms, now_ms = self._place.wakes_at_ms, self.now_ms()
            if due_ms is not None and due_ms <= now_ms:
                shard_id = self._place.step(now_ms=now_ms)
                if shard_id is not None:
                    self._put.send_nowait(shard_id)
                self._perform()
        self._set_alarm()

    def _perform(self) -> None:
        for effect in self._core.take():
            match effect:
                case Send(to, packet):
                    self._send(to, packet)
                case Ask():
                    assert self._nursery is not None
                    self._nursery.start_soon(self._ask, effect)
                case Store() | Remember():
                    self._put.send_nowait(effect)
                case Changed(member, before):
                    self._say(member, before)
                case Complain(error):
                    self._log.warning("complaint", error=error.message)
                case Stop(error):
                    self._stop = self._stop or error
                    self._stopped.set()

    def _send(self, to: Address, packet: bytes) -> None:
        try:
            self._datagrams.send(packet, to)
        except OSError as error:
            self._counters[f"send_failed_{_name(error)}"] += 1

    async def _ask(self, effect: Ask) -> None:
        reply = None
        with trio.move_on_after(effect.timeout_ms / 1000) as limit:
            async with self._asking:
                try:
                    reply = await ask(self._sockets, effect.to, effect.request)
                except GossipKVError as error:
                    self._counters["asks_refused"] += 1
                    self._tell(f"{effect.to}: {error.message}")
                except OSError as error:
                    self._counters[f"asks_failed_{_name(error)}"] += 1
        if limit.cancelled_caught:
            self._counters["asks_timed_out"] += 1
        self._core.answered(effect.token, reply, now_ms=self.now_ms())
        self.act()

    def _tell(self, refusal: str) -> None:
        """Once: that another node refuses us is for an operator to mend, and every attempt hears it again."""
        if refusal not in self._refusals and len(self._refusals) < MOST_REFUSALS:
            self._refusals.add(refusal)
            self._log.warning("refused", by=refusal)

    def _say(self, member: Member, before: State | None) -> None:
        self._log.info(
            "member",
            node=member.name,
            address=str(member.address),
            state=member.state.name.lower(),
            before=None if before is None else before.name.lower(),
            epoch=member.epoch,
            incarnation=member.incarnation,
        )

    async def _keep_all(self) -> None:
        """What must be durable, in order; it is tried until the disk takes it, since the core waits."""
        async for what in self._to_keep:
            match what:
                case Store(epoch, cluster_id, token):
                    await self._store(partial(self._keeper.keep, epoch=epoch, cluster_id=cluster_id.hex()))
                    self._core.stored(token, now_ms=self.now_ms())
                    self.act()
                case Remember(peers):
                    await self._remember(peers)
                case int(shard_id):
                    await self._store(partial(self._keeper.keep, shard_id=shard_id))

    async def _store(self, keep: Callable[[], None]) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._threads.run(keep)
            except StorageError as error:
                self._log.error("cannot_store", error=error.message)
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            else:
                return

    async def _remember(self, peers: Sequence[Address]) -> None:
        try:
            await self._threads.run(self._keeper.remember, peers)
        except StorageError as error:
            self._log.warning("cannot_remember", error=error.message)


def _name(error: OSError) -> str:
    """Of a reason, for a counter."""
    return errno.errorcode.get(error.errno or 0, "unknown").lower()
