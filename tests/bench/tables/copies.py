"""The rows about replicas at rest: the effect of thousands on a node's memory, idle time and start.

Two clusters are compared: one has a table of so many partitions, the other a table of one. The same node of each is
restarted, left idle, and measured.
"""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from tests.bench import goals, machine
from tests.bench.processes import anonymous_bytes, cpu_ns, wait_for
from tests.bench.tables import writing

if TYPE_CHECKING:
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.measurement import Bench

NUMBER = 3  # The node that is measured.
SETTLE_S = 5.0
KIB = 1024


def measure(bench: Bench, *, partitions: int = 4_096, idle_s: float = 10.0, rounds: int = 3) -> None:
    with ExitStack() as stack:
        many = stack.enter_context(writing.tables(bench.directory / "many", partitions))
        few = stack.enter_context(writing.tables(bench.directory / "few", 1))
        for _ in range(rounds):
            machine.say(f"  {goals.COPIES_START}")
            looks = [_look(asked, idle_s) for asked in (many, few)]
            more = [ours - theirs for ours, theirs in zip(*looks, strict=True)]
            bench.add(goals.COPIES_START, more[0])
            bench.add(goals.COPIES_MEMORY, more[1] / KIB / partitions)
            bench.add(goals.COPIES_IDLE, more[2])
    bench.notes.append(
        f"Copies at rest: three nodes, {partitions:,} partitions with three replicas each beside one of one partition; "
        f"from the start to an answer of the node's own copy; memory without pages of files after {SETTLE_S:g} s; "
        f"idle for {idle_s:g} s"
    )


def _look(asked: Nodes, idle_s: float) -> tuple[float, float, float]:
    """Return the seconds of a start, the bytes, and the milliseconds of processor time per second."""
    asked.cluster.stop(NUMBER)
    asked.forget(NUMBER)
    begin_s = perf_counter()
    asked.cluster.start(NUMBER)
    get = (writing.TABLE, b"first", {"local": True})
    wait_for(lambda: asked.call(NUMBER, "get", *get) is not None, "an answer")
    took_s = perf_counter() - begin_s
    sleep(SETTLE_S)
    process = asked.cluster.node(NUMBER).process
    assert process is not None
    before_ns = cpu_ns(process)
    sleep(idle_s)
    return took_s, anonymous_bytes(process), (cpu_ns(process) - before_ns) / 1e6 / idle_s
