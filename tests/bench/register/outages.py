"""How long a register has no commits when one of its three acceptors dies, or stops without a word.

A proposer of this process stays and changes one register, one change in flight; another changes a second one, and is a
new one each time, so that it has to prepare.  The longer of the two gaps counts.
"""

from __future__ import annotations

import random
import signal
from contextlib import closing
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import data, goals
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS
from tests.bench.register.changes import ACCEPTORS, successor
from tests.bench.register.proposing import Loop

if TYPE_CHECKING:
    from gossipkv.register.proposer import Outcome, Proposer
    from tests.bench.measurement import Bench, Row
    from tests.bench.register.proposing import Register


def measure(bench: Bench, *, before_s: float = 2.0, out_s: float = 4.0, rounds: int = 5) -> None:
    """Both rows."""
    usual: list[float] = []
    chance = random.Random(data.SEED)
    with nodes.deciding(bench.directory, ACCEPTORS, ACCEPTORS) as deciding:

        def outage(row: Row, number: signal.Signals) -> dict[Row, float]:
            usual_s, gap_s = _outage(deciding, before_s, out_s, chance, number)
            usual.append(usual_s)
            return {row: gap_s}

        for row, number in ((goals.REGISTER_KILLED, signal.SIGKILL), (goals.REGISTER_STOPPED, signal.SIGSTOP)):
            bench.compare(row, {OURS: partial(outage, row, number)}, rounds, warm=0)
    bench.notes.append(
        f"an outage: another acceptor each time, {rounds} times each; the longest time without a commit within "
        f"{out_s:g} s, of two registers that are changed as fast as they answer, one by a proposer that stays; in the "
        f"{before_s:g} s before, {median(usual):.3f} s (the median) and {max(usual):.2f} s (the longest)"
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
    deciding: nodes.Nodes, before_s: float, out_s: float, chance: random.Random, strike: signal.Signals
) -> tuple[float, float]:
    """One: the longest gap before, and the longest gap after."""
    number = chance.choice(deciding.numbers)
    with closing(Loop(deciding.cluster.addresses, chance.getrandbits(32))) as loop:
        writers = [_Writer(loop.create(loop.acceptors), stays=stays) for stays in (True, False)]
        warm_s = perf_counter() + 0.2
        loop.run(lambda: perf_counter() > warm_s + before_s)
        strike_s = perf_counter()
        deciding.cluster.send(number, strike)
        end_s = strike_s + out_s
        loop.run(lambda: perf_counter() > end_s)
        for writer in writers:
            writer.is_over = True
        loop.run(lambda: all(writer.is_idle for writer in writers))
        for writer in writers:
            writer.register.check()
    if strike is signal.SIGKILL:
        deciding.cluster.wait_ended(number)
        deciding.cluster.start(number)
        deciding.cluster.wait_ready(number)
        deciding.forget(number)
    else:
        deciding.cluster.send(number, signal.SIGCONT)
    deciding.wait_alive()
    deciding.wait_grown(ACCEPTORS)
    usual_s = max(writer.longest_s(warm_s, strike_s) for writer in writers)
    return usual_s, max(writer.longest_s(strike_s, end_s) for writer in writers)
