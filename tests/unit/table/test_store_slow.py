"""Tests that cost seconds; `test_store.py` has the others."""

from __future__ import annotations

import pytest

from tests.unit.table.fake_store import FakeStores
from tests.unit.table.test_store import directory_in, running
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
@pytest.mark.parametrize("power", [None, 1, 2])
async def test_a_crash_at_any_step_of_making_and_opening(action, power):
    """A store that was once opened is opened at the next start in a later life."""
    shown, crashes = 0, 0
    for at in range(200):
        disk = SimulatedFiles()
        files = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
        stores = FakeStores()
        lives = []
        try:
            for _ in range(2):
                with directory_in("/data", files) as directory:
                    async with running(directory, stores, files) as tables:
                        lives.append((await tables.create()).manifest.life)
        except* Crash:
            crashes += 1
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        with directory_in("/data", disk) as directory:
            async with running(directory, stores, disk) as tables:
                assert tables.closed is None
                life = (await tables.create()).manifest.life
                assert life > max(lives, default=0)
                assert directory.record.life == life
        shown += bool(lives)
        if len(lives) == 2:
            break
    assert crashes > 20
    assert 0 < shown < crashes
