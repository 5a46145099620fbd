"""How much virtual time a second of CPU simulates, of whole nodes at rest: `python -m tests.bench.whole_nodes`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import trio

from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulate

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster

VIRTUAL_S = 600
SEED = 3


def measure(members: int) -> float:
    """Virtual seconds in a second of CPU."""
    spent: list[float] = []

    async def rest(cluster: SimulatedCluster) -> None:
        await begin(cluster)
        before = time.process_time()
        await trio.sleep(VIRTUAL_S)
        spent.append(time.process_time() - before)

    simulate(rest, SEED, machines=members)
    return VIRTUAL_S / spent[0]


def main() -> None:
    """Measure, and write a line each."""
    for members in (3, 5, 9):
        speed = measure(members)
        hours = speed * members / 3600
        sys.stdout.write(f"{members} nodes: {speed:.0f} virtual seconds, {hours:.2f} node-hours in a second of CPU\n")


if __name__ == "__main__":
    main()
