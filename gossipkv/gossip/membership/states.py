"""What becomes of a member when something is said about it: the whole automaton.

A statement counts only when its rank is larger than that of what is known (`member.py`); a VERDICT, which has no
address, only for an epoch that is known.  What is not in the table changes nothing.

Two rules are in the table and not in the order of ranks.  A RECORD never kills: what a full exchange or a bystander
calls dead is suspected, and may refute within the least time.  And nobody is dead who was never seen alive: an unknown
member becomes known by a RECORD alone; one that is dead already is only remembered, so that it does not come back.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gossipkv.gossip.member import State

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIVE, SUSPECT, DEAD, LEFT = State
UNKNOWN: Final = None


class Said(enum.Enum):
    """A statement, or what this node found out for itself."""

    ALIVE = "alive, by record or verdict"
    SUSPECT = "suspect, by record or verdict"
    DEAD = "dead, by verdict"
    LEFT = "left, by record or verdict"
    DEAD_RECORD = "dead, by record"
    UNANSWERED = "my probe was not answered"
    EXPIRED = "my suspicion ran out"
    FORGOTTEN = "dead or left for longer than is remembered"


NEXT: Final[Mapping[tuple[State | None, Said], State | None]] = MappingProxyType(
    {
        (UNKNOWN, Said.ALIVE): ALIVE,
        (UNKNOWN, Said.SUSPECT): SUSPECT,
        (UNKNOWN, Said.DEAD_RECORD): DEAD,
        (UNKNOWN, Said.LEFT): LEFT,
        (ALIVE, Said.ALIVE): ALIVE,
        (ALIVE, Said.SUSPECT): SUSPECT,
        (ALIVE, Said.DEAD): DEAD,
        (ALIVE, Said.DEAD_RECORD): SUSPECT,
        (ALIVE, Said.LEFT): LEFT,
        (ALIVE, Said.UNANSWERED): SUSPECT,
        (SUSPECT, Said.ALIVE): ALIVE,
        (SUSPECT, Said.SUSPECT): SUSPECT,
        (SUSPECT, Said.DEAD): DEAD,
        (SUSPECT, Said.DEAD_RECORD): SUSPECT,
        (SUSPECT, Said.LEFT): LEFT,
        (SUSPECT, Said.EXPIRED): DEAD,
        (DEAD, Said.ALIVE): ALIVE,
        (DEAD, Said.SUSPECT): SUSPECT,
        (DEAD, Said.DEAD): DEAD,
        (DEAD, Said.DEAD_RECORD): DEAD,
        (DEAD, Said.LEFT): LEFT,
        (DEAD, Said.FORGOTTEN): UNKNOWN,
        (LEFT, Said.ALIVE): ALIVE,  # Of a newer epoch, as all that follow: nobody comes back from LEFT within one.
        (LEFT, Said.SUSPECT): SUSPECT,
        (LEFT, Said.DEAD_RECORD): DEAD,
        (LEFT, Said.LEFT): LEFT,
        (LEFT, Said.FORGOTTEN): UNKNOWN,
    }
)
