"""The way of a version from the source's listing to being built, published and open.

The build itself runs in a child process (`build`); here stands what surrounds it: room on the disk, the directory, the
second look at the source, the publication.  Whatever ends it before that, nothing is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.disk_space import NoSpace, after_refusal, is_full
from gossipkv.dataset.build.job import BuildJob, Progress, space_needed_bytes
from gossipkv.dataset.build.lanes import cores
from gossipkv.dataset.build.parent import BuildError
from gossipkv.dataset.formats.reading import Reading
from gossipkv.dataset.local.version import Version, open_version
from gossipkv.errors import SourceChanged, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.dataset.build.parent import Turn
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import Source, SourceVersion
    from gossipkv.settings.databases import DatabaseSettings


# A child says ten times a second how far it is, unless its source hangs; or a disk, which holds up the others anyway.
# While it has no processor to say it with, `build_in_child` says it in its place: then it keeps its turn.
# Counted in looks, each of which follows a turn of all other tasks: a node that stood still itself has missed nothing.
SILENT_LOOKS = 30
LOOK_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be built."""

    source: Source
    settings: DatabaseSettings
    version: SourceVersion
    needed_bytes: int  # on the disk, at least
    waits_since_s: float  # by Trio's clock


class VersionBuilder:
    """The builds of one database, one at a time."""

    def __init__(self, database: str, shared: SharedResources, look_thread: trio.CapacityLimiter) -> None:
        self.progress: Progress | None = None
        self.began_ms = 0
        self._database = database
        self._shared = shared
        self._look_thread = look_thread
        self._scope = trio.CancelScope()
        self._is_heard = False  # Since the last look.

    async def give_way(self, turn: Turn) -> None:
        """Gives the turn up when the build has been silent for long: it goes on, but no other has to wait for it."""
        silent_looks = 0
        while silent_looks < SILENT_LOOKS:
            self._is_heard = False
            await trio.sleep(LOOK_PERIOD_S)
            silent_looks = 0 if self._is_heard else silent_looks + 1
        turn.give_up()

    def stop(self) -> None:
        """Breaks the build off; `build` returns None then."""
        self._scope.cancel()

    async def build(self, wanted: Wanted, removal: trio.Event | None) -> tuple[Version, int] | None:
        """An open version, and the most memory that its build has had.

        `removal` is the end of an earlier version of the same name.

        Raises:
            NoSpace: the disk has less, or less than the estimate, or was full in the middle.
            SourceChanged: the source shows another version than it did.
            BuildError, StorageError: what the child or the system said.
            OSError: no child can be started.
        """
        assert self.progress is None, "one at a time"
        self.began_ms = int(trio.current_time() * 1000)
        with trio.CancelScope() as self._scope:
            try:
                if removal is not None:
                    await removal.wait()
                return await self._reserve_and_build(wanted)
            finally:
                self.progress = None
        return None

    async def free_bytes(self) -> int:
        """What the disk has.

        Raises:
            StorageError: it does not tell.
        """
        store = self._shared.store
        try:
            return await self._shared.threads.run(store.free_bytes)
        except OSError as error:
            raise StorageError(f"{store.path}: {error.strerror}", {"file": str(store.path)}) from error

    async def _reserve_and_build(self, wanted: Wanted) -> tuple[Version, int]:
        job = self._job(wanted)
        needed_bytes = max(wanted.needed_bytes, space_needed_bytes(job))
        with self._shared.loads.disk_space.reserve(needed_bytes, await self.free_bytes()) as reservation:

            def note(progress: Progress) -> None:
                self.progress = reservation.progress = progress
                self._is_heard = True

            try:
                return await self._build_and_publish(job, wanted, note)
            except (BuildError, StorageError) as error:
                if not is_full(error.details):
                    raise
                raise NoSpace(after_refusal(error.details, reservation, await self.free_bytes())) from error

    def _job(self, wanted: Wanted) -> BuildJob:
        shared, settings = self._shared, wanted.settings
        job = BuildJob.of(
            wanted.version,
            str(shared.store.build_path(self._database, wanted.version.name)),
            compression=shared.settings.compression,
            remote=wanted.source.remote,
        )
        return replace(
            job,
            format=settings.format,
            reading=Reading(settings.key, settings.value),
            presharded=settings.presharded or shared.settings.presharded,
        )

    async def _build_and_publish(
        self, job: BuildJob, wanted: Wanted, note: Callable[[Progress], None]
    ) -> tuple[Version, int]:
        shared, database, name = self._shared, self._database, wanted.version.name
        store = shared.store
        try:
            await shared.threads.run(store.begin_build, database, name)
            peak_bytes = await shared.build(
                job,
                memory_bytes=shared.settings.build_memory,
                most_lanes=shared.settings.build_lanes or max(1, cores() - 1),
                loads=shared.loads,
                on_progress=note,
                waits_since_s=wanted.waits_since_s,
            )
            await self._check_source(wanted)
            with trio.CancelScope(shield=True):  # What is published is opened, too.
                place = await shared.threads.run(store.publish, database, name)
                version = await shared.threads.run(open_version, store.files, place, database, name)
        except BaseException:
            with trio.CancelScope(shield=True):
                await shared.threads.run(store.discard_build, database, name)
            raise
        return version, peak_bytes

    async def _check_source(self, wanted: Wanted) -> None:
        """A file that was added while the others were read is noticed here.

        Raises:
            SourceChanged: it shows another version now.
        """
        source, built = wanted.source, wanted.version
        try:
            now = await self._shared.look_threads.run(
                self._look_thread, partial(source.version, self._database, built.name)
            )
        except SourceError:
            return  # It vanished after it was read whole, which is no reason to throw it away.
        if now.fingerprint != built.fingerprint:
            raise SourceChanged(
                f"{source.place(self._database, built.name)}: changed while it was read: {len(built.files)} files, "
                f"{built.size_bytes:,} bytes before, {len(now.files)} files, {now.size_bytes:,} bytes after"
            )
