"""How news travels: on every packet that goes out anyway, and in packets of its own while there is news.

What is new to a node that had nothing to tell goes out at once, and from then on to a few members in each interval
until it was told often enough.  So news crosses the cluster in a few hops, and a flood of it costs no more packets.

Membership and tree share a packet: each has half of it, and what one leaves the other may use.  So neither a flood of
suspicions nor a flood of published keys can keep the other waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.membership.timers import NEVER
from gossipkv.gossip.packets import messages

if TYPE_CHECKING:
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.shared_state import Ground


AT_ONCE: Final = 0


@final
class Spreading:
    """Puts rumours on messages, and sends packets while there are rumours."""

    __slots__ = ("_first", "_members", "_outbox", "_profile", "_random", "_room", "_second", "due_ms", "quiet")

    def __init__(self, ground: Ground, first: Rumours, second: Rumours) -> None:
        self._members = ground.members
        self._profile = ground.profile
        self._random = ground.random
        self._outbox = ground.outbox
        self._first = first
        self._second = second
        self._room = ground.profile.packet_bytes - ground.outbox.envelope.overhead
        self.due_ms = NEVER
        self.quiet = True  # While it is not settled who I am, I say nothing that hangs on it.

    def laden(self, message: bytes) -> bytes:
        """A message with as much news on it as fits."""
        first, second = self._first, self._second
        if self.quiet or not (first.size or second.size):
            return message
        room = self._room - len(message)
        if room <= 0:
            return message
        limit = self._profile.retransmits(self._members.reachable)
        parts = first.take(max(room // 2, room - second.size), limit)
        parts += second.take(room - sum(map(len, parts)), limit)
        return message + b"".join(parts)

    def news(self) -> None:
        """There is something to tell: begin, if that is not going on."""
        if self.due_ms == NEVER and self._members.reachable > 1 and not self.quiet:
            self.due_ms = AT_ONCE

    def wake(self, now_ms: int) -> None:
        """Tell some members what there is."""
        if (self._first.size or self._second.size) and self._members.reachable > 1 and not self.quiet:
            self.tell(self._profile.gossip_members)
            self.due_ms = now_ms + self._profile.gossip_interval_ms
        else:
            self.due_ms = NEVER

    def tell(self, members: int) -> None:
        """Tell so many members now."""
        head = messages.gossip(self._members.own.id)
        for peer in self._members.draw(self._random, members):
            message = self.laden(head)
            if len(message) == len(head):
                break
            self._outbox.send(peer.member.address, message)
