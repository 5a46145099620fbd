"""One run of registers under faults, from one seed: first safety, then liveness.

The seed draws the number of machines, the use of their registers, and the faults.  During the faults the checkers look
at every record.  Then the world heals; within `HEALED_US` every register must commit a change, if the acceptors with
intact disks are a quorum of whichever value may have been committed last.

    python -m tests.world --registers --seed 17

replays seed 17, on ideal disks; `--stored` puts production's store under the acceptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.register.configuration import AcceptorId, Acceptors
from tests.world import faults
from tests.world.faults import Faults, Strike
from tests.world.promises import Promises
from tests.world.register.register_cluster import Cluster
from tests.world.register.rig import RegisterRig
from tests.world.register.workload import Probe, Style, Workload, rig_of
from tests.world.scheduler import MS, SECOND
from tests.world.store_disk import Aim, IdealDisk, StoreDisk
from tests.world.swarm import Outcome, Plan, run_phases
from tests.world.world import World

if TYPE_CHECKING:
    from collections import Counter
    from random import Random

    from tests.world.register.history import History

CREATED_US: Final = 100 * MS  # All machines run by then, and registers are created.
BEGUN_US: Final = 200 * MS  # The clients and the faults begin.
HEALED_US: Final = 5 * SECOND
LOOK_US: Final = 250 * MS
USUAL_S: Final = 60  # The time in which the usual faults have their effect.


def _strike_sync(strikes: Faults, chance: Random) -> None:
    machine, aim = strikes.up(chance), chance.choice(tuple(Aim))
    power, skip = bool(chance.randrange(2)), chance.randrange(4)
    if machine is not None:
        rig_of(machine).disk.strike_sync(aim, power=power, skip=skip)


def _go_back(strikes: Faults, chance: Random) -> None:
    """Take a snapshot of a disk; go back to it, once, when others have seen enough to detect that."""
    machine = strikes.up(chance)
    taken = [other for other in strikes.world.machines if rig_of(other).snapshot is not None and other.is_up]
    machine = taken[0] if taken else machine
    if machine is None:
        return
    rig = rig_of(machine)
    store, snapshot = rig.identity.store, rig.snapshot
    if snapshot is None or snapshot.store != store:
        rig.take_snapshot()
        return
    cluster = rig.cluster
    if cluster.gone_back or not cluster.may_go_back(AcceptorId(rig.identity.uuid, store), snapshot.reached):
        return
    machine.crash()
    strikes.struck("go_back")
    cluster.gone_back.add(store)
    rig.disk.go_back(snapshot.contents)
    rig.snapshot, rig.has_gone_back = None, True
    strikes.restart_later(chance, machine)


def _lose(strikes: Faults, chance: Random) -> None:
    """Lose a disk, unless it may be needed to detect that another went back."""
    if not any(rig_of(machine).has_gone_back for machine in strikes.world.machines):
        faults.STRIKES["lose_disk"].strike(strikes, chance)


def _break(strikes: Faults, chance: Random) -> None:
    machine = strikes.up(chance)
    if machine is not None and rig_of(machine).break_any(chance.random()):
        strikes.struck("break")


# Faults without an effect here are left out.
_UNFELT: Final = {"cut_datagrams", "mtu", "leave"}
STRIKES: Final = {
    **{name: strike for name, strike in faults.STRIKES.items() if name not in _UNFELT},
    "crash_after_send": Strike(6, faults.STRIKES["crash_after_send"].strike),
    "strike_sync": Strike(6, _strike_sync),
    "break": Strike(1, _break),
    "go_back": Strike(5, _go_back),
    "lose_disk": Strike(60, _lose),
}
FAULTS: Final = (*faults.LINK_FAULTS, *STRIKES)


@final
@dataclass(frozen=True)
class RegisterPlan(Plan):
    stored: bool = False  # True: on production's store.

    @property
    def options(self) -> list[str]:
        return ["--registers", "--stored"] if self.stored else ["--registers"]

    def run(self) -> Outcome:
        registers = _Registers(self)
        outcome = run_phases(registers, registers.outcome)
        registers.finish()
        outcome.transitions = registers.counts
        return outcome


@final
class _Registers:
    look_us = LOOK_US
    healed_us = HEALED_US

    def __init__(self, plan: RegisterPlan) -> None:
        self.world = world = World(plan.seed)
        chance = world.streams["scenario"]
        members = plan.members or chance.choice((3, 3, 4, 5, 5, 6, 7))
        self.registers = chance.choice((1, 1, 2))
        style = Style.drawn(chance)
        self.safety_us = BEGUN_US + int(style.seconds * SECOND)
        on = faults.drawn(chance, FAULTS) - plan.without
        self.outcome = Outcome(plan, "stored" if plan.stored else "ideal", members, on)
        self.promises = Promises(world)
        self.cluster = Cluster(world, self.promises)
        self.workload = Workload(self.cluster, world.streams["workload"], style)
        self.faults = Faults(world, on, STRIKES, pace=USUAL_S / style.seconds)
        self.probes: list[Probe] = []
        self.counts: Counter[str] = self.cluster.checkers.counts
        self._make_disk = StoreDisk if plan.stored else IdealDisk

    def begin(self) -> None:
        """Start all machines, create the registers, and begin the workload and the faults."""
        world = self.world
        for number in range(self.outcome.members):
            name = f"m{number}"
            machine = world.add(name, partial(RegisterRig, cluster=self.cluster), disk=self._make_disk(name, world))
            machine.start()
        world.scheduler.at(CREATED_US, self._create)
        world.scheduler.at(BEGUN_US, self.workload.begin)
        world.scheduler.at(BEGUN_US, self.faults.begin)

    def _create(self) -> None:
        chance = self.world.streams["create"]
        for _ in range(self.registers):
            counts = [count for count in (1, 3, 3, 3, 5) if count <= len(self.world.machines)]
            first = chance.sample(self.world.machines, chance.choice(counts))
            rigs = [rig_of(machine) for machine in first]
            members = Acceptors.of([rig.me for rig in rigs if rig.me is not None])
            register = chance.randbytes(16)
            self.cluster.create(register, members)
            for rig in rigs:
                rig.create(register, members)

    def look(self) -> None:
        """Check nothing: records are checked as they are written."""

    def rest(self) -> None:
        """End the workload, replace disks that went back, and let each recoverable register change once."""
        self.workload.is_over = True
        for machine in self.world.machines:
            if rig_of(machine).has_gone_back:
                machine.crash()
                machine.disk.wipe()
                machine.start()
        for register, history in self.cluster.histories.items():
            if self._is_recoverable(history):
                self.counts["recoverable"] += 1
                self.probes.append(Probe(self.workload, register))
            else:
                self.counts["unrecoverable"] += 1

    def _is_recoverable(self, history: History) -> bool:
        """Return True if every value that may be on top has a quorum with intact disks; forces are not judged."""
        if history.forces_asked or history.top is None:
            return False
        alive = self.cluster.alive()
        return history.acceptors.is_quorum(alive) and all(
            history.values[ballot].acceptors.is_quorum(alive)
            for ballot, by in history.accepted.items()
            if ballot >= history.top and by & alive
        )

    def wrong(self) -> str | None:
        # A change that was under way may have put lost acceptors on top.
        late = [
            probe.register.hex()
            for probe in self.probes
            if not probe.is_done and self._is_recoverable(self.cluster.histories[probe.register])
        ]
        return f"{late[0]} has committed nothing" if late else None

    def settle(self) -> None:
        """Check nothing more."""

    def finish(self) -> None:
        """Compare the reported outcomes with the committed values."""
        self.cluster.checkers.finish()
        for history in self.cluster.histories.values():
            for asked in history.asked.values():
                self.counts["operations"] += 1
                self.counts["unknown" if asked.outcome is None else type(asked.outcome).__name__.lower()] += 1
            joint = {value.acceptors.joint for value in history.committed.values()}
            self.counts["joint"] += len(joint) - 1
            self.counts["forces"] += len({ballot[:2] for ballot in history.committed}) - 1
