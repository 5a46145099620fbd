"""A backup of tables, driven by the asked node: table after table, partition after partition.

Each partition is one consistent copy; two partitions may be copied at different times. Every write that was
acknowledged at `majority` or `all` before the backup began is in it. If a source is lost, the partition is copied anew
from another host; if a range was split meanwhile, its children are copied. A *partial* backup leaves out the partitions
that cannot be copied, and names them.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.backup.archive import BackupFile, BackupManifest, SavedPartition, SavedTable
from gossipkv.backup.jobs import Progress
from gossipkv.backup.partition import Page, PartitionBuilder, PartitionReader, best_source, hosts_needed, lacking
from gossipkv.errors import (
    GossipKVError,
    NotReady,
    NotServed,
    Overloaded,
    ProtocolError,
    TimedOut,
    Unavailable,
    Unknown,
    UnknownDatabase,
    first_of,
)
from gossipkv.replication.replica import clock
from gossipkv.storage.sorted_file import SUFFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from gossipkv.backup.archive import Archive, BackupOwner
    from gossipkv.backup.cluster import BackedUpCluster
    from gossipkv.environment.seam import Environment, Threads
    from gossipkv.table.records.router import PartitionRoute, TableRoute

PATIENCE_S: Final = 60.0  # Time for a partition without a new page; a dead node is detected sooner.
RETRY_S: Final = 0.5
BEAT_S: Final = 60.0  # Far below `backup_abandon_after`.
MAX_COPIES: Final = 6  # Attempts at one partition that fail in the middle.
READ_AHEAD: Final = 2  # Pages that are asked for while one is sorted.
RETRIED: Final = (NotReady, NotServed, Overloaded, ProtocolError, TimedOut, Unavailable, Unknown)


@asynccontextmanager
async def closed_in_thread(threads: Threads) -> AsyncIterator[ExitStack]:
    """Yield a stack whose contexts, entered in worker threads, are left in one: they block."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        with trio.CancelScope(shield=True):
            await threads.run(stack.close)


