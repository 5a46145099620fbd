"""Persistence: state that must survive the node goes to the disk in order, one write at a time, in a worker thread.

The core waits until a new epoch or cluster id is durable, so that write is repeated until it succeeds. An error of the
disk is logged once for each cause, until a write succeeds again.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import StorageError
from gossipkv.gossip.effects import Remember, StoreDurably
from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import Threads
    from gossipkv.gossip.protocols import Keeper

# Pauses between two attempts to write durable state.
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0


@final
class Keeping:
    """A queue in front of a keeper."""

    def __init__(self, keeper: Keeper, threads: Threads) -> None:
        self._keeper = keeper
        self._threads = threads
        self._log = Log("gossipkv.gossip")
        self._put, self._queue = trio.open_memory_channel[StoreDurably | Remember | int](math.inf)
        self._peers: Remember | None = None  # The latest peers; they wait in the queue.
        self._last_error = ""  # The last error of the disk.

    async def peers(self) -> list[Address]:
        """Return the addresses that the last run kept."""
        return await self._threads.run(self._keeper.peers)

    async def forget(self) -> None:
        """Delete all kept state, and keep no more."""
        await self._threads.run(self._keeper.forget)

    def put(self, state: StoreDurably | Remember | int) -> None:
        """Queue state to keep; a number is a shard id. Peers replace those that still wait."""
        if isinstance(state, Remember):
            waits, self._peers = self._peers is not None, state
            if waits:
                return
        self._put.send_nowait(state)

    async def run(self, stored: Callable[[int], None]) -> None:
        """Write the queue; call `stored` with the token of each `StoreDurably` once it is durable."""
        async for state in self._queue:
            match state:
                case StoreDurably(epoch, cluster_id, token, pinned, drew):
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
                self._last_error = ""
                return

    async def _remember(self, peers: Sequence[Address]) -> None:
        try:
            await self._threads.run(self._keeper.remember, peers)
        except StorageError as error:
            if self._is_news(error):
                self._log.warning("cannot_remember", error=error.message)
        else:
            self._last_error = ""

    def _is_news(self, error: StorageError) -> bool:
        before, self._last_error = self._last_error, error.message
        return before != error.message
