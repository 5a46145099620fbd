"""How long a register has no commits when one of its three acceptors dies, or stops without a word.

A proposer of this process stays and changes one register, one change in flight; another changes a second one, and is a
new one each time, so that it has to prepare.  The longer of the two gaps counts.
"""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.register import deciding_nodes
from tests.bench.register.changes import ACCEPTORS, OURS, successor
from tests.bench.register.proposing import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.register.proposer import Outcome, Proposer
    from tests.bench.register.proposing import Register


@dataclass(frozen=True)
class Load:
    """How long each is looked at, how often."""

    before_s: float = 2.0
    out_s: float = 4.0
    rounds: int = 5


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Both rows."""
    gaps: dict[str, list[float]] = {goals.REGISTER_KILLED: [], goals.REGISTER_STOPPED: []}
    usual: list[float] = []
    count = 0
    chance = random.Random(data.SEED)
    with deciding_nodes.deciding(directory, ACCEPTORS, ACCEPTORS) as nodes:
        for _ in range(load.rounds):
            for row in chance.sample([*gaps], len(gaps)):
                before_s, gap_s, changes = _outage(nodes, load, chance, is_killed=row == goals.REGISTER_KILLED)
                machine.say(f"    {row}: {gap_s * 1000:.0f} ms, before {before_s * 1000:.0f} ms; {changes} changes")
                gaps[row].append(gap_s)
                usual.append(before_s)
                count += changes
    for row, figures in gaps.items():
        yield Measurement(row, "s", OURS, {OURS: figures})
    killed_s, stopped_s = (max(gaps[row]) for row in gaps)
    notes.append(
        f"an outage: one of three acceptors is killed (SIGKILL) or stopped (SIGSTOP), another each time, {load.rounds} "
        f"times each; the longest time without a commit within {load.out_s:g} s, of two registers that are changed as "
        f"fast as they answer, one by a proposer that stays; longest of all: killed {killed_s:.2f} s, stopped "
        f"{stopped_s:.2f} s; in the {load.before_s:g} s before, {median(usual):.3f} s (the median) and "
        f"{max(usual):.2f} s (the longest); {count:,} changes, read back"
    )


class _Writer:
    """Changes one register for as long as it is to."""

    def __init__(self, register: Register, *, stays: bool) -> None:
        self.register = register
        self.is_over = False
        self.is_idle = False
        self.done_s = [perf_counter()]
        self._stays = stays
        self._begin(register.proposer())

    def _begin(self, proposer: Proposer) -> None:
        def done(outcome: Outcome) -> None:
            self.done_s.append(perf_counter())
            if self.is_over:
                self.is_idle = True
            else:
                self._begin(proposer if self._stays else successor(self.register, outcome))

        self.register.write(proposer, 0, self.register.told.last[0] + 1, done)

    def longest_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without a commit."""
        inside = [done_s for done_s in self.done_s if begin_s < done_s < end_s]
        return max(after - before for before, after in zip([begin_s, *inside], [*inside, end_s], strict=True))


def _outage(
    nodes: deciding_nodes.Nodes, load: Load, chance: random.Random, *, is_killed: bool
) -> tuple[float, float, int]:
    """One: the longest gap before, the longest gap after, and how many changes there were."""
    number = chance.choice(nodes.numbers)
    with ExitStack() as stack:
        loop = Loop(nodes.cluster.addresses, chance.getrandbits(32))
        stack.callback(loop.close)
        writers = [_Writer(loop.create(loop.acceptors), stays=stays) for stays in (True, False)]
        warm_s = perf_counter() + 0.2
        loop.run(lambda: perf_counter() > warm_s)
        out_s = warm_s + load.before_s
        loop.run(lambda: perf_counter() > out_s)
        strike_s = perf_counter()
        nodes.cluster.send(number, signal.SIGKILL if is_killed else signal.SIGSTOP)
        end_s = strike_s + load.out_s
        loop.run(lambda: perf_counter() > end_s)
        for writer in writers:
            writer.is_over = True
        loop.run(lambda: all(writer.is_idle for writer in writers))
        for writer in writers:
            writer.register.check()
    if is_killed:
        nodes.cluster.wait_ended(number)
        nodes.cluster.start(number)
        nodes.cluster.wait_ready(number)
        nodes.forget(number)
    else:
        nodes.cluster.send(number, signal.SIGCONT)
    nodes.wait_alive()
    nodes.wait_grown(ACCEPTORS)
    before_s = max(writer.longest_s(warm_s, strike_s) for writer in writers)
    gap_s = max(writer.longest_s(strike_s, end_s) for writer in writers)
    return before_s, gap_s, sum(writer.register.told.count for writer in writers)
