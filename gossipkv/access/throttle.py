"""How long an address waits before its next token is looked at.

Five wrong ones are free, each further one waits until a second has passed for it, and each second one more is free: a
token bucket, kept as the one moment at which it is full again (GCRA).

Whoever is to wait asks again afterwards, since others of its address may have been wrong meanwhile: so of a thousand
connections at once no more than one a second is looked at.  The right ones of that address wait with them; whoever is
connected already does not.

What this spares is the node's time, and its log.  Tokens are kept by their length: nobody finds one of 2^256 at any
speed, so it does no harm that addresses are forgotten once there are too many.
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

    def wait_s(self, address: str, now: float) -> float:
        """How long until a token of this address may be looked at; ask again then."""
        return max(0.0, self._clear_at.get(_group(address), now) - now - (FREE - 1) * EACH_S)

    def wrong(self, address: str, now: float) -> None:
        """One was looked at, and was wrong."""
        group = _group(address)
        self._clear_at[group] = max(self._clear_at.pop(group, now), now) + EACH_S
        if len(self._clear_at) > MAX_ADDRESSES:
            self._clear_at.popitem(last=False)


def _group(address: str) -> str:
    """Who counts as one: an address of IPv4, a network of IPv6."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:  # noqa: PLR2004  # The protocol's number.
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
