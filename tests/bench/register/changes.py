"""The rows about changes of registers: how long one takes, how many there are in a second, what many writers come to.

Three acceptors are nodes, each a process with its store on the disk; the proposers are in this process.  A round has
the yardstick, every row, and etcd, in another order each time; the first round does not count.
"""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

from gossipkv.register.messages import Record
from gossipkv.register.proposer import End, Reconfigure
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.processes import cpu_ns
from tests.bench.register import etcd, tally
from tests.bench.register.disk import Disk
from tests.bench.register.proposing import Loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.register.proposer import Outcome, Proposer
    from tests.bench.measurement import Bench, Row
    from tests.bench.register.proposing import Register

ACCEPTORS, NODES = 3, 4  # The fourth comes and goes where acceptors change.
ENTER_NS = 60 * 10**9  # An acceptor change that takes longer does not finish.
LEAST_MS, SYNCS = 3, 2  # What a change may take beside the disk, and how many syncs.


@dataclass(frozen=True)
class Load:
    """How much of each, in a round."""

    changes: int
    keys: int
    keyed: int
    batched: int
    contended_s: float


def measure(
    bench: Bench,
    *,
    syncs: int = 200,
    changes: int = 300,
    keys: int = 64,
    keyed: int = 2_000,
    batched: int = 4_000,
    contended_s: float = 5.0,
    rounds: int = 5,
) -> None:
    """All rows."""
    load = Load(changes, keys, keyed, batched, contended_s)
    chance = random.Random(data.SEED)
    with ExitStack() as stack:
        cluster = stack.enter_context(nodes.deciding(bench.directory / "nodes", NODES, ACCEPTORS)).cluster
        disk = stack.enter_context(closing(Disk(bench.directory / "yardstick")))
        loop = stack.enter_context(closing(Loop(cluster.addresses, data.SEED)))
        ours = _Ours(loop, load, nodes.processes(cluster))
        works = [(OURS, work) for work in ours.works]
        if bench.takes_part(goals.ETCD, etcd.missing()):
            theirs = stack.enter_context(etcd.running(bench.directory / "etcd"))
            works += [(goals.ETCD, work) for work in _Theirs(theirs, load).works]
            bench.notes.append(etcd.settings())
        stack.enter_context(machine.uncollected())
        for number in range(rounds + 1):
            before_ms = disk.sync_ms(syncs)
            found = [(side, work()) for side, work in chance.sample(works, len(works))]
            sync_ms = median((before_ms, disk.sync_ms(syncs)))
            if number > 0:
                bench.add(goals.REGISTER_SYNC, sync_ms)
                bench.add(goals.REGISTER_P50, LEAST_MS + SYNCS * sync_ms, goals.SYNCS)
                for side, figures in found:
                    for row, figure in figures.items():
                        bench.add(row, figure, side)
        ours.check()
    bench.notes.append(
        f"changes: {changes} one after the other, {keyed:,} over {keys} keys with one in flight on each, {batched:,} "
        f"with {keys} in flight on one key, which share rounds ({ours.per_round:.1f} a round); {tally.WRITERS} "
        f"proposers with one in flight each for {contended_s:g} s, until the acceptors have changed meanwhile; "
        f"{rounds} rounds; {ours.count:,} changes in all, each read back by its number. A sync is the median of "
        f"{2 * syncs}"
    )


