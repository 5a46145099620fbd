"""When to ask again for what is still being built, so that a read waits for it within its own deadline.

The client asks again; the node keeps nothing for it.  A request that waited in the node would be a task and memory
there, would hold up its draining, and a node that is silent until a deadline is one that clients leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import NotReady

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError

FIRST_PAUSE_S: Final = 0.010  # Something small may be there in a moment.
LONGEST_PAUSE_S: Final = (
    0.5  # To refuse a request costs a node some 50 us: a thousand that wait take a tenth of a core.
)
MIN_LEFT_S: Final = 0.1  # With less the answer might come too late, and say less than the one that is here.


def pause_s(error: GossipKVError | None, waited_s: float, left_s: float) -> float | None:
    """Seconds until a request that was answered so is asked again; None: the answer stands.

    `waited_s` is the time since the first such answer, and `left_s` that until the deadline.
    """
    if not isinstance(error, NotReady) or error.details.get("coming") is not True or left_s < MIN_LEFT_S:
        return None
    return min(left_s / 2, max(FIRST_PAUSE_S, min(LONGEST_PAUSE_S, waited_s / 2)))
