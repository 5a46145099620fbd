"""Interfaces that gossip needs: randomness for its cores; a core, a disk and a shard claim for its shell.

A node uses `random.Random`, `core.Gossip`, `node.directory.DataDirectory` and `node.gossip.ShardIdTimer`; tests use
smaller classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.member import Member


class GossipRandom(Protocol):
    """The part of `random.Random` that cores use; they must not import it."""

    def random(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""


class MembersView(Protocol):
    """The part of `membership.members.MemberTable` that a shell reads."""

    own: Member

    @property
    def reachable(self) -> int: ...
    def live(self) -> Sequence[Member]: ...


class GossipCore(Protocol):
    """The part of `core.Gossip` that a shell drives."""

    counters: Counter[str]

    @property
    def members(self) -> MembersView: ...
    @property
    def wakes_at_ms(self) -> int: ...
    def start(self, *, joins: Sequence[Address], remembered: Sequence[Address], lone: bool, now_ms: int) -> None: ...
    @property
    def pinned(self) -> bool: ...
    def pin(self) -> None: ...
    def join(self, addresses: Sequence[Address], *, now_ms: int) -> None: ...
    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None: ...
    def reply(self, request: bytes, *, now_ms: int) -> bytes | None: ...
    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None: ...
    def stored(self, token: int, *, now_ms: int) -> None: ...
    def wake(self, *, now_ms: int) -> None: ...
    def leave(self, *, now_ms: int) -> None: ...
    def take(self) -> list[Effect]: ...


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
