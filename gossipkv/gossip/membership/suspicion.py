"""How long a suspected member has to refute (Lifeguard's dynamic suspicion).

Nobody but me has missed it: then it has long, since the fault may be mine.  Each further accuser shortens the time,
down to the least; so does hearing that it is dead to others.  A deadline only ever moves in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.member import ID_BYTES

if TYPE_CHECKING:
    from gossipkv.gossip.profile import Profile

CONFIRMATIONS: Final = 2  # Accusers beyond the first that shorten the time.
NOBODY: Final = bytes(ID_BYTES)  # The accuser where none is named: the first who is may be the one that was meant.


@final
class Suspicion:
    """One member under suspicion, in one incarnation."""

    __slots__ = ("_least_ms", "_most_ms", "_started_ms", "_wanted", "accusers", "deadline_ms")

    def __init__(self, accuser: bytes, profile: Profile, members: int, now_ms: int) -> None:
        self.accusers = {accuser} - {NOBODY}
        # In a cluster of three nobody is left to confirm.
        enough = members - 2 >= CONFIRMATIONS and profile.lifeguard
        self._wanted = CONFIRMATIONS if enough else 0
        self._started_ms = now_ms
        self._least_ms = profile.suspicion_least_ms(members)
        self._most_ms = profile.suspicion_most_ms(members)
        self.deadline_ms = now_ms + (self._most_ms if enough else self._least_ms)

    def found_dead(self, now_ms: int) -> bool:
        """Hear that others waited in vain already: the least time is left, however often it is said; is that sooner?"""
        deadline_ms = now_ms + self._least_ms
        if deadline_ms >= self.deadline_ms:
            return False
        self.deadline_ms = deadline_ms
        return True

    def confirm(self, accuser: bytes) -> bool:
        """Hear of one more accuser; whether that was worth telling on."""
        counts = accuser != NOBODY and accuser not in self.accusers
        if not (counts and self._wanted) or len(self.accusers) > self._wanted:
            return False
        self.accusers.add(accuser)
        share = math.log(len(self.accusers)) / math.log(self._wanted + 1)
        time_ms = max(self._least_ms, int(self._most_ms - share * (self._most_ms - self._least_ms)))
        self.deadline_ms = min(self.deadline_ms, self._started_ms + time_ms)
        return True
