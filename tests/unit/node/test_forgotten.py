"""A node that forgets its tables gets a new identity; the old store is kept aside, and datasets stay."""

import random

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import ConfigError, StorageError
from gossipkv.node.directory import DataDirectory
from gossipkv.node.forgotten import is_forgotten
from gossipkv.node.identity import read_node
from gossipkv.storage.directories import make_directory
from tests.world.faulty_files import Action, Fault, FaultyFiles

FILES = RealFiles()


def opened(path, files=FILES, seed=1, **options):
    """Open the directory, like a start of a node."""
    return DataDirectory.open(path, files, cluster="test", random=random.Random(seed), **options)


def put_tables(files, path, content=b"precious"):
    make_directory(files, path / "tables" / "log")
    descriptor = files.open(path / "tables" / "log" / "1", WRITE_NEW)
    files.pwrite(descriptor, content, 0)
    files.sync(descriptor)
    files.close(descriptor)
    files.sync_directory(path / "tables" / "log")


def lived_in(files, path):
    with opened(path, files, least_epoch=1000) as data:
        put_tables(files, data.path)
        data.keep(cluster_id="ab" * 8, shard_id=3, pinned=True, store=77, life=9, drew=True)
        return data.record


def stores(files, path):
    """Return the names of the directories with stores, by the contents of their file."""
    found = {}
    for entry in files.list_directory(path):
        if entry.name == "tables" or is_forgotten(entry.name):
            descriptor = files.open(f"{path}/{entry.name}/log/1")
            found[files.pread(descriptor, 100, 0)] = entry.name
            files.close(descriptor)
    return found


def test_another_node_without_tables(tmp_path):
    """The new node has a higher epoch, the same name, cluster and place, no store, and is not pinned."""
    before = lived_in(FILES, tmp_path)
    (tmp_path / "datasets" / "geo").mkdir()
    with opened(tmp_path, seed=2, forget_tables=True) as data:
        after = data.record
        assert data.forgotten == tmp_path / "tables-forgotten-1"
        assert after == before._replace(
            uuid=after.uuid, epoch=1001, pinned=False, store=0, life=0, drew="", drew_store=0
        )
        assert after.uuid != before.uuid
        assert read_node(FILES, tmp_path) == after
    assert stores(FILES, tmp_path) == {b"precious": "tables-forgotten-1"}
    assert (tmp_path / "datasets" / "geo").is_dir()
    with opened(tmp_path, seed=3) as data:
        assert data.forgotten is None
        assert data.record == after._replace(epoch=1002)


def test_the_next_one_takes_the_next_number(tmp_path):
    """Directories of earlier calls stay, also with gaps in the numbers."""
    for content, number in ((b"first", 1), (b"second", 2), (b"third", 8)):
        put_tables(FILES, tmp_path, content)
        if number == 8:
            (tmp_path / "tables-forgotten-2").rename(tmp_path / "tables-forgotten-7")
        with opened(tmp_path, seed=number, forget_tables=True) as data:
            assert data.forgotten == tmp_path / f"tables-forgotten-{number}"
    assert sorted(stores(FILES, tmp_path).values()) == [f"tables-forgotten-{number}" for number in (1, 7, 8)]


def test_tables_that_are_gone_can_be_forgotten(tmp_path):
    """NODE names a lost store: there is nothing to keep aside."""
    before = lived_in(FILES, tmp_path)
    (tmp_path / "tables").rename(tmp_path.with_name("elsewhere"))
    with opened(tmp_path, seed=2, forget_tables=True) as data:
        assert data.forgotten is None
        assert (data.record.store, data.record.pinned) == (0, False)
        assert data.record.uuid != before.uuid


def test_nothing_to_forget_is_refused(tmp_path):
    """A flag left in a unit file must not make a new node at each start; nothing changes."""
    with opened(tmp_path) as data:
        before = data.record
    node = (tmp_path / "NODE").read_bytes()
    with pytest.raises(ConfigError, match="no tables to forget, and nothing was changed"):
        opened(tmp_path, seed=2, forget_tables=True)
    assert (tmp_path / "NODE").read_bytes() == node
    with opened(tmp_path) as data:
        assert data.record == before._replace(epoch=2)
    with pytest.raises(ConfigError, match="no tables to forget"):
        opened(tmp_path / "new", forget_tables=True)


def test_a_lost_node_does_not_leave_its_tables_to_the_next(tmp_path):
    """Without NODE another node lives here, so tables of the old one are kept aside as well."""
    before = lived_in(FILES, tmp_path)
    (tmp_path / "NODE").unlink()
    with opened(tmp_path, seed=2) as data:
        assert data.record.uuid != before.uuid
        assert data.forgotten == tmp_path / "tables-forgotten-1"
    assert stores(FILES, tmp_path) == {b"precious": "tables-forgotten-1"}


def test_what_was_set_aside_is_no_stranger(tmp_path):
    """A directory with an old store is recognised without NODE; similar names are not."""
    (tmp_path / "tables-forgotten-12").mkdir()
    opened(tmp_path).close()
    for name in ("tables-forgotten-", "tables-forgotten-0", "tables-forgotten-1x", "tables-forgotten-x"):
        assert not is_forgotten(name)


def test_a_disk_that_refuses_is_no_other_node(tmp_path):
    """Where nothing can be written the start fails, and neither node runs."""
    before = lived_in(FILES, tmp_path)
    for kind in ("rename", "pwrite"):
        files = FaultyFiles(FILES, Fault(0, Action.FAIL, kinds={kind}, lasting=True))
        with pytest.raises(StorageError, match="cannot be used as a data directory"):
            opened(tmp_path, files, seed=2, forget_tables=True)
        assert read_node(FILES, tmp_path) == before
    with opened(tmp_path, seed=3, forget_tables=True) as data:
        assert data.record.uuid != before.uuid
    assert stores(FILES, tmp_path) == {b"precious": "tables-forgotten-1"}
