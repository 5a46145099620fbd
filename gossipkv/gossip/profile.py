"""The constants of membership and dissemination, by network.

`LAN` has the values that memberlist's users have run for a decade, with the changes that measuring asked for (the floor
of the retransmit bound, anti-entropy on a difference instead of by the clock alone).  `WAN` is for links of up to a
second, `LOCAL` for one machine or one rack.  Times are in milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One set of constants."""

    # The failure detector (SWIM): one member is probed in each interval.
    probe_interval_ms: int
    probe_timeout_ms: int  # Without an answer by then, others are asked to try, and TCP is tried.
    indirect_probes: int

    # Suspicion (Lifeguard): from `most` down to the least as others confirm.
    suspicion_multiplier: int
    suspicion_most_multiplier: int

    # Dissemination: rumours are told to so many members in each interval, besides riding on probes.
    gossip_interval_ms: int
    gossip_members: int
    retransmit_multiplier: int = 4
    retransmit_floor: int = 12  # At 10 % loss 8 leave one node in 200 without a change (n=16), 12 none.

    # Lifeguard's local health: how far a node that seems to be the slow one stretches its probes.
    awareness_most: int = 8
    lifeguard: bool = True  # Off only to measure what it is good for.

    # Anti-entropy.
    exchange_interval_ms: int  # Between two full exchanges that no difference asked for; grows with the cluster.
    reconnect_interval_ms: int  # Between two attempts to reach a dead member or a seed.
    ask_timeout_ms: int = 10_000

    # In which what a node announces has reached everybody, by far: a member for so long is one that others count on.
    converge_ms: int = 10_000

    # How long a dead epoch is remembered: twice the longest partition that is tolerated, 24 hours.
    dead_retention_ms: int = 48 * 3_600_000

    packet_bytes: int = 1400  # Fits an Ethernet frame with IPv6, UDP and a tunnel's header.

    @property
    def nack_ms(self) -> int:
        """When a helper that has no ACK yet says so: early enough to be heard within the interval of who asked."""
        return min(self.probe_timeout_ms, self.probe_interval_ms - self.probe_timeout_ms) * 4 // 5

    def suspicion_least_ms(self, members: int) -> int:
        """The shortest time between suspicion and verdict in a cluster of so many."""
        scale = max(1.0, math.log10(max(1, members)))
        return int(self.suspicion_multiplier * scale * self.probe_interval_ms)

    def suspicion_most_ms(self, members: int) -> int:
        """The time that nobody confirms for."""
        return self.suspicion_most_multiplier * self.suspicion_least_ms(members)

    def retransmits(self, members: int) -> int:
        """How often each node sends one rumour."""
        return max(self.retransmit_floor, self.retransmit_multiplier * math.ceil(math.log10(members + 1)))


LAN: Final = Profile(
    probe_interval_ms=1000,
    probe_timeout_ms=500,
    indirect_probes=3,
    suspicion_multiplier=4,
    suspicion_most_multiplier=6,
    gossip_interval_ms=200,
    gossip_members=3,
    exchange_interval_ms=30_000,
    reconnect_interval_ms=10_000,
)

WAN: Final = Profile(
    probe_interval_ms=5000,
    probe_timeout_ms=3000,
    indirect_probes=3,
    suspicion_multiplier=6,
    suspicion_most_multiplier=6,
    gossip_interval_ms=500,
    gossip_members=4,
    exchange_interval_ms=60_000,
    reconnect_interval_ms=30_000,
)

LOCAL: Final = Profile(
    probe_interval_ms=500,
    probe_timeout_ms=200,
    indirect_probes=3,
    suspicion_multiplier=4,
    suspicion_most_multiplier=6,
    gossip_interval_ms=100,
    gossip_members=3,
    exchange_interval_ms=15_000,
    reconnect_interval_ms=5_000,
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({"lan": LAN, "wan": WAN, "local": LOCAL})
