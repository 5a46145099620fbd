"""What must survive the node, on its way to the disk: in order, one at a time, in a worker thread.

The core waits until it is told that a new epoch or cluster id is durable, so that is tried until the disk takes it.
What the disk refuses is said once for each cause, until it has taken something again.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import StorageError
from gossipkv.gossip.effects import Remember, Store
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import Threads
    from gossipkv.gossip.protocols import Keeper

# Between two attempts to write what must be durable.
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0


@final
class Keeping:
    """A queue in front of a keeper."""

    def __init__(self, keeper: Keeper, threads: Threads) -> None:
        self._keeper = keeper
        self._threads = threads
        self._log = Log("gossipkv.gossip")
        self._put, self._queue = trio.open_memory_channel[Store | Remember | int](math.inf)
        self._peers: Remember | None = None  # The last one, which waits in the queue.
        self._said = ""  # What the disk refused last.

    async def peers(self) -> list[Address]:
        """What was remembered at the last run."""
        return await self._threads.run(self._keeper.peers)

    async def forget(self) -> None:
        """Keep nothing of what was kept, and nothing more."""
        await self._threads.run(self._keeper.forget)

    def put(self, what: Store | Remember | int) -> None:
        """Keep it; a number is a shard id.  Of peers only the last ones are kept, however long the disk takes."""
        if isinstance(what, Remember):
            waits, self._peers = self._peers is not None, what
            if waits:
                return
        self._put.send_nowait(what)

    async def run(self, stored: Callable[[int], None]) -> None:
        """Keep all of it; `stored` is called with the token of what is durable."""
        async for what in self._queue:
            match what:
                case Store(epoch, cluster_id, token, pinned, drew):
                    keep = partial(self._keeper.keep, epoch=epoch, cluster_id=cluster_id.hex())
                    await self._store(partial(keep, pinned=pinned or None, drew=drew or None))
                    stored(token)
                case Remember():
                    assert self._peers is not None
                    peers, self._peers = self._peers.peers, None
                    await self._remember(peers)
                case int(shard_id):
                    await self._store(partial(self._keeper.keep, shard_id=shard_id))

    async def _store(self, keep: Callable[[], None]) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._threads.run(keep)
            except StorageError as error:
                if self._is_news(error):
                    self._log.error("cannot_store", error=error.message)
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            else:
                self._said = ""
                return

    async def _remember(self, peers: Sequence[Address]) -> None:
        try:
            await self._threads.run(self._keeper.remember, peers)
        except StorageError as error:
            if self._is_news(error):
                self._log.warning("cannot_remember", error=error.message)
        else:
            self._said = ""

    def _is_news(self, error: StorageError) -> bool:
        said, self._said = self._said, error.message
        return said != error.message
