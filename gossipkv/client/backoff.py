"""When to try an address again that could not be reached: later each time, and not when everybody else does.

The pause before the n-th attempt in a row is drawn from the upper half of 10 ms * 2^(n-1), at most one second: a
node that restarts is found soon, and one that comes back is not met by all its clients in the same millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address

FIRST_PAUSE_S: Final = 0.010  # A refused connection costs a node nothing; ten a second or so is nothing to a network.
LONGEST_PAUSE_S: Final = 1.0  # The default timeout of a request: one that waits sees at least one attempt.
MAX_DOUBLINGS: Final = 7  # More change nothing, and a number that grows for ever is one that overflows.


@final
class Backoff:
    """How often each address failed in a row, and the time before which it is left alone.

    `draw` gives numbers from 0 to 1.
    """

    __slots__ = ("_draw", "_failed")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._failed: dict[Address, tuple[int, float]] = {}

    def failed(self, address: Address, now: float) -> None:
        """It could not be reached, or ended the connection without an answer."""
        count = self._failed.get(address, (0, 0.0))[0] + 1
        longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(count - 1, MAX_DOUBLINGS))
        self._failed[address] = count, now + longest_s * (1 + self._draw()) / 2

    def worked(self, address: Address) -> None:
        """It answered."""
        self._failed.pop(address, None)

    def ready_at(self, address: Address) -> float:
        """When it may be tried."""
        return self._failed.get(address, (0, 0.0))[1]
