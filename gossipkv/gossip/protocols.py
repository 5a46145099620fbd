"""Interfaces that gossip needs: randomness for its cores; a disk and a shard claim for its shell.

A node uses `random.Random`, `node.directory.DataDirectory` and `node.gossip.ShardIdTimer`; tests use smaller classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.address import Address


class GossipRandom(Protocol):
    """The part of `random.Random` that cores use; they must not import it."""

    def random(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""


class Keeper(Protocol):
    """Storage for the state of a node that must survive a restart. Each method blocks and may raise `StorageError`."""

    def keep(
        self,
        *,
        epoch: int | None = None,
        cluster_id: str | None = None,
        pinned: bool | None = None,
        shard_id: int | None = None,
        drew: bool | None = None,
    ) -> None: ...
    def remember(self, peers: Sequence[Address]) -> None: ...
    def forget(self) -> None: ...
    def peers(self) -> list[Address]: ...


class TreePlace(Protocol):
    """A node's claim of a place in the ring, which has its own timer."""

    wakes_at_ms: int  # When to call `step`; 0 after another node changed its claim.

    def start(self, *, now_ms: int) -> None: ...
    def step(self, *, now_ms: int) -> int | None: ...
