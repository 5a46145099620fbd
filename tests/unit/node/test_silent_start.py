"""A node whose disk refuses writes serves its data, changes nothing, and goes on when it can write."""

import contextlib
import errno
import os
import random

import pytest

from gossipkv.address import Address
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import DirectoryInUse, StorageError
from gossipkv.node.directory import DataDirectory
from gossipkv.node.identity import read_node
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

READ_ONLY = Fault(0, Action.FAIL, kinds=CHANGING, error=errno.EROFS, lasting=True)


def opened(path, files, *, wall_ms=1):
    return DataDirectory.open(path, files, cluster="test", random=random.Random(1), least_epoch=wall_ms)


def state(path):
    return {str(place): place.read_bytes() for place in path.rglob("*") if place.is_file() and place.name != "LOCK"}


def test_a_read_only_directory_opens(tmp_path):
    """The node's epoch is unknown to others, and nothing is touched, not even leftovers of a crash."""
    opened(tmp_path, RealFiles()).close()
    (tmp_path / "building" / "left").write_text("over")
    before = state(tmp_path)
    files = FaultyFiles(RealFiles(), READ_ONLY)
    with opened(tmp_path, files, wall_ms=500) as data:
        assert (
            str(data.silence)
            == f"{tmp_path}/LOCK: the directory cannot be used as a data directory: Read-only file system"
        )
        assert data.record.epoch == 500
        assert read_node(RealFiles(), tmp_path).epoch == 1
        with pytest.raises(StorageError, match="Read-only file system"):
            data.begin()
        with pytest.raises(StorageError, match="Read-only file system"):
            data.remember([Address("127.0.0.1", 1)])
        assert state(tmp_path) == before
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            opened(tmp_path, files)
        with pytest.raises(DirectoryInUse, match="in use by process"):
            opened(tmp_path, RealFiles())
        files.strike()
        with contextlib.suppress(StorageError):
            data.keep(cluster_id="ab" * 8)
        assert read_node(RealFiles(), tmp_path).epoch == 1, "something else was kept before the epoch"
        data.begin()
        assert data.silence is None
        assert read_node(RealFiles(), tmp_path).epoch == 500
        assert not (tmp_path / "building" / "left").exists()
        assert (tmp_path / "LOCK").read_text().strip() == str(os.getpid())
        data.keep(cluster_id="ab" * 8)
        with pytest.raises(DirectoryInUse):
            opened(tmp_path, RealFiles())
    with opened(tmp_path, RealFiles(), wall_ms=2) as data:
        assert (data.record.epoch, data.record.cluster_id) == (501, "ab" * 8)


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("lasting", [False, True])
def test_whatever_is_refused_is_silence(error, lasting):
    """After any refused write the node opens silently, and no spoken epoch is repeated."""
    disk, spoken, at = SimulatedFiles(), [], 0
    with opened("/data", disk) as data:
        spoken.append(data.record.epoch)
    while True:
        files = FaultyFiles(disk, Fault(at, Action.FAIL_HALFWAY, kinds=CHANGING, error=error, lasting=lasting))
        with opened("/data", files) as data:
            silent = data.silence
            if files.struck:
                # Opening for writing is needed only by the lock; another user may own the existing directories.
                is_others = error == errno.EACCES and files.struck[0] in {"sync_directory /", "sync_directory /data"}
                assert is_others or (silent is not None) == (lasting or at > 0), files.struck
            else:
                assert silent is None
                break
            if silent is not None:
                assert os.strerror(error) in silent.message
                assert data.record.epoch > spoken[-1]
                files.strike()
                data.begin()
            spoken.append(data.record.epoch)
            assert read_node(disk, data.path).epoch == spoken[-1]
        at += 1
    assert at > 5
    assert spoken == sorted(set(spoken))


def test_a_full_disk_is_a_start_like_any_other():
    """The room was taken at the first start."""
    disk = SimulatedFiles()
    opened("/data", disk).close()
    disk.capacity_bytes -= disk.free_bytes("/")
    for epoch in (2, 3):
        with opened("/data", disk) as data:
            assert (data.silence, data.record.epoch) == (None, epoch)


@pytest.mark.parametrize("missing", ["NODE", "LOCK"])
def test_where_nobody_has_lived_it_is_an_error(tmp_path, missing):
    """There is nothing to serve, or a directory without a lock might belong to another node."""
    opened(tmp_path, RealFiles()).close()
    (tmp_path / missing).unlink()
    with pytest.raises(StorageError, match="Read-only file system"):
        opened(tmp_path, FaultyFiles(RealFiles(), READ_ONLY))
    opened(tmp_path, RealFiles()).close()