class _Ours:
    """What a round does with registers."""

    def __init__(self, loop: Loop, load: Load, processes: list[int]) -> None:
        self._loop = loop
        self._processes = processes[:ACCEPTORS]
        self._load = load
        *members, self._stranger = loop.acceptors[:NODES]
        self._members = members
        self._one = loop.create(members)
        self._keys = [loop.create(members) for _ in range(load.keys)]
        self._crowded = loop.create(members)
        self._stays = {register: register.proposer() for register in (self._one, *self._keys)}
        self._ballots: set[tuple[int, ...]] = set()
        self._batched = 0

    @property
    def works(self) -> list[Callable[[], dict[Row, float]]]:
        """What it does in a round, each of which gives rows their figures."""
        moves = partial(self.over_keys, goals.REGISTER_KEYS, goals.REGISTER_CPU, stays=False)
        stays = partial(self.over_keys, goals.REGISTER_KEYS_STAYS, goals.REGISTER_CPU_STAYS, stays=True)
        return [self.two_rounds, self.one_round, moves, stays, self.batched, self.crowded]

    @property
    def count(self) -> int:
        """Changes that were done."""
        return sum(register.told.count for register in (self._one, *self._keys, self._crowded))

    @property
    def per_round(self) -> float:
        """Changes that shared a round, where many were in flight."""
        return self._batched / max(1, len(self._ballots))

    def check(self) -> None:
        """Read all back."""
        for register in (self._one, *self._keys, self._crowded):
            register.check()

    def two_rounds(self) -> dict[Row, float]:
        """One after the other, each by a proposer that has written nothing yet: it has to prepare."""
        took_ns = self._one_by_one(stays=False)
        return {goals.REGISTER_P50: median(took_ns) / 1e6, goals.REGISTER_ONE: sum(took_ns) / len(took_ns) / 1e6}

    def one_round(self) -> dict[Row, float]:
        """One after the other by a proposer that stays."""
        return {goals.REGISTER_STAYS_P50: median(self._one_by_one(stays=True)) / 1e6}

    def _one_by_one(self, *, stays: bool) -> list[int]:
        took_ns: list[int] = []
        for _ in range(self._load.changes):
            done: list[Outcome] = []
            begin_ns = perf_counter_ns()
            self._write(self._one, self._stays[self._one], done.append)
            self._loop.run(lambda done=done: bool(done))
            took_ns.append(perf_counter_ns() - begin_ns)
            if not stays:
                self._stays[self._one] = successor(self._one, done[0])
        return took_ns

    def _write(self, register: Register, proposer: Proposer, on_done: Callable[[Outcome], None]) -> None:
        register.write(proposer, 0, register.told.last[0] + 1, on_done)

    def over_keys(self, row: Row, cpu_row: Row, *, stays: bool) -> dict[Row, float]:
        """One in flight on each key."""
        left, flying = self._load.keyed, 0

        def begin(register: Register) -> None:
            nonlocal left, flying
            left, flying = left - 1, flying + 1

            def done(outcome: Outcome) -> None:
                nonlocal flying
                flying -= 1
                if not stays:
                    self._stays[register] = successor(register, outcome)
                if left > 0:
                    begin(register)

            self._write(register, self._stays[register], done)

        used_ns = [cpu_ns(process) for process in self._processes]
        begin_ns = perf_counter_ns()
        for register in self._keys:
            begin(register)
        self._loop.run(lambda: flying == 0)
        took_us = (perf_counter_ns() - begin_ns) / 1e3 / self._load.keyed
        used_ns = [cpu_ns(process) - before for process, before in zip(self._processes, used_ns, strict=True)]
        return {row: took_us, cpu_row: sum(used_ns) / len(used_ns) / 1e3 / self._load.keyed}

    def batched(self) -> dict[Row, float]:
        """Many in flight on one key, by a proposer that stays."""
        left, flying, number = self._load.batched, 0, self._one.told.last[0]
        proposer = self._stays[self._one]
        ballots = set()

        def begin() -> None:
            nonlocal left, flying, number
            left, flying, number = left - 1, flying + 1, number + 1
            self._one.write(proposer, 0, number, done)

        def done(outcome: Outcome) -> None:
            nonlocal flying
            flying -= 1
            ballots.add(outcome.ballot)
            if left > 0:
                begin()

        begin_ns = perf_counter_ns()
        for _ in range(self._load.keys):
            begin()
        self._loop.run(lambda: flying == 0)
        self._ballots |= ballots
        self._batched += self._load.batched
        return {goals.REGISTER_BATCHED: (perf_counter_ns() - begin_ns) / 1e3 / self._load.batched}

    def crowded(self) -> dict[Row, float]:
        """Eight proposers on one key, with an acceptor that gives way to another meanwhile."""
        register, writers = self._crowded, range(tally.WRITERS)
        proposers = [register.proposer() for _ in writers]
        began_ns, count, longest_ns, flying = perf_counter_ns(), 0, 0, 0
        end_ns = began_ns + int(1e9 * self._load.contended_s)
        entered_ns: list[int] = []

        def begin(writer: int) -> None:
            nonlocal flying
            flying += 1
            begin_ns = perf_counter_ns()

            def done(_: Outcome) -> None:
                nonlocal flying, count, longest_ns
                now_ns = perf_counter_ns()
                flying, count = flying - 1, count + 1
                longest_ns = max(longest_ns, now_ns - begin_ns)
                if now_ns < end_ns or not entered_ns:
                    begin(writer)

            register.write(proposers[writer], writer, register.told.last[writer] + 1, done)

        def entered(outcome: Outcome) -> None:
            if outcome.end is End.UNKNOWN and perf_counter_ns() < enter_ns + ENTER_NS:
                self._loop.submit(proposers[0], wanted, entered)
            elif outcome.value is None or outcome.value.acceptors.new != wanted.members:
                raise WrongAnswerError(f"the acceptors did not change: {outcome}")
            else:
                entered_ns.append(perf_counter_ns() - enter_ns)

        leaver = self._members[-1] if self._members[-1] in register.acceptors.new else self._stranger
        comer = self._stranger if leaver == self._members[-1] else self._members[-1]
        wanted = Reconfigure(tuple(sorted({*register.acceptors.new, comer} - {leaver})))
        for writer in writers:
            begin(writer)
        enter_ns = began_ns + int(0.5e9 * self._load.contended_s)
        self._loop.run(lambda: perf_counter_ns() > enter_ns)
        self._loop.submit(proposers[0], wanted, entered)
        self._loop.run(lambda: flying == 0)
        return {
            goals.REGISTER_CROWDED: (perf_counter_ns() - began_ns) / 1e6 / count,
            goals.REGISTER_STARVED: longest_ns / 1e9,
            goals.REGISTER_ENTERED: entered_ns[0] / 1e9,
        }


