"""Protocols of the store under the tables, for a node and for backups, and the loading of its modules.

A node can be tested with another store that implements these Protocols.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from gossipkv.register.store import RegisterStore
from gossipkv.replication.store import FollowedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import PurePath
    from random import Random

    from gossipkv.environment.seam import Environment, Files
    from gossipkv.settings.tables import TableSettings
    from gossipkv.storage.engine.backup import BackedUp
    from gossipkv.storage.engine.manifest import StoreManifest

# Every node with tables needs these modules at once. Loading them in the serving thread stopped it for 50 ms.
LOADED: Final = (
    "gossipkv.register.metadata.catalogue",
    "gossipkv.register.metadata.server",
    "gossipkv.replication.shell",
    "gossipkv.table.rpc.admin",
    "gossipkv.table.rpc.peer_rpc",
    "gossipkv.table.records.endpoints",
    "gossipkv.table.controllers.supervisor",
)


class OpenStore(FollowedStore, RegisterStore, Protocol):
    """An open store."""

    @property
    def manifest(self) -> StoreManifest:
        """The synced manifest: id, life, files and spaces of the store."""
        ...

    @property
    def closed(self) -> str | None:
        """The reason why the store has closed itself; None: it is open."""
        ...

    @property
    def log_damage(self) -> str | None:
        """The damage because of which the log begins late; None: no damage."""
        ...

    async def failed(self) -> None:
        """Wait until the store has closed itself; synced data can still be read."""
        ...

    def describe(self) -> Mapping[str, int | float]:
        """Return counters and gauges, by the names in `http.metric_table`."""
        ...

    async def backup(self, path: PurePath) -> BackedUp:
        """Copy the store to a new directory; return a summary. Raises GossipKVError, OSError."""
        ...


class OpenStores(Protocol):
    """Opens stores."""

    def __call__(
        self, path: PurePath, environment: Environment, *, expected: tuple[int, int] | None, create: bool
    ) -> AbstractAsyncContextManager[OpenStore]:
        """Open the store at `path` for the block.

        `expected`: its id and its last life; None: any, and with `create` a missing store is made.
        """
        ...


class Restore(Protocol):
    """Restores backups."""

    def __call__(self, files: Files, backup: PurePath, directory: PurePath, random: Random) -> StoreManifest:
        """Make a store in `directory` with the data of a backup, a new id and life 1.

        Raises:
            GossipKVError, OSError: the backup cannot be restored; nothing was made that opens as a store.
        """
        ...


def memory_bytes(settings: TableSettings) -> int:
    """Return the most memory of a store and its merge process; a segment is in memory up to three times."""
    return 3 * settings.table_segment + settings.table_merge_memory


def open_tables(settings: TableSettings) -> OpenStores:
    """Return a function that opens the store of a node's tables by its settings."""

    @asynccontextmanager
    async def open_store(
        path: PurePath, environment: Environment, *, expected: tuple[int, int] | None, create: bool
    ) -> AsyncIterator[OpenStore]:
        how = await environment.threads.run(_loaded, settings)
        async with how(path, environment, expected=expected, create=create) as store:
            yield store

    return open_store


def _loaded(settings: TableSettings) -> OpenStores:
    """Load the modules for tables in a worker thread: nodes without tables skip them, and serving goes on."""
    for name in LOADED:
        import_module(name)
    from gossipkv.storage.engine.options import EngineOptions  # noqa: PLC0415  # See above.
    from gossipkv.storage.engine.shell import open_store  # noqa: PLC0415  # See above.

    options = EngineOptions(
        table_log=settings.table_log,
        segment_bytes=settings.table_segment,
        file_bytes=settings.table_segment,
        merge_memory=settings.table_merge_memory,
    )
    return partial(open_store, options=options)
