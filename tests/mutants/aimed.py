"""Worlds in which one thing happens, at the moment at which a wrong member gives itself away.

Each returns what checkers found wrong; of right members that is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossipkv.gossip.core import Limits
from gossipkv.gossip.member import State
from gossipkv.gossip.profile import LOCAL
from gossipkv.gossip.tree.limits import TreeLimits
from gossipkv.testing.checkers import Checkers, shows_the_truth
from gossipkv.testing.history import History
from gossipkv.testing.members import formed, program, state_of
from gossipkv.testing.scheduler import MS, SECOND
from tests.unit.gossip.tree.transfers import Transfers


@dataclass
class Scene:
    """A cluster that has come together, with everybody who looks at it."""

    members: int
    limits: Limits | None = None
    killed: list[tuple[str, str]] = field(default_factory=list)  # By whom, whom.

    def __post_init__(self):
        self.world = formed(1, self.members, LOCAL, settle_us=2 * SECOND)
        self.history = History(self.world)
        self.checkers = Checkers(self.world, self.history, LOCAL)
        for machine in self.world.machines:
            self.history.note(machine)
        self.world.on_changed.append(self._changed)

    def _changed(self, machine, changed):
        if changed.member.state is State.DEAD:
            self.killed.append((machine.name, changed.member.name))

    @property
    def machines(self):
        """Of all members."""
        return self.world.machines

    def run(self, seconds, step_us=50 * MS):
        """Let time pass, and look."""
        for _ in range(int(seconds * SECOND / step_us)):
            self.world.run(step_us)
            self.checkers.look_at_all()

    def found(self):
        """What the checkers found, and whether everybody shows the truth now."""
        wrong = [f"{one.checker}: {one.what}" for one in self.checkers.violations]
        untrue = shows_the_truth(self.world, self.history)
        return wrong if untrue is None else [*wrong, f"shows_the_truth: {untrue}"]


def a_short_pause():
    """One member stands still for longer than a probe and shorter than a suspicion."""
    scene = Scene(8)
    scene.machines[3].pause()
    scene.run(1.5)
    scene.machines[3].resume()
    scene.run(10)
    return [*scene.found(), *(f"no_verdict_in_haste: {by} on {whom}" for by, whom in scene.killed)]


def one_who_took_all_for_dead():
    """A member that was cut off comes back and tells what it believed meanwhile."""
    scene = Scene(8)
    alone = scene.machines[0]
    scene.world.network.partition([alone], scene.machines[1:])
    scene.run(40, step_us=SECOND)
    scene.world.network.heal()
    scene.run(35, step_us=SECOND)
    hearsay = {pair for pair in scene.killed if alone.name not in pair}
    return [*scene.found(), *(f"nobody_is_killed_on_hearsay: {by} on {whom}" for by, whom in sorted(hearsay))]


def a_farewell():
    """A member leaves, and everybody knows within a second and a half."""
    scene = Scene(8)
    gone, others = scene.machines[3], scene.machines[:3] + scene.machines[4:]
    scene.history.publish(gone, "keys/a", b"1")
    scene.run(2)
    gone.leave()
    scene.run(1.5)
    shown = {other.name: state_of(other, gone) for other in others}
    wrong = [f"{one.checker}: {one.what}" for one in scene.checkers.violations]
    return wrong + [f"all_hear_a_farewell: {who} says {state}" for who, state in shown.items() if state != State.LEFT]


def much_to_tell():
    """All publish large values at the same moment."""
    scene = Scene(8)
    for machine in scene.machines:
        scene.history.publish(machine, "keys/large", bytes(500))
    scene.run(5)
    return scene.found()


def behind_the_floor():
    """A member is away while more is withdrawn than anybody remembers."""
    scene = Scene(4)
    owner, away = scene.machines[0], scene.machines[3]
    few = Limits(tree=TreeLimits(max_tombstones=4))
    for machine in scene.machines:
        machine.program = program(LOCAL, limits=few)
        machine.crash()
        machine.start()
    scene.run(5)
    for number in range(20):
        scene.history.publish(owner, f"keys/{number}", b"1")
    scene.run(5)
    scene.world.network.partition([away], scene.machines[:3])
    scene.run(1)
    for number in range(15):
        scene.history.withdraw(owner, f"keys/{number}")
    scene.run(20, step_us=SECOND)
    scene.world.network.heal()
    scene.run(35, step_us=SECOND)
    return scene.found()


def a_lost_disk():
    """A member loses its disk and is back before anybody has missed it."""
    scene = Scene(4)
    lost = scene.machines[2]
    scene.history.publish(lost, "keys/before", b"1")
    scene.run(3)
    lost.crash()
    lost.disk.wipe()
    lost.start()
    scene.run(2)
    scene.history.publish(lost, "keys/after", b"2")
    scene.run(20)
    return scene.found()


def branches_alone():
    """One owner, four readers, deltas that are cut, lost, doubled, shuffled; the oracle knows every state."""
    try:
        for seed in range(60):
            transfers = Transfers(seed)
            for _ in range(300):
                transfers.step()
            transfers.heal()
    except AssertionError as wrong:
        return [f"only_real_states: {wrong}"]
    return []


SCENES = [
    a_short_pause, one_who_took_all_for_dead, a_farewell, much_to_tell, behind_the_floor, a_lost_disk, branches_alone,
]  # fmt: skip
