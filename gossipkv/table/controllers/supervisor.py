"""The controllers of a node's tables: all run, each as a task, while the store is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from gossipkv.errors import Corrupt, StorageError
from gossipkv.placement.measures import MeasureLimits
from gossipkv.table.controllers.load_stats import LoadStats
from gossipkv.table.controllers.migrator import Migrator
from gossipkv.table.controllers.plan import DIVIDE_S, RangeHosts
from gossipkv.table.controllers.rebalancer import Rebalancer
from gossipkv.table.controllers.reconciler import Reconciler
from gossipkv.table.controllers.smear_buffer import SmearBuffer
from gossipkv.table.controllers.smear_schedule import SmearSchedule
from gossipkv.table.controllers.splitter import Splitter
from gossipkv.table.controllers.write_stats import WriteStats
from gossipkv.table.store import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.errors import GossipKVError
    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.shell import Replication
    from gossipkv.settings.config import Config
    from gossipkv.table.controllers.smear_buffer import Forward
    from gossipkv.table.peers.peer_client import PeerClient


@final
class Controllers:
    """The controllers of one incarnation of a store."""

    def __init__(
        self,
        metadata: Metadata,
        catalogue: Catalogue,
        replication: Replication,
        asking: PeerClient,
        *,
        alive: Callable[[], Sequence[bytes]],
        look_at: Callable[[bytes], object],
        settings: Config,
        random: Random,
        forward: Forward,
    ) -> None:
        """Create the controllers; `run` starts them.

        `alive`: uuids of nodes that seem alive, in order, this node included; `look_at`: requests a read of a register
        with a newer map; `forward`: sends smeared puts to their hosts.
        """
        self._metadata = metadata
        self._replication = replication
        self.last_hour = WriteStats()
        self.holding = Reconciler(metadata, catalogue, replication, self.last_hour)
        stall_s = settings.move_stall / 1000
        self._stepping = Migrator(
            metadata,
            catalogue,
            replication,
            self.holding,
            ask=asking.ask,
            random=random,
            stall_s=stall_s,
            look_at=look_at,
        )
        self._ask = asking.ask
        self.measuring = LoadStats(replication, self._ask, self.last_hour)
        limits = MeasureLimits(settings.split_bytes, settings.split_rows)
        self.moving = Rebalancer(
            metadata,
            catalogue,
            alive=alive,
            beside=asking.beside,
            random=random,
            most=settings.max_moves,
            stall_s=stall_s,
            hosts=RangeHosts(
                self.measuring.of,
                self._divide,
                limits,
                is_on=settings.planner == "on",
            ),
        )
        self.splitting = Splitter(
            metadata,
            catalogue,
            replication,
            limits=limits,
            alive=alive,
            look_at=look_at,
            random=random,
        )

        smearing = SmearSchedule(random, is_on=settings.smear == "on")
        self.smear_buffer = SmearBuffer(replication, smearing, forward, store=metadata.me.store)

    def wake(self) -> None:
        """Start the next round of the controllers soon, since a newer map is known."""
        self.holding.wake()
        for pause in (self._stepping.pause, self.moving.pause, self.splitting.pause):
            pause.end()

    async def _divide(self, table: bytes, node: bytes, partition: int) -> None:
        """Ask a node, maybe this one, to divide a partition that it holds.  Raises GossipKVError."""
        if node == self._metadata.me.node:
            await self.splitting.divide(table, partition)
        else:
            await self._ask(node, "table_divide", [table, partition], DIVIDE_S)

    async def run(
        self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run all controllers until the scope is cancelled, or the store fails one of them.

        A failure ends the store, but never the node.

        Raises:
            StorageError, Corrupt, OSError: the store failed before the controllers had started.
        """
        met: GossipKVError | OSError | None = None
        has_begun = False
        with scope:
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._metadata.run)
                    await nursery.start(self._replication.run)
                    works = self.holding, self._stepping, self.moving, self.splitting, self.measuring, self.smear_buffer
                    for one in works:
                        nursery.start_soon(one.run)
                    has_begun = True
                    task_status.started()
            except* (StorageError, Corrupt, OSError) as errors:
                met = first_of(errors)
        if met is not None:
            self._replication.fail(met)
            if not has_begun:
                raise met
