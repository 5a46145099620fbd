"""What every part of membership stands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from gossipkv.gossip.chance import Random
    from gossipkv.gossip.membership.members import Members
    from gossipkv.gossip.membership.outbox import Outbox
    from gossipkv.gossip.membership.timers import Timers
    from gossipkv.gossip.profile import Profile


@final
@dataclass(frozen=True, slots=True)
class Ground:
    """The table, the constants, chance, time and the way out: one of each in a node."""

    members: Members
    profile: Profile
    random: Random
    timers: Timers
    outbox: Outbox

    def later(self, now_ms: int, wait_ms: int) -> int:
        """A time about so much later, not the same on all nodes."""
        return now_ms + int(wait_ms * (0.75 + self.random.random() / 2))
