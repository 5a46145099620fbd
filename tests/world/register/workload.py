"""The users of the registers of a run: clients, and operators who reconfigure and force.

A client asks for one operation after another, from the proposer on some machine, and waits for the outcome up to a
limit.  After a missing or unknown outcome it may ask again, under the same number.  Numbers are items as well, so a
read tells the writer; a swap for the empty state brings a state back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.register.proposal import ChangeEnd, ProposalOutcome, Reconfigure
from tests.world.register.history import Asked
from tests.world.register.linearizable import Append, Done, Read, Refused, Swap
from tests.world.register.log import decode_state
from tests.world.register.rig import RegisterRig
from tests.world.scheduler import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gossipkv.register.configuration import AcceptorId
    from tests.world.machine import Machine
    from tests.world.register.history import History
    from tests.world.register.linearizable import Call, State
    from tests.world.register.register_cluster import Cluster

ROUND_S = 0.02  # The longest round without faults.
MAX_ASKED = 4  # The most attempts of a client for one operation.
PATIENCE_US = 300 * MS  # Beyond a proposer's timeout, for clocks and pauses.


class Style(NamedTuple):
    """The load of a run, as its seed draws it."""

    clients: int  # Per register.
    operations: int  # In total.
    think_s: float
    timeout_ms: int
    stays: float  # The share of requests that go to the client's own machine.
    changes_s: float | None  # The mean time between two changes of acceptors; None: no changes.
    forces_s: float | None

    @classmethod
    def drawn(cls, chance: Random) -> Style:
        think_s = chance.choice((0.002, 0.01, 0.05, 0.5))
        return cls(
            clients=chance.choice((1, 2, 2, 3, 4)),
            operations=chance.choice((5, 10, 10, 20)),
            think_s=think_s,
            timeout_ms=chance.choice((50, 500, 2000)),
            stays=chance.choice((0.0, 0.8, 1.0)),
            changes_s=chance.choice((None, *[(think_s + ROUND_S) * times for times in (1, 2, 5)])),
            forces_s=chance.choice((None, None, None, (think_s + ROUND_S) * 10)),
        )

    @property
    def seconds(self) -> float:
        return self.operations / self.clients * (self.think_s + ROUND_S) * 2


def rig_of(machine: Machine) -> RegisterRig:
    assert isinstance(machine.rig, RegisterRig)
    return machine.rig


@final
class Workload:
    def __init__(self, cluster: Cluster, chance: Random, style: Style) -> None:
        self.cluster = cluster
        self.chance = chance
        self.style = style
        self.is_over = False
        self._asked = 0

    def begin(self) -> None:
        machines, style = self.cluster.world.machines, self.style
        for register, history in self.cluster.histories.items():
            for number in range(style.clients):
                Client(self, register, machines[number % len(machines)]).think()
            if style.changes_s is not None:
                self._now_and_then(style.changes_s, partial(self._change, register))
            if style.forces_s is not None:
                self._now_and_then(style.forces_s, partial(self._force, register, history))

    def next_operation(self) -> int:
        self._asked += 1
        return self._asked

    @property
    def is_enough(self) -> bool:
        return self.is_over or self._asked >= self.style.operations

    def machine(self, home: Machine | None = None, share: float = 0.0) -> Machine | None:
        """Return a machine for a request: `home` for this share, otherwise any; None: none is free."""
        free = [machine for machine in self.cluster.world.machines if machine.is_up and not machine.is_paused]
        stays, drawn = self.chance.random() < share, self.chance.random()
        return home if stays and home in free else free[int(drawn * len(free))] if free else None

    def _now_and_then(self, period_s: float, do: Callable[[], None]) -> None:
        def again() -> None:
            if not self.is_over:
                do()
                self._now_and_then(period_s, do)

        self.cluster.world.scheduler.after(int(self.chance.expovariate(1 / period_s) * SECOND), again)

    def _change(self, register: bytes) -> None:
        """Change the acceptors to other living ones."""
        chance, machine, alive = self.chance, self.machine(), sorted(self.cluster.alive())
        count = chance.choice((1, 2, 3, 3, 3, 4, 5))
        members = chance.sample(alive, min(count, len(alive)))
        if machine is not None and members:
            rig_of(machine).submit(register, Reconfigure(tuple(members)), self.style.timeout_ms, lambda _: None)

    def _force(self, register: bytes, history: History) -> None:
        """Force the register to the remaining acceptors; if they are a majority, to some, or lose these first."""
        chance, machine = self.chance, self.machine()
        alive = self.cluster.alive()
        survivors = sorted(history.acceptors.everyone & alive)
        if history.acceptors.is_quorum(alive):
            lost = chance.sample(survivors, len(survivors) // 2 + 1)
            if chance.randrange(2):
                self._lose(lost)
                return  # An operator needs a while to notice.
            survivors = lost
        if machine is None or not survivors:
            return
        asked_us = self.cluster.world.now_us
        history.forces_asked += 1

        def told(outcome: ProposalOutcome) -> None:
            self.cluster.world.struck[f"force {outcome.end.value}"] += 1
            if outcome.ballot is not None:
                history.forces[outcome.ballot[:2]] = asked_us

        rig_of(machine).force(register, survivors, told)

    def _lose(self, acceptors: list[AcceptorId]) -> None:
        self.cluster.world.struck["lose_majority"] += 1
        for acceptor in acceptors:
            machine = self.cluster.where(acceptor.node)
            assert machine is not None
            machine.crash()
            machine.disk.wipe()
            machine.start()


@final
class Client:
    """A client that asks for one operation after another."""

    def __init__(self, workload: Workload, register: bytes, home: Machine) -> None:
        self._workload = workload
        self._world = workload.cluster.world
        self._register = register
        self._home = home
        self._history = workload.cluster.histories[register]
        self._seen: State = ()  # The state that it was told last.

    def think(self) -> None:
        workload = self._workload
        delay_us = int(workload.chance.expovariate(1 / workload.style.think_s) * SECOND)
        self._world.scheduler.after(delay_us, self._begin)

    def _begin(self) -> None:
        workload, chance = self._workload, self._workload.chance
        if workload.is_enough:
            return
        number = workload.next_operation()
        call: Call = Read()
        match chance.randrange(5):
            case 0 | 1:
                call = Append(number)
            case 2:
                call = Swap(self._seen, (number,))
            case 3 if self._seen:
                call = Swap(self._seen, ())
        self._history.asked[number] = Asked(number, call, self._world.now_us)
        self._ask(number, call, chance.randrange(MAX_ASKED))

    def _ask(self, number: int, call: Call, more: int, *, is_first: bool = True) -> None:
        """Ask for one operation; without an outcome, ask up to `more` times again."""
        workload = self._workload
        machine = workload.machine(self._home, workload.style.stays)
        is_over = False

        def end(outcome: ProposalOutcome | None) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            # A refusal of a repeated request may follow from an earlier attempt, which was done.
            is_told = outcome is not None and (
                outcome.end is ChangeEnd.DONE or (outcome.end is ChangeEnd.REFUSED and is_first)
            )
            if outcome is not None and is_told:
                self._tell(number, call, outcome)
                self.think()
            elif more and not workload.is_over and not isinstance(call, Read):
                self._ask(number, call, more - 1, is_first=False)
            else:
                self.think()

        self._world.scheduler.after(workload.style.timeout_ms * MS + PATIENCE_US, lambda: end(None))
        if machine is not None:
            change = workload.cluster.logs.change_of(call, number)
            rig_of(machine).submit(self._register, change, workload.style.timeout_ms, end)

    def _tell(self, number: int, call: Call, outcome: ProposalOutcome) -> None:
        cluster, asked = self._workload.cluster, self._history.asked[number]
        told: Done | Refused = Refused(None)
        name = branch = None
        if outcome.value is not None and outcome.ballot is not None:
            cluster.checkers.told(self._register, outcome.ballot, outcome.value)
            log = cluster.logs[outcome.value.payload]
            name, branch = log.name, outcome.ballot[:2]
            if outcome.end is ChangeEnd.REFUSED:
                told = Refused(decode_state(bytes.fromhex(outcome.message)))
            else:
                told = Done(log.state if isinstance(call, Read) else decode_state(outcome.result))
            self._seen = log.state
        self._history.asked[number] = asked._replace(
            completed_us=self._world.now_us, outcome=told, value=name, branch=branch
        )


@final
class Probe:
    """A client that must succeed in changing a register: it asks any machine, until one has done it."""

    def __init__(self, workload: Workload, register: bytes) -> None:
        self.register = register
        self.is_done = False
        self._workload = workload
        self._number = workload.next_operation()
        world = workload.cluster.world
        history = workload.cluster.histories[register]
        history.asked[self._number] = Asked(self._number, Append(self._number), world.now_us)
        world.scheduler.every(PATIENCE_US, self._ask)

    def _ask(self) -> bool:
        machine = self._workload.machine()
        if machine is not None and not self.is_done:
            change = self._workload.cluster.logs.change_of(Append(self._number), self._number)
            rig_of(machine).submit(self.register, change, PATIENCE_US // MS, self._told)
        return not self.is_done

    def _told(self, outcome: ProposalOutcome) -> None:
        self.is_done = self.is_done or outcome.end is ChangeEnd.DONE
