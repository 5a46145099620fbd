"""The fault-injecting layer strikes at the chosen operation, and counts all operations."""

import errno
import os

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import READ_WRITE_NEW
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles


def workload(files, directory):
    for name in ("a", "b"):
        descriptor = files.open(directory / name, READ_WRITE_NEW)
        try:
            files.pwrite(descriptor, b"0123456789", 0)
            files.sync(descriptor)
        finally:
            files.close(descriptor)
    files.rename(directory / "a", directory / "c")
    files.sync_directory(directory)
    files.unlink(directory / "b")


def test_a_calm_run_counts_every_operation(tmp_path):
    """The tests over every N iterate over these counts."""
    files = FaultyFiles(RealFiles())
    workload(files, tmp_path)
    assert files.counts == {
        "create": 2, "pwrite": 2, "sync": 2, "close": 2, "rename": 1, "sync_directory": 1, "unlink": 1,
    }  # fmt: skip
    assert len(files.trace) == sum(files.counts[kind] for kind in CHANGING) == 9
    assert files.struck == []


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_every_operation_can_fail(tmp_path, error):
    struck = []
    for at in range(11):
        directory = tmp_path / str(at)
        directory.mkdir()
        files = FaultyFiles(RealFiles(), Fault(at, Action.FAIL, error=error))
        with pytest.raises(OSError, match=os.strerror(error)) as caught:
            workload(files, directory)
        assert caught.value.errno == error
        struck += [line.split()[0] for line in files.struck]
    assert sorted(struck) == sorted(["create", "pwrite", "sync", "close"] * 2 + ["rename", "sync_directory", "unlink"])


def test_a_kind_can_be_chosen(tmp_path):
    files = FaultyFiles(RealFiles(), Fault(1, Action.FAIL, kinds={"sync"}))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        workload(files, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert files.counts["sync"] == 2


def test_a_lasting_fault_lasts(tmp_path):
    """A full disk stays full."""
    files = FaultyFiles(RealFiles(), Fault(1, Action.FAIL, kinds={"pwrite"}, error=errno.ENOSPC, lasting=True))
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    files.pwrite(descriptor, b"1", 0)
    for _ in range(3):
        with pytest.raises(OSError, match="space"):
            files.pwrite(descriptor, b"2", 0)
    assert len(files.struck) == 3
    files.close(descriptor)


@pytest.mark.parametrize(
    ("action", "error", "left"),
    [
        (Action.FAIL, OSError, b""),
        (Action.FAIL_HALFWAY, OSError, b"01234"),
        (Action.CRASH_BEFORE, Crash, b""),
        (Action.CRASH_HALFWAY, Crash, b"01234"),
        (Action.CRASH_AFTER, Crash, b"0123456789"),
    ],
)
def test_a_write_is_struck_before_halfway_or_after(tmp_path, action, error, left):
    files = FaultyFiles(RealFiles(), Fault(0, action, kinds={"pwrite"}))
    with pytest.raises(error):
        workload(files, tmp_path)
    assert (tmp_path / "a").read_bytes() == left


@pytest.mark.parametrize(
    ("action", "error", "left"),
    [
        (Action.FAIL, OSError, 0),
        (Action.FAIL_HALFWAY, OSError, 500),
        (Action.CRASH_BEFORE, Crash, 0),
        (Action.CRASH_HALFWAY, Crash, 500),
        (Action.CRASH_AFTER, Crash, 1001),
    ],
)
def test_an_allocation_is_struck_before_halfway_or_after(tmp_path, action, error, left):
    """Halfway the file has grown by a half, which is nothing for one byte."""
    for size_bytes, expected in ((1001, left), (1, left // 1001)):
        files = FaultyFiles(RealFiles(), Fault(0, action, kinds={"allocate"}))
        path = tmp_path / f"{size_bytes}"
        descriptor = files.open(path, READ_WRITE_NEW)
        with pytest.raises(error):
            files.allocate(descriptor, 0, size_bytes)
        files.inner.close(descriptor)
        assert path.read_bytes() == bytes(expected)
        assert files.struck == [f"allocate {size_bytes} at 0"] == files.trace[1:]


@pytest.mark.parametrize(
    ("action", "error", "is_there"),
    [
        (Action.FAIL, OSError, False),
        (Action.FAIL_HALFWAY, OSError, False),
        (Action.CRASH_BEFORE, Crash, False),
        (Action.CRASH_HALFWAY, Crash, False),
        (Action.CRASH_AFTER, Crash, True),
    ],
)
def test_a_link_is_there_or_not(tmp_path, action, error, is_there):
    """A link has no halfway state; the error names the source."""
    (tmp_path / "a").write_bytes(b"x")
    files = FaultyFiles(RealFiles(), Fault(0, action, kinds={"link"}, error=errno.EXDEV))
    with pytest.raises(error) as caught:
        files.link(tmp_path / "a", tmp_path / "b")
    if error is OSError:
        assert (caught.value.errno, caught.value.filename) == (errno.EXDEV, tmp_path / "a")
    assert (tmp_path / "b").exists() == is_there
    assert files.struck == files.trace == [f"link {tmp_path / 'a'} to {tmp_path / 'b'}"]


def test_nothing_happens_after_a_crash(tmp_path):
    """Clean-up code does not run in a killed process."""
    files = FaultyFiles(RealFiles(), Fault(0, Action.CRASH_AFTER, kinds={"rename"}))
    with pytest.raises(Crash):
        workload(files, tmp_path)
    with pytest.raises(Crash):
        files.unlink(tmp_path / "b")
    with pytest.raises(Crash):
        files.stat(tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]


def test_a_crash_is_not_caught_as_an_exception():
    """`except Exception` must not survive a kill."""
    assert not issubclass(Crash, Exception)


def test_every_operation_of_the_seam_is_wrapped():
    """A missing operation could not be struck."""
    operations = {name for name in vars(RealFiles) if not name.startswith("_")}
    assert operations <= set(vars(FaultyFiles))
