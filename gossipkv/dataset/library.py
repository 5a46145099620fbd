"""All datasets of a node: looks at the source, and runs a `Database` for each.

Databases do not delay each other.  Each has its own task and its own look at the source.  A failure of one (an
unreadable directory, a failed build) is part of that database's state.  Shared limits are counted: parallel builds, and
bytes per second (`Loads`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from gossipkv.dataset import report
from gossipkv.dataset.build.parent import Loads, build_in_child
from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatasetCluster
from gossipkv.dataset.cluster.members import alone
from gossipkv.dataset.cluster.part import PartInCluster
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.dataset.coalesced import Coalesced
from gossipkv.dataset.database import Database
from gossipkv.dataset.memory.paging import OpenVersion, Paging
from gossipkv.dataset.rewriting import Rewriting
from gossipkv.dataset.scrub.parent import read_back_in_child
from gossipkv.dataset.scrub.scrub import Scrub
from gossipkv.dataset.shared_resources import BuildCounts, SharedResources
from gossipkv.dataset.snapshots.table_source import TableOptions, open_table
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.dataset.source.look_threads import LookThreads
from gossipkv.errors import Corrupt, SourceError
from gossipkv.log import Log, RepeatedWarnings
from gossipkv.settings.databases import DatabaseSettings, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gossipkv.dataset.build.parent import Build
    from gossipkv.dataset.cluster.core import DatabaseCore
    from gossipkv.dataset.database import MakePart
    from gossipkv.dataset.held import Held
    from gossipkv.dataset.local.store import VersionStore
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.scrub.parent import ReadBack
    from gossipkv.environment.seam import Environment
    from gossipkv.errors import Detail
    from gossipkv.settings.datasets import DatasetSettings
    from gossipkv.settings.masking import Option

# A source that hangs delays the start of serving by at most this time.
FIRST_SCAN_S = 30.0

# Each database costs tasks and attention to gossip, and a gossiping node can name any number.
MAX_HEARD = 2_000

# A node alone uses these; it probes no other node.
PROBE_INTERVAL_MS = 1000
REASSIGN_AFTER_MS = 60_000

_NO_SETTINGS = DatabaseSettings()


class ChildProcesses(NamedTuple):
    """The functions that work in child processes."""

    build: Build
    read_back: ReadBack


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPorts:
    """The node around its datasets."""

    on_change: Callable[[], None] = lambda: None
    requests: Callable[[str, str], int] = lambda _database, _version: 0  # (database, version) -> requests so far.
    is_table: Callable[[str], bool] = lambda _name: False  # A dataset without local versions gives way to a table.
    reserve: Callable[[], int] = lambda: 0  # Memory in bytes that other parts of the node may still take.


class Library:
    """The datasets of a node.  All methods but `run` and `rescan` return at once, on Trio's thread."""

    def __init__(
        self,
        store: VersionStore,
        settings: DatasetSettings,
        environment: Environment,
        ports: LibraryPorts,
        *,
        children: ChildProcesses | None = None,
        may_write: bool = True,
        cluster: DatasetCluster | None = None,
        make_part: MakePart = PartInCluster,
    ) -> None:
        """Create the library; without `cluster` the node is alone.

        `may_write`: if false, serve built versions and build, switch or remove nothing until `resume`.  `make_part`: a
        test's way to decide.
        """
        children = children or ChildProcesses(build_in_child, read_back_in_child)
        self._may_write = may_write
        self._clock = environment.clock
        self._make_part = make_part
        self._settings = settings
        self._files = store.files
        self._on_change = ports.on_change
        self._source = self._open_source(settings.storage_options)
        self._log = Log("gossipkv.dataset")
        self._store = store
        self._ring = Rewriting(self._write_ring, lambda: self._may_write, self._log)
        self._shared = SharedResources(
            settings=settings,
            store=store,
            source=self._source_of,
            look_threads=LookThreads(environment.threads),
            loads=Loads(settings.max_parallel_loads, settings.throttle_loads, settings.build_priority),
            build=children.build,
            threads=environment.threads,
            requests=ports.requests,
            may_write=lambda: self._may_write,
            is_table=ports.is_table,
            on_change=self._changed,
            note_ring=self._ring.note,
            cluster=cluster or _alone(settings),
            builds=BuildCounts(),
            log=self._log,
        )
        self.scrub = self._make_scrub(children.read_back)
        self.paging = self._make_paging(environment, ports.reserve)
        self._databases: dict[str, Database] = {}
        self._named = settings.databases
        self._at_source: frozenset[str] = frozenset()
        self._warnings = RepeatedWarnings(self._log)
        self._trouble: str | None = None
        self._wake = trio.Event()
        self._root_scans = Coalesced(self._scan_root)
        self._root_thread = trio.CapacityLimiter(1)
        self._nursery: trio.Nursery | None = None

    def _make_scrub(self, read_back: ReadBack) -> Scrub:
        return Scrub(
            self._settings.scrub_period,
            versions=self._open_versions,
            on_damage=lambda version, error: self.damaged(version.database, version.name, error),
            read_back=read_back,
            store=self._store,
            threads=self._shared.threads,
            clock=self._clock,
            log=self._log,
        )

    def _make_paging(self, environment: Environment, reserve: Callable[[], int]) -> Paging:
        return Paging(
            self._settings.residency,
            versions=self._ranked_versions,
            memory=environment.memory,
            reserve=lambda: reserve() + self._builds_bytes(),
            threads=self._shared.threads,
            chance=environment.random,
            log=self._log,
        )

    # The workflow

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the built versions, look at the source once, report the start; then keep serving and looking.

        The library ends by cancellation and leaves no child process; the caller then closes the versions (`close`).
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            built = await self._shared.threads.run(self._store.databases)
            async with trio.open_nursery() as opening:
                for name in built:
                    opening.start_soon(self._start, name)
            await nursery.start(self.paging.run)
            scanned = trio.Event()
            nursery.start_soon(self._scan_first, scanned)
            with trio.move_on_after(FIRST_SCAN_S) as limit:
                await scanned.wait()
            if limit.cancelled_caught:  # A slow look continues and is not begun anew.
                source = None if self._source is None else self._source.root
                self._log.warning("source_slow", waited_s=FIRST_SCAN_S, source=source)
            nursery.start_soon(self.scrub.run)
            nursery.start_soon(self._ring.run)
            task_status.started()
            while True:
                await self._rest()
                nursery.start_soon(self._scan_quietly)

    async def _write_ring(self) -> None:
        await self._shared.threads.run(self._store.set_ring, self._shared.cluster.convergence.claims)

    def _open_source(self, options: Mapping[str, Option]) -> SourceRoot | None:
        root = self._settings.source
        if root is None:
            return None
        return SourceRoot.open(root, self._files, options, require_success_file=self._settings.require_success_file)

    def _source_of(self, database: str, settings: DatabaseSettings) -> SourceRoot | None:
        options = settings.storage_options
        root = self._source if options is None else self._open_source(options)
        if not settings.is_table:
            return root
        told = TableOptions(options, self._settings.stores, is_told=settings.catalog is not None)
        return open_table(settings, root, database, self._files, told)

    def _is_apart(self, name: str) -> bool:
        """True if a database is named, and reached in a way of its own."""
        settings = self._named.get(name, _NO_SETTINGS)
        return settings.table is not None or (self._source is not None and settings.storage_options is not None)

    def reconfigure(self, databases: Mapping[str, DatabaseSettings]) -> None:
        """Apply these settings to the databases; known versions are acted on now, the rest after `refresh`."""
        self._named = databases
        for found in self._databases.values():
            found.reconfigure(databases.get(found.name, _NO_SETTINGS))

    async def order(self, database: str, version: str | None, *, here: bool) -> dict[str, Detail]:
        """Order the cluster, or this node alone, to hold a known database on a version, or on none.

        Raises:
            Conflict, UnknownVersion, Unavailable: see `Database.order`.
        """
        return await self._databases[database].order(version, here=here, wall_ms=self.wall_ms())

    def wall_ms(self) -> int:
        """Return this node's time in milliseconds since 1970, which orders the holds."""
        return self._clock.wall_ms()

    def resume(self) -> None:
        """Build, switch and remove from now on."""
        self._may_write = True
        for found in self._databases.values():
            found.wake()

    def names_changed(self) -> None:
        """Apply changed table names: datasets give way to new tables, and may be built where a table has gone."""
        for found in self._databases.values():
            found.wake()
        self._changed()
        self.refresh()

    def refresh(self, database: str | None = None) -> None:
        """Start a look at the source, of one database or of all, without waiting for it."""
        found = self._databases.get(database) if database is not None else None
        if found is not None and self._nursery is not None:
            self._nursery.start_soon(found.look)
        else:
            self._wake.set()

    async def rescan(self, database: str | None = None) -> dict[str, list[str]]:
        """Look at the source now; return the versions seen there, by database.

        All callers that ask before a look begins share it.  Builds and switches follow later.
        """
        async with trio.open_nursery() as nursery:
            await self._scan(nursery, lambda found: database in {None, found.name})
        wanted = [found for found in self._to_look_at() if database in {None, found.name} and not found.is_refused]
        return {found.name: list(found.seen) for found in wanted}

    async def _scan_first(self, scanned: trio.Event) -> None:
        await self.rescan()
        scanned.set()

    async def _scan_quietly(self) -> None:
        """Do as `rescan` does, but skip databases whose last look is still running."""
        async with trio.open_nursery() as nursery:
            await self._scan(nursery, lambda found: not found.looking)

    async def _scan(self, nursery: trio.Nursery, wanted: Callable[[Database], bool]) -> None:
        """Look at the root, then at its databases; databases that are reached in a way of their own do not wait."""
        apart = {name for name in self._named if self._is_apart(name)}
        for name in sorted(apart):
            await self._start(name)
            if wanted(self._databases[name]):
                nursery.start_soon(self._databases[name].look)
        await self._root_scans.run()
        for found in self._to_look_at():
            if found.name not in apart and wanted(found):
                nursery.start_soon(found.look)

    def _to_look_at(self) -> list[Database]:
        return [found for found in self._databases.values() if self._is_to_look_at(found.name)]

    def _is_to_look_at(self, name: str) -> bool:
        """True if the source has the database; named ones count if the root is unlisted or they are reached apart."""
        if self._is_apart(name) or (name in self._named and self._trouble is not None):
            return True
        return self._trouble is None and name in self._at_source

    async def _scan_root(self) -> None:
        if self._source is None:
            return
        try:
            listing = await self._shared.look_threads.run(self._root_thread, self._source.databases)
        except SourceError as error:
            if self._trouble != error.message:
                self._log.warning("source_unreadable", reason=error.message)
            self._trouble = error.message
        else:
            self._trouble = None
            self._at_source = frozenset(listing.names)
            for line in listing.ignored:
                self._warnings.say("ignored", line)
            for found in self._databases.values():
                if not self._is_to_look_at(found.name):
                    found.vanish()
        async with trio.open_nursery() as opening:
            for name in sorted(self._at_source | self._named.keys()):
                if self._is_to_look_at(name):
                    opening.start_soon(self._start, name)

    async def _start(self, name: str) -> None:
        if name not in self._databases:
            assert self._nursery is not None
            self._databases[name] = Database(
                name, self._shared, self._named.get(name, _NO_SETTINGS), make_part=self._make_part
            )
            await self._nursery.start(self._databases[name].run)

    async def _rest(self) -> None:
        period_ms = self._settings.refresh_period
        with trio.move_on_after(period_ms / 1000 if period_ms else float("inf")):
            await self._wake.wait()
        self._wake = trio.Event()

    def _changed(self) -> None:
        if any(database.served is not None for database in self._databases.values()):
            self._shared.loads.reads_begin.set()
        self.scrub.versions_changed()
        self.paging.versions_changed()
        self._on_change()

    # Serving

    def active(self, database: str) -> Version | None:
        """Return the local part of the version that serves requests naming no version."""
        found = self._databases.get(database)
        return None if found is None else found.serving

    def version(self, database: str, name: str) -> Version | None:
        found = self._databases.get(database)
        return None if found is None else found.copies.versions.get(name)

    def held(self) -> list[Held]:
        """Return all versions that this node answers, to clients or to other nodes."""
        return [held for found in self._databases.values() if not found.is_refused for held in found.held()]

    def _open_versions(self) -> list[Version]:
        return [version for found in self._databases.values() for version in found.copies.versions.values()]

    def _ranked_versions(self) -> list[OpenVersion]:
        return [
            OpenVersion(version, is_active=version is found.serving)
            for found in self._databases.values()
            for version in found.copies.versions.values()
        ]

    def _builds_bytes(self) -> int:
        """Return the memory in bytes that idle build slots may take; running builds show in the system's figures."""
        builds = self._source is not None or any(map(self._is_apart, self._named))
        return self._settings.build_memory * self._shared.loads.idle if builds else 0

    # Versions of other nodes

    def core(self, database: str) -> DatabaseCore | None:
        found = self._databases.get(database)
        return None if found is None else found.part.core

    def cores(self) -> list[DatabaseCore]:
        return [found.part.core for found in self._databases.values()]

    def leave(self, *, now_ms: int) -> None:
        """Prepare to leave: this node goes on answering, but begins nothing that other nodes would count on."""
        self._shared.cluster.membership.leave(now_ms=now_ms)
        for found in self._databases.values():
            found.wake()

    def is_missed(self, *, now_ms: int) -> bool:
        """True if this node, about to leave, alone has active partitions while others stay."""
        return any(core.is_missed(now_ms=now_ms) for core in self.cores())

    def hear_of(self, databases: Iterable[str]) -> None:
        """Take part in databases that other nodes have."""
        if self._nursery is None:
            return
        wanted = [name for name in databases if name not in self._databases and is_name(name)]
        room = max(0, MAX_HEARD - len(self._databases))
        if len(wanted) > room:
            reason = f"other nodes have more databases than the limit of {MAX_HEARD}; this node ignores the others"
            self._warnings.say("not_taken_part", reason)
        for name in wanted[:room]:
            self._nursery.start_soon(self._start, name)

    def wake(self, database: str) -> None:
        found = self._databases.get(database)
        if found is not None:
            found.wake()

    # Reports

    def known(self, database: str) -> bool:
        """True if such a database is here or at the source."""
        found = self._databases.get(database)
        return found is not None and self._shows(found)

    def met(self, database: str) -> bool:
        """True if such a database is here, or was since the start."""
        return database in self._databases

    def joining(self) -> bool:
        """True if other nodes may have databases that this node has not heard of yet."""
        cluster = self._shared.cluster
        has_met = cluster.convergence.has_met_others(int(trio.current_time() * 1000))
        return cluster.membership.expects_others and not has_met

    def refused(self) -> list[str]:
        """Return the databases that gave way to tables of their names, sorted."""
        return sorted(found.name for found in self._databases.values() if found.is_refused and self._is_there(found))

    def databases(self) -> list[Detail]:
        """Answer the method `databases`: a map for each, sorted by name."""
        return [report.summary(found) for found in self._shown()]

    def partition_map(self, database: str) -> dict[str, Detail]:
        """Answer the method `partition_map` for a known database."""
        return report.partition_map(self._databases[database])

    def by_database(self) -> dict[str, dict[str, Detail]]:
        """Return the entries of `info`, sorted by database name."""
        return {found.name: report.outline(found) for found in self._shown()}

    def status(
        self,
        database: str | None = None,
        *,
        local: bool = True,
        bitmaps: bool = False,
        may_read: Callable[[str], bool] = lambda _: True,
    ) -> dict[str, Detail]:
        """Answer the method `status`: by database, by version.

        `local`: omit the versions of other nodes.  `bitmaps`: give sets of partitions in full.  `may_read`: True for a
        database that the caller may read.
        """
        now_ms = int(trio.current_time() * 1000)
        how = partial(report.status, now_ms=now_ms, scrub=self.scrub, local=local, bitmaps=bitmaps)
        wanted = [found for found in self._shown() if database in {None, found.name}]
        return {found.name: how(found, to_readers=may_read(found.name)) for found in wanted}

    def conditions(self, *, to_readers: bool = True) -> dict[str, dict[str, Detail]]:
        """Return each database's conditions for the verdict; `to_readers`: all recipients may read all databases."""
        now_ms = int(trio.current_time() * 1000)
        return {found.name: report.condition(found, now_ms, to_readers=to_readers) for found in self._shown()}

    def residency(self) -> dict[str, Detail]:
        """Return the entry of `info` about resident files and the reason."""
        return self.paging.to_map()

    def unready(self, database: str) -> str:
        """Return why a known database serves nothing, in words."""
        if not self._may_write:
            return "the node cannot write to its data directory, so it builds no version and switches to none"
        return report.unready(self._databases[database])

    def coming(self, database: str) -> bool:
        """True if a known database that serves nothing will soon serve, if all goes well."""
        return self._may_write and report.coming(self._databases[database])

    @property
    def known_count(self) -> int:
        return len(self._shown())

    def unserved(self) -> list[str]:
        return [found.name for found in self._shown() if found.served is None]

    @property
    def opened(self) -> bool:
        """True if the local versions that clients get have been opened since the start."""
        return all(found.opened for found in self._databases.values())

    @property
    def serves_any(self) -> bool:
        return any(found.served is not None for found in self._databases.values())

    def source(self) -> dict[str, Detail] | None:
        """Return where versions are published for this node; None if it has no source."""
        if self._source is None:
            return None
        return {"root": self._source.root, "require_success_file": self._settings.require_success_file}

    def trouble(self) -> str | None:
        """Return why the source as a whole cannot be read, if so."""
        return self._trouble

    def damaged(self, database: str, version: str, error: Corrupt) -> None:
        found = self._databases.get(database)
        if found is not None:
            found.copies.damaged(version, error)

    def counters(self) -> dict[str, int]:
        """Return all counters of builds and of the scrub, by name."""
        counts = self.scrub.counts
        return {
            **self._shared.builds.to_map(),
            "scrubbed_versions": counts.versions,
            "scrubbed_bytes": counts.size_bytes,
            "scrub_damaged_files": counts.damaged_files,
        }

    def close(self) -> None:
        """Close every file, after `run` has ended and no reader is left."""
        for database in self._databases.values():
            for version in database.copies.versions.values():
                version.close()
            database.copies.versions.clear()
            database.lives.clear()

    def _shown(self) -> list[Database]:
        return sorted((found for found in self._databases.values() if self._shows(found)), key=lambda d: d.name)

    def _shows(self, found: Database) -> bool:
        return self._is_there(found) and not found.is_refused

    def _is_there(self, found: Database) -> bool:
        return (
            bool(found.lives)
            or found.view.is_known_elsewhere
            or found.defect_trouble is not None
            or found.storage_trouble is not None
            or found.name in self._at_source | self._named.keys()
        )


def _alone(settings: DatasetSettings) -> DatasetCluster:
    membership = alone()
    terms = Terms(1, 1, REASSIGN_AFTER_MS, settings.retire_after, PROBE_INTERVAL_MS, 0)
    return DatasetCluster(
        membership, Convergence(membership, settle_ms=0, now_ms=0), terms, perform=lambda _core, _effects: None
    )