def successor(register: Register, outcome: Outcome) -> Proposer:
    """A new proposer that knows what was decided last, as one in another node would."""
    assert outcome.ballot is not None
    proposer = register.proposer()
    proposer.learn(Record(outcome.ballot, outcome.ballot, outcome.value))
    return proposer


class _Theirs:
    """What a round does with etcd."""

    def __init__(self, server: etcd.Etcd, load: Load) -> None:
        self._etcd = server
        self._load = load
        self._keys = [b"key%02d" % number for number in range(load.keys)]
        self._rounds = 0

    @property
    def works(self) -> list[Callable[[], dict[Row, float]]]:
        """What it does in a round, each of which gives rows their figures."""
        return [self.one_by_one, self.over_keys, self.crowded]

    def _value(self, number: int) -> bytes:
        return b"%d %d" % (self._rounds, number) + bytes(etcd.VALUE_BYTES - 20)

    def one_by_one(self) -> dict[Row, float]:
        """One key, one after the other."""
        took_ns = []
        for number in range(self._load.changes):
            begin_ns = perf_counter_ns()
            self._etcd.swap(b"one", self._value(number))
            took_ns.append(perf_counter_ns() - begin_ns)
        if self._etcd.get(b"one") != self._value(self._load.changes - 1):
            raise WrongAnswerError("etcd has another value than the last")
        middle_ms = median(took_ns) / 1e6
        mean_ms = sum(took_ns) / len(took_ns) / 1e6
        return {goals.REGISTER_P50: middle_ms, goals.REGISTER_STAYS_P50: middle_ms, goals.REGISTER_ONE: mean_ms}

    def over_keys(self) -> dict[Row, float]:
        """One in flight on each key."""
        begin_ns = perf_counter_ns()
        last = self._etcd.swap_each(self._keys, self._load.keyed, self._value)
        took_us = (perf_counter_ns() - begin_ns) / 1e3 / self._load.keyed
        for key, value in last.items():
            if self._etcd.get(key) != value:
                raise WrongAnswerError(f"etcd has another value at {key!r} than the last")
        return {goals.REGISTER_KEYS: took_us, goals.REGISTER_KEYS_STAYS: took_us}

    def crowded(self) -> dict[Row, float]:
        """Eight writers on one key."""
        self._rounds += 1
        began_ns = perf_counter_ns()
        count, longest_s = self._etcd.contend(b"crowd%d" % self._rounds, tally.WRITERS, self._load.contended_s)
        took_ms = (perf_counter_ns() - began_ns) / 1e6 / count
        return {goals.REGISTER_CROWDED: took_ms, goals.REGISTER_STARVED: longest_s}
