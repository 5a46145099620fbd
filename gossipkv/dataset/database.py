"""One database of a node: a straight-line workflow around the decisions of `lifecycle`.

One task decides and switches (`run`), a second one builds, looks at the source come from outside; all on Trio's
thread, so that what stands between two awaits is one step.  What blocks (the source, the data directory, opening and
unmapping files) happens in worker threads; a look has a thread of its own per database and may be abandoned, so that a
source that hangs holds up neither another database nor the end of the node.

The order that keeps promise P2: build, sync, rename into place, open; write and sync the active version; only then
change what is served, in one step, and tell the node.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.disk_space import POLL_MS, NoSpace
from gossipkv.dataset.build.parent import trouble_of
from gossipkv.dataset.coalesced import Coalesced
from gossipkv.dataset.lifecycle import Decision, Event, Life, State, Trouble, check, decide
from gossipkv.dataset.local.version import Version, open_version
from gossipkv.dataset.open_versions import Reopening, close, pauses
from gossipkv.dataset.repeated_warnings import RepeatedWarnings
from gossipkv.dataset.source.listing import SourceVersion
from gossipkv.dataset.version_build import VersionBuilder, Wanted
from gossipkv.errors import Corrupt, GossipKVError, SourceChanged, SourceError, StorageError, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Collection

    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import Source
    from gossipkv.settings.databases import DatabaseSettings

# While a version retires, how often its requests are counted at most and at least.
SHORTEST_COUNT_MS = 50
LONGEST_COUNT_MS = 5_000


def _now_ms() -> int:
    return int(trio.current_time() * 1000)


class Database:
    """The versions of one database."""

    def __init__(self, name: str, shared: SharedResources, settings: DatabaseSettings) -> None:
        self.name = name
        self.settings = settings
        self.lives: dict[str, Life] = {}
        self.versions: dict[str, Version] = {}  # What is open, and so served.
        self.active: str | None = None  # The one that was made active last, served or not.
        self.newest: str | None = None  # The newest that ever was active; newer than `active` only after a hold.
        self.source_trouble: str | None = None  # of the database as a whole
        self.storage_trouble: str | None = None  # likewise: its directory, its ACTIVE document
        self.defect_trouble: str | None = None  # likewise: a defect of ours has ended `run`.
        self.seen: tuple[str, ...] = ()  # The versions at the source at the last look.
        self.looked = False  # There was one.
        self._vanished = False  # Since the last look began.
        self._shared = shared
        self._source = shared.source(settings)
        self._log = shared.log.bind(database=name)
        self._warnings = RepeatedWarnings(self._log)
        self._wake = trio.Event()
        self._looks = Coalesced(self._look_once)
        self._look_thread = trio.CapacityLimiter(1)
        self.builder = VersionBuilder(name, shared, self._look_thread)
        self._reopening = Reopening(name, self.lives, self.versions, shared, self.wake)
        self._refused: set[str] = set()  # Versions that the system did not let us open at the start.
        self._building = False
        self._scope = trio.CancelScope()  # of `run`
        self._removals: dict[str, trio.Event] = {}  # The versions that are being closed and deleted.
        self._look_wanted = self._looking_again = False
        self._poll_not_before_ms = 0
        self._switch_not_before_ms = 0
        self._counts: dict[str, int] = {}

    @property
    def serving(self) -> Version | None:
        """The version that requests get which name none."""
        return None if self.active is None else self.versions.get(self.active)

    @property
    def trouble(self) -> str | None:
        """What is wrong with the database as a whole."""
        return self.defect_trouble or self.storage_trouble or self.hold_trouble or self.source_trouble

    @property
    def hold(self) -> str | None:
        """The version that is to be active, and no other."""
        return self.settings.hold

    @property
    def hold_trouble(self) -> str | None:
        """That the version that is held is nowhere to be found."""
        if self.hold is None or self.hold in self.lives or self.hold in self.seen:
            return None
        if self._source is None:
            where = "is not here, and there is no source to build it from"
        elif self.source_trouble is not None:
            where = f"is not here, and the source cannot be read: {self.source_trouble}"
        elif self.looked:
            where = "is neither here nor at the source"
        else:
            return None
        goes_on = "nothing is served" if self.serving is None else f"{self.active} goes on being served"
        return f"hold: version {self.hold} {where}; {goes_on}"

    @property
    def looking(self) -> bool:
        """Whether a look at the source is going on."""
        return self._looks.running

    # The workflow

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Opens what is built, reports that it is served, then builds, switches and retires for ever.

        A defect of ours, a failed assertion among them, ends this and no other database; what is served goes on.
        """
        started = False
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._work)
                    task_status.started()
                    started = True
        except* Exception as defects:  # noqa: BLE001  # Whatever it was, the other databases have no part in it.
            self._end(defects)
        if not started:
            task_status.started()

    def _end(self, defect: Exception) -> None:
        self._log.error("internal_error", exc_info=defect)
        self.defect_trouble = (
            "a defect in the node, whose log has the traceback: what is served goes on, and nothing more is built or "
            "switched to until the node starts again"
        )
        self._scope.cancel()

    async def _work(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Do the work; while the system refuses to tell what was active, nothing is served: it might be older."""
        waits = pauses()
        while not await self._open_built():
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(next(waits))
        async with trio.open_nursery() as nursery:
            for name in self._refused:
                nursery.start_soon(self._open_again, self.lives[name])
            decision = await self._settle(nursery)
            task_status.started()
            while True:
                if decision.stop is not None:
                    self.builder.stop()
                if self._look_wanted and not self._looking_again:
                    self._looking_again = True
                    nursery.start_soon(self._look_again)
                if decision.build is not None and not self._building and not self._looking_again:
                    self._building = True
                    nursery.start_soon(self._build, nursery)
                self._reopening.begin(nursery)
                await self._rest(decision)
                decision = await self._settle(nursery)

    async def look(self) -> None:
        """Lists the source, once for all who ask before it begins; what is new is acted upon by `run`."""
        if self.defect_trouble is not None:
            return
        try:
            await self._looks.run()
        except Exception as defect:  # noqa: BLE001  # As in `run`.
            self._end(defect)

    def vanish(self) -> None:
        """The source has no such database (any more); a look that is going on finds what is older than this."""
        self._vanished = True
        self.seen = ()
        self.looked = True
        self.source_trouble = None
        for life in self.lives.values():
            life.source = None
        self.wake()

    def reconfigure(self, settings: DatabaseSettings) -> None:
        """Take these settings from now on; what they may mend is tried again."""
        if replace(settings, hold=None) != replace(self.settings, hold=None):
            for life in self.lives.values():
                life.tried = None
            self._source = self._shared.source(settings)
        if settings.hold != self.hold:
            self._log.info("hold", version=settings.hold, before=self.hold)
            self._look_wanted = True
        self.settings = settings
        self.wake()

    def wake(self) -> None:
        """Makes `run` decide again."""
        self._wake.set()

    def damaged(self, name: str, error: Corrupt) -> None:
        """A read or the scrub met damage: the version is built again; until then its whole pages are served.

        None of them is trusted any more: one that was checked may be read again from the disk that has lost another.
        """
        life, version = self.lives.get(name), self.versions.get(name)
        if version is not None and error.file in version.lost_names:
            self._reopening.note(version, error)
            return
        if life is None or life.state not in {State.AVAILABLE, State.ACTIVE, State.RETIRING}:
            return
        if life.state is not State.RETIRING:
            life.damage(_now_ms())
            self.wake()
        elif life.trouble is not None:  # It was said, and matters only if this version becomes active again.
            return
        life.trouble = trouble_of(error)
        self.versions[name].distrust()
        again_ms = max(0, life.not_before_ms - _now_ms())
        self._log.error("damaged", version=name, error=error.message, again_ms=again_ms)

    # Opening

    async def _open_built(self) -> bool:
        """Whether the system let us see what is here."""
        store = self._shared.store
        try:
            names = await self._shared.threads.run(store.versions, self.name)
            self.active, self.newest = await self._read_active(names)
        except StorageError as error:
            self.storage_trouble = error.message
            self._warnings.say("cannot_open", error.message)
            return False
        self.storage_trouble = None
        for name in names:
            await self._open(name)
        if self.active is not None and self.active not in self.lives:
            life = self._begin_life(self.active, State.ERROR)
            life.trouble = Trouble("the version is not on the disk any more", lasting=False)
        for life in self.lives.values():
            if life.state is not State.AVAILABLE or self.active is None or self.newest is None:
                continue
            if life.name == self.active:
                life.take(Event.SWITCH)
            elif self.active < life.name <= self.newest:  # A hold had left it behind.
                self._supersede(life.name)
        if self.versions:
            self._shared.on_change()
        await self._clear_damaged(self.versions)
        return True

    async def _read_active(self, names: list[str]) -> tuple[str | None, str | None]:
        try:
            active = await self._shared.threads.run(self._shared.store.active, self.name)
        except Corrupt as error:
            # Whatever was active, it was none of the versions newer than the newest that is built.
            taken = self.hold if self.hold in names else max(names, default=None)
            self._log.error("active_damaged", error=error.message, taken=taken)
            return taken, max(names, default=None)
        return (None, None) if active is None else (active.version, active.newest)

    def _begin_life(self, name: str, state: State) -> Life:
        """A look at the source may have found it already."""
        known = self.lives.get(name)
        life = Life(name, state, source=None if known is None else known.source, waits_since_ms=_now_ms())
        self.lives[name] = life
        return life

    async def _clear_damaged(self, whole: Collection[str] = ()) -> None:
        """What was set aside goes when something newer serves, or it was built again before a crash."""
        if self.active is None or not self._shared.may_write():
            return
        clear = partial(self._shared.store.clear_damaged, self.name, before=self.active, whole=tuple(whole))
        try:
            await self._shared.threads.run(clear)
        except StorageError as error:
            self._log.error("cannot_remove", error=error.message)

    async def _open(self, name: str) -> None:
        try:
            version = await self._open_version(name)
        except (Corrupt, UnsupportedFormat) as error:
            self._begin_life(name, State.ERROR).trouble = trouble_of(error)
        except StorageError as error:
            self._log.error("cannot_open", version=name, error=error.message)
            self._begin_life(name, State.ERROR).fail(trouble_of(error), _now_ms())
            self._refused.add(name)
        else:
            self.versions[name] = version
            self._begin_life(name, State.AVAILABLE).open = True

    async def _open_version(self, name: str) -> Version:
        """One that is built; set aside if it is damaged."""
        store = self._shared.store
        path = store.version_path(self.name, name)
        try:
            return await self._shared.threads.run(open_version, store.files, path, self.name, name)
        except (Corrupt, UnsupportedFormat) as error:
            aside = await self._shared.threads.run(store.set_aside, self.name, name)
            self._log.error("damaged", version=name, error=error.message, set_aside=str(aside))
            raise

    async def _open_again(self, life: Life) -> None:
        """Try until the system lets us, or it was built again, or is no longer wanted."""
        for pause_s in pauses():
            await trio.sleep(pause_s)
            if life.open or self.lives.get(life.name) is not life:
                return
            if not life.openable():
                continue
            try:
                version = await self._open_version(life.name)
            except StorageError:
                continue  # It was said once.
            except (Corrupt, UnsupportedFormat) as error:
                life.trouble = trouble_of(error)
                return
            if not life.openable() or self.lives.get(life.name) is not life:
                await self._close(version)
                continue
            self.versions[life.name] = version
            life.opened()
            self._log.info("opened", version=life.name)
            self._shared.on_change()
            self.wake()
            return

    # Looking

    async def _look_again(self) -> None:
        """Look after a change of the hold, before a build: of versions not wanted so far, old listings may be known."""
        self._look_wanted = False
        await self.look()
        self._looking_again = False
        self.wake()

    async def _look_once(self) -> None:
        self._vanished = False
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
        self.wake()

    async def _look(self) -> str | None:
        """Newest first, down to one that can be built: what is older than that will be skipped.

        Returns why there is no version, if what is there is none.
        """
        source = self._source
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
            if self.active is not None and name < self.active:
                break
            if not enough or name in self.versions:
                enough |= await self._look_at(source, name)
        return listing.ignored[0] if listing.ignored and not listing.names else None

    async def _look_at(self, source: Source, name: str) -> bool:
        """Whether this version is, or can be made, one to serve."""
        try:
            found = await self._shared.look_threads.run(self._look_thread, partial(source.version, self.name, name))
        except SourceError as error:
            life = self.lives.setdefault(name, Life(name, waits_since_ms=_now_ms()))
            life.source = SourceVersion(self.name, name, (), waiting_for="another source")
            life.tried = None
            if life.state in {State.SEEN, State.ERROR}:
                life.trouble = Trouble(error.message, {"file": str(error.details.get("file"))})
                life.take(Event.FAIL)
                self._warnings.say("cannot_list", error.message)
            return False
        life = self.lives.setdefault(name, Life(name, waits_since_ms=_now_ms()))
        life.source = found
        built = self.versions.get(name)
        life.differs = built is not None and built.identity.digest != found.digest
        if life.differs:
            self._warnings.say(
                "source_changed",
                f"{self.name}/{name} has changed at the source after it was built; what was built is served: "
                "a version never changes, publish another one",
            )
        return built is not None or life.state is State.BUILDING or life.buildable(life.ready_ms)

    # Deciding

    async def _settle(self, nursery: trio.Nursery) -> Decision:
        """Acts until nothing is left to do at once; returns what is left for later."""
        while True:
            self._count_requests()
            await self._poll_space()
            decision = self._decide()
            for name in decision.skip:
                self._let_go(name, Event.SKIP, nursery)
            if decision.switch is not None and _now_ms() >= self._switch_not_before_ms:
                if await self._switch(decision.switch):
                    await self._clear_damaged()
                    continue
            elif decision.switch is None:
                for name in decision.supersede:
                    self._supersede(name)
            for name in decision.remove:
                self._let_go(name, Event.QUIET, nursery)
            if not decision.supersede or decision.switch is not None:
                self._check(decision)
                return decision

    def _check(self, decision: Decision) -> None:
        """Asserts what holds whenever nothing is left to do at once: of the lives, and of the files that they have."""
        waits = decision.switch is not None or not self._shared.may_write()
        check(self.lives.values(), self.active, switching=waits)
        opened = {life.name for life in self.lives.values() if life.open}
        assert opened == self.versions.keys(), (opened, self.versions.keys())
        assert not self._removals.keys() & self.versions.keys(), "what is being deleted is not served"
        assert (self.active or "") <= (self.newest or ""), (self.active, self.newest)

    def _decide(self) -> Decision:
        if not self._shared.may_write():
            return Decision()
        return decide(
            self.lives.values(),
            active=self.active,
            hold=self.hold,
            now_ms=_now_ms(),
            retire_after_ms=self._shared.settings.retire_after,
        )

    async def _switch(self, name: str) -> bool:
        assert name in self.versions, f"{name} is not open"
        assert self.hold == name or self.active is None or name >= self.active, (self.active, name)
        store = self._shared.store
        try:
            await self._shared.threads.run(store.set_active, self.name, name, self.newest)
        except StorageError as error:
            if self.storage_trouble != error.message:
                self._log.error("cannot_switch", version=name, error=error.message)
            self.storage_trouble = error.message
            self._switch_not_before_ms = _now_ms() + 1_000
            return False
        before, self.active = self.active, name
        self.newest = max(name, self.newest or name)
        self.lives[name].take(Event.SWITCH)
        if self.lives[name].trouble is not None:  # A read had found damage in it while it retired.
            self.lives[name].damage(_now_ms())
        for life in tuple(self.lives.values()):
            if life.superseded(name, self.hold):
                self._supersede(life.name)
        self.storage_trouble = None
        self._shared.on_change()
        if before == name:
            self._log.info("serves_again", version=name)
        else:
            self._log.info("switched", version=name, before=before, hold=self.hold is not None)
        return True

    def _supersede(self, name: str) -> None:
        self.lives[name].take(Event.SUPERSEDE)
        self.lives[name].asked_ms = _now_ms()
        self._counts[name] = self._shared.requests(self.name, name)

    def _count_requests(self) -> None:
        for life in self.lives.values():
            if life.state is State.RETIRING:
                count = self._shared.requests(self.name, life.name)
                if count != self._counts.get(life.name):
                    self._counts[life.name] = count
                    life.asked_ms = _now_ms()

    def _let_go(self, name: str, event: Event, nursery: trio.Nursery) -> None:
        """Take it out of service now; it is closed and deleted when the last read of it is done."""
        self.lives.pop(name).take(event)
        self._counts.pop(name, None)
        version = self.versions.pop(name, None)
        if version is not None:
            self._shared.on_change()
            self._removals[name] = trio.Event()
            nursery.start_soon(self._remove, version)

    async def _close(self, version: Version) -> None:
        assert self.versions.get(version.name) is not version, f"{version.name} is still served"
        await close(version, self._shared.threads)

    async def _remove(self, version: Version) -> None:
        await self._close(version)
        try:
            await self._shared.threads.run(self._shared.store.remove_version, self.name, version.name)
        except StorageError as error:
            self._log.error("cannot_remove", version=version.name, error=error.message)
        else:
            self._log.info("removed", version=version.name)
        finally:
            self._removals.pop(version.name).set()

    async def _rest(self, decision: Decision) -> None:
        waits = [] if decision.look_again_ms is None else [decision.look_again_ms - _now_ms()]
        if any(life.state is State.RETIRING for life in self.lives.values()):
            quarter = self._shared.settings.retire_after // 4
            waits.append(min(LONGEST_COUNT_MS, max(SHORTEST_COUNT_MS, quarter)))
        if decision.switch is not None:
            waits.append(self._switch_not_before_ms - _now_ms())
        if any(life.shortage is not None for life in self.lives.values()):
            waits.append(self._poll_not_before_ms - _now_ms())
        with trio.move_on_after(max(0, min(waits)) / 1000 if waits else float("inf")):
            await self._wake.wait()
        self._wake = trio.Event()

    # Building

    async def _build(self, nursery: trio.Nursery) -> None:
        """Waits for its turn, then builds what is the best choice at that moment."""
        try:
            async with self._shared.loads.turn() as turn, trio.open_nursery() as beside:
                decision = self._decide()
                if decision.build is not None and not self._looking_again:
                    beside.start_soon(self.builder.give_way, turn)
                    await self._build_version(self.lives[decision.build], nursery)
                beside.cancel_scope.cancel()
        finally:
            self._building = False
            self.wake()

    async def _build_version(self, life: Life, nursery: trio.Nursery) -> None:
        life.begin()
        assert life.source is not None
        assert self._source is not None
        source = life.source
        wanted = Wanted(self._source, self.settings, source, life.needed_bytes, life.waits_since_ms / 1000)
        self._log.info("building", version=life.name, files=len(source.files), size_bytes=source.size_bytes)
        try:
            made = await self.builder.build(wanted, self._removals.get(life.name))
        except NoSpace as error:
            self._log.warning("no_room", version=life.name, reason=error.message)
            life.wait(error.shortage, _now_ms())
        except SourceChanged as error:
            self._log.warning("source_changed", version=life.name, reason=error.message)
            life.interrupt(_now_ms())
            life.trouble = trouble_of(error)
            await self.look()
        except (GossipKVError, OSError) as error:
            trouble = trouble_of(error)
            self._log.error("build_failed", version=life.name, error=trouble.message)
            life.fail(trouble, _now_ms())
            await self.look()
        else:
            if made is None:
                self._log.info("stopped", version=life.name, hold=self.hold)
                life.stop()
                return
            version, peak_bytes = made
            damaged = self.versions.get(life.name)
            self.versions[life.name] = version
            life.finish()
            self._log.info("built", version=life.name, records=version.records, size_bytes=version.size_bytes,
                           peak_bytes=peak_bytes, took_ms=_now_ms() - self.builder.began_ms)  # fmt: skip
            self._shared.on_change()
            if damaged is not None:
                nursery.start_soon(self._close, damaged)

    async def _poll_space(self) -> None:
        """What builds wait for may be there by now."""
        waiting = [life for life in self.lives.values() if life.shortage is not None]
        if waiting and _now_ms() >= self._poll_not_before_ms:
            self._poll_not_before_ms = _now_ms() + POLL_MS
            with contextlib.suppress(StorageError):
                free_bytes = await self.builder.free_bytes() - self._shared.loads.disk_space.outstanding_bytes
                for life in waiting:
                    life.find_space(free_bytes, _now_ms())
