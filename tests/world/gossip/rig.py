"""Gossip on a machine: the shell of production, without its waiting.

The rig hands datagrams and answers to the core; production's `GossipDriver` (`gossip/shell/driver.py`) wakes the core
and performs its effects.  A start is silent until the disk takes its epoch; a first start that the disk refuses ends
the process.  Later writes that fail are retried.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.errors import GossipKVError
from gossipkv.gossip.effects import AskOverTcp, Complain, MemberChanged, Remember, Stop, StoreDurably
from gossipkv.gossip.packets.prefix import NO_CLUSTER
from gossipkv.gossip.shell.driver import GossipDriver
from tests.world.disk import Disk
from tests.world.faulty_files import Crash
from tests.world.gossip.program import Boot
from tests.world.rig import NEVER_MS
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.protocols import TreePlace
    from gossipkv.node.identity import NodeRecord
    from tests.world.gossip.program import Claim, Core
    from tests.world.machine import Machine
    from tests.world.network import Host, Network
    from tests.world.scheduler import Scheduler


RETRY_US = 200 * MS  # Linux's first retransmission time; each further one doubles it.
MAX_RETRY_US = 3 * SECOND


@final
class Call:
    """One request of one process to another."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        asker: Host,
        ask: AskOverTcp,
        core_at: Callable[[Host], Core | None],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._asker = asker
        self._life = asker.life
        self._ask = ask
        self._core_at = core_at
        self._is_over = False

    def begin(self) -> None:
        self._scheduler.after(self._ask.timeout_ms * MS, self._time_out)
        refuses = self._network.refuses
        if refuses is not None and refuses(self._ask.request):
            return
        self._send(self._asker, self._ask.to, self._arrive)

    def _send(self, source: Host, to: object, then: Callable[[Host], None], retry_us: int = RETRY_US) -> None:
        """Carry a message one way, retrying as often as needed."""
        if self._is_over:
            return
        network = self._network
        found = network.way(source, self._ask.to) if to is self._ask.to else network.way(source, self._asker.address)
        if found is None:
            return  # No machine has the address, so none refuses either.
        target, link = found
        now_us = self._scheduler.now_us
        if link.cut or now_us < link.clogged_until_us or source.is_starved or network.is_lost(link):
            again = min(2 * retry_us, MAX_RETRY_US)
            self._scheduler.after(retry_us, lambda: self._send(source, to, then, again))
            return
        # The request waits for the handshake: three trips instead of one.
        delay_us = sum(network.delay_us(link) for _ in range(3 if source is self._asker else 1))
        self._scheduler.after(delay_us, lambda: then(target))

    def _arrive(self, answerer: Host) -> None:
        life = answerer.life
        if answerer.core is None:
            self._send(answerer, self._asker.address, lambda _: self._finish(None))  # Connection refused.
            return
        answerer.when_free(lambda: self._answer(answerer))
        self._watch(answerer, life)

    def _answer(self, answerer: Host) -> None:
        core = self._core_at(answerer)
        if self._is_over or core is None:
            return
        answerer.heard_ms = answerer.now_ms
        reply = core.reply(self._ask.request, now_ms=answerer.now_ms)
        self._send(answerer, self._asker.address, lambda _: self._finish(reply))
        answerer.after_input()

    def _watch(self, answerer: Host, life: int) -> None:
        """Break the connection if the answering process ends before its answer arrives."""

        def look() -> bool:
            if self._is_over:
                return False
            if answerer.life != life:
                self._send(answerer, self._asker.address, lambda _: self._finish(None))
                return False
            return True

        self._scheduler.every(100 * MS, look)

    def _time_out(self) -> None:
        if not self._is_over:
            self._network.struck["ask_timeout"] += 1
        self._finish(None)

    def _finish(self, reply: bytes | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        asker = self._asker
        if asker.life == self._life:
            asker.when_free(lambda: self._tell(reply))

    def _tell(self, reply: bytes | None) -> None:
        core = self._core_at(self._asker)
        if core is not None:
            if reply is not None:
                self._asker.heard_ms = self._asker.now_ms
            core.answered(self._ask.token, reply, now_ms=self._asker.now_ms)
            self._asker.after_input()


WRITE_US = 4 * MS
RETRY_DELAY_US = 500 * MS  # The delay after a refused write.


@final
class GossipRig:
    """A member, and the claim of its place."""

    __slots__ = (
        "_driver",
        "_is_silent",
        "_machine",
        "_place",
        "_program",
        "_stores",
        "claim",
        "cluster_id",
        "core",
        "disk",
        "kept",
    )

    def __init__(self, machine: Machine, program: Callable[[Boot], Core]) -> None:
        assert isinstance(machine.disk, Disk), "a member keeps documents"
        self.disk = machine.disk
        self.claim: Claim | None = None  # Makes the claim of a place for a core.
        self.core: Core | None = None
        self.kept: NodeRecord | None = None
        self.cluster_id = NO_CLUSTER  # The cluster id that the process knows to be durable.
        self._machine = machine
        self._program = program
        self._driver: GossipDriver | None = None
        self._place: TreePlace | None = None
        self._is_silent = False  # True until the epoch of this start is durable.
        # Changes of the record, written one at a time, each with the effect to confirm.
        self._stores: deque[tuple[Callable[[NodeRecord], NodeRecord], StoreDurably | None]] = deque()

    @property
    def wakes_at_ms(self) -> int:
        return NEVER_MS if self._driver is None else self._driver.wakes_at_ms

    # The process

    def boot(self) -> None:
        machine, chance = self._machine, self._machine.world.streams[f"program/{self._machine.name}"]
        try:
            kept, is_new = self.disk.next_life(machine.name, chance, least_epoch=machine.clocks.wall_ms())
        except GossipKVError as error:  # The record is damaged, and stays so at every start.
            machine.error = error
            machine.world.look_closely(machine)
            machine.stop()
            return
        self.kept = kept
        self._is_silent = False
        try:
            self.disk.keep(kept)
        except Crash:
            machine.ended_by_itself("crash")
            return
        except OSError:
            if is_new:
                machine.ended_by_itself("disk")
                return
            self._is_silent = True
            machine.world.struck["silent"] += 1
            machine.later(RETRY_DELAY_US, self._mend)
        cluster_id = bytes.fromhex(kept.cluster_id) or NO_CLUSTER
        uuid = bytes.fromhex(kept.uuid)
        boot = Boot(machine.name, machine.address, uuid, kept.epoch, cluster_id, chance, self._is_silent, kept.pinned)
        self.core = core = self._program(boot)
        machine.began(core)
        self._place = place = None if self.claim is None else self.claim(core, kept)
        self._driver = GossipDriver(core, self, place)
        self.cluster_id = boot.cluster_id
        now_ms = machine.now_ms
        core.start(joins=list(machine.joins), remembered=self.disk.peers(), now_ms=now_ms)
        if place is not None:
            place.start(now_ms=now_ms)
        machine.world.look_closely(machine)
        machine.after_input()

    def _mend(self) -> None:
        """Keep the epoch of a silent start once the disk takes it; the process may speak afterwards."""
        assert self.kept is not None
        machine = self._machine
        try:
            self.disk.keep(self.kept)
        except Crash:
            machine.ended_by_itself("crash")
        except OSError:
            machine.later(RETRY_DELAY_US, self._mend)
        else:
            self._is_silent = False
            machine.later(WRITE_US, lambda: machine.when_free(self._speak))

    def _speak(self) -> None:
        assert self.core is not None
        machine = self._machine
        self.core.speak(now_ms=machine.now_ms)
        if self._place is not None:
            self._place.start(now_ms=machine.now_ms)
        machine.world.look_closely(machine)
        machine.after_input()

    def end(self) -> None:
        if self._driver is not None:
            self._driver.is_over = True
        self.core = self._driver = self._place = None
        self._stores.clear()

    # Events of the process

    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> int:
        assert self.core is not None
        assert self._driver is not None
        self.core.receive(packet, source, now_ms=now_ms)
        return self._driver.act(now_ms)

    def wake(self, *, now_ms: int) -> int:
        """Wake the core if its timer is due."""
        assert self._driver is not None
        return self._driver.wake(now_ms)

    def act(self, *, now_ms: int) -> int:
        return NEVER_MS if self._driver is None else self._driver.act(now_ms)

    def poke(self, *, now_ms: int) -> None:
        assert self.core is not None
        self.core.wake(now_ms=now_ms)

    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None:
        assert self.core is not None
        self.core.join(addresses, now_ms=now_ms)

    def leave(self, *, now_ms: int) -> None:
        assert self.core is not None
        self.core.leave(now_ms=now_ms)

    # Effects

    def send(self, to: Address, packet: bytes) -> None:
        self._machine.send(to, packet)

    def perform(self, effect: Effect) -> None:
        machine = self._machine
        match effect:
            case AskOverTcp():
                Call(machine.world.scheduler, machine.world.network, machine, effect, core_at).begin()
            case StoreDurably():
                self._keep_soon(partial(_with_life, effect), effect)
            case Remember():
                self._remember(effect)
            case MemberChanged() | Complain():
                machine.world.told(machine, effect)
            case Stop():
                machine.error = effect.error
                machine.world.struck["stop"] += 1
                machine.stop()

    def take_place(self, shard_id: int) -> None:
        self._keep_soon(lambda kept: kept._replace(shard_id=shard_id), None)

    def _keep_soon(self, change: Callable[[NodeRecord], NodeRecord], told: StoreDurably | None) -> None:
        self._stores.append((change, told))
        if len(self._stores) == 1:
            self._machine.later(WRITE_US, self._store)

    def _store(self) -> None:
        machine = self._machine
        if self._is_silent:
            machine.later(RETRY_DELAY_US, self._store)
            return
        change, told = self._stores[0]
        assert self.kept is not None
        kept = change(self.kept)
        try:
            self.disk.keep(kept)
        except Crash:
            machine.ended_by_itself("crash")
            return
        except OSError:  # The core waits for the confirmation.
            machine.later(RETRY_DELAY_US, self._store)
            return
        self.kept = kept
        self._stores.popleft()
        if self._stores:
            machine.later(WRITE_US, self._store)
        if told is not None:
            machine.later(WRITE_US, lambda: machine.when_free(partial(self._tell_stored, told)))

    def _remember(self, effect: Remember) -> None:
        try:
            self.disk.remember(effect.peers)
        except Crash:
            self._machine.ended_by_itself("crash")
        except OSError:
            pass  # Known peers are only a convenience.

    def _tell_stored(self, told: StoreDurably) -> None:
        assert self.core is not None
        machine = self._machine
        machine.world.look_closely(machine)
        self.cluster_id = told.cluster_id
        self.core.stored(told.token, now_ms=machine.now_ms)
        machine.world.look_closely(machine)
        machine.after_input()


def running(program: Callable[[Boot], Core]) -> Callable[[Machine], GossipRig]:
    return partial(GossipRig, program=program)


def rig_of(machine: Host) -> GossipRig:
    rig = machine.rig
    assert isinstance(rig, GossipRig), rig
    return rig


def core_at(machine: Host) -> Core | None:
    """Return the core of a machine: a member, or a smaller one with the same interface."""
    return rig_of(machine).core


def _with_life(said: StoreDurably, kept: NodeRecord) -> NodeRecord:
    pinned = kept.pinned or said.pinned
    return kept._replace(epoch=said.epoch, cluster_id=said.cluster_id.hex(), pinned=pinned)
