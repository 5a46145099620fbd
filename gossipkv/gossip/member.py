"""One member as others know it, and which of two statements about it is newer.

A member's *name* is its identity: it comes from the settings or is kept with the data. Each start under a name has a
higher *epoch*, kept with the data; within an epoch the *incarnation* counts the member's own refutations. Only the
member itself raises either, and only the member says that it has left.

Statements about one name are ordered by (epoch, left, incarnation, state), and the larger is believed. So merging is
commutative, associative and idempotent, no member returns from LEFT within an epoch, and DEAD never beats a higher
incarnation.
"""

from __future__ import annotations

import enum
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.protocol import FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.address import Address
    from gossipkv.protocol import ProtocolVersions

ID_BYTES = 8
UUID_BYTES = 16
MAX_NAME_BYTES = 64
MAX_EPOCH = (1 << 63) - 1
MAX_INCARNATION = (1 << 32) - 1


class MemberState(enum.IntEnum):
    """State of a member; of two states in one incarnation the larger is believed."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


REACHABLE = frozenset({MemberState.ALIVE, MemberState.SUSPECT})  # These members are probed and receive news.
GONE = frozenset({MemberState.DEAD, MemberState.LEFT})


def member_id(name: str) -> bytes:
    """Return the eight bytes that stand for a name in packets."""
    return blake2b(name.encode(), digest_size=ID_BYTES).digest()


class Rank(NamedTuple):
    """The order of statements about one name."""

    epoch: int
    left: bool
    incarnation: int
    state: MemberState


class Member(NamedTuple):
    """One statement about a member: everything that a newcomer must know about the member."""

    id: bytes
    name: str
    uuid: bytes
    address: Address
    epoch: int
    incarnation: int
    state: MemberState
    versions: ProtocolVersions = FIRST  # The versions of the protocol that it speaks.

    @property
    def rank(self) -> Rank:
        """Rank of this statement; of two statements the one with the larger rank is believed."""
        return Rank(self.epoch, self.state is MemberState.LEFT, self.incarnation, self.state)


ALIVE, SUSPECT, DEAD, LEFT = MemberState
UNKNOWN: Final = None


class MemberEvidence(enum.Enum):
    """A statement about a member, or a local finding: the input of the automaton `NEXT`.

    A statement counts only if its rank is larger than the rank of the known one. A VERDICT has no address, so it counts
    only for a known epoch. An input that is missing in the table changes nothing.

    Two rules are in the table and not in the order of ranks. First, a RECORD never kills: a member that a full exchange
    or a bystander calls dead is only suspected, and may refute within the least suspicion time. Second, only a member
    that was seen alive can die: an unknown member becomes known by a RECORD alone. An unknown member that is dead
    already is only remembered, so that it does not come back.
    """

    ALIVE = "alive, by record or verdict"
    SUSPECT = "suspect, by record or verdict"
    DEAD = "dead, by verdict"
    LEFT = "left, by record or verdict"
    DEAD_RECORD = "dead, by record"
    UNANSWERED = "my probe was not answered"
    EXPIRED = "my suspicion ran out"
    FORGOTTEN = "dead or left for longer than is remembered"


NEXT: Final[Mapping[tuple[MemberState | None, MemberEvidence], MemberState | None]] = MappingProxyType(
    {
        (UNKNOWN, MemberEvidence.ALIVE): ALIVE,
        (UNKNOWN, MemberEvidence.SUSPECT): SUSPECT,
        (UNKNOWN, MemberEvidence.DEAD_RECORD): DEAD,
        (UNKNOWN, MemberEvidence.LEFT): LEFT,
        (ALIVE, MemberEvidence.ALIVE): ALIVE,
        (ALIVE, MemberEvidence.SUSPECT): SUSPECT,
        (ALIVE, MemberEvidence.DEAD): DEAD,
        (ALIVE, MemberEvidence.DEAD_RECORD): SUSPECT,
        (ALIVE, MemberEvidence.LEFT): LEFT,
        (ALIVE, MemberEvidence.UNANSWERED): SUSPECT,
        (SUSPECT, MemberEvidence.ALIVE): ALIVE,
        (SUSPECT, MemberEvidence.SUSPECT): SUSPECT,
        (SUSPECT, MemberEvidence.DEAD): DEAD,
        (SUSPECT, MemberEvidence.DEAD_RECORD): SUSPECT,
        (SUSPECT, MemberEvidence.LEFT): LEFT,
        (SUSPECT, MemberEvidence.EXPIRED): DEAD,
        (DEAD, MemberEvidence.ALIVE): ALIVE,
        (DEAD, MemberEvidence.SUSPECT): SUSPECT,
        (DEAD, MemberEvidence.DEAD): DEAD,
        (DEAD, MemberEvidence.DEAD_RECORD): DEAD,
        (DEAD, MemberEvidence.LEFT): LEFT,
        (DEAD, MemberEvidence.FORGOTTEN): UNKNOWN,
        # This row and the following need a newer epoch: no member returns from LEFT within an epoch.
        (LEFT, MemberEvidence.ALIVE): ALIVE,
        (LEFT, MemberEvidence.SUSPECT): SUSPECT,
        (LEFT, MemberEvidence.DEAD_RECORD): DEAD,
        (LEFT, MemberEvidence.LEFT): LEFT,
        (LEFT, MemberEvidence.FORGOTTEN): UNKNOWN,
    }
)
