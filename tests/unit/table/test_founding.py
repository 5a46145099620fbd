"""Who may found the catalogue: the node that drew the cluster's id, as long as nothing has put that in doubt."""

from __future__ import annotations

import contextlib
import random
from pathlib import PurePath
from types import SimpleNamespace

import pytest
import trio

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.trio_world import real
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import NodeRecord, keep_founding, read_node, with_founding, without_founding
from gossipkv.table.ports import may_not_found
from gossipkv.table.store import TableStore
from tests.unit.table.fake_store import FakeStores, put_store
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

FILES = RealFiles()
WORLD = real()
ID, OTHER = "ab" * 8, "cd" * 8
DATA = PurePath("/data")
RECORD = NodeRecord("test", "01" * 16, "n", 4)
CRASHES = [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER]


@pytest.mark.parametrize(("cluster_id", "store", "drew", "drew_store", "why"), [
    (ID, 0, ID, 0, None),
    (ID, 7, ID, 7, None),
    (ID, 7, ID, 0, "with the store 0000000000000000, and has 0000000000000007 now"),
    (ID, 0, ID, 7, "with the store 0000000000000007, and has 0000000000000000 now"),
    (ID, 8, ID, 7, "which may have a catalogue; `gossipkv metadata force` founds it anew"),
    (ID, 0, "", 0, "did not draw the id abababababababab of its cluster, or has lost the note"),
    (ID, 7, "", 0, "if that one is gone, `gossipkv metadata force` founds it anew"),
    (ID, 7, OTHER, 7, "did not draw the id"),
    (OTHER, 7, ID, 7, "is of the cluster cdcdcdcdcdcdcdcd, not of the cluster abababababababab"),
    (OTHER, 7, OTHER, 7, "is of the cluster cdcdcdcdcdcdcdcd"),
    ("", 0, "", 0, "is of no cluster yet, not"),
])  # fmt: skip
def test_who_may_found(cluster_id, store, drew, drew_store, why):
    """By what NODE says; who may not is told why, and what to do if nobody may."""
    record = RECORD._replace(cluster_id=cluster_id, store=store, drew=drew, drew_store=drew_store)
    told = may_not_found(record, ID)
    assert (told is None) == (why is None)
    assert why is None or why in told


@pytest.mark.parametrize(("known", "changes", "drew", "drew_store"), [
    ({"drew": ID}, {"store": 7}, ID, 7),  # The first store.
    ({"drew": ID}, {"epoch": 9}, ID, 0),
    ({"drew": ID, "drew_store": 7, "store": 7}, {"store": 8}, ID, 7),
    ({"drew": ID, "store": 7}, {"store": 8}, ID, 0),
    ({"drew": ID, "store": 7}, {"epoch": 9}, ID, 0),
    ({"drew": ID, "drew_store": 7, "store": 7}, {"cluster_id": OTHER}, ID, 7),
    ({}, {"store": 7}, "", 0),
])  # fmt: skip
def test_what_holds_of_it_after_a_change(known, changes, drew, drew_store):
    """The right goes to the first store, and stays with that one."""
    before = RECORD._replace(cluster_id=ID, **known)
    after = keep_founding(before, before._replace(**changes))
    assert (after.drew, after.drew_store) == (drew, drew_store)
    assert after == before._replace(**changes, drew=drew, drew_store=drew_store), "nothing else is touched"


def test_it_is_drawn_and_erased():
    """Under the store that is there; nothing else is touched."""
    record = RECORD._replace(cluster_id=ID, store=7, life=2)
    assert with_founding(record) == record._replace(drew=ID, drew_store=7)
    assert without_founding(with_founding(record)) == record


def opened(path, files=FILES, **options):
    """Opens the directory: one start of a node."""
    return DataDirectory.open(path, files, cluster="test", random=random.Random(1), **options)


