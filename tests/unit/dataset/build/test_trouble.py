"""The reason of a failed build is shown in full to readers of the database, and to others only its place."""

from __future__ import annotations

import pytest

from gossipkv.dataset.build.reading_in import _no_partition
from gossipkv.dataset.build.trouble import FOR_READERS, BuildError, Trouble, trouble_of
from gossipkv.dataset.formats import detect, json_lines, tab_separated
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import Corrupt, GossipKVError
from gossipkv.storage.batch import RecordBatch
from tests.unit.dataset.formats.cut_reader import CutReader

SECRET = "salary of ana"


def reader(data: bytes) -> CutReader:
    return CutReader(data, (1 << 18,), "part-0")


def batch() -> RecordBatch:
    made = RecordBatch()
    made.append(SECRET.encode() + b"\xff", b"", 7)
    return made


FAILURES = {
    "no TAB": lambda: list(tab_separated.batches(reader(b"a\t1\n" + SECRET.encode() + b"\n"), FileReading())),
    "no JSON": lambda: list(json_lines.batches(reader(SECRET.encode() + b"\n"), FileReading())),
    "no text": lambda: detect.detect_file(reader(b"\xff" + SECRET.encode()), FileReading()),
    "no partition": lambda: (_ for _ in ()).throw(_no_partition(batch(), 0, "part-0", "java")),
    "damage": lambda: (_ for _ in ()).throw(Corrupt("part-0", 7, "a key", got=SECRET)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_others_are_told_where_it_is(name):
    """The message keeps the file and the position, whatever the format said."""
    with pytest.raises(GossipKVError) as failed:
        FAILURES[name]()
    error = failed.value
    trouble = Trouble(error.message, {key: value for key, value in error.details.items() if value is not None})
    assert SECRET in str(trouble.to_map(to_readers=True))
    told = trouble.to_map(to_readers=False)
    assert SECRET not in str(told)
    assert told["message"].startswith("part-0")
    assert told["message"].endswith(FOR_READERS)
    assert told.keys() <= {"message", "file", "line", "offset"}


def test_what_is_no_data_is_told_to_all():
    """Messages of the system, such as a full disk, contain no data."""
    trouble = trouble_of(OSError(28, "No space left on device", "/data"))
    assert trouble.to_map(to_readers=False) == trouble.to_map(to_readers=True) == {"message": trouble.message}
    crashed = BuildError(Trouble(f"it was killed: {SECRET}", {"reason": SECRET}, lasting=False)).trouble
    assert crashed.to_map(to_readers=False) == {"message": FOR_READERS}
