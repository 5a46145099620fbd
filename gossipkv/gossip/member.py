"""One member as others know it, and which of two statements about it is newer.

A member's *name* says who it is: it stands in the settings or is kept with the data.  Each start of a name has a higher
*epoch*, kept with the data; within an epoch the *incarnation* counts the member's own refutations.  Only the member
itself raises either, and only it says that it has left.

Statements about one name are ordered by (epoch, left, incarnation, state), and the larger is believed.  So merging is
commutative, associative and idempotent, nobody comes back from LEFT within an epoch, and DEAD never beats a higher
incarnation.
"""

from __future__ import annotations

import enum
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.address import Address

ID_BYTES = 8
UUID_BYTES = 16
MAX_NAME_BYTES = 64
MAX_EPOCH = (1 << 63) - 1
MAX_INCARNATION = (1 << 32) - 1


class State(enum.IntEnum):
    """How a member is known; of two states in one incarnation the larger is believed."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


REACHABLE = frozenset({State.ALIVE, State.SUSPECT})  # Probed, and told of what is new.
GONE = frozenset({State.DEAD, State.LEFT})


def member_id(name: str) -> bytes:
    """Eight bytes that stand for a name in packets."""
    return blake2b(name.encode(), digest_size=ID_BYTES).digest()


class Rank(NamedTuple):
    """What orders statements about one name."""

    epoch: int
    left: bool
    incarnation: int
    state: State


class Member(NamedTuple):
    """One statement about a member: everything that a newcomer must know about it."""

    id: bytes
    name: str
    uuid: bytes
    address: Address
    epoch: int
    incarnation: int
    state: State

    @property
    def rank(self) -> Rank:
        """Rank of a statement: of two, the larger is believed."""
        return Rank(self.epoch, self.state is State.LEFT, self.incarnation, self.state)


ALIVE, SUSPECT, DEAD, LEFT = State
UNKNOWN: Final = None


class Said(enum.Enum):
    """A statement about a member, or what this node found out for itself: the automaton of `NEXT`.

    A statement counts only when its rank is larger than that of what is known; a VERDICT, which has no
    address, only for an epoch that is known.  What is not in the table changes nothing.

    Two rules are in the table and not in the order of ranks.  A RECORD never kills: what a full exchange or a bystander
    calls dead is suspected, and may refute within the least time.  And nobody is dead who was never seen alive: an
    unknown member becomes known by a RECORD alone; one that is dead already is only remembered, so that it does not
    come back.
    """

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
