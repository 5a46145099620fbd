"""Adopting sorted files: files that fit are copied and checked, and every other case has its own error."""

import contextlib
import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset import partition_of, write_partition
from gossipkv.dataset.build.adopt import NotAdoptable, Stray, adopt, plan_adoption
from gossipkv.dataset.source.files import SourceFile
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, SourceError, UnsupportedFormat
from gossipkv.storage.label import OpenFile, look_at_seal
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.sorted_files import build

MEMORY_BYTES = 8 << 20
RECORDS = [(b"key %05d" % n, b"value %d" % n * 5) for n in range(3000)]


class Place:
    """A version at a source, and a directory to build in."""

    def __init__(self, root):
        self.source = root / "source"
        self.directory = root / "build"
        self.files = RealFiles()
        self.source.mkdir()
        self.directory.mkdir()
        self.remote = ""

    def write(self, *partitions, of=3, function="sequins", records=RECORDS, **options):
        for partition in partitions:
            held = [record for record in records if partition_of(record[0], of, function) == partition]
            write_partition(self.source, partition, of, held, function=function, memory_bytes=MEMORY_BYTES, **options)

    def path(self, number):
        return self.source / f"part-{number:05d}.gkv"

    def lie(self, number, records, **claim):
        """Write a file that `write_partition` would not make."""
        metadata = {"function": "sequins", "partition": number, "partitions": 3} | claim
        build(self.path(number), records, metadata=json.dumps(metadata).encode())

    @property
    def listed(self):
        return [
            SourceFile(path.name, self.remote + str(path), path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(self.source.glob("*.gkv"))
        ]

    @contextlib.contextmanager
    def opened(self, file):
        descriptor = RealFiles().open(file.path.removeprefix(self.remote))
        try:
            yield OpenFile(RealFiles(), descriptor, file.path)
        finally:
            RealFiles().close(descriptor)

    def adopt(self, **options):
        return adopt(plan_adoption(self.listed, self.opened), self.opened, self.files, self.directory, **options)

    def records(self):
        found = {}
        for path in sorted(self.directory.iterdir()):
            with SortedFile(path) as file:
                file.verify()
                found |= dict(file.scan())
        return found


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("remote", ["", "memory://"])
def test_files_that_fit_together_are_taken_over(place, compression, remote):
    """Files are copied byte for byte in the order of their partitions, under any names, with counts and seals."""
    place.remote = remote
    place.write(0, 1, 2, compression=compression, records=[*RECORDS, *RECORDS[:9]])
    for old, new in ((0, 7), (1, 0), (7, 1)):
        os.rename(place.path(old), place.path(new))
    plan = plan_adoption(place.listed, place.opened)
    assert (plan.function, plan.partitions, plan.compression) == ("sequins", 3, compression)
    adopted = place.adopt()
    assert place.records() == dict(RECORDS)
    for partition, file in enumerate(adopted):
        taken = place.directory / file.name
        with SortedFile(taken) as opened:
            assert {partition_of(key, 3) for key, _ in opened.scan()} == {partition}
            assert (file.records, file.duplicates) == (len(opened), opened.describe()["duplicates"])
        assert (file.size_bytes, file.seal) == look_at_seal(place.files, taken)
        assert taken.stat().st_nlink == 1
    originals = sorted(path.read_bytes() for path in place.source.iterdir())
    assert sorted(path.read_bytes() for path in place.directory.iterdir()) == originals


def test_only_what_is_wanted_is_copied(place):
    """Only the labels of the other files are read."""
    place.write(0, 1, 2)
    damaged = bytearray(place.path(1).read_bytes())
    damaged[100] ^= 1
    place.path(1).write_bytes(damaged)
    adopted = place.adopt(wanted={0, 2})
    assert [file is not None for file in adopted] == [True, False, True]
    assert sorted(os.listdir(place.directory)) == sorted(file.name for file in adopted if file)


@pytest.mark.parametrize("remote", ["", "memory://"])
def test_progress_and_pace_cover_every_byte_and_record(place, remote):
    """Progress only rises, to the end; bytes that the kernel copies are paced before the copy."""
    place.remote = remote
    place.write(0, 1, 2)
    told, paced = [], []
    place.adopt(on_progress=lambda *state: told.append(state), pace=paced.append)
    total = sum(path.stat().st_size for path in place.source.iterdir())
    assert told == sorted(told)
    assert told[-1] == (total, total, 3000, 3000)
    assert sum(paced) == (0 if remote else total)


def test_a_system_that_cannot_copy_is_no_hindrance(place):
    """Between file systems, or on an old kernel, the bytes are read and written."""

    class Old(RealFiles):
        def copy_range(self, source, target, offset, size_bytes):
            """Fail as an old kernel does between two file systems."""
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    place.files = Old()
    place.write(0, 1, 2)
    place.adopt()
    assert place.records() == dict(RECORDS)


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_a_stray_is_named_and_the_files_are_left_to_be_read(place, compression, at):
    """The error has key, file and offset of the first stray; nothing stays in the directory."""
    place.write(0, 1, 2)
    held = [record for record in RECORDS if partition_of(record[0], 3) == 1]
    strays = [record for record in RECORDS if partition_of(record[0], 3) == 2]
    stray = strays[round(at * (len(strays) - 1))]
    metadata = json.dumps({"function": "sequins", "partition": 1, "partitions": 3}).encode()
    build(place.path(1), [*held, stray], compression=compression, metadata=metadata)
    with pytest.raises(NotAdoptable, match="belongs to partition 2 of 3 by 'sequins', but the file holds") as caught:
        place.adopt()
    file = oracle.File(place.path(1).read_bytes())
    position = next(position for position, key, _ in file.positions() if key == stray[0])
    offset = 64 + position if compression == "none" else file.table[position // 4096] & ~oracle.STORED_AS_IS
    assert caught.value.stray == Stray(stray[0], str(place.path(1)), offset)
    assert os.listdir(place.directory) == []


def test_a_key_without_a_partition_is_a_stray(place):
    """The function hashes text, and the key is not UTF-8."""
    place.lie(0, [(b"a", b""), (b"\xff", b"")], function="string", partitions=1)
    with pytest.raises(NotAdoptable, match="has no partition by 'string', which hashes only UTF-8 text") as caught:
        place.adopt()
    assert caught.value.stray == Stray(b"\xff", str(place.path(0)), 72)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda place: place.write(*range(4), of=4), "partitioned in different ways"),
        (
            lambda place: os.link(place.path(1), place.path(9)),
            r"part-00001.* and .*part-00009.* hold the same partition",
        ),
        (lambda place: build(place.path(5), RECORDS), r"part-00005\.gkv: the file does not name its partition"),
    ],
)
def test_sound_files_that_do_not_fit_are_left_to_be_read(place, spoil, what):
    """The error names the reason and no stray."""
    place.write(0, 1, 2)
    if "different" in what:
        for number in range(3):
            os.rename(place.path(number), place.path(number + 10))
    spoil(place)
    with pytest.raises(NotAdoptable, match=what) as caught:
        place.adopt()
    assert caught.value.stray is None


