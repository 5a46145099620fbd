"""Tests that cost seconds; `test_founding.py` has the others."""

from __future__ import annotations

import pytest

from tests.unit.table.fake_store import FakeStores
from tests.unit.table.test_founding import CRASHES, DATA, ID, opened, refused, running
from tests.world.faulty_files import CHANGING, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


@pytest.mark.parametrize("action", CRASHES)
@pytest.mark.parametrize("power", [None, 1, 2])
async def test_a_crash_while_the_first_store_is_made(action, power):
    """The next start has exactly one store and may found with it."""
    for at in range(200):
        disk = SimulatedFiles()
        with opened(DATA, disk) as directory:
            directory.keep(cluster_id=ID, drew=True)
        files = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
        has_ended = False
        try:
            with opened(DATA, files) as directory:
                async with running(directory, FakeStores(), files) as tables:
                    await tables.create()
            has_ended = True
        except* Crash:
            pass
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        with opened(DATA, disk) as directory:
            async with running(directory, FakeStores(0xDEF), disk) as tables:
                await tables.create()
                assert not refused(directory.record)
                assert directory.record.drew_store == directory.record.store != 0
        if has_ended:
            break
    assert at > 10