@contextlib.asynccontextmanager
async def running(directory, stores, files=FILES):
    """Its tables, as long as the block lasts."""
    tables = TableStore(
        directory.path / "tables", directory, SimpleNamespace(files=files, threads=WORLD.threads), stores
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(tables.run)
        yield tables
        await tables.end()


def refused(record, cluster_id=ID):
    return may_not_found(record, cluster_id) is not None


async def test_a_healthy_node_founds_later(tmp_path):
    """Drawn at its first start; after others, with a store that is made then, in any of its lives, pinned or not."""
    with opened(tmp_path, node="n") as directory:
        directory.keep(cluster_id=ID, drew=True)
    stores = FakeStores()
    for start in range(3):
        with opened(tmp_path, node="n") as directory:
            directory.keep(shard_id=3, epoch=directory.record.epoch + 1, cluster_id=ID)
            assert not refused(directory.record)
            async with running(directory, stores) as tables:
                if start:
                    await tables.create()
                directory.keep(pinned=True)
                assert not refused(directory.record)
                assert directory.record.drew_store == (stores.new if start else 0)
            assert read_node(FILES, tmp_path) == directory.record


def test_who_takes_another_id_founds_nothing_there(tmp_path):
    """Neither that cluster's catalogue nor the one of its own; when it comes back, its own."""
    with opened(tmp_path) as directory:
        directory.keep(cluster_id=ID, drew=True)
        directory.keep(cluster_id=OTHER)
        assert refused(directory.record, OTHER)
        assert refused(directory.record, ID)
        directory.keep(cluster_id=ID)
        assert not refused(directory.record)


def test_a_copy_under_another_name_founds_nothing(tmp_path):
    """A machine's image with a node that had drawn an id, started many times: of those names one is the old one."""
    with opened(tmp_path, node="first") as directory:
        directory.keep(cluster_id=ID, drew=True)
    with opened(tmp_path) as directory:
        assert not refused(directory.record)
    with opened(tmp_path, node="second") as directory:
        assert refused(directory.record)
    with opened(tmp_path, node="first") as directory:
        assert refused(directory.record), "it may be a copy of the copy"


async def test_a_store_that_is_lost_or_exchanged_founds_nothing(tmp_path):
    """It stays closed; and by the time that it is open again, it is another node's."""
    stores = FakeStores()
    with opened(tmp_path) as directory:
        directory.keep(cluster_id=ID, drew=True)
        async with running(directory, stores) as tables:
            await tables.create()
    (tmp_path / "tables").rename(tmp_path / "tables-forgotten-1")
    with opened(tmp_path) as directory:
        async with running(directory, stores) as tables:
            assert tables.state == "closed"
    put_store(FILES, tmp_path / "tables", 0x123, 1)
    with opened(tmp_path) as directory:
        async with running(directory, stores) as tables:
            assert tables.state == "closed"
    with opened(tmp_path, forget_tables=True) as directory:
        async with running(directory, stores) as tables:
            await tables.create()
            assert tables.state == "open"
            assert refused(directory.record)


@pytest.mark.parametrize("action", CRASHES)
@pytest.mark.parametrize("power", [None, 1, 2, 3])
def test_a_crash_while_the_id_is_kept(action, power):
    """The id is there with the note that it was drawn here, or neither is; and what was told is there."""
    seen = set()
    for at in range(100):
        disk = SimulatedFiles()
        opened(DATA, disk).close()
        was_told = False
        try:
            with opened(DATA, FaultyFiles(disk, Fault(at, action, kinds=CHANGING))) as directory:
                directory.keep(cluster_id=ID, drew=True)
                was_told = True
        except Crash:
            pass
        if power is not None:
            disk = disk.power_loss(100 * power + at)
        record = read_node(disk, DATA)
        assert (record.cluster_id, record.drew) in {("", ""), (ID, ID)}
        assert record.drew or not was_told
        seen.add((bool(record.drew), was_told))
        if was_told:
            break
    assert (True, True) in seen
    assert (False, False) in seen
