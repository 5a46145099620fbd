"""The program that a machine runs, and the input of its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.protocols import TreePlace
    from gossipkv.node.identity import NodeRecord

    Claim = Callable[["Core", NodeRecord], TreePlace]  # Makes the claim of a place for a core.


class Core(Protocol):
    """The core that a process runs: `gossip.core.Gossip`, or a smaller one with the same interface."""

    def start(self, *, joins: Sequence[Address], remembered: Sequence[Address], now_ms: int) -> None: ...
    def join(self, addresses: Iterable[Address], *, now_ms: int) -> None: ...
    def receive(self, packet: bytes, source: Address, *, now_ms: int) -> None: ...
    def reply(self, request: bytes, *, now_ms: int) -> bytes | None: ...
    def answered(self, token: int, reply: bytes | None, *, now_ms: int) -> None: ...
    def stored(self, token: int, *, now_ms: int) -> None: ...
    def speak(self, *, now_ms: int) -> None: ...
    def wake(self, *, now_ms: int) -> None: ...
    @property
    def wakes_at_ms(self) -> int: ...
    def leave(self, *, now_ms: int) -> None: ...
    def take(self) -> list[Effect]: ...


class Boot(NamedTuple):
    """The input of a program when its process starts."""

    name: str
    address: Address
    uuid: bytes
    epoch: int
    cluster_id: bytes
    random: Random
    silent: bool = False  # The epoch is not durable yet, so no other member may hear of it.
    pinned: bool = False  # True if the member never takes another cluster id.
