"""The order in which a core is woken, and what it leaves behind performed.

The agent drives a core so under Trio, and a machine of the simulated world in virtual time: what is tried there over
many seeds is what a node runs.  Both hand the core whatever waits and then `act`, and `wake` after that, never before:
after a stall the answers lie in the socket, and whoever looked at the clock first would take its own silence for that
of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gossipkv.gossip.effects import Send

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.protocols import Place


class Driven(Protocol):
    """What of a core is called here; whoever drives tells it all else."""

    @property
    def wakes_at_ms(self) -> int: ...
    def wake(self, *, now_ms: int) -> None: ...
    def take(self) -> list[Effect]: ...


class Performer(Protocol):
    """Whoever drives: it has sockets, a disk, people to tell."""

    def send(self, to: Address, packet: bytes) -> None:
        """Send one datagram."""

    def perform(self, effect: Effect) -> None:
        """Do anything else."""

    def take_place(self, shard_id: int) -> None:
        """Keep this node's place in the ring, for its next start."""


@final
class Driver:
    """Calls one core, and the claim of a place that goes with it, until `is_over`."""

    __slots__ = ("_core", "_performer", "_place", "_take", "is_over")

    def __init__(self, core: Driven, performer: Performer, place: Place | None) -> None:
        self._core = core
        self._take = core.take
        self._performer = performer
        self._place = place
        self.is_over = False  # The process ends, perhaps amid what is performed: what is left of that is not done.

    @property
    def wakes_at_ms(self) -> int:
        """When to call `wake` next."""
        wakes_at_ms = self._core.wakes_at_ms
        return wakes_at_ms if self._place is None else min(wakes_at_ms, self._place.wakes_at_ms)

    def wake(self, now_ms: int) -> int:
        """Tell the core that its time has run out, if it has, and perform what it leaves; when to call this next."""
        if self._core.wakes_at_ms <= now_ms:
            self._core.wake(now_ms=now_ms)
        return self.act(now_ms)

    def act(self, now_ms: int) -> int:
        """Perform what the core leaves, and see to this node's place; when to call `wake` next.

        After everything that the core is told.
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
            if type(effect) is Send:
                performer.send(effect.to, effect.packet)
            else:
                performer.perform(effect)
            if self.is_over:
                return
