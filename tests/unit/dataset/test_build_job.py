"""One build, from source files to sorted files and a manifest."""

import errno
import json
import os
from pathlib import Path

import pytest

from gossipkv.dataset.build_job import BuildJob, Progress, perform, reader_bytes, space_needed_bytes
from gossipkv.dataset.formats.reading import MAX_VALUE_BYTES, Reading
from gossipkv.dataset.manifest import read_manifest
from gossipkv.dataset.version import open_version
from gossipkv.environment import RealFiles
from gossipkv.errors import SourceChanged, SourceError, StorageError
from gossipkv.testing.faulty_files import Action, Fault, FaultyFiles
from tests.oracle import hashing as oracle
from tests.unit.dataset.sources import MEMORY_BYTES, lines


def build(job, files=None, **options):
    """Performs the job."""
    return perform(job, files or RealFiles(), memory_bytes=MEMORY_BYTES, **options)


def opened(job):
    """The version that the job has built."""
    return open_version(RealFiles(), Path(job.directory), job.database, job.version)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_every_record_is_in_its_partition(job, compression):
    """By Sequins' function, computed by the oracle; nothing is lost and nothing is made up."""
    contents = [b"".join(b"k%d\t%d\n" % (n, n * n) for n in range(1000 * at, 1000 * at + 1000)) for at in range(3)]
    one = job(contents, compression=compression)
    manifest = build(one)
    version = opened(one)
    expected = {b"k%d" % n: b"%d" % (n * n) for n in range(3000)}
    found = {}
    for partition, file in enumerate(version.files):
        for key, value in file.scan():
            assert (oracle.sequins(key) & 0x7FFFFFFF) % 3 == partition
            found[key] = value
    assert found == expected
    assert manifest == version.manifest == read_manifest(RealFiles(), Path(one.directory))
    assert (version.records, version.duplicates, version.partitions) == (3000, 0, 3)
    assert version.function == "sequins"
    assert version.manifest.compression == compression
    assert version.size_bytes == sum(path.stat().st_size for path in Path(one.directory).glob("*.gkv"))
    assert json.loads(version.files[0].metadata)["digest"] == one.digest
    version.close()


def test_of_duplicates_the_last_in_file_order_is_served_and_the_others_are_counted(job):
    """Files in the order of their names as bytes, lines in their order."""
    one = job([lines(a=1, b=1) + lines(a=2), lines(c=1, a=3), lines(b=2)], partitions=1)
    manifest = build(one)
    version = opened(one)
    assert list(version.files[0].scan()) == [(b"a", b"3"), (b"b", b"2"), (b"c", b"1")]
    assert (manifest.records, manifest.duplicates) == (3, 3)
    assert manifest.source_files == 3
    version.close()


def test_empty_files_make_empty_partitions(job):
    """No record is a possible number of records."""
    one = job([b"", b"\n", b""])
    assert build(one).records == 0
    version = opened(one)
    assert [len(file) for file in version.files] == [0, 0, 0]
    version.close()


def test_progress_goes_from_nothing_to_all(job):
    """Forward only, and to the end."""
    told = []
    one = job([b"".join(b"k%d\t%s\n" % (n, b"x" * 90) for n in range(10_000))] * 2)
    build(one, on_progress=told.append)
    done = [progress.done for progress in told]
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert told[-1] == Progress(one.source_bytes, one.source_bytes, 20_000, 20_000)


def test_progress_of_nothing_is_no_division():
    """An empty source is read at once."""
    assert Progress(0, 0, 0, 0).done == pytest.approx(2 / 3)


def test_each_chunk_is_paced_before_it_is_used(job):
    """All bytes, none twice."""
    one = job([b"a\t1\n" * 100_000, b"b\t1\n"])
    sizes = []
    build(one, pace=sizes.append)
    assert sum(sizes) == one.source_bytes
    assert max(sizes) == 256 << 10


def test_a_job_survives_its_trip_to_the_child(job):
    """As one line of JSON, names that are no UTF-8 included."""
    one = job([b""])
    again = BuildJob.from_json(one.to_json())
    assert again == one
    assert "\n" not in one.to_json()


def test_a_wrong_line_leaves_no_manifest_and_no_files(job):
    """The error names file and line."""
    one = job([lines(a=1), b"wrong\n"])
    with pytest.raises(SourceError) as caught:
        build(one)
    assert caught.value.details["file"].endswith("part-1")
    assert caught.value.details["line"] == 1
    assert os.listdir(one.directory) == []


def test_a_source_that_changed_is_no_storage_error(job, tmp_path):
    """The node begins anew, with what is there now."""
    one = job([lines(a=1)])
    (tmp_path / "source/db/v1/part-0").write_bytes(b"a\t12\n")
    with pytest.raises(SourceChanged):
        build(one)


def test_a_full_disk_is_told_before_anything_is_written(job):
    """How much is needed, how much is free, where."""

    class Full(RealFiles):
        def free_bytes(self, path):
            """Next to nothing."""
            return 1000

    one = job([b"k\t" + b"v" * 1_000_000])
    with pytest.raises(StorageError, match="2,265,540 bytes are needed while it is built, 1,000 are free") as caught:
        build(one, Full())
    assert caught.value.details == {
        "file": one.directory, "needed_bytes": space_needed_bytes(one), "free_bytes": 1000,
    }  # fmt: skip
    assert os.listdir(one.directory) == []


def test_what_reading_takes_grows_with_the_largest_block_that_can_be(job):
    """Twice the largest block or value, of which the compressed form is no longer than its file."""
    small, huge = job([b"a\tb\n"]), job([b"a\tb\n"], name="v2")
    huge = BuildJob.from_json(huge.to_json().replace('"size_bytes": 4', '"size_bytes": 100000000000'))
    reading = Reading(max_value_bytes=MAX_VALUE_BYTES, max_block_bytes=1000)
    assert reader_bytes(small, reading) == (10 << 20) + MAX_VALUE_BYTES + 4
    assert reader_bytes(huge, reading) == (10 << 20) + 2 * MAX_VALUE_BYTES
    assert reader_bytes(huge, Reading(max_value_bytes=100, max_block_bytes=200)) == (10 << 20) + 2 * 200


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_every_operation_that_fails_is_one_clear_error(job, error):
    """No manifest is left, the error names a path, and the same job succeeds afterwards."""
    calm = FaultyFiles(RealFiles())
    build(job([lines(a=1, b=2), lines(c=3)], name="calm"), calm)
    total = sum(calm.counts.values())
    struck = set()
    optional = 0  # Operations whose failure does no harm, such as asking for early write-back.
    for at in range(total):
        one = job([lines(a=1, b=2), lines(c=3)], name=f"v{at}")
        faulty = FaultyFiles(RealFiles(), Fault(at, Action.FAIL_HALFWAY, error=error))
        try:
            build(one, faulty)
        except StorageError as caught:
            assert os.strerror(error) in caught.message
            assert one.directory in caught.message or "source" in caught.message
            assert "_MANIFEST" not in os.listdir(one.directory) or faulty.struck[0].startswith("sync_directory")
            for name in os.listdir(one.directory):
                (Path(one.directory) / name).unlink()
            build(one)
        else:
            optional += 1
        assert len(faulty.struck) == 1
        struck.add(faulty.struck[0].split()[0])
        opened(one).close()
    assert struck == set(calm.counts)
    assert optional <= calm.counts["start_writeback"] + calm.counts["unlink"]
