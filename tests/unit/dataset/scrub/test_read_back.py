"""A version read back: every flipped, missing or foreign byte is named, and nothing else."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from gossipkv.dataset.build.steps import BuildResources, perform
from gossipkv.dataset.local.manifest import MANIFEST, read_manifest
from gossipkv.dataset.scrub.read_back import PIECE_BYTES, Job, read_back
from gossipkv.environment.real_files import RealFiles
from gossipkv.storage.label import PAGE_BYTES, OpenFile, read_label
from tests.unit.dataset.sources import MEMORY_BYTES
from tests.world.faulty_files import Action, Fault, FaultyFiles


@pytest.fixture
def built(job):
    """Return the directory of a version with two partitions."""
    lines = [b"".join(b"%d-%d\t%d\n" % (part, number, number) for number in range(3000)) for part in range(2)]
    one = job(lines)
    perform(one, RealFiles(), BuildResources(MEMORY_BYTES))
    return Path(one.directory)


def reads(directory, files=None, version="v1"):
    """Return the damage, the counts, and the number of bytes read."""
    found, read = [], []
    job = Job(str(directory), "db", version, 0)
    counts = read_back(files or RealFiles(), job, wait=read.append, on_damage=found.append)
    return found, counts, sum(read)


def flip(path, at, bit=1):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def test_a_whole_version_has_nothing(built):
    """All bytes are read, and their number is reported."""
    found, counts, read_bytes = reads(built)
    manifest = read_manifest(RealFiles(), built)
    assert (found, counts) == ([], (2, manifest.size_bytes))
    assert read_bytes >= manifest.size_bytes
    assert read_bytes < manifest.size_bytes * 1.1


def test_each_flipped_byte_is_found_in_its_file(built):
    """Damage is found in records, index, checksums and footer, and the other file is still read."""
    path = built / "part-00001.gkv"
    size_bytes = path.stat().st_size
    for at in [*range(0, size_bytes, 997), *range(size_bytes - 300, size_bytes)]:
        flip(path, at)
        found, (files, _), _ = reads(built)
        assert [damage.file for damage in found] == [str(path)], at
        assert files == 2
        flip(path, at)
    assert reads(built)[0] == []


def test_the_offset_is_that_of_the_page(built):
    """An operator can look there."""
    flip(built / "part-00000.gkv", 5000)
    (damage,), _, _ = reads(built)
    assert (damage.offset, damage.reason) == (4096, "a page's checksum does not match")


def body_bytes(path):
    """Return the size of a file without its checksums."""
    files = RealFiles()
    descriptor = files.open(path)
    try:
        return read_label(OpenFile(files, descriptor, str(path))).body_bytes
    finally:
        files.close(descriptor)


def test_each_piece_is_read_to_its_end(job):
    """A file of several pieces is checked in the first, in the middle, and in the short last piece."""
    one = job([b"".join(b"%d\t%s\n" % (number, b"%d-" % number * 200) for number in range(800))])
    perform(one, RealFiles(), BuildResources(MEMORY_BYTES))
    path = Path(one.directory) / "part-00000.gkv"
    end = body_bytes(path)
    assert 2 * PIECE_BYTES < end < 3 * PIECE_BYTES - PAGE_BYTES
    assert reads(path.parent)[0] == []
    for at in [*range(0, end, PIECE_BYTES // 2), *range(PIECE_BYTES - 1, end, PIECE_BYTES), end - 1]:
        flip(path, at)
        found, _, _ = reads(path.parent)
        assert [(damage.file, damage.offset) for damage in found] == [(str(path), at // PAGE_BYTES * PAGE_BYTES)]
        flip(path, at)


def test_every_damaged_file_is_told(built):
    """Missing, cut, grown and foreign files are each named."""
    paths = [built / "part-00000.gkv", built / "part-00001.gkv"]
    paths[0].unlink()
    with paths[1].open("r+b") as file:
        file.truncate(10_000)
    found, _, _ = reads(built)
    assert [(damage.file, damage.reason) for damage in found] == [
        (str(paths[0]), "the file is missing"),
        (str(paths[1]), "the size differs from the manifest's"),
    ]


def test_a_file_in_the_place_of_another_is_told(built):
    """The checksums of the file hold."""
    first, second = built / "part-00000.gkv", built / "part-00001.gkv"
    second.unlink()
    shutil.copy(first, second)
    assert [damage.file for damage in reads(built)[0]] == [str(second)]


@pytest.mark.parametrize("harm", ["flipped", "missing", "empty", "another version's"])
def test_a_damaged_manifest_is_damage(built, harm):
    """A restart refuses the damaged manifest."""
    path = built / MANIFEST
    if harm == "flipped":
        flip(path, 60)
    elif harm == "missing":
        path.unlink()
    elif harm == "empty":
        path.write_bytes(b"")
    (damage,), counts, _ = reads(built, version="v2" if harm == "another version's" else "v1")
    assert (damage.file, counts) == (str(path), (0, 0))


@pytest.mark.parametrize("at", [0, 1, 4, 9])
def test_what_the_disk_cannot_read_is_damage(built, at):
    """Any read may meet a lost sector (EIO)."""
    files = FaultyFiles(RealFiles(), Fault(at, Action.FAIL, kinds={"pread"}, error=errno.EIO))
    found, _, _ = reads(built, files)
    assert files.struck
    assert len(found) == 1
    assert found[0].reason == "the disk cannot read these bytes"


def test_what_the_system_refuses_is_no_damage(built):
    """Without descriptors or permission nothing is known of the bytes."""
    for number in (errno.EMFILE, errno.EACCES):
        for at in range(2):
            files = FaultyFiles(RealFiles(), Fault(at, Action.FAIL, kinds={"open"}, error=number))
            with pytest.raises(OSError, match=os.strerror(number)):
                reads(built, files)
