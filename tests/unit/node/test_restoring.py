"""A backup of tables is restored under a new id, into a node without tables, and as a whole or not at all."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, DirectoryInUse, LocalError, StorageError
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import read_node
from gossipkv.node.restoring import restore_tables
from gossipkv.storage.directories import make_directory
from gossipkv.storage.engine.manifest import read_manifest
from gossipkv.table.store import OpenedStore, decide
from tests.unit.table.fake_store import put_store
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles

FILES = RealFiles()
BACKUP = PurePath("/backup")


def restore(files, backup, directory, chance):
    """Restore as the engine does: synced files first, then the manifest in the first life of a new id."""
    assert backup == BACKUP
    make_directory(files, directory)
    descriptor = files.open(directory / "records", WRITE_NEW)
    files.pwrite(descriptor, b"restored", 0)
    files.sync(descriptor)
    files.close(descriptor)
    files.sync_directory(directory)
    put_store(files, directory, chance.getrandbits(64), 1)
    return read_manifest(files, directory)


def put_back(files, data, **options):
    return restore_tables(files, BACKUP, data, random=random.Random(5), restore=restore, **options)


def lived_in(files, path, **kept):
    with DataDirectory.open(path, files, cluster="test", random=random.Random(1)) as data:
        if kept:
            data.keep(**kept)
        return data.record


def decision(files, data):
    """Return the decision of the next start about the store."""
    record = read_node(files, data)
    try:
        manifest = read_manifest(files, data / "tables")
    except FileNotFoundError:
        return decide(record.store, record.life, None, data)
    return decide(record.store, record.life, (manifest.store, manifest.life), data)


def test_a_backup_is_put_back(tmp_path):
    """NODE names the new store; the node's identity stays, in a new epoch."""
    before = lived_in(FILES, tmp_path)
    done = put_back(FILES, tmp_path, least_epoch=50)
    after = read_node(FILES, tmp_path)
    assert after == before._replace(epoch=50, store=done.manifest.store, life=1)
    assert (done.node, done.uuid, done.forgotten) == (before.node, before.uuid, None)
    assert decision(FILES, tmp_path) == OpenedStore(done.manifest.store, 1)
    assert (tmp_path / "tables" / "records").read_bytes() == b"restored"
    assert not (tmp_path / "tables-restoring").exists()


@pytest.mark.parametrize("kept", [{"store": 7, "life": 3}, {"pinned": True}, {}])
def test_tables_that_are_there_are_not_lost(tmp_path, kept):
    """Existing tables are refused; with the flag another node lives there, and the tables are kept aside."""
    before = lived_in(FILES, tmp_path, **kept)
    if not kept:
        (tmp_path / "tables").mkdir()
    with pytest.raises(LocalError, match="has tables, or has had; with --forget-tables"):
        put_back(FILES, tmp_path)
    assert read_node(FILES, tmp_path) == before
    done = put_back(FILES, tmp_path, forget_tables=True)
    after = read_node(FILES, tmp_path)
    assert after.uuid == done.uuid != before.uuid
    assert done.forgotten == (None if kept else tmp_path / "tables-forgotten-1")
    assert decision(FILES, tmp_path) == OpenedStore(done.manifest.store, 1)


def test_forgetting_where_there_is_nothing_is_no_other_node(tmp_path):
    """The flag changes nothing then."""
    before = lived_in(FILES, tmp_path)
    assert put_back(FILES, tmp_path, forget_tables=True).uuid == before.uuid


def test_where_no_node_has_lived(tmp_path):
    """The error gives advice, and nothing is made."""
    with pytest.raises(LocalError, match="no node has lived here yet: start one"):
        put_back(FILES, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_node_that_runs(tmp_path):
    with (
        DataDirectory.open(tmp_path, FILES, cluster="test", random=random.Random(1)),
        pytest.raises(DirectoryInUse, match="in use by process"),
    ):
        put_back(FILES, tmp_path)


@pytest.mark.parametrize("error", [Corrupt("/backup/log/1", 4096, "torn"), OSError(28, "No space left on device")])
def test_a_backup_that_cannot_be_put_back(tmp_path, error):
    """The node has no tables, as before, and nothing is left of the attempt."""
    before = lived_in(FILES, tmp_path)

    def fail(files, backup, directory, chance):
        restore(files, backup, directory, chance)
        raise error

    with pytest.raises((Corrupt, StorageError), match=r"torn|No space left"):
        restore_tables(FILES, BACKUP, tmp_path, random=random.Random(5), restore=fail)
    assert read_node(FILES, tmp_path)._replace(epoch=1) == before
    assert decision(FILES, tmp_path) is None
    assert not list(tmp_path.glob("tables*"))
    put_back(FILES, tmp_path)


def test_a_disk_that_cannot_be_written(tmp_path):
    lived_in(FILES, tmp_path)
    files = FaultyFiles(FILES, Fault(0, Action.FAIL, kinds=CHANGING, lasting=True))
    with pytest.raises(StorageError, match="cannot be used as a data directory"):
        put_back(files, tmp_path)
