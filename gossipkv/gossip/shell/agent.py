"""The Trio shell of gossip: a socket, a clock and a disk for a core that has none.

One task waits for datagrams, so that a datagram needs no timeout. A second one waits for the next due time of the core,
and passes all waiting datagrams before it wakes the core. Effects are performed at once and in order (`driver.py`).
Datagrams that the system refuses are counted, and are lost like any other. Requests go over TCP in tasks of their own,
a few at a time; durable state goes through one task to a worker thread. The shell decides nothing about the protocol.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment import ticks
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES
from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.gossip.effects import AskOverTcp, Complain, MemberChanged, Remember, Stop, StoreDurably
from gossipkv.gossip.member import MemberState
from gossipkv.gossip.packets.compression import MAX_UNPACKED_BYTES
from gossipkv.gossip.shell.driver import GossipDriver
from gossipkv.gossip.shell.persistence import Keeping
from gossipkv.gossip.shell.seeds import Seeds
from gossipkv.log import Log
from gossipkv.protocol import OURS, versions_of
from gossipkv.wire.frames import FrameReader
from gossipkv.wire.rpc import decode_response, request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import ByteStream, Datagrams, Environment
    from gossipkv.gossip.core import Gossip
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.protocols import Keeper, TreePlace

    Dial = Callable[[Address], Awaitable[ByteStream]]  # Connects to a node; raises OSError, GossipKVError.

# Datagrams per batch before Trio's other tasks run: about two milliseconds.
BATCH: Final = 100

# A receive buffer holds fewer datagrams: after this many, all that waited at the alarm have been heard.
MAX_WAITING: Final = 16_384

# Requests over TCP in flight, each with a reply of up to 2 MiB. Some dead machines, silent until the timeout, must not
# delay the request of a probe.
MAX_ASKS: Final = 32

# Further requests that wait for their turn; beyond this a request fails.
MAX_ASKS_WAITING: Final = 256

# Defects that are logged; further ones are only counted.
MAX_DEFECTS_TOLD: Final = 20

# Pause before the core is woken after a failure: a repeated failure must not use a whole processor.
DEFECT_REST_MS: Final = 1000

# Refusals by other nodes that are logged, and characters of each; further ones are only counted.
MAX_REFUSALS: Final = 100
MAX_REFUSAL_CHARACTERS: Final = 200


@final
class Agent:
    """Drives a core."""

    def __init__(
        self,
        core: Gossip,
        datagrams: Datagrams,
        environment: Environment,
        keeper: Keeper,
        joins: Sequence[Address],
        *,
        place: TreePlace | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`joins`: names or addresses of some members; without any this node is alone until others join it.

        `dial` connects to nodes over TCP; by default the sockets of the environment do.
        """
        self._dial = dial or environment.sockets.connect
        self._core = core
        self._place = place
        self._driver = GossipDriver(core, self, place)
        self._seeds = Seeds(joins, environment.sockets, datagrams.reaches)
        self._datagrams = datagrams
        self._sockets = environment.sockets
        self._clock = environment.clock
        self._keeping = Keeping(keeper, environment.threads)
        self._log = Log("gossipkv.gossip")
        self._counters: Counter[str] = Counter()
        self._refusals: set[tuple[Address, str]] = set()
        self.misfits: dict[Address, str] = {}  # The versions of nodes that share none with this node.
        self._asking = trio.CapacityLimiter(MAX_ASKS)
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.Event()
        self._stop: Stop | None = None
        self._stopped = trio.Event()
        self._is_pinned = trio.Event()
        self._due_ms = 0  # When to wake the core, by its answer to the last input.
        self._rests_until_ms = 0

    def now_ms(self) -> int:
        """Return the core's time."""
        return self._clock.monotonic_ns() // 1_000_000

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Gossip until cancelled.

        Raises:
            GossipKVError: this node must not go on under its name, or in its cluster.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            remembered = await self._keeping.peers()
            await self._seeds.look_up()
            self._core.start(
                joins=self._seeds.addresses,
                remembered=remembered,
                lone=not self._seeds.names,
                now_ms=self.now_ms(),
            )
            if self._place is not None:
                self._place.start(now_ms=self.now_ms())
            nursery.start_soon(self._keeping.run, self._stored)
            nursery.start_soon(self._serve)
            nursery.start_soon(self._wake_in_time)
            nursery.start_soon(self._seeds.watch, self._join, self._has_joined)
            self.act()
            task_status.started()
            await self._stopped.wait()
            assert self._stop is not None
            if self._stop.forget:
                await self._keeping.forget()
            raise self._stop.error

    # Requests of other nodes and of this node

    def reply(self, request: bytes) -> bytes | None:
        """Return the reply to a request of another node; None if it is refused. Errors of the core are passed on."""
        reply = self._core.reply(request, now_ms=self.now_ms())
        self.act()
        return reply

    async def leave(self, wait_s: float) -> None:
        """Tell other members that this node leaves; wait for the news to spread, unless there are none."""
        self._core.leave(now_ms=self.now_ms())
        self.act()
        if self._core.members.reachable > 1:
            await trio.sleep(wait_s)

    async def pin(self) -> None:
        """Take no other cluster id from now on; return when that is durable, however long the disk takes."""
        self._core.pin()
        self.act()
        if not self._core.pinned:
            await self._is_pinned.wait()

    def counters(self) -> dict[str, int]:
        """Return the counters of the core and the shell: dropped, refused and lost packets by reason, and others."""
        found = self._core.counters + self._counters
        found["lost_by_system"] = self._datagrams.lost
        return {f"gossip_{name}": found[name] for name in sorted(found)}

    def close(self) -> None:
        """Stop hearing."""
        self._datagrams.close()

    def _join(self, addresses: Sequence[Address]) -> None:
        self._core.join(addresses, now_ms=self.now_ms())
        self.act()

    def _has_joined(self) -> bool:
        members = self._core.members
        return any(member.address in self._seeds.addresses for member in members.live() if member is not members.own)

    def _stored(self, token: int) -> None:
        try:
            self._core.stored(token, now_ms=self.now_ms())
            if self._core.pinned:
                self._is_pinned.set()
        except Exception as defect:  # noqa: BLE001  # See `_forgive`.
            self._forgive(defect)
        self.act()

    # The tasks that hear, and wake the core

    async def _serve(self) -> None:
        while True:
            await self._sockets.wait_readable(self._datagrams)
            await self._hear()

    async def _wake_in_time(self) -> None:
        while True:
            self._alarm = trio.Event()
            await ticks.rest_until(self._alarm_at(), self._alarm)
            await self._hear()
            now_ms = self.now_ms()
            if max(self._due_ms, self._rests_until_ms) <= now_ms:
                try:
                    self._due_ms = self._driver.wake(now_ms)
                except Exception as defect:  # noqa: BLE001  # See `_forgive`.
                    self._forgive(defect)
                    self._rests_until_ms = now_ms + DEFECT_REST_MS  # Its work is due again at once.
                    self.act()

    async def _hear(self) -> None:
        for _ in range(0, MAX_WAITING, BATCH):
            number = BATCH
            try:
                number = self._hear_batch()
            except Exception as defect:  # noqa: BLE001  # See `_forgive`.
                self._forgive(defect)
            if number:
                self.act()
            if number < BATCH:
                break
            await trio.lowlevel.checkpoint()

    def _hear_batch(self) -> int:
        """Process a batch of datagrams; return their number, which is less than `BATCH` if none is left."""
        receive, hear, now_ms = self._datagrams.receive, self._core.receive, self.now_ms()
        for number in range(BATCH):
            try:
                packet, source = receive()
            except BlockingIOError:
                return number
            except OSError as error:  # The error belongs to a datagram sent earlier: others may wait.
                self._counters[f"receive_failed_{_name(error)}"] += 1
                continue
            if len(packet) < MAX_DATAGRAM_BYTES:
                hear(packet, source, now_ms=now_ms)
            else:
                self._counters["dropped_oversized"] += 1
        return BATCH

    def _alarm_at(self) -> float:
        due_ms = max(self._due_ms, self._rests_until_ms)
        now_ms = self._clock.monotonic_ns() // 1_000_000  # `now_ms`, without its call.
        return trio.current_time() + max(0, due_ms - now_ms) / 1000

    # Effects of the core

    def act(self) -> None:
        """Perform the core's effects and set the alarm; call this after each input to the core."""
        due_ms = self._due_ms
        try:
            self._due_ms = self._driver.act(self.now_ms())
        except Exception as defect:  # noqa: BLE001  # See `_forgive`; claims of other nodes are bytes of peers.
            self._forgive(defect)
            self._due_ms = self._driver.wakes_at_ms
        if self._due_ms != due_ms:
            ticks.move(self._alarm, self._alarm_at())

    def take_place(self, shard_id: int) -> None:
        """Keep this node's place in the ring, and log it."""
        self._log.info("place", shard_id=shard_id)
        self._keeping.put(shard_id)

    def perform(self, effect: Effect) -> None:
        """Perform any effect but `SendDatagram`."""
        match effect:
            case AskOverTcp():
                assert self._nursery is not None
                self._nursery.start_soon(self._ask, effect)
            case StoreDurably() | Remember():
                self._keeping.put(effect)
            case MemberChanged(member, before):
                self._log_change(member, before)
                if member.state is MemberState.ALIVE:
                    self.misfits.pop(member.address, None)
            case Complain(error):
                self._log.warning("complaint", error=error.message)
            case Stop():
                self._stop = self._stop or effect
                self._stopped.set()

    def send(self, to: Address, packet: bytes) -> None:
        """Send one datagram; one that the system refuses is lost and counted."""
        try:
            self._datagrams.send(packet, to)
        except OSError as error:
            self._counters[f"send_failed_{_name(error)}"] += 1

    async def _ask(self, effect: AskOverTcp) -> None:
        reply = None
        if self._asking.statistics().tasks_waiting < MAX_ASKS_WAITING:
            reply = await self._reply_of(effect)
        else:
            self._counters["asks_dropped"] += 1
        try:
            self._core.answered(effect.token, reply, now_ms=self.now_ms())
        except Exception as defect:  # noqa: BLE001  # See `_forgive`.
            self._forgive(defect)
        self.act()

    def _forgive(self, defect: Exception) -> None:
        """Count a defect, and log the first ones with a traceback: one packet must not end every node it reaches."""
        self._counters["defects"] += 1
        if self._counters["defects"] <= MAX_DEFECTS_TOLD:
            self._log.error("defect", exc_info=defect)

    async def _reply_of(self, effect: AskOverTcp) -> bytes | None:
        with trio.move_on_after(effect.timeout_ms / 1000):
            async with self._asking:
                try:
                    return await ask(self._dial, effect.to, effect.request)
                except GossipKVError as error:
                    self._counters["asks_refused"] += 1
                    self._hear_refusal(effect.to, error)
                except OSError as error:
                    self._counters[f"asks_failed_{_name(error)}"] += 1
                return None
        self._counters["asks_timed_out"] += 1
        return None

    def _hear_refusal(self, by: Address, error: GossipKVError) -> None:
        theirs = versions_of(error.details.get("protocol"))
        if theirs is None:
            self._log_refusal(by, error.message)
        elif not OURS.fits(theirs) and (by in self.misfits or len(self.misfits) < MAX_REFUSALS):
            why = f"{theirs}, not {OURS}"
            if self.misfits.get(by) != why:
                members = self._core.members.list()
                name = next((member.name for member in members if member.address == by), None)
                self._log.warning("misfit", node=name, address=str(by), reason=why)
            self.misfits[by] = why

    def _log_refusal(self, by: Address, message: str) -> None:
        """Log a refusal by another node once; an operator must fix it, and every attempt repeats it."""
        if len(message) > MAX_REFUSAL_CHARACTERS:  # A peer's text may be as long as a frame.
            message = f"{message[:MAX_REFUSAL_CHARACTERS]}..."
        if (by, message) not in self._refusals and len(self._refusals) < MAX_REFUSALS:
            self._refusals.add((by, message))
            self._log.warning("refused", by=f"{by}: {message}")

    def _log_change(self, member: Member, before: MemberState | None) -> None:
        self._log.info(
            "member",
            node=member.name,
            address=str(member.address),
            state=member.state.name.lower(),
            before=None if before is None else before.name.lower(),
            epoch=member.epoch,
            incarnation=member.incarnation,
        )


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown").lower()


