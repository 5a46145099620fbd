"""`write_partition` in consecutive, repeated, concurrent and interrupted tasks, and on wrong records."""

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset import PartitionReport, finish_version, partition_of, write_partition
from gossipkv.dataset.offline.destinations import LocalDestination
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import LimitExceeded, SourceError, StorageError
from gossipkv.keyspace.partitioner import FUNCTIONS
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import hashing as oracle
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles

MEMORY_BYTES = 8 << 20
RECORDS = [(b"key %d" % n, b"value %d" % n) for n in range(500)]


def of(partition, partitions, function="sequins", records=RECORDS):
    return [record for record in records if partition_of(record[0], partitions, function) == partition]


def write(directory, partition=0, partitions=3, records=None, **options):
    given = of(partition, partitions, options.get("function", "sequins")) if records is None else records
    return write_partition(directory, partition, partitions, given, memory_bytes=MEMORY_BYTES, **options)


def read(path):
    with SortedFile(path) as file:
        return dict(file.scan())


def data(directory):
    """Return the names that a node takes for data."""
    return sorted(name for name in os.listdir(directory) if not name.startswith(("_", ".")))


def test_partition_of_is_the_function(tmp_path):
    """The result is the oracle's, for any kind of bytes."""
    for key, _ in RECORDS[:20]:
        assert partition_of(key, 7) == (oracle.sequins(key) & 0x7FFFFFFF) % 7
        assert partition_of(bytearray(key), 7) == partition_of(memoryview(key), 7) == partition_of(key, 7)
    assert {partition_of("é".encode(), 1000, function) for function in FUNCTIONS} > {partition_of("é".encode(), 1000)}


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_partition_is_written_with_its_claim(tmp_path, compression):
    """The file is sorted and checked, keeps the last of equal keys, and has its claim in the metadata."""
    twice = [(b"key 1", b"old"), *of(2, 3), (b"key 1", b"new")]
    twice = [record for record in twice if partition_of(record[0], 3) == 2]
    report = write(tmp_path / "db" / "v1", 2, 3, twice, compression=compression)
    path = tmp_path / "db" / "v1" / "part-00002.gkv"
    assert read(path) == dict(twice)
    assert report == PartitionReport(
        "part-00002.gkv", 2, 3, "sequins", len(dict(twice)), len(twice) - len(dict(twice)), path.stat().st_size
    )
    with SortedFile(path) as file:
        file.verify()
        assert json.loads(file.metadata) == {"function": "sequins", "partition": 2, "partitions": 3}
        assert file.describe()["compression"] == compression
    assert os.listdir(path.parent) == ["part-00002.gkv"]


def test_more_records_than_memory_come_out_sorted(tmp_path):
    """Scratch files lie in the attempt's own directory, which is removed."""
    records = [(b"%d" % (n * 7919 % 60_000), b"x" * 200) for n in range(60_000)]
    write(tmp_path, 0, 1, iter(records))
    assert read(tmp_path / "part-00000.gkv") == dict(records)
    assert os.listdir(tmp_path) == ["part-00000.gkv"]


def test_an_empty_partition_is_a_file(tmp_path):
    """A hash leaves some partitions empty; their files exist all the same."""
    assert write(tmp_path, 0, 3, []).records == 0
    assert read(tmp_path / "part-00000.gkv") == {}


def test_bytes_of_every_kind_are_taken(tmp_path):
    """Spark hands over bytearrays."""
    write(tmp_path, 0, 1, [(bytearray(b"a"), memoryview(b"1")), (b"b", bytearray(b"2"))])
    assert read(tmp_path / "part-00000.gkv") == {b"a": b"1", b"b": b"2"}


@pytest.mark.parametrize(
    ("record", "what"), [(("a", b"1"), "a key must be bytes, not str"), ((b"a", 5), "a value must be bytes, not int")]
)
def test_what_is_not_bytes_is_refused(tmp_path, record, what):
    """An int would become so many zeros, and text has no bytes of its own."""
    with pytest.raises(TypeError, match=what):
        write(tmp_path, 0, 1, [record])
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError, match="a key must be bytes"):
        partition_of("a", 4)


