"""One database: a straight-line workflow that carries out the decisions of `lifecycle.decisions` on its versions.

One task decides and switches (`run`), a second one builds, and looks at the source come from outside.  All run on
Trio's thread, so the code between two awaits is one step.  `copies` handles the local copies of versions, `switching`
the version that clients get.  Each database looks at its source in a thread of its own that may be abandoned.  A source
that hangs therefore delays neither another database nor the end of the node.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.trouble import Trouble
from gossipkv.dataset.cluster.part import PartInCluster
from gossipkv.dataset.coalesced import Coalesced
from gossipkv.dataset.held import Held
from gossipkv.dataset.lifecycle.copies import Copies
from gossipkv.dataset.lifecycle.copy_states import CopyEvent, CopyState, VersionCopy
from gossipkv.dataset.lifecycle.decisions import Decision, check, decide
from gossipkv.dataset.lifecycle.switching import Switching
from gossipkv.dataset.lifecycle.version_states import Life, VersionEvent, VersionState
from gossipkv.dataset.rewriting import pauses
from gossipkv.dataset.source.listing import SourceVersion
from gossipkv.errors import Conflict, SourceError, StorageError, Unavailable, UnknownVersion
from gossipkv.log import RepeatedWarnings
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.settings.databases import minimum_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.cluster.view import DatabaseView
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import SourceRoot
    from gossipkv.errors import Detail
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.settings.databases import DatabaseSettings

    # Makes a database's part in the cluster, from its name, its lives and its copies.
    MakePart = Callable[[str, dict[str, Life], Copies, SharedResources], PartInCluster]

# Bounds for the period at which requests of a retiring version are counted.
SHORTEST_COUNT_MS = 50
LONGEST_COUNT_MS = 5_000
# Nodes that hear of a newer version spread their looks at the common source over this time.
MAX_JITTER_S = 0.5
MAX_NAMED = 8  # An error names this many versions, the newest.


def _now_ms() -> int:
    return int(trio.current_time() * 1000)


class Database:
    """A database, and the versions of it that this node knows."""

    def __init__(
        self, name: str, shared: SharedResources, settings: DatabaseSettings, *, make_part: MakePart = PartInCluster
    ) -> None:
        """Create the database; a test may pass a `make_part` that decides differently."""
        self.name = name
        self.settings = settings
        self.lives: dict[str, Life] = {}
        self.source_trouble: str | None = None  # The trouble affects the database as a whole.
        self.defect_trouble: str | None = None  # Set once a defect of ours has ended `run`.
        self.seen: tuple[str, ...] = ()  # The versions at the source at the last look.
        self.looked = False  # True once a look has ended.
        self._open_trouble: str | None = None  # The error that keeps this node from reading the local versions.
        self._vanished = False  # True if the database vanished since the last look began.
        self._shared = shared
        self._source = shared.source(name, settings)
        self._log = shared.log.bind(database=name)
        self._warnings = RepeatedWarnings(self._log)
        self._wake = trio.Event()
        self._looks = Coalesced(self._look_once)
        self._look_thread = trio.CapacityLimiter(1)
        self.copies = Copies(name, self.lives, shared, self._look_thread, wake=self.wake)
        self.part = make_part(name, self.lives, self.copies, shared)
        self.part.core.require(minimum_of(shared.settings, settings))
        self.view: DatabaseView = self.part.core
        self.switching = Switching(name, self.lives, self.view, shared)
        self._building = False
        self._scope = trio.CancelScope()  # The scope of `run`.
        self._look_wanted = self._looking_again = False
        self._noted_hold: str | None = None

    @property
    def serving(self) -> Version | None:
        """Return the local part of the version that serves requests naming no version."""
        return self.copies.versions.get(self.switching.active or "")

    @property
    def served(self) -> Life | None:
        """Return the version that serves requests naming no version, if its gate has passed."""
        life = self.lives.get(self.switching.active or "")
        is_served = life is not None and life.state is VersionState.ACTIVE and self.view.passed(life.name)
        return life if is_served else None

    @property
    def storage_trouble(self) -> str | None:
        """Return the system's error for the database as a whole: its directory, its ACTIVE document."""
        return self._open_trouble or self.switching.trouble

    @property
    def opened(self) -> bool:
        """True if the versions on the disk at the start could be read, and the active one could be opened."""
        return self._open_trouble is None and self.switching.active not in self.copies.unopened

    @property
    def trouble(self) -> str | None:
        return self.defect_trouble or self.storage_trouble or self.hold_trouble or self.source_trouble

    @property
    def hold(self) -> str | None:
        """Return the only version that may be active: from this node's settings, else from the latest order."""
        order = self.view.orders.newest
        return self.settings.hold if self.settings.hold is not None or order is None else order.version

    @property
    def held_by(self) -> str | None:
        """Return the source of the hold: this node's `settings`, an order to this `node`, or to the `cluster`."""
        if self.hold is None:
            return None
        if self.settings.hold is not None:
            return "settings"
        return "cluster" if self.view.orders.newest == self.view.orders.cluster else "node"

    @property
    def hold_trouble(self) -> str | None:
        """Return an error if the held version is nowhere to be found."""
        if self.hold is None or self.hold in self.lives or self.hold in self.seen:
            return None
        if self._source is None:
            where = "is not on this node, and no source is set from which to build it"
        elif self.source_trouble is not None:
            where = f"is not on this node, and the source cannot be read: {self.source_trouble}"
        elif self.looked:
            where = "is neither on this node nor at the source"
        else:
            return None
        consequence = "nothing is served" if self.served is None else f"version {self.switching.active} is still served"
        return f"the held version {self.hold} {where}; {consequence}"

    @property
    def is_refused(self) -> bool:
        """True if a table has the name; no version is then looked for, built or switched to.

        A dataset keeps its name if a version was ever active, is built, or is being built.  All but the last is on the
        disk, so a restart decides alike.
        """
        if not self._shared.is_table(self.name) or self._open_trouble is not None:
            return False
        is_building = any(life.is_building for life in self.lives.values())
        return self.switching.active is None and not self.copies.versions and not is_building

    @property
    def looking(self) -> bool:
        return self._looks.running

    # The workflow

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the built versions, report that they are served, then build, switch and retire until cancelled.

        A defect of ours, such as a failed assertion, ends this database's workflow and no other; serving goes on.
        """
        started = False
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._work)
                    task_status.started()
                    started = True
        except* Exception as defects:  # noqa: BLE001  # Other databases are not affected.
            self._end(defects)
        if not started:
            task_status.started()

    def _end(self, defect: Exception) -> None:
        self._log.error("internal_error", exc_info=defect)
        self.defect_trouble = (
            "the node has a defect, and its log has the traceback; the node still serves the active version, but "
            "builds no version and switches to none; restart the node"
        )
        self._scope.cancel()

    async def _work(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the workflow.  Until the active version can be read, serve nothing: a guess might be older."""
        waits = pauses()
        while not await self._open_built():
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(next(waits))
        async with trio.open_nursery() as nursery:
            self.copies.begin_work(nursery)
            nursery.start_soon(self.switching.rewriting.run)
            nursery.start_soon(self.part.refuted_document.run)
            nursery.start_soon(self.part.orders_document.run)
            decision = await self._settle(nursery)
            task_status.started()
            while True:
                if decision.stop is not None:
                    self.copies.stop_build(self.hold)
                if (newer := self.part.take_newer()) is not None:
                    nursery.start_soon(self._look_for, newer)
                if self._look_wanted and not self._looking_again:
                    self._looking_again = True
                    nursery.start_soon(self._look_again)
                if decision.build is not None and not self._building and not self._looking_again:
                    self._building = True
                    nursery.start_soon(self._build, nursery)
                self.copies.begin_work(nursery)
                await self._rest(decision)
                decision = await self._settle(nursery)

    async def look(self) -> None:
        """List the source, once for all callers that ask before the listing begins; `run` acts on new versions."""
        if self.defect_trouble is not None:
            return
        try:
            await self._looks.run()
        except Exception as defect:  # noqa: BLE001  # See `run`.
            self._end(defect)

    def vanish(self) -> None:
        """Note that the source has no such database (any more); a running look has an older result."""
        before = self._sight()
        self._vanished = self.looked = True
        self.seen = ()
        self.source_trouble = None
        for life in self.lives.values():
            life.source = None
        if self._sight() != before:
            self.wake()

    def _sight(self) -> tuple[object, ...]:
        """Return all that a look can change: most looks change nothing, and to decide again takes long."""
        copies = [(life.copy.state, life.copy.tried, life.copy.differs) for life in self.lives.values() if life.copy]
        return self.looked, self.seen, self.source_trouble, copies, [life.source for life in self.lives.values()]

    def reconfigure(self, settings: DatabaseSettings) -> None:
        """Apply these settings from now on; builds that they may repair are retried."""
        if replace(settings, hold=None) != replace(self.settings, hold=None):
            for life in self.lives.values():
                if life.copy is not None:
                    life.copy.tried = None
            self._source = self._shared.source(self.name, settings)
        self.settings = settings
        self.part.core.require(minimum_of(self._shared.settings, settings))
        self.wake()

    async def order(self, version: str | None, *, here: bool, wall_ms: int) -> dict[str, Detail]:
        """Order the cluster, or this node alone, to hold a version or none; return the hold here after and before.

        Raises:
            Conflict: this node's settings hold the database, and take precedence.
            UnknownVersion: no node and no source has the version.
            Unavailable: the system refused to write the order down.
        """
        if self.settings.hold is not None:
            raise Conflict(
                f"the settings file of this node holds {self.name} at version {self.settings.hold} and takes "
                f"precedence; remove `hold` from [databases.{self.name}] and send the node SIGHUP",
                {"database": self.name, "hold": self.settings.hold},
            )
        if version is not None and not self._is_known(version):
            await self.look()
            if not self._is_known(version):
                names = ", ".join(sorted({*self.lives, *self.seen})[-MAX_NAMED:])
                raise UnknownVersion(
                    f"no node and no source has version {version} of {self.name}; the last known versions are: {names}",
                    {"database": self.name, "version": version},
                )
        before = self.hold
        try:
            await self.part.order(version, here=here, wall_ms=wall_ms)
        except StorageError as error:
            raise Unavailable(f"{error.message}; the hold has not changed", {"database": self.name}) from error
        self.wake()
        return {"database": self.name, "hold": self.hold, "before": before}

    def _is_known(self, version: str) -> bool:
        return version in self.lives or version in self.seen or self.view.has_published(version)

    def _note_hold(self) -> None:
        """Look at the source after a change of the hold: the listing of a version not wanted so far may be old."""
        if self.hold != self._noted_hold:
            self._log.info("hold", version=self.hold, before=self._noted_hold, by=self.held_by)
            self._look_wanted = True
            self._noted_hold = self.hold

    def held(self) -> list[Held]:
        """Return all versions that this node answers, to clients or to other nodes.

        If two contents share a name, clients get one of them, and other nodes the one they ask for.
        """
        found = []
        for life in self.lives.values():
            version = self.copies.versions.get(life.name)
            passed = self.view.passed(life.name)
            offered = self.view.offered(life.name)
            if offered is not None:
                here = version if version is not None and version.identity == offered else None
                found.append(self._held(life, offered, here, passed=passed, active_elsewhere=not passed))
            if version is not None and version.identity != offered:
                found.append(self._held(life, version.identity, version))
        return found

    def source_times(self) -> dict[str, int]:
        """Return the time when the source files of each offered version were last modified, in milliseconds since 1970.

        The owners report the times; a version without a reported time is omitted.
        """
        times = {}
        for name in self.lives:
            offered = self.view.offered(name)
            modified_ms = 0 if offered is None else self._source_ms(offered, self.copies.versions.get(name))
            if modified_ms > 0:
                times[name] = modified_ms
        return times

    def _source_ms(self, identity: VersionIdentity, version: Version | None) -> int:
        """Return the time reported by the owners, else the local one, which no owner may report any more."""
        local_ms = 0 if version is None or version.identity != identity else version.manifest.source_ms
        return self.view.source_ms(identity) or local_ms

    def _held(
        self,
        life: Life,
        identity: VersionIdentity,
        version: Version | None,
        *,
        passed: bool = False,
        active_elsewhere: bool = False,
    ) -> Held:
        none, lacks = PartitionSet.empty(identity.partitions), None if life.copy is None else life.copy.lacks
        wrong = none if version is None else self.part.contradicting(version)
        files = [None] * identity.partitions if version is None else version.files
        return Held(
            identity,
            [None if at in wrong else file for at, file in enumerate(files)] if wrong else files,
            none if version is None or life.copy is None or life.copy.here is None else life.copy.here - wrong,
            lacks if life.is_building and lacks is not None and lacks.partitions == identity.partitions else none,
            passed,
            active_elsewhere,
            self._source_ms(identity, version),
            active=passed and life.state is VersionState.ACTIVE,
        )

    def wake(self) -> None:
        """Make `run` decide again."""
        self._wake.set()

    # Opening

    async def _open_built(self) -> bool:
        """Open the built versions; True if the system allowed it."""
        try:
            names = await self._shared.threads.run(self._shared.store.versions, self.name)
            await self.part.read_orders()
            await self.switching.read(names, self.hold)
            await self.part.read_refuted()
        except StorageError as error:
            self._open_trouble = error.message
            self._warnings.say("cannot_open", error.message)
            return False
        self._open_trouble, self._noted_hold = None, self.hold
        await self.copies.open_all(names)
        active = self.switching.active
        if active is not None and (active not in self.lives or self.lives[active].copy is None):
            remembered = self.switching.remembered
            if remembered is None or not remembered.owners:
                self.copies.miss(active)
            self.lives.setdefault(active, Life(active))  # Other nodes have all of this version.
        self.switching.restore()
        self.part.begin(self.switching, self.hold, now_ms=_now_ms())
        if self.copies.versions:
            self._shared.on_change()
        await self.copies.clear_damaged(active, self.copies.versions)
        return True

    # Looking

    async def _look_for(self, version: str) -> None:
        """Look for a version that other nodes announced, after a jitter so that not all nodes look at once."""
        fraction = zlib.crc32(f"{self._shared.cluster.membership.own.name}/{self.name}/{version}".encode()) / (1 << 32)
        await trio.sleep(fraction * MAX_JITTER_S)
        await self.look()

    async def _look_again(self) -> None:
        """Look before a build after a change of the hold: the listing of a version not wanted so far may be old."""
        self._look_wanted = False
        await self.look()
        self._looking_again = False
        self.wake()

    async def _look_once(self) -> None:
        before = self._sight()
        self._vanished = False
        if self.is_refused:
            self.vanish()
            return
        try:
            found = await self._look()
        except SourceError as error:
            if self.source_trouble != error.message:
                self._log.warning("source_unreadable", reason=error.message)
            self.source_trouble = error.message
        else:
            self.source_trouble = found
        if self._vanished:
            self.vanish()
        if self._sight() != before:
            self.wake()

    async def _look(self) -> str | None:
        """Look at versions from the newest down to one that can be built; older ones will be skipped.

        Return the listing's trouble.
        """
        source, active = self._source, self.switching.active
        if source is None:
            return None
        listing = await self._shared.look_threads.run(self._look_thread, partial(source.versions, self.name))
        for line in listing.ignored:
            self._warnings.say("ignored", line)
        for life in self.lives.values():
            if life.name not in listing.names:
                life.source = None
        self.seen = listing.names
        self.looked = True
        if self.hold in listing.names:
            await self._look_at(source, self.hold)
        enough = False
        for name in reversed(listing.names):
            if self.switching.active is not None and name < self.switching.active:
                break
            if not enough or name in self.copies.versions:
                enough |= await self._look_at(source, name)
        return listing.trouble(self.name, active if self.hold is None else None)

    async def _look_at(self, source: SourceRoot, name: str) -> bool:
        """Look at one version; True if it can be served, or built."""
        try:
            found = await self._shared.look_threads.run(self._look_thread, partial(source.version, self.name, name))
        except SourceError as error:
            life, copy = self._life_and_copy(name)
            life.source = SourceVersion(self.name, name, (), waiting_for="a change of the source")
            copy.tried = None
            if copy.state in {CopyState.WANTED, CopyState.ERROR}:
                copy.trouble = Trouble(error.message, {"file": str(error.details.get("file"))})
                copy.take(CopyEvent.FAIL)
                self._warnings.say("cannot_list", error.message)
            return False
        life, copy = self._life_and_copy(name)
        life.source = found
        built = self.copies.versions.get(name)
        copy.differs = built is not None and built.identity.digest != found.digest
        if copy.differs:
            self._warnings.say(
                "source_changed",
                f"{self.name}/{name} has changed at the source after it was built; the node still serves the built "
                "version; publish the change as a new version",
            )
        return built is not None or life.is_building or copy.buildable(found, copy.ready_ms)

    def _life_and_copy(self, name: str) -> tuple[Life, VersionCopy]:
        """Return the life and the copy of a version at the source; create them if it is new."""
        life = self.lives.setdefault(name, Life(name))
        if life.copy is None:
            life.copy = VersionCopy(waits_since_ms=_now_ms())
        return life, life.copy

    # Deciding

    async def _settle(self, nursery: trio.Nursery) -> Decision:
        """Act until nothing is left to do at once; return the steps left for later."""
        switching = self.switching
        while True:
            switching.count_requests()
            await self.copies.poll_space()
            self._note_hold()
            if self.part.step(switching.active, self.hold, now_ms=_now_ms()):
                self._shared.on_change()
            self._warn_withheld()
            decision = self._decide()
            if self._revise(decision, nursery):
                continue
            if decision.switch is not None:
                if _now_ms() >= switching.not_before_ms and await switching.switch(decision.switch, self.hold):
                    self.part.switched(decision.switch)
                    await self.copies.clear_damaged(switching.active)
                    continue
            else:
                for name in decision.skip:
                    self._let_go(name, VersionEvent.SKIP, nursery)
                for name in decision.supersede:
                    switching.supersede(self.lives[name])
            for name in decision.remove:
                self._let_go(name, VersionEvent.QUIET, nursery)
            if not decision.supersede or decision.switch is not None:
                self._check(decision)
                switching.note_change()
                return decision

    def _warn_withheld(self) -> None:
        for name in self.lives:
            if (why := self.view.withheld(name)) is not None:
                self._warnings.say("version_withheld", f"{self.name}/{name} is not activated: {why}")

    def _revise(self, decision: Decision, nursery: trio.Nursery) -> bool:
        """Widen shares and drop refuted copies; True if anything changed, so that all is decided anew."""
        for name in decision.refute:
            self.copies.refute(self.lives[name], nursery)
            self._shared.on_change()
        for name, share in decision.want:
            copy = self.lives[name].copy
            assert copy is not None, name
            copy.want(share)
        return bool(decision.want or decision.refute)

    def _check(self, decision: Decision) -> None:
        """Assert the invariants of lives and open files whenever nothing is left to do at once."""
        waits = decision.switch is not None or not self._shared.may_write()
        check(self.lives.values(), self.view, self.switching.active, switching=waits)
        self.copies.check()

    def _decide(self) -> Decision:
        if not self._shared.may_write() or self.is_refused:
            return Decision()
        active = self.switching.active
        decision = decide(
            self.lives.values(),
            self.view,
            active=active,
            hold=self.hold,
            now_ms=_now_ms(),
            retire_after_ms=self._shared.settings.retire_after,
        )
        is_mended = decision.switch is None and self.part.is_mended(active)
        return replace(decision, switch=active) if is_mended else decision

    def _let_go(self, name: str, event: VersionEvent, nursery: trio.Nursery) -> None:
        was_served = self.view.passed(name)
        life = self.lives.pop(name)
        self.part.let_go(name)
        self.switching.let_go(life, event)
        self.copies.drop(life, nursery)
        if was_served:
            self._shared.on_change()

    async def _rest(self, decision: Decision) -> None:
        waits = [] if decision.look_again_ms is None else [decision.look_again_ms - _now_ms()]
        if any(life.state is VersionState.RETIRING for life in self.lives.values()):
            quarter = self._shared.settings.retire_after // 4
            waits.append(min(LONGEST_COUNT_MS, max(SHORTEST_COUNT_MS, quarter)))
        if decision.switch is not None:
            waits.append(self.switching.not_before_ms - _now_ms())
        if self.part.core.wakes_at_ms is not None:
            waits.append(self.part.core.wakes_at_ms - _now_ms())
        if self.copies.wait_for_space:
            waits.append(self.copies.poll_not_before_ms - _now_ms())
        with trio.move_on_after(max(0, min(waits)) / 1000 if waits else float("inf")):
            await self._wake.wait()
        self._wake = trio.Event()

    # Building

    async def _build(self, nursery: trio.Nursery) -> None:
        """Wait for a turn, then build the best choice at that moment."""
        try:
            async with self._shared.loads.turn() as turn, trio.open_nursery() as beside:
                decision = self._decide()
                if decision.build is not None and not self._looking_again:
                    beside.start_soon(self.copies.builder.give_way, turn)
                    await self._build_version(self.lives[decision.build], nursery)
                beside.cancel_scope.cancel()
        finally:
            self._building = False
            self.wake()

    async def _build_version(self, life: Life, nursery: trio.Nursery) -> None:
        assert self._source is not None, life
        assert life.source is not None, life
        was_built = await self.copies.build(
            life,
            self._source,
            self.settings,
            nursery,
            refuted=self.view.refuted(life.source.digest),
            follow=self.view.to_follow(life.name),
        )
        if not was_built:
            await self.look()
