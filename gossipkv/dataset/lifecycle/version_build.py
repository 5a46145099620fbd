"""The build of one version, from the source's listing to published and open files: a new copy, or an addition.

The build itself runs in a child process (`build`).  This module provides the disk space, the directory, the second look
at the source and the publication.  A build that ends before publication leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.disk_space import NoSpace, after_refusal, is_full
from gossipkv.dataset.build.job import BuildJob, BuildProgress, space_needed_bytes
from gossipkv.dataset.build.trouble import BuildError
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.version import Version, open_partitions, open_version
from gossipkv.environment.cores import cores
from gossipkv.errors import SourceChanged, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.dataset.build.parent import BuildSlot
    from gossipkv.dataset.local.manifest import VersionManifest
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import SourceRoot, SourceVersion
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.settings.databases import DatabaseSettings
    from gossipkv.storage.sorted_file import SortedFile


# A child reports its progress ten times a second, unless its source or a disk hangs.  If the child lacks a processor,
# `build_in_child` repeats its progress, so it keeps its turn.  Silence is counted in looks, each of which follows a
# turn of all other tasks: a node that was suspended itself has missed nothing.
SILENT_LOOKS = 30
LOOK_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class VersionOrder:
    """The order for a build."""

    source: SourceRoot
    settings: DatabaseSettings
    version: SourceVersion
    share: PartitionSet  # The partitions that should be here.
    lacks: PartitionSet  # The partitions to build.
    adds: bool  # The built partitions are added to the copy; otherwise they replace it.
    refuted: tuple[str, ...]  # Functions that are not relied on.
    follow: VersionIdentity | None  # The identity to reach, if the files allow it.
    needed_bytes: int  # The least disk space required.
    waits_since_s: float  # A time of Trio's clock.


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build, published and open."""

    manifest: VersionManifest  # The built files only; other partitions may be here beside them.
    copy: Version | Mapping[int, SortedFile]  # The whole copy, or the added files.
    peak_bytes: int  # The build's peak memory.


class VersionBuilder:
    """The builds of one database, one at a time."""

    def __init__(self, database: str, shared: SharedResources, look_thread: trio.CapacityLimiter) -> None:
        self.progress: BuildProgress | None = None
        self.began_ms = 0
        self.changing = trio.Lock()  # The lock is held while files enter or leave a version.
        self._database = database
        self._shared = shared
        self._look_thread = look_thread
        self._scope = trio.CancelScope()
        self._is_heard = False  # True if the build reported since the last look.

    async def give_way(self, turn: BuildSlot) -> None:
        """Give up the turn when the build has long been silent; the build goes on without delaying others."""
        silent_looks = 0
        while silent_looks < SILENT_LOOKS:
            self._is_heard = False
            await trio.sleep(LOOK_PERIOD_S)
            silent_looks = 0 if self._is_heard else silent_looks + 1
        turn.give_up()

    def stop(self) -> None:
        """Stop the build; `build` then returns False."""
        self._scope.cancel()

    async def build(self, order: VersionOrder, removals: Sequence[trio.Event], place: Callable[[Built], None]) -> bool:
        """Build, and call `place` with the result; False if the build was stopped.

        `removals` are the ends of earlier removals under the same name.  `place` is called in the step that published
        and opened the files: until then no file enters or leaves the version.

        Raises:
            NoSpace: the free space is below the estimate, or the disk filled up during the build.
            SourceChanged: the source shows another version than before.
            AnotherIdentity: the built partitions do not fit those of the copy.
            BuildError, StorageError: the error of the child or of the system.
            OSError: no child can be started.
        """
        assert self.progress is None, "one at a time"
        self.began_ms = int(trio.current_time() * 1000)
        with trio.CancelScope() as self._scope:
            try:
                for removal in removals:
                    await removal.wait()
                await self._reserve_and_build(order, place)
            finally:
                self.progress = None
            return True
        return False

    async def free_bytes(self) -> int:
        """Return the free space on the disk.

        Raises:
            StorageError: the system refused.
        """
        store = self._shared.store
        try:
            return await self._shared.threads.run(store.free_bytes)
        except OSError as error:
            raise StorageError(
                f"{store.path}: the free space cannot be read: {error.strerror}", {"file": str(store.path)}
            ) from error

    async def _reserve_and_build(self, order: VersionOrder, place: Callable[[Built], None]) -> None:
        job = self._job(order)
        needed_bytes = max(order.needed_bytes, space_needed_bytes(job))
        with self._shared.loads.disk_space.reserve(needed_bytes, await self.free_bytes()) as reservation:

            def note(progress: BuildProgress) -> None:
                self.progress = reservation.progress = progress
                self._is_heard = True

            try:
                await self._build_and_publish(job, order, note, place)
            except (BuildError, StorageError) as error:
                if not is_full(error.details):
                    raise
                raise NoSpace(after_refusal(error.details, reservation, await self.free_bytes())) from error

    def _job(self, order: VersionOrder) -> BuildJob:
        shared, settings = self._shared, order.settings
        job = BuildJob.of(
            order.version,
            str(shared.store.build_path(self._database, order.version.name)),
            compression=shared.settings.compression,
            remote=order.source.remote,
        )
        return replace(
            job,
            format=settings.file_format,
            reading=replace(FileReading.by(settings), schema=order.version.schema),
            presharded=settings.presharded or shared.settings.presharded,
            wanted=None if len(order.lacks) == order.lacks.partitions else tuple(order.lacks),
            refuted=order.refuted,
            follow=order.follow,
        )

    async def _build_and_publish(
        self, job: BuildJob, order: VersionOrder, note: Callable[[BuildProgress], None], place: Callable[[Built], None]
    ) -> None:
        shared, database, name = self._shared, self._database, order.version.name
        store = shared.store
        try:
            await shared.threads.run(store.begin_build, database, name)
            peak_bytes = await shared.build(
                job,
                memory_bytes=shared.settings.build_memory,
                most_lanes=shared.settings.build_lanes or max(1, cores() - 1),
                loads=shared.loads,
                on_progress=note,
                waits_since_s=order.waits_since_s,
            )
            await self._check_source(order)
            with trio.CancelScope(shield=True):  # Published files must be opened, too.
                async with self.changing:
                    place(await shared.threads.run(self._publish, order, peak_bytes))
        except BaseException:
            with trio.CancelScope(shield=True):
                await shared.threads.run(store.discard_build, database, name)
            raise

    def _publish(self, order: VersionOrder, peak_bytes: int) -> Built:
        store, database, name = self._shared.store, self._database, order.version.name
        if order.adds:
            manifest = store.add_partitions(database, name, order.share)
            place = store.version_path(database, name)
            return Built(manifest, open_partitions(store.files, place, manifest, order.lacks), peak_bytes)
        place = store.publish(database, name, order.share)
        version = open_version(store.files, place, database, name)
        return Built(version.manifest, version, peak_bytes)

    async def _check_source(self, order: VersionOrder) -> None:
        """Check that the source still shows the version; a file added during the build is noticed here.

        Raises:
            SourceChanged: the source shows another version now.
        """
        source, built = order.source, order.version
        try:
            current = await self._shared.look_threads.run(
                self._look_thread, partial(source.version, self._database, built.name)
            )
        except SourceError:
            return  # The source vanished after it was read whole, which is no reason to discard the build.
        if current.fingerprint != built.fingerprint:
            raise SourceChanged(
                f"{source.place(self._database, built.name)}: the version changed while it was read: it had "
                f"{len(built.files):,} files with {built.size_bytes:,} bytes, and now has {len(current.files):,} files "
                f"with {current.size_bytes:,} bytes"
            )
