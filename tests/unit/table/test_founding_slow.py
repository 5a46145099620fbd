"""Tests that cost seconds; `test_founding.py` has the others."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest

from gossipkv.node.identity import read_node
from gossipkv.node.restoring import restore_tables
from gossipkv.storage.engine.manifest import read_manifest
from tests.unit.table.fake_store import FakeStores, put_store
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


def restore(files, backup, directory, chance):
    """Restore as the engine does: a store with another id, in its first life."""
    del backup
    put_store(files, directory, chance.getrandbits(64), 1)
    return read_manifest(files, directory)


@pytest.mark.parametrize("action", CRASHES)
@pytest.mark.parametrize("power", [None, 1, 2])
@pytest.mark.parametrize("has_tables", [False, True])
async def test_a_crash_while_a_backup_is_put_back(action, power, has_tables):
    """A restored store never permits founding, wherever the crash came, nor does a node that forgot its tables."""
    seen = set()
    for at in range(200):
        disk = SimulatedFiles()
        with opened(DATA, disk) as directory:
            directory.keep(cluster_id=ID, drew=True)
            if has_tables:
                async with running(directory, FakeStores(), disk) as tables:
                    await tables.create()
        before = read_node(disk, DATA)
        assert before is not None
        files = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
        has_ended = False
        try:
            restore_tables(
                files, PurePath("/backup"), DATA, random=random.Random(5), restore=restore, forget_tables=has_tables
            )
            has_ended = True
        except Crash:
            pass
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        stores = FakeStores(0xDEF)
        with opened(DATA, disk) as directory:
            async with running(directory, stores, disk) as tables:
                record = directory.record
                is_restored = record.store not in {0, before.store}
                assert refused(record) or not is_restored
                assert refused(record) or record.uuid == before.uuid
                seen.add((tables.state, is_restored, refused(record)))
        if has_ended:
            break
    assert ("open", True, True) in seen
    assert any(not may_not for *_, may_not in seen), "before anything was changed"
