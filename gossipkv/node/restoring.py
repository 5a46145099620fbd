"""A backup of tables, put back into the data directory of a node that is stopped.

The new store has an id of its own: a node that continued the old one would use its numbers twice. The store is built
beside its place and enters it by one rename; then NODE names it. After a crash between the two, the next start adopts
the store, since it is in its first life (`table.store`). The next attempt removes what an earlier crash left.

The backup may hold the cluster's catalogue, so this node founds none from then on (`table.ports.may_not_found`). NODE
says so before the store enters its place, so that the store is not adopted as one that this node created.

A node that has or had tables becomes another node first (`forgotten`): the backup does not have all that the node told
others under its uuid.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import GossipKVError, LocalError, StorageError
from gossipkv.node.directory import DataDirectory
from gossipkv.node.forgotten import RESTORING, TABLES, has_tables
from gossipkv.node.identity import NODE, read_node
from gossipkv.storage.directories import remove_tree, storage_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath
    from random import Random

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.manifest import StoreManifest

    # Makes a store in the second directory from a backup in the first, with a new id and life 1; a failure leaves none.
    Restore = Callable[[Files, PurePath, PurePath, Random], StoreManifest]

FIRST_LIFE: Final = 1


class Restored(NamedTuple):
    """The result: the restored manifest, and the node that has it now."""

    node: str
    uuid: str
    manifest: StoreManifest
    forgotten: PurePath | None  # The place of the tables that the node had before.


def restore_tables(
    files: Files,
    backup: PurePath,
    data: PurePath,
    *,
    random: Random,
    restore: Restore,
    forget_tables: bool = False,
    least_epoch: int = 1,
) -> Restored:
    """Put a backup back as the store of the node that lives in the data directory `data`.

    With `forget_tables` the node's own tables are set aside first, and another node lives there from then on.

    Raises:
        DirectoryInUse: the node runs.
        LocalError: no node has lived there; or it has tables, and `forget_tables` is not given.
        GossipKVError: the backup is damaged, or the system refused; the node has no tables then.
    """
    try:
        record = read_node(files, data)
        if record is None:
            raise LocalError(
                f"{data / NODE}: no node has lived here yet: start one with this data directory, and stop it again",
                {"file": str(data / NODE)},
            )
        has_some = bool(record.store or record.pinned or has_tables(files, data))
        if has_some and not forget_tables:
            raise LocalError(
                f"{data / TABLES}: this node has tables, or has had; with --forget-tables they are set aside, and "
                "another node lives here from then on",
                {"file": str(data / TABLES)},
            )
        with DataDirectory.open(
            data, files, cluster=record.cluster, random=random, least_epoch=least_epoch, forget_tables=has_some
        ) as directory:
            if directory.silence is not None:
                raise StorageError(directory.silence.message, directory.silence.details)
            manifest = _put_back(files, backup, directory, random, restore)
            return Restored(directory.record.node, directory.record.uuid, manifest, directory.forgotten)
    except OSError as error:
        raise storage_error(error, data, "the backup cannot be put back") from error


def _put_back(
    files: Files, backup: PurePath, directory: DataDirectory, random: Random, restore: Restore
) -> StoreManifest:
    beside = directory.path / RESTORING
    remove_tree(files, beside)
    try:
        manifest = restore(files, backup, beside, random)
    except (GossipKVError, OSError):
        with contextlib.suppress(OSError):  # The next attempt removes it.
            remove_tree(files, beside)
        raise
    assert manifest.life == FIRST_LIFE, manifest.life
    directory.keep(drew=False)
    files.rename(beside, directory.path / TABLES)
    files.sync_directory(directory.path)
    directory.keep(store=manifest.store, life=manifest.life)
    return manifest
