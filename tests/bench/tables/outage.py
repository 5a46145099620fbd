"""The rows about a node that is killed under load: eight clients of both kinds, each of which knows all three."""

from __future__ import annotations

import random
from time import monotonic, sleep
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.ci.cluster import table_records
from tests.ci.cluster.table_records import DONE, OPEN, Load

if TYPE_CHECKING:
    from tests.bench.measurement import Bench
    from tests.ci.cluster.table_records import Judged

NODES = 3


def measure(bench: Bench, *, before_s: float = 3.0, dead_s: float = 5.0, rounds: int = 5) -> None:
    """Another victim in each round."""
    chance, counted = random.Random(data.SEED), [0, 0]
    for number in range(rounds):
        machine.say(f"  {goals.OUTAGE_GAP}")
        # Each is on nodes of its own: what a load reads is held against its own writes.
        with nodes.fresh(bench.directory / f"outage-{number}", NODES) as asked:
            table_records.prepare(asked.cluster)
            victim = chance.choice(asked.numbers)
            with Load(asked.cluster.addresses, seed=number) as load:
                sleep(before_s)
                killed_s = monotonic()
                asked.cluster.kill(victim)
                sleep(dead_s)
            living = [index for index in asked.numbers if index != victim]
            settled = table_records.settled(asked.cluster, living, load.writes)
            judged = table_records.judge(load.writes, load.reads, settled)
            _add(bench, load, judged, killed_s)
            counted = [sum(pair) for pair in zip(counted, (judged.writes[DONE], judged.reads), strict=True)]
    bench.notes.append(
        f"An outage: SIGKILL, another node each time, {rounds} times; four blocking clients and four tasks under Trio, "
        f"{table_records.OPTIONS['partitions']} partitions; {counted[0]:,} writes acknowledged at a majority, "
        f"{counted[1]:,} reads, each held against what was written"
    )


def _add(bench: Bench, load: Load, judged: Judged, killed_s: float) -> None:
    others = [fault for fault in judged.faults if not fault.startswith("lost")]
    if load.trouble or others:
        raise WrongAnswerError(f"{[*load.trouble, *others][:3]}")
    bench.count(goals.OUTAGE_FAILED, len(judged.failed), judged.reads)
    bench.count(goals.OUTAGE_LOST, len(judged.faults), judged.writes[DONE])
    ended_s = sorted(one.ended_s for one in load.writes if one.end == DONE and one.began_s > killed_s)
    gaps_s = [after - before for before, after in zip([killed_s, *ended_s], ended_s, strict=False)]
    bench.add(goals.OUTAGE_GAP, max(gaps_s) * 1000)
    told_s = [one.ended_s - killed_s for one in load.writes if one.end == OPEN]
    bench.add(goals.OUTAGE_TOLD, max(told_s, default=0.0) * 1000)
