"""The datasets of one process: gossip's view is fed to the core of the database, whose effects are performed.

The node stands beside the member like the claim of its place in the ring: it is woken in the same way and ends with its
process.  The contents of the `DatasetDisk` survive.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack

from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatabaseCore
from gossipkv.dataset.cluster.effects import (
    AskMember,
    BuildAnew,
    Decide,
    KeepActive,
    KeepOrders,
    KeepRefuted,
    KeepRing,
    OpenRoute,
    Publish,
    PublishDatabase,
    ReadContents,
    Withdraw,
)
from gossipkv.dataset.cluster.members import DatasetMember, Membership, MemberStanding
from gossipkv.dataset.cluster.own_copy import OwnCopy
from gossipkv.dataset.cluster.question import MemberAnswer, decode, encode
from gossipkv.dataset.lifecycle.copy_states import CopyEvent, CopyState, VersionCopy
from gossipkv.dataset.lifecycle.decisions import decide
from gossipkv.dataset.lifecycle.version_states import Life, VersionEvent, VersionState
from gossipkv.errors import TooLarge
from gossipkv.placement import statement
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.shard_claim import NODES, ClaimPlace, place_of
from tests.world.datasets.building import Building
from tests.world.datasets.contents import DATABASE
from tests.world.datasets.exchange import Exchange
from tests.world.gossip.rig import rig_of
from tests.world.scheduler import MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.dataset.cluster.effects import Effect
    from gossipkv.dataset.cluster.question import Packed
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.gossip.core import Gossip
    from gossipkv.gossip.member import Member as GossipMember
    from gossipkv.node.gossip import ShardIdTimer
    from gossipkv.placement.holders import HolderState
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.seals import Sealed
    from gossipkv.placement.statement import DatabaseStatement, Statement
    from tests.world.datasets.contents import Sources
    from tests.world.datasets.disk import DatasetDisk, Stored
    from tests.world.machine import Machine
    from tests.world.world import World

LOOK_MS: Final = 5_000  # Time between two looks at the source.
ISOLATION_MS: Final = 1_000  # Time between two checks for isolation.
SYNC_US: Final = 5 * MS
ASK_MS: Final = 1_000
DRAIN_MS: Final = 10_000  # The default of `drain_timeout`.
LEAVING_LOOK_US: Final = 20 * MS
SOON_MS: Final = 200  # The longest delay before a requested look.


class Settings(NamedTuple):
    terms: Terms
    settle_ms: int
    retire_max_ms: int
    expected: int


class Observer(Protocol):
    """A checker that sees the actions of nodes as they happen."""

    def switching(self, node: DatasetNode, identity: VersionIdentity) -> None:
        """Check that the switch is allowed; the sync of ACTIVE begins."""

    def dropping(self, node: DatasetNode, stored: Stored) -> None:
        """Check that the copy may be removed."""


@final
class Shared:
    """The shared state of a world's nodes: sources, disks that outlive processes, running nodes, and the observer."""

    def __init__(self, sources: Sources, observer: Observer) -> None:
        self.sources = sources
        self.observer = observer
        self.disks: dict[str, DatasetDisk] = {}
        self.nodes: dict[str, DatasetNode] = {}  # By machine; the process may have ended.