@pytest.mark.parametrize(
    ("missing", "words"), [({1}, "partition 1 is missing"), ({0, 2}, "partitions 0, 2 are missing")]
)
def test_a_missing_partition_is_an_error(place, missing, words):
    """Without the partition the version would lack a part of its keys."""
    place.write(*{0, 1, 2} - missing)
    with pytest.raises(SourceError, match=f"is one of 3 partitions by 'sequins'; {words} beside it"):
        place.adopt()
    place.write(*range(10), of=10)
    place.path(9).unlink()
    with pytest.raises(SourceError, match=r"of 10 partitions by 'sequins'; partition 9 is missing"):
        place.adopt()


def test_many_missing_partitions_are_counted(place):
    """At most five are listed."""
    place.write(0, of=100)
    with pytest.raises(SourceError, match=r"partitions 1, 2, 3, 4, 5 and 94 more are missing"):
        place.adopt()


def test_every_page_is_checked(place):
    """One changed byte in records, index, anchors, metadata or checksums is found, and the file is named."""
    place.write(0, of=1)
    whole = place.path(0).read_bytes()
    for at in [*range(0, len(whole), 1013), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[at] ^= 4
        place.path(0).write_bytes(damaged)
        with pytest.raises((Corrupt, UnsupportedFormat), match=str(place.path(0))):
            place.adopt()
        assert os.listdir(place.directory) == []


def test_a_file_that_is_valid_and_out_of_order_is_damaged(place):
    """The checksums hold, but lookups and scans would fail."""
    data = bytearray(oracle.write([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], metadata=json.dumps(
        {"function": "sequins", "partition": 0, "partitions": 1}).encode()))  # fmt: skip
    footer = oracle.File(bytes(data)).footer
    data[64:72], data[72:80] = data[72:80], data[64:72]
    place.path(0).write_bytes(oracle.seal(bytes(data[: footer.body_bytes]), footer))
    with pytest.raises(Corrupt, match="damaged at byte 72: keys do not ascend: 'a' is not above"):
        place.adopt()


def test_a_file_that_counts_its_records_wrong_is_damaged(place):
    """The checksums hold, but the counts would be wrong."""
    data = oracle.write([(b"a", b"1"), (b"b", b"2")], metadata=json.dumps(
        {"function": "sequins", "partition": 0, "partitions": 1}).encode())  # fmt: skip
    footer = oracle.File(data).footer
    lie = dataclasses.replace(footer, records=3)
    place.path(0).write_bytes(oracle.seal(data[: footer.body_bytes], lie))
    with pytest.raises(Corrupt, match="the number of records does not match the footer"):
        place.adopt()


def test_a_newer_format_is_named(place):
    place.write(0, of=1)
    data = bytearray(place.path(0).read_bytes())
    data[-252] = 2
    data[-256:-252] = oracle.crc32c(bytes(data[-252:])).to_bytes(4, "little")
    place.path(0).write_bytes(data)
    with pytest.raises(UnsupportedFormat, match=rf"{place.path(0)}: the sorted file has format 2"):
        place.adopt()


def test_a_file_that_changes_under_the_copy_is_found(place):
    """The file is replaced by another of the same size between its label and its copy."""
    place.write(0, of=1)
    plan = plan_adoption(place.listed, place.opened)
    place.lie(0, [(RECORDS[0][0], RECORDS[0][1].upper()), *RECORDS[1:]], partitions=1)
    with pytest.raises(Corrupt, match="the footer changed while the file was copied"):
        adopt(plan, place.opened, place.files, place.directory)
    assert os.listdir(place.directory) == []


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_operation_that_fails_leaves_the_directory_empty(place, error):
    """The same adoption succeeds afterwards."""
    place.write(0, 1, of=2)
    plan = plan_adoption(place.listed, place.opened)
    calm = FaultyFiles(RealFiles())
    adopt(plan, place.opened, calm, place.directory)
    assert calm.counts["copy_range"] == 2
    harmless = 0
    for at in range(sum(calm.counts.values())):
        directory = Path(f"{place.directory}-{at}")
        directory.mkdir()
        faulty = FaultyFiles(RealFiles(), Fault(at, Action.FAIL_HALFWAY, error=error))
        try:
            adopt(plan, place.opened, faulty, directory)
            harmless += 1
        except (OSError, SourceError, Corrupt, LookupError) as caught:
            assert os.strerror(error) in str(caught)
            assert os.listdir(directory) == []
            adopt(plan, place.opened, RealFiles(), directory)
        assert faulty.struck
        assert len(os.listdir(directory)) == 2
    assert harmless <= calm.counts["start_writeback"]


def test_files_are_synced_before_they_are_checked_and_names_at_the_end(place):
    """The writer of the manifest relies on this order."""
    place.write(0, 1, of=2)
    place.files = FaultyFiles(RealFiles())
    place.adopt()
    kinds = [line.split()[0] for line in place.files.trace]
    assert kinds == ["create", "copy_range", "sync", "create", "copy_range", "sync", "sync_directory"]


@given(
    st.dictionaries(st.binary(max_size=6), st.binary(max_size=9), max_size=60),
    st.integers(1, 5),
    st.sampled_from(["sequins", "text"]),
    st.sampled_from(["none", "lz4"]),
)
def test_what_is_taken_over_answers_as_a_dict_does(tmp_path_factory, records, partitions, function, compression):
    """Each key is in its partition, and absent keys are not found."""
    place = Place(tmp_path_factory.mktemp("version"))
    place.write(*range(partitions), of=partitions, function=function, records=records.items(), compression=compression)
    assert plan_adoption(place.listed, place.opened).function == function
    files = [SortedFile(place.directory / file.name) for file in place.adopt()]
    for key, value in records.items():
        assert files[partition_of(key, partitions, function)].get(key) == value
        missing = key + b"!!!!!!!"
        assert files[partition_of(missing, partitions, function)].get(missing) is None
    for file in files:
        file.close()
