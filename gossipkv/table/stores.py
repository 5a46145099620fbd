"""What a node, and who looks after its files, need of the store under the tables.

The faces are written down here, so that a node can be tried with another store.
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

# Whatever every node with tables needs at once: the serving thread, which would load it, stood still for 50 ms.
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
    """A store that is open."""

    @property
    def manifest(self) -> StoreManifest:
        """What it consists of."""
        ...

    @property
    def closed(self) -> str | None:
        """Why it has closed itself; None: it has not."""
        ...

    @property
    def log_damage(self) -> str | None:
        """For what damage its log begins later than it would; None: for none."""
        ...

    async def failed(self) -> None:
        """Return when it has closed itself; what was synced by then can still be read."""
        ...

    def describe(self) -> Mapping[str, int | float]:
        """Return what it counts and how it stands, by the names of `http.metric_table`."""
        ...

    async def backup(self, path: PurePath) -> BackedUp:
        """Copy it to a directory, which is made; what was copied.  Raises GossipKVError, OSError."""
        ...


class OpenStores(Protocol):
    """How stores are opened."""

    def __call__(
        self, path: PurePath, environment: Environment, *, expected: tuple[int, int] | None, create: bool
    ) -> AbstractAsyncContextManager[OpenStore]:
        """The store at `path`, open as long as the block lasts.

        `expected`: its id, and the life that it had last; None: any, and with `create` it is made where there is none.
        """
        ...


class Restore(Protocol):
    """How backups are put back."""

    def __call__(self, files: Files, backup: PurePath, directory: PurePath, random: Random) -> StoreManifest:
        """Make a store in `directory`, in its first life and of an id of its own, that has what a backup has.

        Raises:
            GossipKVError, OSError: it cannot be done, and nothing was made that opens as a store.
        """
        ...


def memory_bytes(settings: TableSettings) -> int:
    """What a store takes at most, with the process that merges: a segment is in memory three times until then."""
    return 3 * settings.table_segment + settings.table_merge_memory


def open_tables(settings: TableSettings) -> OpenStores:
    """Return how the store of a node's tables is opened, by the settings of the node."""

    @asynccontextmanager
    async def open_store(
        path: PurePath, environment: Environment, *, expected: tuple[int, int] | None, create: bool
    ) -> AsyncIterator[OpenStore]:
        how = await environment.threads.run(_loaded, settings)
        async with how(path, environment, expected=expected, create=create) as store:
            yield store

    return open_store


def _loaded(settings: TableSettings) -> OpenStores:
    """Load the store, and what decides with it: a node without tables does without, and one that serves goes on."""
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