def test_a_key_of_another_partition_is_named_with_it(tmp_path):
    """The attempt leaves nothing."""
    stray = next(key for key, _ in RECORDS if partition_of(key, 3) == 1)
    with pytest.raises(SourceError, match="belongs to partition 1 of 3 by 'sequins', not to 0") as caught:
        write(tmp_path, 0, 3, [*of(0, 3), (stray, b"")])
    assert repr(stray)[1:] in caught.value.message
    assert caught.value.message.startswith(str(tmp_path / "part-00000.gkv"))
    assert (caught.value.details["key"], caught.value.details["partition"]) == (stray, 1)
    assert os.listdir(tmp_path) == []
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.details == caught.value.details


def test_a_key_without_a_partition_is_named(tmp_path):
    """Functions over text need UTF-8."""
    with pytest.raises(SourceError, match=r"the key '(\\xff)+'… has no partition by 'spark'"):
        write(tmp_path, 0, 1, [(b"\xff" * 100, b"")], function="spark")
    with pytest.raises(ValueError, match="UTF-8"):
        partition_of(b"\xff", 1, "spark")


@pytest.mark.parametrize(
    ("arguments", "options", "what"),
    [
        ((0, 0), {}, "partitions must be from 1 to 16,384, got 0"), ((0, 16_385), {}, "got 16385"),
        ((-1, 2), {}, "partition must be from 0 to 1, got -1"), ((2, 2), {}, "got 2"),
        ((0, 1), {"function": "murmur"}, "unknown partition function 'murmur'"),
        ((0, 1), {"compression": "zstd"}, "compression must be one of none, lz4"),
        ((0, 1), {"memory_bytes": 5}, "memory_bytes must be at least"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(tmp_path, arguments, options, what):
    """The error comes before the first record is requested."""
    with pytest.raises(ValueError, match=what):
        write_partition(tmp_path / "x", *arguments, iter(()), **options)
    assert not (tmp_path / "x").exists() or os.listdir(tmp_path / "x") == []


def test_a_record_over_the_limits_is_refused(tmp_path):
    """The limits are those of the sorted file."""
    with pytest.raises(LimitExceeded):
        write(tmp_path, 0, 1, [(b"k" * 65_536, b"")])
    assert os.listdir(tmp_path) == []


def test_a_second_attempt_of_the_same_task_is_harmless(tmp_path):
    """The other attempt ends during the first one or comes after it."""

    def with_another_inside():
        yield from of(1, 3)[:5]
        write(tmp_path, 1, 3)
        yield from of(1, 3)[5:]

    write(tmp_path, 1, 3, with_another_inside())
    assert os.listdir(tmp_path) == ["part-00001.gkv"]
    write(tmp_path, 1, 3)
    assert read(tmp_path / "part-00001.gkv") == dict(of(1, 3))
    assert os.listdir(tmp_path) == ["part-00001.gkv"]


def test_records_that_fail_leave_nothing(tmp_path):
    """The engine's own error passes through."""

    def failing():
        yield from of(0, 3)
        raise LookupError("the shuffle is gone")

    with pytest.raises(LookupError, match="shuffle"):
        write(tmp_path, 0, 3, failing())
    assert os.listdir(tmp_path) == []


def test_a_finished_version_does_not_change(tmp_path):
    """The check is made at the beginning and at the end of a late attempt."""
    for partition in range(3):
        write(tmp_path, partition)
    before = (tmp_path / "part-00001.gkv").read_bytes()

    def finished_meanwhile():
        yield from of(1, 3)[:1]
        finish_version(tmp_path, 3)
        # The driver took this attempt for dead, and removed its files.

    with pytest.raises(StorageError):
        write(tmp_path, 1, 3, finished_meanwhile())
    with pytest.raises(StorageError, match="the version is finished, because it has a file _SUCCESS"):
        write(tmp_path, 1)
    assert (tmp_path / "part-00001.gkv").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["_PARTITIONS.json", "_SUCCESS", *data(tmp_path)]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_operation_that_fails_is_one_clear_error(tmp_path, error):
    """The name holds a complete file or nothing, and the same task succeeds afterwards."""
    calm = FaultyFiles(RealFiles())
    write(tmp_path / "calm", files=calm)
    for at in range(sum(calm.counts.values())):
        place = tmp_path / str(at)
        faulty = FaultyFiles(RealFiles(), Fault(at, Action.FAIL_HALFWAY, error=error))
        try:
            write(place, files=faulty)
        except StorageError as caught:
            assert os.strerror(error) in caught.message
            assert str(place) in caught.message or str(tmp_path) in caught.message
        assert faulty.struck
        if place.exists() and data(place):
            assert read(place / "part-00000.gkv") == dict(of(0, 3))
        write(place)
        assert data(place) == ["part-00000.gkv"]
        assert read(place / "part-00000.gkv") == dict(of(0, 3))


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_an_attempt_may_be_killed_at_any_moment(tmp_path, action):
    """No leftover counts as data; the next attempt succeeds, and the end of the job cleans up."""
    calm = FaultyFiles(RealFiles())
    write(tmp_path / "calm", 0, 1, files=calm)
    left = 0
    for at in range(sum(calm.counts[kind] for kind in CHANGING)):
        place = tmp_path / str(at)
        faulty = FaultyFiles(RealFiles(), Fault(at, action, kinds=CHANGING))
        with pytest.raises(Crash):
            write(place, 0, 1, files=faulty)
        if place.exists() and data(place):
            assert read(place / "part-00000.gkv") == dict(RECORDS)
        left += place.exists() and any(name.startswith("_attempt-") for name in os.listdir(place))
        write(place, 0, 1)
        finish_version(place, 1)
        assert sorted(os.listdir(place)) == ["_PARTITIONS.json", "_SUCCESS", "part-00000.gkv"]
    assert left


def test_a_name_is_synced_after_its_contents(tmp_path):
    """Order: file, directory of the attempt, rename, directory of the version."""
    files = FaultyFiles(RealFiles())
    (tmp_path / "v").mkdir()
    write(tmp_path / "v", files=files)
    kinds = [line.split()[0] for line in files.trace]
    renamed = max(at for at, kind in enumerate(kinds) if kind == "rename")
    assert files.trace[renamed].endswith(f"to {tmp_path / 'v' / 'part-00000.gkv'}")
    assert "sync" in kinds[:renamed]
    assert files.trace[renamed + 1] == f"sync_directory {tmp_path / 'v'}"


def test_a_directory_is_made_with_those_above_it(tmp_path):
    """Each new name is synced; a file in the way is named in the error."""
    destination = LocalDestination(tmp_path / "a" / "b" / "c", RealFiles())
    assert destination.names() == []
    assert not destination.exists("x")
    with destination.workspace() as place:
        assert Path(place).parent == tmp_path / "a" / "b" / "c"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=str(tmp_path / "file")):
        write(tmp_path / "file" / "v")


@given(
    st.dictionaries(st.binary(max_size=6), st.binary(max_size=9), max_size=40),
    st.integers(1, 5),
    st.sampled_from(["sequins", "text"]),
    st.sampled_from(["none", "lz4"]),
)
def test_all_partitions_together_are_the_records(tmp_path_factory, records, partitions, function, compression):
    """Each key is in its partition's file, once."""
    place = tmp_path_factory.mktemp("version")
    found = {}
    for partition in range(partitions):
        held = of(partition, partitions, function, records.items())
        write(place, partition, partitions, held, function=function, compression=compression)
        found |= read(place / f"part-{partition:05d}.gkv")
    assert found == records
    report = finish_version(place, partitions)
    assert (report.records, report.function) == (len(records), function)
