"""The copies of a database's versions: opens, builds, reopens, closes and deletes them, and handles damage.

Blocking work (the data directory, opening and unmapping files) runs in worker threads.  A built copy is synced, renamed
into place and open before it is announced.  A dropped copy is first taken out of service, closed after its last read,
and then deleted.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, final

import trio

from gossipkv.dataset.build.disk_space import POLL_MS, NoSpace
from gossipkv.dataset.build.trouble import Trouble, trouble_of
from gossipkv.dataset.lifecycle.copy_states import CopyEvent, CopyState, VersionCopy
from gossipkv.dataset.lifecycle.open_versions import Reopening, close
from gossipkv.dataset.lifecycle.version_build import Built, VersionBuilder, VersionOrder
from gossipkv.dataset.lifecycle.version_states import Life, VersionState
from gossipkv.dataset.local.store import AnotherIdentity
from gossipkv.dataset.local.version import Version, open_version
from gossipkv.dataset.rewriting import pauses
from gossipkv.errors import Corrupt, GossipKVError, SourceChanged, StorageError, UnsupportedFormat
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import SourceRoot, SourceVersion
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.settings.databases import DatabaseSettings


def _now_ms() -> int:
    return int(trio.current_time() * 1000)


@final
class Copies:
    """The copies of one database's versions; `lives` belongs to the database."""

    def __init__(
        self,
        database: str,
        lives: dict[str, Life],
        shared: SharedResources,
        look_thread: trio.CapacityLimiter,
        *,
        wake: Callable[[], None],
    ) -> None:
        self.versions: dict[str, Version] = {}  # The open versions, which are served.
        self.builder = VersionBuilder(database, shared, look_thread)
        # Versions that the system refused to open at the start, and that are still not open.
        self.unopened: set[str] = set()
        self.poll_not_before_ms = 0  # The time of the next poll of the free space.
        self._database = database
        self._lives = lives
        self._shared = shared
        self._wake = wake
        self._log = shared.log.bind(database=database)
        self._reopening = Reopening(database, lives, self.versions, shared, wake=wake, log_complete=self._log_complete)
        self._stopped_for: str | None = None
        self._refused: set[str] = set()  # `begin_work` starts a task for each of these versions of `unopened`.
        self._removals: dict[str, trio.Event] = {}  # Versions that are being closed and deleted.
        self._dropped: list[tuple[Version, PartitionSet]] = []  # Partitions to delete, of versions that stay.
        # Each version's events that end drops; later builds of the version wait for them.
        self._drops: dict[str, list[trio.Event]] = {}

    def check(self) -> None:
        """Assert that the lives agree with the open versions."""
        opened = {life.name for life in self._lives.values() if life.open}
        assert opened == self.versions.keys(), (opened, self.versions.keys())
        assert not self._removals.keys() & self.versions.keys(), "a served version is being deleted"

    # Opening

    async def open_all(self, names: Iterable[str]) -> None:
        """Open the built versions; a failure of one does not affect the others."""
        for name in names:
            await self._open(name)

    def miss(self, name: str) -> None:
        """Note that the last active version has no files on the disk."""
        self._begin_copy(name, CopyState.ERROR).trouble = Trouble(
            "the files of the version are missing on the disk", lasting=False
        )

    def begin_work(self, nursery: trio.Nursery) -> None:
        """Start the tasks that are due: open refused versions, delete dropped partitions, reopen lost maps."""
        for name in self._refused:
            nursery.start_soon(self._open_refused, self._lives[name])
        self._refused.clear()
        for version, partitions in self._dropped:
            nursery.start_soon(self._delete_partitions, version, partitions)
        self._dropped.clear()
        self._reopening.begin(nursery)

    async def clear_damaged(self, active: str | None, whole: Collection[str] = ()) -> None:
        """Delete quarantined copies once a newer version serves, or if they were rebuilt before a crash."""
        if active is None or not self._shared.may_write():
            return
        clear = partial(self._shared.store.clear_damaged, self._database, before=active, whole=tuple(whole))
        try:
            await self._shared.threads.run(clear)
        except StorageError as error:
            self._log.error("cannot_remove", error=error.message)

    def _begin_copy(self, name: str, state: CopyState) -> VersionCopy:
        """Begin a copy; a look at the source may have created the life already."""
        life = self._lives.setdefault(name, Life(name))
        life.copy = VersionCopy(state, waits_since_ms=_now_ms())
        return life.copy

    async def _open(self, name: str) -> None:
        try:
            version = await self._open_version(name)
        except (Corrupt, UnsupportedFormat) as error:
            self._begin_copy(name, CopyState.ERROR).trouble = trouble_of(error)
        except StorageError as error:
            self._log.error("cannot_open", version=name, error=error.message)
            self._begin_copy(name, CopyState.ERROR).fail(trouble_of(error), _now_ms())
            self.unopened.add(name)
            self._refused.add(name)
        else:
            self.versions[name] = version
            copy = self._begin_copy(name, CopyState.READY)
            copy.begin_open(version.identity, version.here)
            copy.want(version.share)

    async def _open_version(self, name: str) -> Version:
        """Open a built version; quarantine it if it is damaged."""
        store = self._shared.store
        path = store.version_path(self._database, name)
        try:
            version = await self._shared.threads.run(open_version, store.files, path, self._database, name)
        except (Corrupt, UnsupportedFormat) as error:
            quarantined_at = await self._shared.threads.run(store.set_aside, self._database, name)
            self._log.error("damaged", version=name, error=error.message, set_aside=str(quarantined_at))
            raise
        if self._shared.may_write():
            try:
                await self._shared.threads.run(store.remove_unlisted, self._database, name, version.manifest)
            except OSError as error:  # The files take room, and do no other harm.
                self._log.error("cannot_remove", version=name, error=str(error))
        return version

    async def _open_refused(self, life: Life) -> None:
        await self._open_again(life)
        self.unopened.discard(life.name)

    async def _open_again(self, life: Life) -> None:
        """Retry until the version opens, is built again, or is no longer wanted."""
        copy = life.copy
        assert copy is not None, life
        for pause_s in pauses():
            await trio.sleep(pause_s)
            if copy.open or not self._is_of(life, copy):
                return
            if not copy.openable():
                continue
            try:
                version = await self._open_version(life.name)
            except StorageError:
                continue  # The refusal was logged at the first attempt.
            except (Corrupt, UnsupportedFormat) as error:
                copy.trouble = trouble_of(error)
                return
            if not copy.openable() or not self._is_of(life, copy):
                await self._close(version)
                continue
            self.versions[life.name] = version
            copy.share = version.share
            copy.opened(version.identity, version.here)
            self._log.info("opened", version=life.name)
            self._log_complete(life)
            self._shared.on_change()
            self._wake()
            return

    def _is_of(self, life: Life, copy: VersionCopy) -> bool:
        """True if this is still the life of its version, and the copy belongs to the life."""
        return self._lives.get(life.name) is life and life.copy is copy

    # Damage

    def damaged(self, name: str, error: Corrupt) -> None:
        """Rebuild the version, in which a read or the scrub met damage; its whole pages are served until then.

        No page is trusted any more: even a checked page may be read again from the disk that lost another.
        """
        life, version = self._lives.get(name), self.versions.get(name)
        if version is not None and error.file in version.lost_names:
            self._reopening.note(version, error)
            return
        if version is None or life is None or life.copy is None or not life.copy.damageable():
            return
        life.copy.damage(trouble_of(error), _now_ms())
        version.distrust()
        # A retiring version is built again only if it becomes active again.
        if life.state is not VersionState.RETIRING:
            self._wake()
        again_ms = max(0, life.copy.not_before_ms - _now_ms())
        self._log.error("damaged", version=name, error=error.message, again_ms=again_ms)

    def _log_complete(self, life: Life) -> None:
        """Log that clients get all of the active version again."""
        if life.state is VersionState.ACTIVE and life.is_ready:
            self._log.info("serves_again", version=life.name)

    # Building

    async def build(
        self,
        life: Life,
        source: SourceRoot,
        settings: DatabaseSettings,
        nursery: trio.Nursery,
        *,
        refuted: tuple[str, ...],
        follow: VersionIdentity | None,
    ) -> bool:
        """Build the partitions that a copy lacks; return False if the source may differ from its listing.

        `refuted`: functions that are not relied on.  `follow`: the identity that other nodes gave these files.
        """
        copy, listed = life.copy, life.source
        assert copy is not None, life
        assert listed is not None, life
        copy.begin(listed)
        counts = self._shared.builds
        counts.begun += 1
        order = _order(source, settings, listed, copy, refuted=refuted, follow=follow)
        self._log.info("building", version=life.name, files=len(listed.files), size_bytes=listed.size_bytes)
        removals = [self._removals[life.name]] if life.name in self._removals else []
        try:
            was_built = await self.builder.build(
                order,
                removals + self._drops.get(life.name, []),
                place=lambda built: self._put_in_place(life, copy, built, nursery),
            )
        except AnotherIdentity as error:
            self._log.warning("regrouped", version=life.name, reason=error.message)
            copy.outdate()
            counts.stopped += 1
        except NoSpace as error:
            self._log.warning("no_room", version=life.name, reason=error.message)
            copy.wait(error.shortage, _now_ms())
            counts.stopped += 1
        except SourceChanged as error:
            self._log.warning("source_changed", version=life.name, reason=error.message)
            copy.interrupt(_now_ms())
            copy.trouble = trouble_of(error)
            counts.failed += 1
            return False
        except (GossipKVError, OSError) as error:
            trouble = trouble_of(error)
            self._log.error("build_failed", version=life.name, error=trouble.message)
            copy.fail(trouble, _now_ms())
            counts.failed += 1
            return False
        else:
            if not was_built:
                self._log.info("stopped", version=life.name, hold=self._stopped_for)
                copy.stop()
                counts.stopped += 1
        return True

    def _put_in_place(self, life: Life, copy: VersionCopy, built: Built, nursery: trio.Nursery) -> None:
        before = self.versions.get(life.name)
        if isinstance(built.copy, Version):
            version = built.copy
            copy.finish(version.identity, version.here)
        else:
            assert before is not None, life
            version = before.with_partitions(built.manifest, built.copy)
            copy.add(PartitionSet.of(version.partitions, built.copy))
        self.versions[life.name] = version
        self._shared.builds.add(built.manifest)
        self._log.info("built", version=life.name, records=built.manifest.records, size_bytes=built.manifest.size_bytes,
                       peak_bytes=built.peak_bytes, took_ms=_now_ms() - self.builder.began_ms)  # fmt: skip
        for warning in built.manifest.warnings:
            self._log.warning("source_doubtful", version=life.name, reason=warning)
        self._log_complete(life)
        self._shared.on_change()
        if before is not None and version is built.copy:
            nursery.start_soon(self._close, before)

    def stop_build(self, hold: str | None) -> None:
        """Stop the running build: another version is held, or was switched to."""
        self._stopped_for = hold
        self.builder.stop()

    async def poll_space(self) -> None:
        """Check if the disk space that builds wait for is free by now."""
        waiting = [life.copy for life in self._lives.values() if life.copy is not None]
        waiting = [copy for copy in waiting if copy.shortage is not None]
        if waiting and _now_ms() >= self.poll_not_before_ms:
            self.poll_not_before_ms = _now_ms() + POLL_MS
            with contextlib.suppress(StorageError):
                free_bytes = await self.builder.free_bytes() - self._shared.loads.disk_space.outstanding_bytes
                for copy in waiting:
                    copy.find_space(free_bytes, _now_ms())

    @property
    def wait_for_space(self) -> bool:
        return any(life.copy is not None and life.copy.shortage is not None for life in self._lives.values())

    # Dropping

    def drop(self, life: Life, nursery: trio.Nursery) -> None:
        """Take a copy out of service now; it is closed and deleted after its last read."""
        if life.copy is not None:
            life.copy.take(CopyEvent.DROP)
            life.copy = None
            self._take_out(life, nursery)

    def refute(self, life: Life, nursery: trio.Nursery) -> None:
        """Take out a copy that was grouped by the wrong function, as `drop` does; it is built anew."""
        assert life.copy is not None, life
        self._log.warning("refuted", version=life.name, function=self.versions[life.name].function)
        life.copy.refute()
        self._take_out(life, nursery)

    def drop_partitions(self, name: str, partitions: PartitionSet) -> None:
        """Stop serving some partitions of a version now; `begin_work` closes and deletes them.

        Partitions of the copy's share are built again.
        """
        life, version = self._lives.get(name), self.versions.get(name)
        gone = partitions if version is None else partitions & version.here
        if life is None or life.copy is None or version is None or not gone:
            return
        self.versions[name], closing = version.without_partitions(gone)
        life.copy.let_go(gone)
        self._dropped.append((closing, gone))
        self._drops.setdefault(name, []).append(trio.Event())
        self._shared.on_change()
        self._wake()

    def _take_out(self, life: Life, nursery: trio.Nursery) -> None:
        version = self.versions.pop(life.name, None)
        if version is not None:
            self._removals[life.name] = trio.Event()
            nursery.start_soon(self._remove, version)

    async def _delete_partitions(self, closing: Version, partitions: PartitionSet) -> None:
        """Delete the manifest's entries and the files, which no new reader finds; files in use go last."""
        name = closing.name
        try:
            async with self.builder.changing:
                served = self.versions.get(name)
                # The partitions may all have been built anew.
                gone = partitions if served is None else partitions - served.here
                await self._shared.threads.run(self._shared.store.drop_partitions, self._database, name, gone)
        except (StorageError, Corrupt, UnsupportedFormat) as error:
            self._log.error("cannot_remove", version=name, error=error.message)
        finally:
            self._drops[name].pop(0).set()
        await close(closing, self._shared.threads)

    async def _close(self, version: Version) -> None:
        assert self.versions.get(version.name) is not version, f"{version.name} is still served"
        await close(version, self._shared.threads)

    async def _remove(self, version: Version) -> None:
        await self._close(version)
        for drop in tuple(self._drops.get(version.name, ())):
            await drop.wait()
        try:
            async with self.builder.changing:
                await self._shared.threads.run(self._shared.store.remove_version, self._database, version.name)
        except StorageError as error:
            self._log.error("cannot_remove", version=version.name, error=error.message)
        else:
            self._log.info("removed", version=version.name)
        finally:
            self._removals.pop(version.name).set()


def _order(
    source: SourceRoot,
    settings: DatabaseSettings,
    listed: SourceVersion,
    copy: VersionCopy,
    *,
    refuted: tuple[str, ...],
    follow: VersionIdentity | None,
) -> VersionOrder:
    """Return the order for building the lacking partitions; additions keep the identity of the copy."""
    assert copy.share is not None, copy
    assert copy.lacks, copy
    adds = copy.open and not copy.damaged
    return VersionOrder(
        source=source,
        settings=settings,
        version=listed,
        share=copy.share,
        lacks=copy.lacks,
        adds=adds,
        refuted=refuted,
        follow=copy.identity if adds else follow,
        needed_bytes=copy.needed_bytes,
        waits_since_s=copy.waits_since_ms / 1000,
    )
