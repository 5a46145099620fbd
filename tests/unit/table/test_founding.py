"""Only the node that drew the cluster's id may found the catalogue, as long as no event puts that in doubt."""

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
    (ID, 7, ID, 0, "with the store 0000000000000000, and its present store is 0000000000000007"),
    (ID, 0, ID, 7, "with the store 0000000000000007, and its present store is 0000000000000000"),
    (ID, 8, ID, 7, "a catalogue may exist; to found a new one, run `gossipkv metadata force`"),
    (ID, 0, "", 0, "did not draw the cluster id abababababababab, or has lost its record of that"),
    (ID, 7, "", 0, "if that node is lost, run `gossipkv metadata force`"),
    (ID, 7, OTHER, 7, "did not draw the cluster id"),
    (OTHER, 7, ID, 7, "belongs to the cluster cdcdcdcdcdcdcdcd, not to the cluster abababababababab"),
    (OTHER, 7, OTHER, 7, "belongs to the cluster cdcdcdcdcdcdcdcd"),
    ("", 0, "", 0, "belongs to no cluster yet, not"),
])  # fmt: skip
def test_who_may_found(cluster_id, store, drew, drew_store, why):
    """The NODE record decides; a refusal gives the reason and the remedy."""
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
    """The right goes to the first store, and stays with that store."""
    before = RECORD._replace(cluster_id=ID, **known)
    after = keep_founding(before, before._replace(**changes))
    assert (after.drew, after.drew_store) == (drew, drew_store)
    assert after == before._replace(**changes, drew=drew, drew_store=drew_store), "nothing else is touched"


def test_it_is_drawn_and_erased():
    """The right is tied to the current store, and no other field changes."""
    record = RECORD._replace(cluster_id=ID, store=7, life=2)
    assert with_founding(record) == record._replace(drew=ID, drew_store=7)
    assert without_founding(with_founding(record)) == record


def opened(path, files=FILES, **options):
    """Open the directory, as a start of the node does."""
    return DataDirectory.open(path, files, cluster="test", random=random.Random(1), **options)


@contextlib.asynccontextmanager
async def running(directory, stores, files=FILES):
    """Run the tables of the directory during the block."""
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
    """The right survives later starts, the creation of a store, and a pin."""
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
    """The node may found neither cluster's catalogue; under its own id again, it may found its own."""
    with opened(tmp_path) as directory:
        directory.keep(cluster_id=ID, drew=True)
        directory.keep(cluster_id=OTHER)
        assert refused(directory.record, OTHER)
        assert refused(directory.record, ID)
        directory.keep(cluster_id=ID)
        assert not refused(directory.record)


def test_a_copy_under_another_name_founds_nothing(tmp_path):
    """After copies of a machine's image ran under several names, even the original name is in doubt."""
    with opened(tmp_path, node="first") as directory:
        directory.keep(cluster_id=ID, drew=True)
    with opened(tmp_path) as directory:
        assert not refused(directory.record)
    with opened(tmp_path, node="second") as directory:
        assert refused(directory.record)
    with opened(tmp_path, node="first") as directory:
        assert refused(directory.record), "it may be a copy of the copy"


async def test_a_store_that_is_lost_or_exchanged_founds_nothing(tmp_path):
    """The store stays closed, and once it is open again it belongs to another node."""
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
    """The id is stored together with the note of its draw or not at all, and a finished `keep` is durable."""
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
