"""The controllers of a node's tables: all run, each as a task, while the store is open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, final

import trio

from gossipkv.errors import Corrupt, GossipKVError, StorageError, first_of
from gossipkv.table.controllers.load_stats import LoadStats
from gossipkv.table.controllers.migrator import Migrator
from gossipkv.table.controllers.plan import DIVIDE_S, RangeHosts
from gossipkv.table.controllers.rebalancer import Rebalancer
from gossipkv.table.controllers.reconciler import Reconciler
from gossipkv.table.controllers.smear_buffer import SmearBuffer
from gossipkv.table.controllers.smear_schedule import SmearSchedule
from gossipkv.table.controllers.splitter import Splitter
from gossipkv.table.controllers.write_stats import WriteStats

if TYPE_CHECKING:
    from collections.abc import Collection

    from gossipkv.table.controllers.local_tables import LocalTables
    from gossipkv.table.controllers.smear_buffer import Forward


@final
class Controllers:
    """The controllers of one incarnation of a store."""

    def __init__(self, tables: LocalTables, forward: Forward) -> None:
        """Create the controllers; `run` starts them.  `forward`: sends smeared puts to their hosts."""
        self._tables = tables
        self.last_hour = WriteStats()
        self.reconciler = Reconciler(tables, self.last_hour)
        self.migrator = Migrator(tables, self.reconciler)
        self.load_stats = LoadStats(tables, self.last_hour)
        is_on = tables.settings.planner == "on"
        self.rebalancer = Rebalancer(
            tables, RangeHosts(self.load_stats.of, self._divide, tables.split_limits, is_on=is_on)
        )
        self.splitter = Splitter(tables)
        smearing = SmearSchedule(tables.random, is_on=tables.settings.smear == "on")
        self.smear_buffer = SmearBuffer(tables, smearing, forward)

    def edited(self, register: bytes, keys: Collection[bytes] | None) -> None:
        """Look soon at the partitions at these keys of a map that has become known; None: at all of them."""
        self.reconciler.edited(register, keys)
        if keys != []:
            self.wake()

    def wake(self) -> None:
        """Start the next round of the controllers soon, since a map or the members have changed."""
        self.reconciler.wake()
        for controller in (self.migrator, self.rebalancer, self.splitter):
            controller.pause.end()

    async def _divide(self, table: bytes, node: bytes, partition: int) -> None:
        """Ask a node, maybe this one, to divide a partition that it holds.  Raises GossipKVError."""
        if node == self._tables.metadata.me.node:
            await self.splitter.divide(table, partition)
        else:
            await self._tables.ask(node, "table_divide", [table, partition], DIVIDE_S)

    async def run(
        self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run all controllers until the scope is cancelled, or the store fails under one of them.

        A failure ends the store, but never the node.

        Raises:
            StorageError, Corrupt, OSError: the store failed before the controllers had started.
        """
        failure: GossipKVError | OSError | None = None
        has_begun = False
        with scope:
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._tables.metadata.run)
                    nursery.start_soon(self._tables.catalogue.follower.run)
                    await nursery.start(self._tables.replication.run)
                    with contextlib.suppress(GossipKVError):  # The reconciler's next round logs the reason.
                        await self.reconciler.look()  # Replicas take entries only under a placement.
                    for controller in (
                        self.reconciler,
                        self.migrator,
                        self.rebalancer,
                        self.splitter,
                        self.load_stats,
                        self.smear_buffer,
                    ):
                        nursery.start_soon(controller.run)
                    has_begun = True
                    task_status.started()
            except* (StorageError, Corrupt, OSError) as errors:
                failure = first_of(errors)
        if failure is not None:
            self._tables.replication.fail(failure)
            if not has_begun:
                raise failure
