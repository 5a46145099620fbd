"""Effects on their way to the shell, and the callbacks that wait for results.

A node whose epoch could not be made durable at its start is *silent* until it is (`Gossip.speak`): none of its parts
sends a datagram. An answer to a ping would confirm what others believe of its last life. Besides, the node might
contradict its own statements of an epoch that is not durable in a later life. A silent node hears, and may ask over
TCP.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

from gossipkv.gossip.effects import AskOverTcp, SendDatagram, StoreDurably

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.gossip.effects import Effect
    from gossipkv.gossip.packets.envelope import Envelope

    Answer = Callable[[bytes | None, int], None]  # Called with the packet of the reply, or None, and now_ms.
    Done = Callable[[int], None]  # Called with now_ms.


@final
class Outbox:
    """Collects the effects of all parts of the core."""

    __slots__ = ("_asked", "_cluster_id", "_epoch", "_storing", "_token", "counters", "effects", "envelope", "silent")

    def __init__(self, envelope: Envelope, epoch: int, *, silent: bool = False) -> None:
        self.envelope = envelope
        self.silent = silent
        self.effects: list[Effect] = []
        self.counters: Counter[str] = Counter()
        self._epoch, self._cluster_id = epoch, envelope.cluster_id  # The values that are durable or on their way there.
        self._token = 0
        self._asked: dict[int, Answer] = {}
        self._storing: dict[int, Done] = {}

    def take(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self.effects = self.effects, []
        return effects

    def send(self, to: Address, message: bytes) -> None:
        """Send one datagram, unless this node is silent."""
        if self.silent:
            return
        self.effects.append(SendDatagram(to, self.envelope.wrap(message)))

    def speak(self) -> None:
        """End the silence of this node."""
        self.silent = False

    def ask(self, to: Address, message: bytes, timeout_ms: int, then: Answer, version: int | None = None) -> None:
        """Ask over TCP, in the agreed protocol version or another; `then` gets the packet of the reply, or None."""
        self._token += 1
        self._asked[self._token] = then
        self.effects.append(AskOverTcp(to, self.envelope.wrap(message, version), self._token, timeout_ms))

    def answered(self, token: int, reply: bytes | None, now_ms: int) -> None:
        """Pass a reply to the callback of its question; ignore a second reply."""
        then = self._asked.pop(token, None)
        if then is not None:
            then(reply, now_ms)

    def store(
        self,
        then: Done,
        *,
        epoch: int | None = None,
        cluster_id: bytes | None = None,
        pinned: bool = False,
        drew: bool = False,
    ) -> None:
        """Make these values durable beside those of earlier calls; `then` is called once they are."""
        assert epoch is None or epoch > self._epoch, (epoch, self._epoch)  # An epoch is never lived twice.
        self._epoch = self._epoch if epoch is None else epoch
        self._cluster_id = self._cluster_id if cluster_id is None else cluster_id
        self._token += 1
        self._storing[self._token] = then
        self.effects.append(StoreDurably(self._epoch, self._cluster_id, self._token, pinned, drew))

    def stored(self, token: int, now_ms: int) -> None:
        """Run the callback of a Store that is durable."""
        then = self._storing.pop(token, None)
        if then is not None:
            then(now_ms)
