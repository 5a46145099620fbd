"""Pauses between repeated reads of data that a node still builds, within the read's deadline.

The client asks again; the node keeps no state.  A request that waited in the node would cost a task and memory, and
would delay its draining; and clients leave a node that is silent until a deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import NotReady

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError

FIRST_PAUSE_S: Final = 0.010  # Small data may be ready in a moment.
LONGEST_PAUSE_S: Final = 0.5  # A refusal costs a node some 50 us: a thousand waiting requests take a tenth of a core.
MIN_LEFT_S: Final = 0.1  # With less time a new answer might be late, and the present one says more than a timeout.


def pause_s(error: GossipKVError | None, waited_s: float, left_s: float) -> float | None:
    """Return the seconds until a request with this error is asked again; None if the error is final.

    `waited_s` is the time since the first such error, and `left_s` the time until the deadline.
    """
    if not isinstance(error, NotReady) or error.details.get("coming") is not True or left_s < MIN_LEFT_S:
        return None
    return min(left_s / 2, max(FIRST_PAUSE_S, min(LONGEST_PAUSE_S, waited_s / 2)))
