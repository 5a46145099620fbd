"""The methods about backups. Paths are those of the asked node's machine; it also reads and writes the URLs."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.backup.archive import Archive, BackupOwner, backup_name, is_backup_name
from gossipkv.backup.create import BackupCreation
from gossipkv.backup.jobs import Jobs, Progress, Work
from gossipkv.backup.restore import Restore
from gossipkv.errors import BadRequest, Conflict, Corrupt, GossipKVError, StorageError, Unavailable
from gossipkv.settings.masking import is_url
from gossipkv.table.peers.hints import BACKUPS
from gossipkv.wire.arguments import MAX_TIMEOUT_MS
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gossipkv.backup.archive import BackupManifest, Contents, Unfinished
    from gossipkv.backup.cluster import BackedUpCluster
    from gossipkv.backup.places import BackupPlaces
    from gossipkv.environment.seam import Environment
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.rpc import Value

JOB: Final = ("operation", "wait_ms", "cancel")
ID_BYTES: Final = 20
ASK_S: Final = 5.0


@final
class BackupMethods:
    """The methods `backup`, `restore`, `backup_list`, `backup_verify` and `backup_expire`."""

    def __init__(
        self,
        environment: Environment,
        *,
        places: BackupPlaces,
        abandon_s: float,
        cluster: BackedUpCluster,
        on_backup: Callable[[Sequence[str], int], object],
    ) -> None:
        """Begin; `places`: those that a client may name, `abandon_s`: the setting `backup_abandon_after`.

        `on_backup` is called in a worker thread after a complete backup, with its tables and the time of its beginning
        in milliseconds since 1970.
        """
        self._environment, self._places, self._abandon_s, self._cluster = environment, places, abandon_s, cluster
        self._on_backup = on_backup
        # By place and name: another node's unfinished backup when it was last seen, and since when it is unchanged.
        self._silent: dict[tuple[str, str], tuple[Unfinished, float]] = {}
        self._writing: set[str] = set()  # Names of the backups that this node writes.
        self.jobs = Jobs()
        self.methods: dict[bytes, Callable[[Arguments], DeferredResult]] = {
            b"backup": self._backup,
            b"restore": self._restore,
            b"backup_list": self._list,
            b"backup_verify": self._verify,
            b"backup_expire": self._expire,
        }

    def _backup(self, arguments: Arguments) -> DeferredResult:
        """`backup [destination, {tables, since, take_over, partial, …}]`: the progress, then a summary."""
        place = self._place(arguments)
        options = arguments.options("tables", "since", "take_over", "partial", *JOB)
        tables, since, progress = options.texts("tables"), options.text("since"), Progress()
        takes_over, is_partial = options.flag("take_over"), options.flag("partial")

        async def work() -> dict[str, Value]:
            archive = await self._archive(place)
            await self._tidy(archive, takes_over=takes_over)
            began_ms = self._environment.clock.wall_ms()
            name = backup_name(began_ms, self._environment.random.getrandbits(16))
            owner = BackupOwner(*self._cluster.own(), since, self._cluster.cluster_id)
            creation = BackupCreation(archive, self._cluster, self._environment, owner, name, progress, is_partial)
            self._writing.add(name)
            try:
                manifest = await creation.run(tables)
            finally:
                self._writing.discard(name)
            names = [table.name for table in manifest.tables if not table.missing]
            await self._environment.threads.run(self._on_backup, names, began_ms)
            return {**manifest.summary(), "records": progress.records}

        return self._job(options, Work(("backup", place, *tables, since, takes_over, is_partial), progress, work))

    def _restore(self, arguments: Arguments) -> DeferredResult:
        """`restore [destination or one of its backups, {tables, as, operation, wait_ms, cancel}]`: likewise."""
        place = self._place(arguments)
        options = arguments.options("tables", "as", *JOB)
        tables, new_name, progress = options.texts("tables"), options.text("as"), Progress()
        made: dict[str, bytes] = {}

        async def work() -> dict[str, Value]:
            archive, manifest = await self._chosen(place)
            if manifest is None:
                manifest = await self._environment.threads.run(archive.newest)
            restore = Restore(archive, self._cluster, self._environment, progress, made)
            return await restore.run(manifest, tables, new_name)

        def is_still_so() -> bool:
            return made.items() <= self._cluster.tables().items()

        return self._job(options, Work(("restore", place, *tables, new_name), progress, work, is_still_so))

    def _list(self, arguments: Arguments) -> DeferredResult:
        """`backup_list [destination]`: a summary of each complete or damaged backup, the oldest first."""
        place = self._place(arguments)
        arguments.end()

        async def read() -> Value:
            found = await self._environment.threads.run((await self._archive(place)).contents)
            rows: dict[str, dict[str, Value]] = {name: manifest.summary() for name, manifest in found.complete.items()}
            rows |= {name: {"backup": name, "damaged": reason} for name, reason in found.damaged.items()}
            return [rows[name] for name in sorted(rows)]

        return DeferredResult(partial(_refused, read))

    def _verify(self, arguments: Arguments) -> DeferredResult:
        """`backup_verify [destination or one of its backups, {newest, …}]`: reads every byte of all."""
        place = self._place(arguments)
        options, progress = arguments.options("newest", *JOB), Progress()
        newest = options.flag("newest")

        async def work() -> dict[str, Value]:
            archive, chosen = await self._chosen(place)
            run = self._environment.threads.run
            found = await run(archive.contents)
            if chosen is None and (newest or not (found.complete or found.damaged)):
                chosen = await run(archive.newest)
            manifests = [*found.complete.values()] if chosen is None else [chosen]
            damaged: dict[str, Value] = {**found.damaged} if chosen is None else {}
            files = {path: file for manifest in manifests for path, file in manifest.files.items()}
            faults: dict[str, str] = {}
            progress.total = len(files)
            for path, file in files.items():
                try:
                    await run(archive.check, file)
                except Corrupt as error:
                    faults[path] = error.message
                progress.done += 1
                progress.records += file.records
                progress.bytes += file.size_bytes
            for manifest in manifests:
                if fault := next((faults[path] for path in manifest.files if path in faults), None):
                    damaged[manifest.name] = fault
            names: list[Value] = [manifest.name for manifest in manifests]
            missing: dict[str, Value] = {manifest.name: manifest.missing for manifest in manifests if manifest.missing}
            counted: dict[str, Value] = {"files": progress.done, "bytes": progress.bytes}
            return {"backups": names, "damaged": damaged, "missing": missing, **counted}

        return self._job(options, Work(("backup_verify", place, newest), progress, work))

    def _expire(self, arguments: Arguments) -> DeferredResult:
        """`backup_expire [destination, {backups, keep, take_over}]`: removes these backups, or all but the newest."""
        place = self._place(arguments)
        options = arguments.options("backups", "keep", "take_over")
        backups, keep = options.texts("backups"), options.number("keep", least=1)
        takes_over = options.flag("take_over")
        if bool(backups) == (keep is not None):
            raise BadRequest("backup_expire: give either `backups`, or the number of backups to `keep`")

        async def expire() -> Value:
            archive = await self._archive(place)
            names = [*(await self._tidy(archive, takes_over=takes_over)).complete]
            chosen = backups if keep is None else names[: max(0, len(names) - keep)]
            removed, damaged = await self._environment.threads.run(archive.expire, chosen)
            return {"expired": [*chosen], "bytes": removed, "damaged": [*damaged]}

        return DeferredResult(partial(_refused, expire))

    # -- shared --------------------------------------------------------------------------------------------------------

    def _job(self, options: OptionArguments, work: Work) -> DeferredResult:
        operation = options.blob("operation") or self._environment.random.randbytes(ID_BYTES)
        wait_ms = options.number("wait_ms", most=MAX_TIMEOUT_MS)
        wait_s = (MAX_TIMEOUT_MS if wait_ms is None else wait_ms) / 1000
        is_cancelled = options.flag("cancel")

        async def ask() -> Value:
            if is_cancelled:
                self.jobs.cancel(operation)
                return {"state": "cancelled"}
            return await self.jobs.ask(operation, wait_s, work)

        return DeferredResult(partial(_refused, ask))

    def _place(self, arguments: Arguments) -> str:
        """Read a destination.  Raises BadRequest: the settings do not allow it."""
        return self._places.check(arguments.directory("destination"))

    async def _archive(self, place: str) -> Archive:
        return await self._environment.threads.run(self._open, place)

    def _open(self, place: str) -> Archive:
        files, options = self._environment.files, self._places.options(place)
        return Archive(place if is_url(place) else self._places.resolved(place, files), options, files)

    async def _chosen(self, place: str) -> tuple[Archive, BackupManifest | None]:
        """Return the backup at `place`, or None if it is a destination."""
        above, _, name = place.rpartition("/")

        def find() -> tuple[Archive, BackupManifest | None]:
            if is_backup_name(name) and (outer := self._open(above)).has(name):
                return outer, outer.manifest(name)
            return self._open(place), None

        return await self._environment.threads.run(find)

    async def _tidy(self, archive: Archive, *, takes_over: bool) -> Contents:
        """Remove what interrupted backups left; return the contents.  Raises Conflict: they are another cluster's."""
        run, own = self._environment.threads.run, self._cluster.cluster_id
        found = await run(archive.contents)
        if not takes_over and found.cluster not in {None, own}:
            words = f"the newest backup is of another cluster ({found.cluster}); choose another place, or --take-over"
            raise Conflict(f"{archive.place}: {words}", {"destination": archive.place})
        await run(archive.settle)
        silent = {key: kept for key, kept in self._silent.items() if key[0] != archive.place}
        for name, unfinished in found.unfinished.items():
            key, now = (archive.place, name), trio.current_time()
            before, since = self._silent.get(key, (unfinished, now))
            is_silent = before == unfinished and now - since >= self._abandon_s
            is_gone = await self._is_gone(unfinished)
            if is_silent if is_gone is None else is_gone:
                await run(archive.remove, name)
            else:
                silent[key] = (unfinished, since if before == unfinished else now)
        self._silent = silent
        return found

    async def _is_gone(self, unfinished: Unfinished) -> bool | None:
        """Return whether the owner of a backup has stopped writing it; None: it does not say."""
        owner = unfinished.owner
        if owner is None or owner.cluster != self._cluster.cluster_id:
            return None
        if owner.uuid == self._cluster.own()[0]:
            return unfinished.name not in self._writing
        with contextlib.suppress(GossipKVError, ValueError):
            written = await self._cluster.calls.ask(bytes.fromhex(owner.uuid), "entries", [BACKUPS], ASK_S)
            if isinstance(written, list):
                return not any(isinstance(entry, dict) and entry.get("name") == unfinished.name for entry in written)
        return None


async def _refused(ask: Callable[[], Awaitable[Value]]) -> Value:
    """Answer; a refusal by the destination is not a defect."""
    try:
        return await ask()
    except StorageError as error:
        raise Unavailable(error.message, error.details) from error