METHOD: Final = "gossip"
RECEIVE_BYTES: Final = 65_536

# The largest message, which compressing may enlarge by one in 255, its envelope, and MessagePack-RPC around it.
MAX_REPLY_BYTES: Final = MAX_UNPACKED_BYTES + MAX_UNPACKED_BYTES // 128


async def ask(dial: Dial, to: Address, question: bytes) -> bytes:
    """Return the reply of the node at `to`.

    Raises:
        OSError: nobody answers there.
        GossipKVError: the node refuses, or is no GossipKV node.

    Each request gets its own connection on purpose: it also probes whether TCP reaches the node at all, it is rare, and
    nothing is left behind when either end goes.
    """
    stream = await dial(to)
    try:
        await stream.send_all(request(0, METHOD, [question]))
        return await _reply(stream, to)
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()


async def _reply(stream: ByteStream, to: Address) -> bytes:
    reader = FrameReader(MAX_REPLY_BYTES)
    while True:
        received = await stream.receive_some(RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed without an answer")
        reader.feed(received)
        for frame in reader:
            response = decode_response(frame)
            if response.error is not None:
                raise response.error
            if not isinstance(response.result, bytes):
                raise ProtocolError(f"the answer of {to} to `{METHOD}` is not bytes")
            return response.result
