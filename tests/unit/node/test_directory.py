"""The data directory belongs to one node, and refuses foreign directories."""

import errno
import os
import random

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import ConfigError, DirectoryInUse, StorageError, UnsupportedFormat
from gossipkv.node.directory import DataDirectory
from gossipkv.storage.slots import read_slots, write_slots
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

FILES = RealFiles()


def opened(path, files=FILES, cluster="test", node=None, seed=1, **certified):
    return DataDirectory.open(path, files, cluster=cluster, random=random.Random(seed), node=node, **certified)


def test_a_new_directory_is_made_with_those_above_it(tmp_path):
    """The directory holds the entries of docs/operators/data-directory.md."""
    with opened(tmp_path / "a" / "b") as data:
        assert data.store.databases() == []
        assert sorted(os.listdir(tmp_path / "a" / "b")) == [
            "LOCK", "NODE", "active", "building", "damaged", "datasets", "held", "refuted", "removing",
        ]  # fmt: skip
        assert len(data.record.uuid) == 32
        assert data.record.node == f"node-{data.record.uuid[:8]}"


def test_who_a_node_is_stays_and_its_name_can_be_changed(tmp_path):
    """The uuid is for life."""
    with opened(tmp_path) as data:
        uuid, name = data.record.uuid, data.record.node
    with opened(tmp_path, seed=2) as data:
        assert (data.record.uuid, data.record.node) == (uuid, name)
    with opened(tmp_path, node="alpha") as data:
        assert (data.record.uuid, data.record.node) == (uuid, "alpha")
    with opened(tmp_path) as data:
        assert (data.record.uuid, data.record.node) == (uuid, "alpha")


def test_a_node_is_the_one_that_its_certificate_names(tmp_path):
    """The uuid is fixed at the first start; another certificate is refused, and so is a reused one."""
    mine, other = "0" * 31 + "1", "0" * 31 + "2"
    with opened(tmp_path, uuid=mine) as data:
        assert data.record.uuid == mine
        data.keep(pinned=True)
    with opened(tmp_path), opened(tmp_path / "drawn") as data:
        assert data.record.uuid not in {mine, other}
    with pytest.raises(ConfigError, match=f"{mine}, but tls_certificate belongs to {other}; .* --uuid {mine}`"):
        opened(tmp_path, uuid=other)
    with pytest.raises(ConfigError, match=f"belongs to the old node, {mine};"):
        opened(tmp_path, uuid=mine, forget_tables=True)
    with opened(tmp_path, uuid=other, forget_tables=True) as data:
        assert data.record.uuid == other


def test_two_nodes_cannot_have_the_same_directory(tmp_path):
    """The error names the process; the first node goes on, and afterwards the directory is free."""
    with opened(tmp_path):
        with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}"):
            opened(tmp_path)
        with pytest.raises(DirectoryInUse):
            opened(tmp_path)
    opened(tmp_path).close()


def test_a_directory_of_another_cluster_is_refused_and_untouched(tmp_path):
    """The error has both names."""
    opened(tmp_path, cluster="one").close()
    (tmp_path / "building" / "x").mkdir()
    with pytest.raises(UnsupportedFormat, match="belongs to the cluster 'one', and this node has cluster = 'two'"):
        opened(tmp_path, cluster="two")
    assert (tmp_path / "building" / "x").exists()
    opened(tmp_path, cluster="one").close()


def test_a_directory_of_a_newer_format_is_refused(tmp_path):
    """The error has both format numbers."""
    opened(tmp_path).close()
    write_slots(FILES, tmp_path / "NODE", "NODE", read_slots(FILES, tmp_path / "NODE", "NODE"), format_number=2)
    with pytest.raises(UnsupportedFormat, match="format 2, and this program reads format 1: a newer GossipKV"):
        opened(tmp_path)


def test_a_directory_of_somebody_else_is_refused(tmp_path):
    """A node would clear such a directory of leftovers."""
    (tmp_path / "building").mkdir()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UnsupportedFormat, match=r"not a data directory.*thesis.tex"):
        opened(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["building", "thesis.tex"]


def test_tables_belong_to_a_data_directory(tmp_path):
    """A directory that has lost NODE is still recognised by its tables."""
    (tmp_path / "tables").mkdir()
    opened(tmp_path).close()


def test_a_path_that_is_a_file_is_refused(tmp_path):
    """The error has the system's words."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="cannot be used as a data directory"):
            opened(path)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EMFILE, errno.EIO, errno.ENOSPC])
def test_what_the_system_refuses_is_one_clear_error(error):
    """Every operation of the first opening may fail, and the lock is free again afterwards.

    An existing directory that may not be synced is no error: another user may own it.
    """
    calm = FaultyFiles(SimulatedFiles())
    opened("/a/data", calm).close()
    total = sum(calm.counts.values()) - 1  # The last one closes the lock.
    for at in range(total):
        files = SimulatedFiles()
        faulty = FaultyFiles(files, Fault(at, Action.FAIL, error=error))
        try:
            opened("/a/data", faulty).close()
            assert (error, faulty.struck[0][:14]) == (errno.EACCES, "sync_directory")
        except StorageError as caught:
            assert os.strerror(error) in caught.message
            assert caught.message.startswith("/")
        opened("/a/data", files).close()