@final
class DatasetNode:
    """The database of one process; it has the interface of gossip's `ClaimPlace`."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        core: Gossip,
        *,
        place: ShardIdTimer,
        settings: Settings,
        shared: Shared,
    ) -> None:
        self.world, self.machine, self.gossip = world, machine, core
        self.sources, self.disk = shared.sources, shared.disks[machine.name]
        self._shared = shared
        self._place = place
        self.chance = world.streams[f"datasets/{machine.name}"]
        own = core.members.own
        now_ms = machine.now_ms
        member = DatasetMember(own.name, own.uuid, own.epoch, own.address)
        self.membership = Membership(
            member,
            expects_others=bool(machine.joins or rig_of(machine).disk.peers()),
            retire_max_ms=settings.retire_max_ms,
            now_ms=now_ms,
        )
        convergence = Convergence(
            self.membership,
            settle_ms=settings.settle_ms,
            now_ms=now_ms,
            kept=self.disk.ring,
            expected=settings.expected,
        )
        self._convergence = convergence
        self.core = DatabaseCore(DATABASE, self.membership, convergence, settings.terms)
        self.core.recall_refuted(self.disk.refuted)
        self.lives: dict[str, Life] = {}
        self.active: str | None = None
        self.hold: str | None = None
        self.routes: dict[bytes, dict[str, OpenRoute]] = {}  # By wire id and member.
        self.states: dict[str, HolderState] = {}  # The state of each member as a holder.
        self._building = Building(
            self.core, self.lives, self.disk, later=self.later, changed=self.tell, drop=self._dropped
        )
        self.switches = 0
        self._is_syncing = False
        self._looks_ms = now_ms
        self._isolation_ms = now_ms
        self._decides = True
        self._watches = [core.tree.watch(path, self._wake) for path in ("partitions", "databases", NODES)]
        self._members: Sequence[GossipMember] = ()
        self._told: dict[str, OwnCopy] = {}
        self.wakes_at_ms = now_ms
        self._open()

    def _open(self) -> None:
        disk = self.disk
        if disk.active is not None:
            self.core.remember(disk.active, disk.owners, disk.sealed)
            self.active = disk.active.version
            life = self.lives[self.active] = Life(self.active, heard=disk.active)
            life.take(VersionEvent.SWITCH)
        for version, stored in disk.versions.items():
            life = self.lives.setdefault(version, Life(version))
            life.copy = copy = VersionCopy(CopyState.READY if stored.ready else CopyState.WANTED)
            if stored.ready:
                copy.begin_open(stored.identity, stored.ready)
            copy.want(stored.share)
        for version in self.lives:
            self.tell(version)
        self.core.opened()

    # A place beside gossip

    def start(self, *, now_ms: int) -> None:
        self._place.start(now_ms=now_ms)

    def _wake(self) -> None:
        self.wakes_at_ms = 0

    def wake(self) -> None:
        self._decides = True
        self.wakes_at_ms = 0

    def step(self, *, now_ms: int) -> int | None:
        """Apply the changes in gossip and the due timers; return a shard id to keep, if there is a new one."""
        shard_id = self._place.step(now_ms=now_ms) if self._place.wakes_at_ms <= now_ms else None
        self._hear(now_ms)
        if now_ms >= self._looks_ms:
            self.look()
            self._looks_ms = now_ms + LOOK_MS
        for _ in range(8):
            self._perform(self.core.step(now_ms=now_ms))
            if not self._decides:
                break
            self._decides = False
            self._decide(now_ms)
        due_ms = self.core.wakes_at_ms
        self.wakes_at_ms = min(self._place.wakes_at_ms, self._looks_ms, self._isolation_ms, due_ms or self._looks_ms)
        self.wakes_at_ms = max(self.wakes_at_ms, now_ms + 1)
        return shard_id

    # Input from gossip

    def _hear(self, now_ms: int) -> None:
        if now_ms >= self._isolation_ms:
            self._isolation_ms = now_ms + ISOLATION_MS
        self.membership.isolate(isolated=self.gossip.isolated(now_ms=now_ms), now_ms=now_ms)
        members = self.gossip.members.list()
        if members == self._members and not any(watch.changed for watch in self._watches):
            return
        self._members = members
        for watch in self._watches:
            watch.look()
        claims = {}
        for entry in self.gossip.tree.entries(NODES, now_ms=now_ms, all=True):
            claims[entry.owner] = place_of(entry.name, entry.value) or ClaimPlace()
        known = set()
        for each in members:
            place = claims.get(each.name, ClaimPlace())
            known.add(each.name)
            told = DatasetMember(each.name, each.uuid, each.epoch, each.address, MemberStanding(each.state), *place)
            self.states[each.name] = told.standing
            self.membership.tell(told, now_ms=now_ms)
        for other in self.membership.others:
            if other.name not in known:
                self.membership.forget(other.name)
                self.core.forget(other.name)
        self._hear_statements(now_ms)

    def _hear_statements(self, now_ms: int) -> None:
        tree = self.gossip.tree
        said: dict[str, dict[str, Statement]] = {}
        databases: dict[str, DatabaseStatement] = {}
        for version in tree.children(f"partitions/{DATABASE}", all=True):
            for entry in tree.entries(f"partitions/{DATABASE}/{version}", now_ms=now_ms, all=True):
                found = statement.decode([entry.value])
                if found is not None:
                    said.setdefault(entry.owner, {})[version] = found
        for entry in tree.entries(f"databases/{DATABASE}", now_ms=now_ms, all=True):
            found_database = statement.decode_database(entry.value)
            if found_database is not None:
                databases[entry.owner] = found_database
        for other in self.membership.others:
            name = other.name
            self.core.hear(name, other.uuid, other.epoch, said.get(name, {}), databases.get(name), wall_ms=0)

    # Effects of the core

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(version, said):
                    self._publish(version, said)
                case Withdraw(version):
                    self.gossip.tree.withdraw(self._path(version))
                case PublishDatabase(said_of_all):
                    path = f"databases/{DATABASE}/{self.machine.address}"
                    self.gossip.tree.publish(path, statement.encode_database(said_of_all))
                case AskMember(member, identity):
                    self._ask(member, identity)
                case OpenRoute():
                    self._route(effect)
                case _:
                    self._keep(effect)

    def _route(self, route: OpenRoute) -> None:
        routes = self.routes.setdefault(route.identity.wire_id, {})
        routes.pop(route.owner.name, None)
        if route.partitions:
            routes[route.owner.name] = route

    def _keep(self, effect: Effect) -> None:
        """Store the state that an effect names, or schedule its work soon."""
        match effect:
            case KeepActive(identity, owners, sealed):
                if self.disk.active == identity:
                    self.disk.owners, self.disk.sealed = owners, sealed
            case KeepRefuted(digest, functions):
                self.disk.refuted[digest] = functions
                self._decides = True
            case BuildAnew(version, partitions):
                self._drop(version, partitions)
            case ReadContents():
                self._looks_ms = min(self._looks_ms, self.machine.now_ms + self.chance.randrange(SOON_MS))
            case KeepOrders():
                pass  # No orders are given here.
            case KeepRing():
                self.disk.ring = self._convergence.claims
            case Decide():
                self._decides = True

    def _path(self, version: str) -> str:
        return f"partitions/{DATABASE}/{version}/{self.machine.address}"

    def _publish(self, version: str, said: Statement) -> None:
        (piece,) = statement.encode(said)
        try:
            self.gossip.tree.publish(self._path(version), piece)
        except TooLarge:
            self._perform(self.core.refused(version, now_ms=self.machine.now_ms))

    def _ask(self, member: str, identity: VersionIdentity) -> None:
        asked = self.membership.get(member)
        assert asked is not None, member

        def serve(machine: Machine) -> tuple[int, bytes] | None:
            there = self._shared.nodes[machine.name]
            told = there.core.answer(self.machine.name, identity.wire_id, now_ms=machine.now_ms)
            packed: bytes = msgpack.packb(encode(told or MemberAnswer(PartitionSet.empty(identity.partitions), {})))
            return there.gossip.members.own.epoch, packed

        def then(reply: tuple[int, bytes] | None) -> None:
            epoch, answer = (0, None) if reply is None else (reply[0], decode(unpack(reply[1]), identity.partitions))
            self.core.answered(member, epoch, identity.wire_id, answer)
            self.wake()

        Exchange(self.world, self.machine, asked.address, serve=serve, then=then).begin(ASK_MS)

    # The source and the local copies

    def look(self) -> None:
        seen = {version: content.source for version, content in self.sources.seen(self.machine).items()}
        for version in seen:
            if self.active is None or version > self.active or version in self.lives or version == self.hold:
                self.lives.setdefault(version, Life(version))
        for version, life in self.lives.items():
            life.source = seen.get(version)
            if life.source is not None and life.copy is None:
                life.copy = VersionCopy()
            self.tell(version)
        self._decides = True

    def tell(self, version: str) -> None:
        """Report the local state of a version to the core, if it changed."""
        life, stored = self.lives[version], self.disk.versions.get(version)
        source = life.source
        ready = None if stored is None else stored.ready
        share = self.core.share(version) if stored is None else stored.share
        wanted = None if share is None or life.copy is None or source is None else share
        copy = OwnCopy(
            version=version,
            digest=None if source is None else source.digest,
            partitions=len(source.files) if source is not None else None,
            identity=None if stored is None else stored.identity,
            share=None if stored is None else stored.share,
            ready=ready,
            building=wanted if wanted is None or ready is None else wanted - ready,
            seals={} if stored is None else stored.seals,
            asked_ms=life.asked_ms if life.state is VersionState.RETIRING else None,
        )
        if self._told.get(version) != copy:
            self._told[version] = copy
            self.core.tell_copy(copy)
            self.wake()

    def _drop(self, version: str, partitions: PartitionSet) -> None:
        life, stored = self.lives.get(version), self.disk.versions.get(version)
        if life is not None and life.copy is not None and life.open and stored is not None:
            life.copy.let_go(partitions & stored.ready)
            stored.drop(partitions)
            self.tell(version)

    def _decide(self, now_ms: int) -> None:
        self._hear_of_versions()
        self._building.stop_refuted()
        retire_after_ms = self.core.terms.retire_after_ms
        lives = self.lives.values()
        decision = decide(
            lives, self.core, active=self.active, hold=self.hold, now_ms=now_ms, retire_after_ms=retire_after_ms
        )
        self._building.obey(decision)
        for version in decision.skip:
            self._forget(version, VersionEvent.SKIP)
        for version in decision.supersede:
            if self.lives[version].state is not VersionState.ACTIVE:  # The active version retires with the switch.
                self._retire(version)
        for version in decision.remove:
            self._forget(version, VersionEvent.QUIET)
        if decision.stop is not None:
            self._building.stop(decision.stop)
        if decision.switch is not None and not self._is_syncing:
            self._switch(decision.switch, now_ms)
        elif self.active is not None and self._is_mended(self.active, now_ms):
            self._switch(self.active, now_ms)
        if decision.build is not None:
            self._building.begin(self.sources.seen(self.machine)[decision.build])

    def _hear_of_versions(self) -> None:
        for version, identity in self.core.heard().items():
            if version not in self.lives and (self.active is None or version > self.active or version == self.hold):
                self.lives[version] = Life(version)
            if version in self.lives:
                self.lives[version].heard = identity

    def _is_mended(self, version: str, now_ms: int) -> bool:
        identity = self.core.identity(version)
        is_other = identity is not None and identity != self.disk.active
        return is_other and not self._is_syncing and self.core.may_switch(version)

    def _switch(self, version: str, now_ms: int) -> None:
        """Write ACTIVE durably before answering from the version."""
        identity = self.core.identity(version)
        assert identity is not None, version
        assert self.core.may_switch(version), version
        self._is_syncing = True
        self._shared.observer.switching(self, identity)
        self.later(SYNC_US, partial(self._switched, identity, self.core.owners(identity), self.core.sealed()))

    def _switched(self, identity: VersionIdentity, owners: tuple[Ownership, ...], sealed: tuple[Sealed, ...]) -> None:
        self._is_syncing = False
        self.switches += 1
        self.disk.active, self.disk.owners, self.disk.sealed = identity, owners, sealed
        before, self.active = self.active, identity.version
        if before != self.active:
            self.lives[self.active].take(VersionEvent.SWITCH)
            for life in list(self.lives.values()):
                if life.superseded(self.active, self.hold):
                    if life.open or self.core.passed(life.name):
                        self._retire(life.name)
                    elif life.state is VersionState.ACTIVE:
                        life.take(VersionEvent.LOSE)
        self.core.activate(identity)
        self.wake()

    def _retire(self, version: str) -> None:
        life = self.lives[version]
        life.take(VersionEvent.SUPERSEDE)
        life.asked_ms = self.machine.now_ms
        self.tell(version)

    def _forget(self, version: str, event: VersionEvent) -> None:
        life = self.lives.pop(version)
        life.take(event)
        if life.copy is not None:
            life.copy.take(CopyEvent.DROP)
        self._told.pop(version, None)
        stored = self.disk.versions.pop(version, None)
        if event is VersionEvent.SKIP:  # Parts of it may be built and published.
            self.core.drop_copy(version)
            self._perform(self.core.step(now_ms=self.machine.now_ms))
        if stored is not None:
            self._dropped(stored)
        if event is not VersionEvent.SKIP:
            self.core.drop_copy(version)

    def _dropped(self, stored: Stored) -> None:
        self._shared.observer.dropping(self, stored)

    def pin(self, version: str | None) -> None:
        """Hold a version, as an operator does; None releases the hold."""
        self.hold = version
        self.core.hold(version)
        self.look()
        self.wake()
        self.machine.after_input()

    def leave(self) -> None:
        """Shut down as after SIGTERM: announce it, answer until no other node relies on this one, and leave."""
        self.membership.leave(now_ms=self.machine.now_ms)
        self._place.leave()
        self.wake()
        self.machine.after_input()
        self._leave_when_free(self.machine.now_ms + DRAIN_MS)

    def _leave_when_free(self, due_ms: int) -> None:
        now_ms = self.machine.now_ms
        if now_ms < due_ms and self.core.is_missed(now_ms=now_ms):
            self.later(LEAVING_LOOK_US, partial(self._leave_when_free, due_ms))
        else:
            self.machine.leave()

    def asked(self, version: str) -> None:
        """Record the use of a version by a request."""
        life = self.lives.get(version)
        if life is not None and life.state is VersionState.RETIRING:
            life.asked_ms = self.machine.now_ms
            self.tell(version)

    def later(self, delay_us: int, do: partial[None]) -> None:
        """Run `do` after a delay, when the process is free; drop it if the process ends before."""
        machine, life = self.machine, self.machine.life

        def unless_ended() -> None:
            if machine.life == life:
                machine.when_free(now)

        def now() -> None:
            if machine.life == life:
                do()
                machine.after_input()

        self.world.scheduler.after(delay_us, unless_ended)


def unpack(packed: bytes) -> Packed:
    found: Packed = msgpack.unpackb(packed, strict_map_key=False)
    return found
