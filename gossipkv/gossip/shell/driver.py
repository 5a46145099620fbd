"""The driver of a core: the order in which the core is woken and its effects are performed.

The agent drives a core under Trio, and a machine of the simulated world in virtual time, so simulations test the code
of a node. Both first pass all waiting input to the core, then call `act`, and only then `wake`. After a stall the
answers wait in the socket, and a core woken first would take its own silence for the silence of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.gossip.effects import SendDatagram

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.protocols import TreePlace


class Driven(Protocol):
    """The part of a core that the driver calls; the performer passes all input."""

    @property
    def wakes_at_ms(self) -> int: ...
    def wake(self, *, now_ms: int) -> None: ...
    def take(self) -> list[Effect]: ...


class Performer(Protocol):
    """The performer of effects, with sockets, a disk and a log."""

    def send(self, to: Address, packet: bytes) -> None:
        """Send one datagram."""

    def perform(self, effect: Effect) -> None:
        """Perform any other effect."""

    def take_place(self, shard_id: int) -> None:
        """Keep this node's place in the ring for its next start."""


@final
class GossipDriver:
    """Calls one core, and the claim of a place that belongs to it, until `is_over`."""

    __slots__ = ("_core", "_performer", "_place", "_take", "is_over")

    def __init__(self, core: Driven, performer: Performer, place: TreePlace | None) -> None:
        self._core = core
        self._take = core.take
        self._performer = performer
        self._place = place
        self.is_over = False  # The process ends, perhaps amid effects; the rest of them is dropped.

    @property
    def wakes_at_ms(self) -> int:
        """Time at which to call `wake` next."""
        wakes_at_ms = self._core.wakes_at_ms
        return wakes_at_ms if self._place is None else min(wakes_at_ms, self._place.wakes_at_ms)

    def wake(self, now_ms: int) -> int:
        """Wake the core if it is due, and perform its effects; return when to call this next."""
        if self._core.wakes_at_ms <= now_ms:
            self._core.wake(now_ms=now_ms)
        return self.act(now_ms)

    def act(self, now_ms: int) -> int:
        """Perform the core's effects, and advance this node's claim; return when to call `wake` next.

        Call this after each input to the core.
        """
        effects = self._take()
        if effects:
            self._perform(effects)
        place, wakes_at_ms = self._place, self._core.wakes_at_ms
        if place is None or place.wakes_at_ms >= wakes_at_ms > now_ms:
            return wakes_at_ms
        if place.wakes_at_ms <= now_ms and not self.is_over:
            try:
                shard_id = place.step(now_ms=now_ms)
                if shard_id is not None:
                    self._performer.take_place(shard_id)
            finally:
                self._perform(self._take())
        return min(self._core.wakes_at_ms, place.wakes_at_ms)

    def _perform(self, effects: list[Effect]) -> None:
        performer = self._performer
        for effect in effects:
            if type(effect) is SendDatagram:
                performer.send(effect.to, effect.packet)
            else:
                performer.perform(effect)
            if self.is_over:
                return
