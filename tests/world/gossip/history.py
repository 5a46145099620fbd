"""The true actions and statements of members, which the checkers compare views with.

The truth is recorded where it happens: owners publish through `History`, and a member's statements are read from its
own process before any other view is checked.  So the truth is never behind a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.gossip.core import Gossip
from gossipkv.gossip.member import MemberState, member_id

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.gossip.member import Member
    from tests.world.machine import Machine
    from tests.world.world import World

PLACES = ("keys", "deep/er")  # The paths under which the workload publishes: flat, so that two lists show all.

Entries = frozenset[tuple[str, bytes]]  # Path and value.
NOTHING: Entries = frozenset()


class BranchState(NamedTuple):
    epoch: int
    entries: Entries
    at_us: int


class SelfStatements(NamedTuple):
    """A member's statements about itself in one epoch."""

    # One uuid and address; more only when epochs began anew after a lost disk.
    places: frozenset[tuple[bytes, Address]]
    incarnation: int  # The highest incarnation.
    has_left: bool


def core_of(machine: Machine) -> Gossip | None:
    core = machine.core
    assert core is None or isinstance(core, Gossip)
    return core


@final
class History:
    """The truth about all members of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.branches: dict[str, list[BranchState]] = {}  # By name, oldest first.
        self.said: dict[tuple[str, int], SelfStatements] = {}  # By name and epoch.
        self._entries: dict[str, tuple[int, dict[str, bytes]]] = {}  # By name: the life, and the published entries.
        world.on_moment.append(self.note)

    def publish(self, machine: Machine, path: str, value: bytes) -> None:
        """Publish through the member on a machine, and record it."""
        core = core_of(machine)
        assert core is not None
        core.tree.publish(path, value)
        self._mine(machine)[path] = value
        self.note(machine)
        machine.after_input()

    def withdraw(self, machine: Machine, path: str) -> None:
        """Withdraw through the member on a machine, and record it."""
        core = core_of(machine)
        assert core is not None
        core.tree.withdraw(path)
        self._mine(machine).pop(path, None)
        self.note(machine)
        machine.after_input()

    def published(self, machine: Machine) -> dict[str, bytes]:
        """Return the entries that the process on a machine publishes now."""
        return dict(self._mine(machine))

    def now(self, name: str) -> BranchState | None:
        states = self.branches.get(name)
        return states[-1] if states else None

    def epoch(self, name: str) -> int:
        """Return the highest epoch that the member ever began."""
        return max((epoch for who, epoch in self.said if who == name), default=0)

    def note(self, machine: Machine) -> None:
        """Record a process's statements about itself."""
        me = own(machine)
        if me is None:
            return
        before = self.said.get((machine.name, me.epoch), SelfStatements(frozenset(), 0, has_left=False))
        self.said[machine.name, me.epoch] = SelfStatements(
            before.places | {(me.uuid, me.address)},
            max(before.incarnation, me.incarnation),
            before.has_left or me.state is MemberState.LEFT,
        )
        states = self.branches.setdefault(machine.name, [])
        entries = frozenset(self._mine(machine).items())
        if not states or (states[-1].epoch, states[-1].entries) != (me.epoch, entries):
            states.append(BranchState(me.epoch, entries, self._world.now_us))

    def _mine(self, machine: Machine) -> dict[str, bytes]:
        life, entries = self._entries.get(machine.name, (0, {}))
        if life != machine.life:  # Entries are ephemeral: each process begins with none.
            entries = {}
            self._entries[machine.name] = machine.life, entries
        return entries


def own(machine: Machine) -> Member | None:
    """Return a member's view of itself; None if it is silent."""
    core = core_of(machine)
    return None if core is None or core.silent else core.members.get(member_id(machine.name))


def view(machine: Machine, *, everything: bool) -> dict[str, dict[str, bytes]]:
    """Return the entries that a user of this machine sees, by owner; `everything` includes suspects and dead owners."""
    core = core_of(machine)
    assert core is not None
    now_ms = machine.now_ms
    seen: dict[str, dict[str, bytes]] = {}
    for place in PLACES:
        for entry in core.tree.entries(place, now_ms=now_ms, all=everything):
            seen.setdefault(entry.owner, {})[f"{place}/{entry.name}"] = entry.value
    return seen
