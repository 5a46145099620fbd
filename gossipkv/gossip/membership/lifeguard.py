"""Lifeguard: how a node doubts itself before it accuses others.

*Local health*: a failed probe that no other member confirms suggests that this node is the slow one. So does a helper
that does not even send a NACK, and a suspicion of this node. Then its probes wait longer before they accuse.

*Dynamic suspicion*: a suspected member gets a long time to refute while this node is the only accuser, since the fault
may be here. Each further accuser shortens the time, down to the least; so does a report that the member is dead. A
deadline only moves to an earlier time.

*Silence*: a node that has heard no packet at all for two intervals is itself the one that is cut off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.member import ID_BYTES
from gossipkv.gossip.membership.timers import NEVER

if TYPE_CHECKING:
    from gossipkv.gossip.profile import TimingProfile

CONFIRMATIONS: Final = 2  # Accusers beyond the first that shorten the time.
SILENT_INTERVALS: Final = 2  # Detector intervals without any packet; each interval should bring a PING and an ACK.
# Stands for an unnamed accuser. The first named accuser may be the same node, so it shortens nothing.
NOBODY: Final = bytes(ID_BYTES)


@final
class Awareness:
    """A health score from 0 (healthy) to `most - 1`."""

    __slots__ = ("_last", "score")

    def __init__(self, most: int) -> None:
        self._last = most - 1
        self.score = 0

    def worse(self, by: int) -> None:
        """Raise the score: something speaks against this node."""
        assert by >= 0, by
        self.score = min(self._last, self.score + by)

    def better(self) -> None:
        """Lower the score: a probe was answered."""
        if self.score:
            self.score -= 1

    def stretched(self, time_ms: int) -> int:
        """Return `time_ms` stretched by the score."""
        return time_ms * (self.score + 1)


@final
class Suspicion:
    """Suspicion of one member in one incarnation."""

    __slots__ = ("_least_ms", "_most_ms", "_started_ms", "_wanted", "accusers", "deadline_ms")

    def __init__(self, accuser: bytes, profile: TimingProfile, members: int, now_ms: int) -> None:
        self.accusers = {accuser} - {NOBODY}
        # In a cluster of three, no member is left to confirm.
        enough = members - 2 >= CONFIRMATIONS and profile.lifeguard
        self._wanted = CONFIRMATIONS if enough else 0
        self._started_ms = now_ms
        self._least_ms = profile.suspicion_least_ms(members)
        self._most_ms = profile.suspicion_most_ms(members)
        self.deadline_ms = now_ms + (self._most_ms if enough else self._least_ms)

    def found_dead(self, now_ms: int) -> bool:
        """Shorten the deadline to the least time from now, since others found the member dead; True if sooner."""
        deadline_ms = now_ms + self._least_ms
        if deadline_ms >= self.deadline_ms:
            return False
        self.deadline_ms = deadline_ms
        return True

    def confirm(self, accuser: bytes) -> bool:
        """Count one more accuser; return True if the news is worth spreading."""
        counts = accuser != NOBODY and accuser not in self.accusers
        if not (counts and self._wanted) or len(self.accusers) > self._wanted:
            return False
        self.accusers.add(accuser)
        share = math.log(len(self.accusers)) / math.log(self._wanted + 1)
        time_ms = max(self._least_ms, int(self._most_ms - share * (self._most_ms - self._least_ms)))
        self.deadline_ms = min(self.deadline_ms, self._started_ms + time_ms)
        return True


def silence_ms(profile: TimingProfile) -> int:
    """Return the time without any packet after which the fault may be this node's."""
    return SILENT_INTERVALS * profile.probe_interval_ms if profile.lifeguard else NEVER