@final
@dataclass
class BackupCreation:
    """The creation of one backup."""

    archive: Archive
    cluster: BackedUpCluster
    environment: Environment
    owner: BackupOwner
    name: str
    progress: Progress = field(default_factory=Progress)
    is_partial: bool = False
    _base: Mapping[int, SavedPartition] = field(default_factory=dict)  # By partition: those of the earlier backup.
    _files: int = 0
    _beat_at: float = 0.0

    async def run(self, wanted: Sequence[str]) -> BackupManifest:
        """Back up these tables; none for all.

        Raises:
            UnknownDatabase: there is no such table.
            Unavailable: a partition has too few replicas.
            StorageError: the destination refuses.
            Corrupt: the earlier backup is damaged.
        """
        run, began = self.environment.threads.run, self.environment.clock.wall_ms()
        known = self.cluster.tables()
        if missing := sorted({*wanted} - known.keys()):
            raise UnknownDatabase(f"there is no table {missing[0]}", {"database": missing[0]})
        names = sorted({*wanted} or known)
        since = self.owner.since
        if since is not None:
            await run(self.archive.manifest, since)
        routes = [self.cluster.router().route(name) for name in names]
        self.progress.total = sum(sum(1 for _ in route.places()) for route in routes)
        try:
            self.cluster.board.begin_backup(self.name)
            self._beat_at = trio.current_time()
            await run(self.archive.begin, self.name, self.owner)
            base = None if since is None else await run(self.archive.manifest, since)  # From now on it does not expire.
            saved = []
            for name, route in zip(names, routes, strict=True):
                old = next((table for table in base.tables if table.id == route.table.id.hex()), None) if base else None
                self._base = {partition.partition: partition for partition in old.partitions} if old else {}
                saved.append(await self._table(name, route))
            manifest = BackupManifest(
                name=self.name,
                began=datetime.fromtimestamp(began / 1000, UTC).isoformat(timespec="seconds"),
                cluster=self.cluster.cluster_id,
                node=self.cluster.node,
                since=since,
                tables=tuple(saved),
                datasets=self.cluster.datasets(),
            )
            await run(self.archive.finish, manifest, self.owner)
        except BaseException:
            with trio.CancelScope(shield=True), contextlib.suppress(GossipKVError):
                await run(self.archive.remove, self.name)
            raise
        finally:
            self.cluster.board.end_backup(self.name)
        return manifest

    async def _beat(self) -> None:
        """Show other nodes at the destination that this one still writes."""
        if trio.current_time() >= self._beat_at + BEAT_S:
            self._beat_at = trio.current_time()
            self.owner = replace(self.owner, beat=self.owner.beat + 1)
            await self.environment.threads.run(self.archive.own, self.name, self.owner)

    async def _table(self, name: str, route: TableRoute) -> SavedTable:
        table, self.progress.table = route.table, name
        partitions: list[SavedPartition] = []
        missing: list[int] = []
        following: bytes | int | None = 0 if route.is_hash else b""
        while following is not None:
            place, copied = await self._partition(name, table.id, following)
            if copied is None:
                missing.append(len(partitions))
            first = b"" if route.is_hash else place.first
            partitions.append(copied or SavedPartition(place.partition, first, b"", ()))
            self.progress.done += 1
            if not isinstance(following, int):
                following = place.end
            else:
                following = following + 1 if following + 1 < table.shards else None
        return SavedTable(
            name=name,
            id=table.id.hex(),
            kind=table.kind,
            replication=table.replication,
            partitioner=table.partitioner,
            time_key=table.time_key,
            smears=table.smears,
            ttl_ms=table.ttl_ms,
            retention_ms=table.retention_ms,
            partitions=tuple(partitions),
            missing=tuple(missing),
        )

    async def _partition(
        self, name: str, table: bytes, at: bytes | int
    ) -> tuple[PartitionRoute, SavedPartition | None]:
        """Copy the shard of that number, or the range with that key; again after a failure that may pass.

        Give up at once if the hosts that are needed are dead; return None if a partial backup leaves it out.
        """
        avoided: set[bytes] = set()
        place: PartitionRoute | None = None
        lost: PartitionRoute | None = None
        give_up_at, bytes_then, copies = trio.current_time() + PATIENCE_S, self.progress.bytes, 0
        while True:
            await self._beat()
            try:
                route = self.cluster.router().route(name)
                if route.table.id != table:
                    raise UnknownDatabase(f"the table {name} was dropped during its backup", {"database": name})
                place = route.shard(at) if isinstance(at, int) else route.place(at)
                alive = {*place.hosts}.intersection(self.cluster.live_nodes)
                if len(alive) < hosts_needed(route, place):
                    give_up_at = 0.0
                    raise Unavailable(lacking(route, place, len(alive)))
                return place, await self._copy(route, place, avoided)
            except* RETRIED as errors:
                if self.progress.bytes > bytes_then:
                    give_up_at, bytes_then = trio.current_time() + PATIENCE_S, self.progress.bytes
                    copies += 1
                if trio.current_time() > give_up_at or copies == MAX_COPIES:
                    lost = place if self.is_partial else None
                    if lost is None:
                        words = f"the table {name} cannot be backed up now: {first_of(errors).message}"
                        raise Unavailable(f"{words}; --partial leaves out what cannot be copied") from errors
            if lost is not None:
                return lost, None
            await trio.sleep(RETRY_S)

    async def _copy(self, route: TableRoute, place: PartitionRoute, avoided: set[bytes]) -> SavedPartition:
        reader = PartitionReader(self.cluster.calls.ask, self.cluster.me, route, place)
        clocks = await reader.clocks()
        source, covering = best_source(clocks, avoided, self.progress.done)
        old = self._base.get(place.partition)
        first = b"" if route.is_hash else place.first
        # Without a record of the earlier backup, which no majority had, the source may have an older one of that key.
        if old is not None and (old.first != first or not clock.covers(covering, old.clock)):
            old = None
        if old is not None and clock.covers(old.clock, covering):
            return old
        files = () if old is None else old.files
        avoided.add(source)  # Until it has given all pages.
        added = await self._build(reader, source, covering, old.clock if files and old is not None else b"", files)
        return SavedPartition(place.partition, first, reader.clock, (*files, *added))

    async def _build(
        self, reader: PartitionReader, source: bytes, covering: bytes, since: bytes, files: Sequence[BackupFile]
    ) -> Sequence[BackupFile]:
        run, archive, name = self.environment.threads.run, self.archive, f"{self._files}{SUFFIX}"
        async with closed_in_thread(self.environment.threads) as stack:
            workspace = await run(stack.enter_context, archive.workspace(self.name))
            old = await run(stack.enter_context, archive.records(files)) if files else None
            builder = await run(PartitionBuilder, self.environment, workspace, name, old)
            stack.callback(builder.abort)
            async with trio.open_nursery() as nursery:
                send, receive = trio.open_memory_channel[Page](READ_AHEAD)
                nursery.start_soon(partial(reader.pages, source, covering, since, send))
                async for page in receive:
                    await run(builder.take, page)
                    self.progress.bytes += len(page.records)
                    await self._beat()
            return await run(self._publish, builder, name)

    def _publish(self, builder: PartitionBuilder, name: str) -> Sequence[BackupFile]:
        built = builder.finish()
        if built is None:
            return ()
        path, size_bytes, records = built
        self.archive.publish(path, self.name, name)
        self._files += 1
        self.progress.records += records
        return (BackupFile(f"{self.name}/{name}", size_bytes, records),)
