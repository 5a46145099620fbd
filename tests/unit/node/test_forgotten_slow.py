"""Slow tests of forgotten tables; the fast ones are in `test_forgotten.py`."""

import pytest

from tests.unit.node.test_forgotten import lived_in, opened, stores
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

PLACE = "/data"


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
@pytest.mark.parametrize("power", [None, 1, 2, 3])
def test_a_crash_at_any_step(action, power):
    """After a crash the old node can forget again, or the new node has no old tables; none are lost."""
    seen = set()
    for at in range(100):
        disk = SimulatedFiles()
        before = lived_in(disk, PLACE)
        files = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
        try:
            opened(PLACE, files, seed=2, forget_tables=True).close()
            break
        except Crash:
            pass
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        is_aside = stores(disk, PLACE) == {b"precious": "tables-forgotten-1"}
        with opened(PLACE, disk, seed=3) as data:
            is_new = data.record.uuid != before.uuid
            assert data.record.store == data.record.drew_store == (0 if is_new else 77)
            assert bool(data.record.drew) is not is_new
            assert is_aside or not is_new
            assert data.forgotten is None
        seen.add((is_new, is_aside))
        if not is_new:
            opened(PLACE, disk, seed=4, forget_tables=True).close()
        assert stores(disk, PLACE) == {b"precious": "tables-forgotten-1"}
    else:
        pytest.fail("it never came to its end")
    assert seen == {(False, False), (False, True), (True, True)}
