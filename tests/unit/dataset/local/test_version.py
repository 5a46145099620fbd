"""Opening a built version: it is complete, or an error names the fault."""

import errno
from pathlib import Path

import pytest

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.version import open_version
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError
from tests.unit.dataset.sources import MEMORY_BYTES, lines
from tests.world.faulty_files import Action, Fault, FaultyFiles


@pytest.fixture
def built(job):
    """Return a directory with a built version of two partitions."""
    one = job([lines(a=1, b=2, c=3), lines(d=4)])
    perform(one, RealFiles(), BuildResources(MEMORY_BYTES))
    return Path(one.directory)


def opened(built, files=None, database="db", version="v1"):
    return open_version(files or RealFiles(), built, database, version)


def test_a_version_opens_with_its_files(built):
    version = opened(built)
    assert (version.database, version.name, version.partitions) == ("db", "v1", 2)
    assert sum(len(file) for file in version.files) == version.records == 4
    version.close()
    assert version.files == [None, None]


def test_opening_reads_next_to_nothing(built):
    """Opening reads the manifest, and a footer of each file, which is mapped."""
    calm = FaultyFiles(RealFiles())
    opened(built, calm).close()
    assert calm.counts["map"] == 2
    assert calm.counts["pread"] == 3


def test_closing_waits_for_nobody_but_refuses_while_pinned(built):
    """The closing can be repeated later."""
    version = opened(built)
    version.files[1].pin()
    with pytest.raises(BufferError):
        version.close()
    assert version.files[0] is None
    version.files[1].unpin()
    version.close()
    assert version.files == [None, None]


@pytest.mark.parametrize("name", ["_MANIFEST", "part-00000.gkv", "part-00001.gkv"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer"])
def test_damage_that_can_be_seen_at_once_is_named(built, name, how):
    path = built / name
    data = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes({"empty": b"", "cut": data[:-1], "longer": data + data}[how])
    with pytest.raises(Corrupt) as caught:
        opened(built)
    assert caught.value.file == str(path)


def test_the_files_of_two_partitions_cannot_change_places_unnoticed(built):
    """The files have the same number of records and the same size."""
    one, two = (built / "part-00000.gkv").read_bytes(), (built / "part-00001.gkv").read_bytes()
    (built / "part-00000.gkv").write_bytes(two)
    (built / "part-00001.gkv").write_bytes(one)
    with pytest.raises(Corrupt, match=r"00000\.gkv"):
        opened(built)


def test_a_version_under_another_name_is_refused(built):
    """The directory was renamed."""
    with pytest.raises(Corrupt, match=r"another version.*expected 'db/v2', got 'db/v1'"):
        opened(built, version="v2")


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_an_operation_that_fails_is_no_damage(built, error):
    """A refused operation causes no rebuild: the error names the path, and no file stays open."""
    calm = FaultyFiles(RealFiles())
    opened(built, calm).close()
    for at in range(sum(calm.counts.values())):
        faulty = FaultyFiles(RealFiles(), Fault(at, Action.FAIL, error=error))
        with pytest.raises(StorageError, match=str(built)):
            opened(built, faulty)
        assert faulty.struck
