"""The methods about backups, bound to the parts of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.backup.cluster import BackedUpCluster
from gossipkv.backup.methods import BackupMethods
from gossipkv.backup.places import BackupPlaces
from gossipkv.backup.threads import PatientThreads
from gossipkv.table.rpc.local_calls import LocalCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.environment.seam import Environment
    from gossipkv.node.directory import DataDirectory
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.names import Names
    from gossipkv.settings.config import Config
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.rpc.dispatch import TableMethods


class NodeData(NamedTuple):
    """The tables and datasets of a node."""

    participant: MetadataParticipant
    tables: TableMethods
    datasets: Library
    names: Names


def backup_methods(
    config: Config, environment: Environment, directory: DataDirectory, gossiping: Gossiping, data: NodeData
) -> BackupMethods:
    """Return the methods of a node."""
    names, datasets = data.names, data.datasets

    async def hold(dataset: str, version: str) -> None:
        names.check_known(dataset)
        await datasets.order(dataset, version, here=False)

    cluster = BackedUpCluster(
        calls=LocalCalls(data.tables, data.participant),
        participant=data.participant,
        router=lambda: data.tables.router,
        statuses=datasets.status,
        hold=hold,
        check_free=names.check_free,
        transfer=config.table_transfer,
        node=directory.record.node,
        own=lambda: (directory.record.uuid, gossiping.epoch),
    )

    def keep_time(tables: Sequence[str], began_ms: int) -> None:
        directory.backed_up(tables, began_ms, data.participant.table_names)

    return BackupMethods(
        replace(environment, threads=PatientThreads(environment.threads)),
        places=BackupPlaces.of(config, directory.path),
        abandon_s=config.backup_abandon_after / 1000,
        cluster=cluster,
        on_backup=keep_time,
    )
