"""Acceptors: who decides, what is a quorum, and how one set takes the place of another.

A value has one set of acceptors, or on the way to another one both, a *joint configuration* (old, new); *a quorum of a
value is a majority of its old and of its new set*.  `Acceptors.joint_with` begins one, `new_alone` ends it.  Who may do
either, and when, is the proposer's affair (`proposer.py`); that nothing else happens to a set is held here (`follows`).

An acceptor is a node with one store: where the store is lost, restored or replaced the node is another acceptor, since
it has forgotten what it promised.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

UUID_BYTES: Final = 16
MOST_ACCEPTORS: Final = 9  # Of one set.  A round asks all of them; beyond five there is little to be gained.


class AcceptorId(NamedTuple):
    """An acceptor: a node, and the store in which it keeps what it promised."""

    node: bytes  # The uuid.
    store: int

    def __str__(self) -> str:
        return f"{self.node.hex()[:8]}/{self.store:016x}"


class Acceptors(NamedTuple):
    """The acceptors of a value."""

    old: tuple[AcceptorId, ...]  # Sorted, each once.
    new: tuple[AcceptorId, ...]
    joint: int = 0  # Of a joint configuration: its id, which all values keep until it is left; 0: one set.

    @classmethod
    def of(cls, members: Iterable[AcceptorId]) -> Acceptors:
        """One set.  Raises BadRequest: it is empty, or too large."""
        sorted_members = tuple(sorted(set(members)))
        if not 1 <= len(sorted_members) <= MOST_ACCEPTORS:
            raise BadRequest(f"a register has 1 to {MOST_ACCEPTORS} acceptors, not {len(sorted_members)}")
        return cls(sorted_members, sorted_members)

    @property
    def everyone(self) -> frozenset[AcceptorId]:
        """The acceptors of both sets."""
        return frozenset(self.old) | frozenset(self.new)

    def is_quorum(self, of: AbstractSet[AcceptorId]) -> bool:
        """Whether these are a majority of the old and of the new set."""
        return _is_majority(of, self.old) and (self.new is self.old or _is_majority(of, self.new))

    def joint_with(self, members: Collection[AcceptorId], joint: int) -> Acceptors:
        """The joint configuration on the way to other members.  Requires: this is one set, and not theirs."""
        assert not self.joint, self
        assert joint
        after = Acceptors(self.old, Acceptors.of(members).new, joint)
        assert after.new != self.old, after
        return after

    def new_alone(self) -> Acceptors:
        """The new set of a joint configuration, by itself."""
        assert self.joint, self
        return Acceptors(self.new, self.new)

    def follows(self, before: Acceptors) -> bool:
        """Whether a value with these may come after one with `before`: the same, or a joint one begun or ended."""
        if self.joint == before.joint:
            return self == before
        return self == before.new_alone() if before.joint else self.old == before.old


class Forced(NamedTuple):
    """A force, as the values after it tell of it."""

    generation: int
    force: int
    left_out: tuple[AcceptorId, ...]  # Who was of the set before: what only they had is lost.


class Value(NamedTuple):
    """The value of a register: who its acceptors are, and its payload."""

    acceptors: Acceptors
    payload: bytes
    forces: tuple[Forced, ...] = ()  # The last ones, from the oldest.


MOST_PAYLOAD_BYTES: Final = 64 << 10
MOST_FORCES: Final = 8


def _is_majority(of: AbstractSet[AcceptorId], members: tuple[AcceptorId, ...]) -> bool:
    return 2 * sum(member in of for member in members) > len(members)


def value_of(value: object) -> Value:
    """Read a value from decoded MessagePack.

    Raises:
        ProtocolError: it does not have the form of a value.
    """
    match value:
        case [[list(old), list(new), int(joint)], bytes(payload), list(forces)] if (
            0 <= joint < 1 << 64 and len(payload) <= MOST_PAYLOAD_BYTES and len(forces) <= MOST_FORCES
        ):
            before = members_of(old)
            after = before if new == old else members_of(new)
            if (before == after) == (joint == 0):
                # One tuple where the sets are one: `is_quorum` counts once then.
                acceptors = Acceptors(before, after if joint else before, joint)
                return Value(acceptors, payload, tuple(map(_forced_of, forces)))
    raise ProtocolError("a value is [[old acceptors, new ones, joint id], payload, forces]", {"got": repr(value)[:80]})


def members_of(value: object) -> tuple[AcceptorId, ...]:
    """Read a set of acceptors from decoded MessagePack.

    Raises:
        ProtocolError: it is no such set, or empty, too large, not in order, or somebody is in it twice.
    """
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= MOST_ACCEPTORS:
        members = tuple(map(acceptor_of, value))
        if all(one < other for one, other in pairwise(members)):
            return members
    raise ProtocolError(f"a set of acceptors is a sorted list of 1 to {MOST_ACCEPTORS}", {"got": repr(value)[:80]})


def acceptor_of(value: object) -> AcceptorId:
    """Read the id of an acceptor.

    Raises:
        ProtocolError: it is not [uuid, id of the store].
    """
    match value:
        case [bytes(node), int(store)] if len(node) == UUID_BYTES and 0 < store < 1 << 64:
            return AcceptorId(node, store)
    raise ProtocolError("an acceptor is [uuid of 16 bytes, id of its store]", {"got": repr(value)[:80]})


def _forced_of(value: object) -> Forced:
    match value:
        case [int(generation), int(force), list(left_out)] if generation > 0 < force:
            return Forced(generation, force, tuple(map(acceptor_of, left_out[: 2 * MOST_ACCEPTORS])))
    raise ProtocolError("a force is [generation, force id, who was left out]", {"got": repr(value)[:80]})
