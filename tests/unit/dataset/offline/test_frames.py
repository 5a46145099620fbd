"""Data frames become versions: every row once, in its partition, within bounded memory."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute
import pytest

from gossipkv.dataset import finish_version, partition_of, write_frame
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.offline import frames
from gossipkv.dataset.offline.frames import FrameWriting
from gossipkv.errors import SourceError, StorageError
from gossipkv.storage.sorted_file import SortedFile

ROWS = {f"key {n}".encode(): f"välue {n}".encode() for n in range(3000)}
TABLE = pa.table({"key": [key.decode() for key in ROWS], "value": list(ROWS.values()), "other": range(3000)})


def records(place):
    """Return the records of a version, and assert that each is in its partition."""
    names = sorted(name for name in os.listdir(place) if name[0] != "_")
    found = {}
    for partition, name in enumerate(names):
        with SortedFile(place / name) as file:
            held = dict(file.scan())
        assert {partition_of(key, len(names)) for key in held} <= {partition}
        found |= held
    return found


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(),
                                  pa.dictionary(pa.int32(), pa.string())])  # fmt: skip
def test_strings_and_bytes_of_every_layout_are_rows(tmp_path, kind):
    """Chunks and slices make no difference, and a later row replaces an earlier one."""
    keys = pa.array([key.decode() for key in ROWS]).cast(kind)
    table = pa.concat_tables([TABLE.slice(0, 7), TABLE]).select(["value"]).append_column(
        "k", pa.chunked_array([keys.slice(0, 7), keys.slice(0, 100), keys.slice(100)])
    )  # fmt: skip
    report = write_frame(table, tmp_path / "v", key="k")
    assert (report.partitions, report.records, report.duplicates, report.function) == (16, 3000, 7, "sequins")
    assert records(tmp_path / "v") == ROWS
    assert finish_version(tmp_path / "v", 16) == report


def test_parts_come_one_after_the_other(tmp_path):
    """A generator of frames is read lazily, and no part is kept."""

    def parts() -> Iterator[pa.Table]:
        for first in range(0, 3000, 700):
            yield TABLE.slice(first, 700)

    assert write_frame(parts(), tmp_path / "v", partitions=3).records == 3000
    assert records(tmp_path / "v") == ROWS


@pytest.mark.parametrize(("table", "reason"), [
    (TABLE.rename_columns(["k", "value", "other"]), "the frame: the column 'key' does not exist; the columns are"),
    (TABLE.rename_columns(["key", "key", "other"]), "2 columns have the name 'key'"),
    (pa.table({"key": ["a", None], "value": ["x", "y"]}), "row 2: the column 'key' is null"),
    (pa.table({"key": [1.5], "value": ["x"]}), "the frame: the column 'key' has the type double and cannot be a key"),
    (pa.table({"key": ["a", "b" * 65_536], "value": ["x", "y"]}), "row 2: the key has 65,536 bytes"),
])  # fmt: skip
def test_a_row_that_cannot_be_served_is_named(tmp_path, table, reason):
    """Nothing is left behind but an empty directory."""
    with pytest.raises(SourceError, match=reason):
        write_frame(table, tmp_path / "v")
    assert os.listdir(tmp_path / "v") == []


def test_columns_become_rows_by_the_rules_for_files(tmp_path):
    """A key of several columns is joined; a value of all is an object of JSON without nulls."""
    table = pa.table({"country": ["de", "fr"], "id": [7, 8], "city": ["Köln", None], "size": [1.5, 2.0]})
    write_frame(table, tmp_path / "v", key=["country", "id"], separator="/", value="*", partitions=1)
    assert records(tmp_path / "v") == {
        b"de/7": '{"country":"de","id":7,"city":"Köln","size":1.5}'.encode(),
        b"fr/8": b'{"country":"fr","id":8,"size":2}',
    }
    write_frame(table, tmp_path / "w", key="id", value=["city"], encoding="msgpack", nulls="null", partitions=1)
    assert records(tmp_path / "w")[b"8"] == b"\x81\xa4city\xc0"


def test_a_key_without_hash_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"the key .* is not UTF-8, but 'spark' hashes only UTF-8 text"):
        write_frame(pa.table({"key": [b"a", b"\xff"], "value": ["x", "y"]}), tmp_path / "v", function="spark")


def test_a_finished_version_is_not_written_again(tmp_path):
    """An interrupted one is."""
    write_frame(TABLE, tmp_path / "v", partitions=2)
    with pytest.raises(StorageError, match="the version is finished"):
        write_frame(TABLE, tmp_path / "v", partitions=2)
    os.unlink(tmp_path / "v" / "_SUCCESS")
    assert write_frame(TABLE, tmp_path / "v", partitions=2).records == 3000


def test_what_is_no_frame_is_refused(tmp_path):
    with pytest.raises(TypeError):
        write_frame(3, tmp_path / "v")
    with pytest.raises(ValueError, match="partitions must be from 1"):
        write_frame(TABLE, tmp_path / "v", partitions=0)


def test_rows_are_converted_a_few_at_a_time(tmp_path, monkeypatch):
    """A chunk of any size is cut."""
    monkeypatch.setattr(frames, "BATCH_ROWS", 10)
    assert write_frame(TABLE, tmp_path / "v", partitions=1).records == 3000
    assert records(tmp_path / "v") == ROWS


def tasks(place, **options):
    """Return a writing, and the rows of three tasks; the last repeats some keys of the first."""
    writing = FrameWriting(place, FileReading(), 3, memory_bytes=8 << 20, **options)
    changed = pa.table({"key": ["key 1", "key 2"], "value": ["new 1", "new 2"]})
    return writing, [TABLE.slice(0, 1000).to_batches(), TABLE.slice(1000).to_batches(), changed.to_batches()]


def test_runs_of_tasks_become_a_version(tmp_path):
    """Only the runs of counted attempts are merged, in the order of the tasks; a lost attempt leaves nothing."""
    writing, rows = tasks(tmp_path / "v")
    lost = writing.write_runs(pa.table({"key": ["ghost"], "value": ["x"]}).to_batches(), 1)
    assert len(lost.partitions) == 1
    runs = [writing.write_runs(batches, task) for task, batches in enumerate(rows)]
    for partition in range(3):
        writing.merge(partition, reversed(runs))
    report = writing.finish()
    assert (report.records, report.duplicates) == (3000, 2)
    assert records(tmp_path / "v") == ROWS | {b"key 1": b"new 1", b"key 2": b"new 2"}
    assert sorted(name for name in os.listdir(tmp_path / "v") if name[0] == "_") == ["_PARTITIONS.json", "_SUCCESS"]
    with pytest.raises(StorageError, match="the version is finished"):
        writing.write_runs(rows[0], 0)


def test_rows_that_were_partitioned_are_written_by_partition(tmp_path):
    """A task that got rows of another partition is a defect; one without rows writes an empty file."""
    writing, _ = tasks(tmp_path / "v")
    (rows,) = TABLE.to_batches()
    numbers = pa.array(writing.partitions_of(rows))
    for partition in (0, 1, 2, 1):
        held = rows.filter(pa.compute.equal(numbers, partition))
        writing.write_partition([held], partition)
    assert writing.finish().records == 3000
    assert records(tmp_path / "v") == ROWS
    other, _ = tasks(tmp_path / "other")
    with pytest.raises(AssertionError):
        other.write_partition([rows], 0)
    for partition in range(3):
        other.write_partition([], partition)
    assert other.finish().records == 0
