"""Which wrong tokens of an address are refused at once, and which only after a pause.

Five are, and each second one more is: a token bucket, kept as the one moment at which it is full again (GCRA).

Whoever has a right one never waits, also not beside others of its address that are wrong all the time: behind a
balancer, or a network's one address, a client that was forgotten when tokens changed would else shut all of them out.
The pause slows whoever tries again in a loop, which spares the node's time.  Tokens are kept by their length: nobody
finds one of 2^256 at any speed, so it does no harm that addresses are forgotten once there are too many.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final, final

FREE: Final = 5
EACH_S: Final = 1.0
# At 200 bytes each about a megabyte; beyond that whoever was wrong longest ago is forgotten.
MAX_ADDRESSES: Final = 4096
# Of IPv6 whoever has one address has 2^64.
_IPV6_PREFIX: Final = 64


@final
class Throttle:
    """Which addresses came with wrong tokens lately.  Times are seconds of one clock that does not go back."""

    def __init__(self) -> None:
        self._clear_at: OrderedDict[str, float] = OrderedDict()  # By address; who was wrong last stands last.

    def wrong(self, address: str, now: float) -> bool:
        """Note a wrong one; whether it is one too many."""
        group = _group(address)
        most = now + FREE * EACH_S
        clear_at = max(self._clear_at.pop(group, now), now) + EACH_S
        self._clear_at[group] = min(clear_at, most)
        if len(self._clear_at) > MAX_ADDRESSES:
            self._clear_at.popitem(last=False)
        return clear_at > most


def _group(address: str) -> str:
    """Who counts as one: an address of IPv4, a network of IPv6."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:  # noqa: PLR2004  # The protocol's number.
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
