"""The methods about backups. Paths are those of the asked node's machine; it also reads and writes the URLs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.backup.jobs import Jobs, Progress
from gossipkv.errors import BadRequest, StorageError, Unavailable
from gossipkv.settings.masking import is_url
from gossipkv.wire.arguments import MAX_TIMEOUT_MS
from gossipkv.wire.results import DeferredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gossipkv.backup.archive import Archive, BackupManifest, BackupOwner
    from gossipkv.backup.cluster import BackedUpCluster
    from gossipkv.backup.places import BackupPlaces
    from gossipkv.environment.seam import Environment
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.rpc import Value

JOB: Final = ("operation", "wait_ms", "cancel")
ID_BYTES: Final = 20


@final
class BackupMethods:
    """The methods `backup`, `restore`, `backup_list`, `backup_verify` and `backup_expire`."""

    def __init__(
        self,
        environment: Environment,
        *,
        places: BackupPlaces,
        cluster: BackedUpCluster,
    ) -> None:
        """Begin; `places`: those that a client may name."""
        self._environment, self._places, self._cluster = environment, places, cluster
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
        """`backup [destination, {tables, since, operation, wait_ms, cancel}]`: the progress, then a summary."""
        place = self._place(arguments)
        options = arguments.options("tables", "since", *JOB)
        tables, since, progress = options.texts("tables"), options.text("since"), Progress()

        async def work() -> dict[str, Value]:
            from gossipkv.backup.archive import BackupOwner, backup_name  # noqa: PLC0415  # Loaded at the first call.
            from gossipkv.backup.create import BackupCreation  # noqa: PLC0415  # Loaded at the first call.

            archive, run = await self._archive(place), self._environment.threads.run
            await run(archive.remove_unfinished, self._is_running)
            uuid, epoch = self._cluster.own()
            name = backup_name(self._environment.clock.wall_ms(), self._environment.random.getrandbits(16))
            creation = BackupCreation(
                archive, self._cluster, self._environment, BackupOwner(uuid, epoch, since), name, progress
            )
            self._writing.add(name)
            try:
                manifest = await creation.run(tables)
            finally:
                self._writing.discard(name)
            return {**manifest.summary(), "records": progress.records}

        return self._job(options, progress, work)

    def _restore(self, arguments: Arguments) -> DeferredResult:
        """`restore [destination or one of its backups, {tables, as, operation, wait_ms, cancel}]`: likewise."""
        place = self._place(arguments)
        options = arguments.options("tables", "as", *JOB)
        tables, new_name, progress = options.texts("tables"), options.text("as"), Progress()

        async def work() -> dict[str, Value]:
            from gossipkv.backup.restore import Restore  # noqa: PLC0415  # Loaded at the first call.

            archive, manifest = await self._chosen(place)
            return await Restore(archive, self._cluster, self._environment, progress).run(manifest, tables, new_name)

        return self._job(options, progress, work)

    def _list(self, arguments: Arguments) -> DeferredResult:
        """`backup_list [destination]`: a summary of each complete backup, the oldest first."""
        place = self._place(arguments)
        arguments.end()

        async def read() -> Value:
            archive = await self._archive(place)
            return await self._environment.threads.run(
                lambda: [{**archive.manifest(name).summary()} for name in archive.names()]
            )

        return DeferredResult(partial(_refused, read))

    def _verify(self, arguments: Arguments) -> DeferredResult:
        """`backup_verify [destination or one of its backups, {operation, wait_ms, cancel}]`: reads every byte."""
        place = self._place(arguments)
        options, progress = arguments.options(*JOB), Progress()

        async def work() -> dict[str, Value]:
            archive, manifest = await self._chosen(place)
            files = manifest.files.values()
            progress.total = len(files)
            for file in files:
                await self._environment.threads.run(archive.check, file)
                progress.done += 1
                progress.records += file.records
                progress.bytes += file.size_bytes
            return {**manifest.summary(), "files": progress.done}

        return self._job(options, progress, work)

    def _expire(self, arguments: Arguments) -> DeferredResult:
        """`backup_expire [destination, {backups, keep}]`: removes these backups, or all but the newest ones."""
        place = self._place(arguments)
        options = arguments.options("backups", "keep")
        backups, keep = options.texts("backups"), options.number("keep", least=1)
        if bool(backups) == (keep is not None):
            raise BadRequest("backup_expire: give either `backups`, or the number of backups to `keep`")

        async def expire() -> Value:
            archive, run = await self._archive(place), self._environment.threads.run
            await run(archive.remove_unfinished, self._is_running)
            names = await run(archive.names)
            chosen = backups if keep is None else names[: max(0, len(names) - keep)]
            removed = await run(archive.expire, chosen)
            return {"expired": [*chosen], "bytes": removed}

        return DeferredResult(partial(_refused, expire))

    # -- shared --------------------------------------------------------------------------------------------------------

    def _job(
        self, options: OptionArguments, progress: Progress, work: Callable[[], Awaitable[dict[str, Value]]]
    ) -> DeferredResult:
        operation = options.blob("operation") or self._environment.random.randbytes(ID_BYTES)
        wait_ms = options.number("wait_ms", most=MAX_TIMEOUT_MS)
        wait_s = (MAX_TIMEOUT_MS if wait_ms is None else wait_ms) / 1000
        is_cancelled = options.flag("cancel")

        async def ask() -> Value:
            if is_cancelled:
                self.jobs.cancel(operation)
                return {"state": "cancelled"}
            return await self.jobs.ask(operation, wait_s, progress, work)

        return DeferredResult(partial(_refused, ask))

    def _place(self, arguments: Arguments) -> str:
        """Read a destination.  Raises BadRequest: the settings do not allow it."""
        return self._places.check(arguments.directory("destination"))

    async def _archive(self, place: str) -> Archive:
        return await self._environment.threads.run(self._open, place)

    def _open(self, place: str) -> Archive:
        from gossipkv.backup.archive import Archive  # noqa: PLC0415  # Loaded at the first call.

        files, options = self._environment.files, self._places.options(place)
        if not is_url(place):
            self._places.check_links(place, files)
        return Archive(place, options, files)

    async def _chosen(self, place: str) -> tuple[Archive, BackupManifest]:
        """Return a backup: the one at `place`, or the newest one of the destination `place`."""
        from gossipkv.backup.archive import is_backup_name  # noqa: PLC0415  # Loaded at the first call.

        above, _, name = place.rpartition("/")

        def find() -> tuple[Archive, BackupManifest]:
            if is_backup_name(name) and (outer := self._open(above)).has(name):
                return outer, outer.manifest(name)
            archive = self._open(place)
            return archive, archive.newest()

        return await self._environment.threads.run(find)

    def _is_running(self, backup: str, owner: BackupOwner) -> bool:
        if (owner.uuid, owner.epoch) == self._cluster.own():
            return backup in self._writing
        return (owner.uuid, owner.epoch) in self._cluster.starts()


async def _refused(ask: Callable[[], Awaitable[Value]]) -> Value:
    """Answer; a refusal by the destination is not a defect."""
    try:
        return await ask()
    except StorageError as error:
        raise Unavailable(error.message, error.details) from error
