"""Slow tests of the simulated machine; the fast ones are in `test_machine.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.world.faulty_files import CHANGING, Action, Fault
from tests.world.nodes.whole_cluster import simulate

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_change_of_the_disk(power: bool) -> None:
    """After a crash before, during or after any step of the first start, the next start succeeds."""

    async def scenario(cluster: SimulatedCluster) -> None:
        (machine,) = cluster.machines
        for at in range(60):
            for action in (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER):
                machine.lose_disk()
                machine.strike(Fault(at, action, kinds=CHANGING), power=power)
                await machine.start()
                if machine.runs:
                    machine.kill()
                    return
                assert machine.error is None
                await machine.start()
                await cluster.ask(machine, "ping")
                machine.kill()
        pytest.fail("a start has more than sixty changes")

    simulate(scenario, 1, machines=1)
