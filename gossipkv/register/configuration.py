"""Acceptors: the members of a register, their quorums, and the change from one set to another.

A value has one set of acceptors, or a *joint configuration* (old, new) during a change. *A quorum of a value is a
majority of its old and of its new set.*

`Acceptors.joint_with` begins a change, `new_alone` ends it, and `follows` rejects any other step. The proposer decides
when to take a step (`proposer.py`). An acceptor is a node with one store. A node with a lost, restored or replaced
store is another acceptor, since it has forgotten its promises.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import BadRequest, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

UUID_BYTES: Final = 16
MAX_ACCEPTORS: Final = 9  # Bounds one set. A round asks all acceptors; more than five bring little.


class AcceptorId(NamedTuple):
    """An acceptor: a node, and the store that keeps its promises."""

    node: bytes  # The uuid of the node.
    store: int

    def __str__(self) -> str:
        return f"{self.node.hex()[:8]}/{self.store:016x}"


class Acceptors(NamedTuple):
    """The acceptors of a value."""

    old: tuple[AcceptorId, ...]  # Sorted, without duplicates.
    new: tuple[AcceptorId, ...]
    joint: int = 0  # Id of a joint configuration, kept by all its values; 0 for one set.

    @classmethod
    def of(cls, members: Iterable[AcceptorId]) -> Acceptors:
        """Return one set. Raises BadRequest: the set is empty or too large."""
        sorted_members = tuple(sorted(set(members)))
        if not 1 <= len(sorted_members) <= MAX_ACCEPTORS:
            raise BadRequest(f"a register must have 1 to {MAX_ACCEPTORS} acceptors, not {len(sorted_members)}")
        return cls(sorted_members, sorted_members)

    @property
    def everyone(self) -> frozenset[AcceptorId]:
        """The acceptors of both sets."""
        return frozenset(self.old) | frozenset(self.new)

    def is_quorum(self, of: AbstractSet[AcceptorId]) -> bool:
        """True if these are a majority of the old and of the new set."""
        for members in (self.old,) if self.new is self.old else (self.old, self.new):
            count = 0
            for member in members:
                count += member in of
            if 2 * count <= len(members):
                return False
        return True

    def joint_with(self, members: Collection[AcceptorId], joint: int) -> Acceptors:
        """Return the joint configuration towards other members. Requires one set that differs from `members`."""
        assert not self.joint, self
        assert joint
        after = Acceptors(self.old, Acceptors.of(members).new, joint)
        assert after.new != self.old, after
        return after

    def new_alone(self) -> Acceptors:
        """Return the new set of a joint configuration as a single set."""
        assert self.joint, self
        return Acceptors(self.new, self.new)

    def follows(self, before: Acceptors) -> bool:
        """True if a value with these acceptors may follow one with `before`: unchanged, or a change begun or ended."""
        if self.joint == before.joint:
            return self == before
        return self == before.new_alone() if before.joint else self.old == before.old


class Forced(NamedTuple):
    """A force, as recorded in later values."""

    generation: int
    force: int
    left_out: tuple[AcceptorId, ...]  # Acceptors of the set before; values that only they had are lost.


class Value(NamedTuple):
    """The value of a register: its acceptors and its payload."""

    acceptors: Acceptors
    payload: bytes
    forces: tuple[Forced, ...] = ()  # The latest forces, oldest first.


MAX_PAYLOAD_BYTES: Final = 512 << 10
MAX_FORCES: Final = 8


def value_of(value: object) -> Value:
    """Read a value from decoded MessagePack.

    Raises:
        ProtocolError: the value does not have that form.
    """
    match value:
        case [acceptors, bytes(payload), list(forces)] if (
            len(payload) <= MAX_PAYLOAD_BYTES and len(forces) <= MAX_FORCES
        ):
            return Value(acceptors_of(acceptors), payload, tuple(map(_forced_of, forces)))
    raise ProtocolError("a value must be [acceptors, payload, forces]", {"got": repr(value)[:80]})


def acceptors_of(value: object) -> Acceptors:
    """Read the acceptors of a value from decoded MessagePack.

    Raises:
        ProtocolError: the value does not have that form.
    """
    match value:
        case [list(old), list(new), int(joint)] if 0 <= joint < 1 << 64:
            before = members_of(old)
            after = before if new == old else members_of(new)
            if (before == after) == (joint == 0):
                # Equal sets share one tuple, so `is_quorum` counts once.
                return Acceptors(before, after if joint else before, joint)
    form = "[old acceptors, new acceptors, joint id]"
    raise ProtocolError(f"acceptors must be {form}", {"got": repr(value)[:80]})


def members_of(value: object) -> tuple[AcceptorId, ...]:
    """Read a set of acceptors from decoded MessagePack.

    Raises:
        ProtocolError: the value is no such set: empty, too large, not in order, or with duplicates.
    """
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= MAX_ACCEPTORS:
        members = tuple(map(acceptor_of, value))
        if all(before < after for before, after in pairwise(members)):
            return members
    raise ProtocolError(f"acceptors must be a sorted list of 1 to {MAX_ACCEPTORS}", {"got": repr(value)[:80]})


def acceptor_of(value: object) -> AcceptorId:
    """Read the id of an acceptor.

    Raises:
        ProtocolError: the value is not [uuid, id of the store].
    """
    match value:
        case [bytes(node), int(store)] if len(node) == UUID_BYTES and 0 < store < 1 << 64:
            return AcceptorId(node, store)
    raise ProtocolError("an acceptor must be [uuid of 16 bytes, id of its store]", {"got": repr(value)[:80]})


def _forced_of(value: object) -> Forced:
    match value:
        case [int(generation), int(force), list(left_out)] if generation > 0 < force:
            return Forced(generation, force, tuple(map(acceptor_of, left_out[: 2 * MAX_ACCEPTORS])))
    raise ProtocolError("a force must be [generation, force id, omitted acceptors]", {"got": repr(value)[:80]})
