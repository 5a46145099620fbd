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
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
