"""State that every part of membership uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from gossipkv.gossip.membership.members import MemberTable
    from gossipkv.gossip.membership.outbox import Outbox
    from gossipkv.gossip.membership.timers import Timers
    from gossipkv.gossip.profile import TimingProfile
    from gossipkv.gossip.protocols import GossipRandom


@final
@dataclass(frozen=True, slots=True)
class SharedState:
    """The table, the constants, randomness, timers and the outbox of one node."""

    members: MemberTable
    profile: TimingProfile
    random: GossipRandom
    timers: Timers
    outbox: Outbox

    @property
    def message_bytes(self) -> int:
        """Size limit in bytes of a message in a datagram."""
        return self.profile.packet_bytes - self.outbox.envelope.overhead

    def later(self, now_ms: int, wait_ms: int) -> int:
        """Return a time about `wait_ms` later, randomised so that nodes do not act in step."""
        return now_ms + int(wait_ms * (0.75 + self.random.random() / 2))
