"""Backoff: pauses before an unreachable address is tried again, longer each time, and not in step with other clients.

The pause before the n-th attempt in a row is drawn from the upper half of 10 ms * 2^(n-1), at most one second.  So a
node that restarts is found soon, and its clients do not all return in the same millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address

FIRST_PAUSE_S: Final = 0.010  # A refused connection costs a node nothing, and ten a second cost a network nothing.
LONGEST_PAUSE_S: Final = 1.0  # The default timeout of a request, so a waiting request sees at least one attempt.
MAX_DOUBLINGS: Final = 7  # More doublings change nothing, and an unbounded exponent would overflow.


@final
class Backoff:
    """Consecutive failures of each address, and the end of its pause.

    `draw` returns numbers from 0 to 1.
    """

    __slots__ = ("_draw", "_failed")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._failed: dict[Address, tuple[int, float]] = {}

    def failed(self, address: Address, now: float) -> None:
        """Note that the address could not be reached, or ended the connection without an answer."""
        count, ready_at = self._failed.get(address, (0, 0.0))
        if now < ready_at:
            return  # An attempt of another thread, which began before the pause.
        count += 1
        longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(count - 1, MAX_DOUBLINGS))
        self._failed[address] = count, now + longest_s * (1 + self._draw()) / 2

    def worked(self, address: Address) -> None:
        """Note that the address answered."""
        self._failed.pop(address, None)

    def ready_at(self, address: Address) -> float:
        """Return the time from which the address may be tried."""
        return self._failed.get(address, (0, 0.0))[1]
