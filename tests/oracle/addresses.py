"""The party of a peer's address, by `ipaddress`, and the connections of each party."""

from __future__ import annotations

import ipaddress
from collections import Counter

TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")

Party = ipaddress.IPv4Address | ipaddress.IPv6Network


def party(packed: bytes) -> Party:
    """Return the IPv4 address, also one inside an IPv6 address; else the network of 64 bits."""
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in TRANSLATED:
        return ipaddress.IPv4Address(packed[12:])
    return ipaddress.IPv6Network((packed, 64), strict=False)


class Doorkeeper:
    """Admits at most `limit` connections of one party; 0 is no limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.counts: Counter[Party] = Counter()

    def enter(self, packed: bytes) -> bool:
        if self.limit and self.counts[party(packed)] >= self.limit:
            return False
        self.counts[party(packed)] += 1
        return True

    def leave(self, packed: bytes) -> None:
        self.counts[party(packed)] -= 1
