"""What a node does for its tables by itself, as long as its store is open: each thing a task, made here and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from gossipkv.table.moving import Moving
from gossipkv.table.splitting import Limits, Splitting
from gossipkv.table.stepping import Stepping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.register.metadata.catalogue import Catalogue
    from gossipkv.register.metadata.server import Metadata
    from gossipkv.replication.shell import Replication
    from gossipkv.table.asking import Asking
    from gossipkv.table.holding import Holding
    from gossipkv.table.host import DecidingSettings


@final
class Tasks:
    """The tasks of one opening of the store."""

    def __init__(
        self,
        metadata: Metadata,
        catalogue: Catalogue,
        replication: Replication,
        holding: Holding,
        *,
        settings: DecidingSettings,
        asking: Asking,
        random: Random,
        alive: Callable[[], Sequence[bytes]],
        look_at: Callable[[bytes], object],
    ) -> None:
        """`alive`: the nodes that seem to be; `look_at`: has a table's register read soon."""
        stepping = Stepping(
            metadata,
            catalogue,
            replication,
            holding,
            ask=asking.ask,
            random=random,
            stall_s=settings.move_stall / 1000,
            look_at=look_at,
        )
        self.moving = Moving(
            metadata,
            catalogue,
            alive=alive,
            beside=asking.beside,
            random=random,
            most=settings.max_moves,
            stall_s=settings.move_stall / 1000,
        )
        splitting = Splitting(
            metadata,
            catalogue,
            replication.replicas,
            replication,
            limits=Limits(settings.split_bytes, settings.split_rows),
            alive=alive,
            check=asking.check_divides,
            look_at=look_at,
            random=random,
        )
        self._first = metadata.run, replication.run  # Each is ready before the next begins.
        self._others = holding.run, stepping.run, self.moving.run, splitting.run

    async def run(
        self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Do all of it, until that scope is cancelled; reports when copies are found."""
        with scope:
            async with trio.open_nursery() as nursery:
                for begin in self._first:
                    await nursery.start(begin)
                for run in self._others:
                    nursery.start_soon(run)
                task_status.started()
