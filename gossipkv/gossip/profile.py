"""The constants of membership and dissemination, by network.

`LAN` has the values that memberlist's users have run for a decade. Two were changed after measuring: the floor of the
retransmit bound, and anti-entropy after a difference instead of by the clock alone. `WAN` is for links with latencies
of up to a second, `LOCAL` for one machine or one rack. Times are in milliseconds.
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
class TimingProfile:
    """The constants for one network."""

    # Failure detector (SWIM): each interval probes one member.
    probe_interval_ms: int
    probe_timeout_ms: int  # After this time without an answer, other members and TCP are tried.
    indirect_probes: int = 3

    # Suspicion (Lifeguard): the time falls from the most to the least as other members confirm.
    suspicion_multiplier: int
    suspicion_most_multiplier: int = 6

    # Dissemination: each interval tells rumours to `gossip_members` members, besides those that ride on probes.
    gossip_interval_ms: int
    gossip_members: int
    retransmit_multiplier: int = 4
    retransmit_floor: int = 12  # At 10 % loss, 8 leave one node in 200 without a change (n=16); 12 leave none.

    # Lifeguard's local health: bounds how far a node that seems slow stretches its own probes.
    awareness_most: int = 8
    lifeguard: bool = True  # False only to measure the benefit of Lifeguard.

    # Anti-entropy.
    exchange_interval_ms: int  # Time between full exchanges without a difference; grows with the cluster.
    reconnect_interval_ms: int  # Time between attempts to reach a dead member or a seed.
    ask_timeout_ms: int = 10_000

    # Ample time for an announcement to reach all members; a member this old is one that others rely on.
    converge_ms: int = 10_000

    # A dead epoch is remembered for twice the longest tolerated partition of 24 hours.
    dead_retention_ms: int = 48 * 3_600_000

    packet_bytes: int = 1400  # Fits an Ethernet frame with the headers of IPv6, UDP and a tunnel.

    @property
    def nack_ms(self) -> int:
        """Time until a helper without an ACK says so; its NACK arrives within the prober's interval."""
        return min(self.probe_timeout_ms, self.probe_interval_ms - self.probe_timeout_ms) * 4 // 5

    def suspicion_least_ms(self, members: int) -> int:
        """Return the shortest time from suspicion to verdict in a cluster of so many members."""
        scale = max(1.0, math.log10(max(1, members)))
        return int(self.suspicion_multiplier * scale * self.probe_interval_ms)

    def suspicion_most_ms(self, members: int) -> int:
        """Return the time from suspicion to verdict if no member confirms."""
        return self.suspicion_most_multiplier * self.suspicion_least_ms(members)

    def retransmits(self, members: int) -> int:
        """Return the number of times that each node sends one rumour."""
        return max(self.retransmit_floor, self.retransmit_multiplier * math.ceil(math.log10(members + 1)))


LAN: Final = TimingProfile(
    probe_interval_ms=1000,
    probe_timeout_ms=500,
    suspicion_multiplier=4,
    gossip_interval_ms=200,
    gossip_members=3,
    exchange_interval_ms=30_000,
    reconnect_interval_ms=10_000,
)

WAN: Final = TimingProfile(
    probe_interval_ms=5000,
    probe_timeout_ms=3000,
    suspicion_multiplier=6,
    gossip_interval_ms=500,
    gossip_members=4,
    exchange_interval_ms=60_000,
    reconnect_interval_ms=30_000,
)

LOCAL: Final = TimingProfile(
    probe_interval_ms=500,
    probe_timeout_ms=200,
    suspicion_multiplier=4,
    gossip_interval_ms=100,
    gossip_members=3,
    exchange_interval_ms=15_000,
    reconnect_interval_ms=5_000,
)

PROFILES: Final[Mapping[str, TimingProfile]] = MappingProxyType({"lan": LAN, "wan": WAN, "local": LOCAL})
