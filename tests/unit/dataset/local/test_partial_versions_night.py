"""A power loss at every operation on a part of a version."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.unit.dataset.local.test_partial_versions import change, found, simulated
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

CRASHES = (Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER)


def operations():
    """Count the operations of each kind that change the disk."""
    calm = FaultyFiles(simulated())
    change(calm)
    return {kind: calm.counts[kind] for kind in CHANGING if calm.counts[kind]}


@pytest.mark.parametrize("action", CRASHES)
def test_a_power_loss_at_every_operation(action):
    """The old or the new state is found complete, whatever was not synced; then the change succeeds."""
    total, struck, seen = sum(operations().values()), Counter(), Counter()
    for at, seed in itertools.product(range(total), range(4)):
        files = simulated()
        faulty = FaultyFiles(files, Fault(at, action, kinds=CHANGING))
        with pytest.raises(Crash):
            change(faulty)
        struck[faulty.struck[0].split()[0]] += 1
        restarted = files.power_loss(seed * total + at)
        seen[found(restarted)] += 1
        change(restarted)
        assert found(restarted) == (0, 1)
    assert struck == {kind: 4 * count for kind, count in operations().items()}
    assert set(seen) == {(0, 2), (0, 1, 2), (0, 1)}
