"""Of which refusals the log has a line: of one a second at most for each address.

What more addresses do than are remembered is told as if each were new.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

QUIET_S: Final = 1.0
MOST_ADDRESSES: Final = 1024


@final
class Refusals:
    """When the log had its last line of each address.  Times are seconds of one clock that does not go back."""

    def __init__(self) -> None:
        self._told_at: OrderedDict[str, float] = OrderedDict()

    def is_told(self, address: str, now: float) -> bool:
        """Whether one of this address is to be told; if so, it counts as told."""
        if now < self._told_at.get(address, -QUIET_S) + QUIET_S:
            return False
        self._told_at[address] = now
        self._told_at.move_to_end(address)
        if len(self._told_at) > MOST_ADDRESSES:
            self._told_at.popitem(last=False)
        return True
