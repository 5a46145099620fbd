"""Slow tests of restoring; the fast ones are in `test_restoring.py`."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from gossipkv.table.store import OpenedStore
from tests.unit.node.test_restoring import decision, lived_in, put_back
from tests.unit.table.fake_store import put_store
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

DATA = PurePath("/data")


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
@pytest.mark.parametrize("power", [None, 1, 2])
@pytest.mark.parametrize("forgets", [False, True])
def test_a_crash_at_any_step(action, power, forgets):
    """The next start has whole tables or none, or knows of their loss; a repetition restores them."""
    seen = set()
    for at in range(200):
        disk = SimulatedFiles()
        lived_in(disk, DATA, **({"store": 7, "life": 3} if forgets else {}))
        if forgets:
            put_store(disk, DATA / "tables", 7, 3)
        files = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
        try:
            put_back(files, DATA, forget_tables=forgets)
            break
        except Crash:
            pass
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        found = decision(disk, DATA)
        seen.add(type(found).__name__)
        if isinstance(found, OpenedStore) and found.store != 7:
            descriptor = disk.open(DATA / "tables" / "records")
            assert disk.pread(descriptor, 100, 0) == b"restored"
            disk.close(descriptor)
            assert found.life == 1
        else:
            done = put_back(disk, DATA, forget_tables=forgets)
            assert decision(disk, DATA) == OpenedStore(done.manifest.store, 1)
    else:
        pytest.fail("it never came to its end")
    assert seen == {"NoneType", "OpenedStore"} | ({"ClosedStore"} if forgets else set())
