"""A power loss at every operation."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.unit.dataset.test_crashes import operations, prepare, raise_to, what_is_served
from tests.unit.dataset.test_crashes_slow import CRASHES
from tests.world.faulty_files import CHANGING, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


@pytest.mark.parametrize("action", CRASHES)
def test_a_power_loss_at_every_operation(action):
    """Unsynced writes and names are lost or kept, with several seeds for each operation."""
    struck, served = Counter(), Counter()
    total = sum(operations().values())
    for at, seed in itertools.product(range(total), range(4)):
        files = SimulatedFiles()
        files.make_directory("/source")
        files.sync_directory("/")
        prepare(files, "")
        faulty = FaultyFiles(files, Fault(at, action, kinds=CHANGING))
        said = []
        with pytest.raises(Crash):
            raise_to(faulty, "", "v2", said)
        struck[faulty.struck[0].split()[0]] += 1
        restarted = files.power_loss(seed * total + at)
        active = what_is_served(restarted, "")
        if said:
            assert active == "v2"  # Clients were answered from it; answers never go back.
        served[active] += 1
        raise_to(restarted, "", "v2")
        assert what_is_served(restarted, "") == "v2"
    assert struck == {kind: 4 * count for kind, count in operations().items()}
    assert min(served["v1"], served["v2"]) > 0
