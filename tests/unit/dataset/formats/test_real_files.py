"""The reader of every format on files that Spark and Hadoop wrote: their format and each of their records."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from tests.fixtures.cases import Case, own_cases
from tests.unit.dataset.formats.readers import MemoryReader

if TYPE_CHECKING:
    from pathlib import Path

each_directory = pytest.mark.parametrize("case", own_cases(), ids=lambda case: case.name)


def data_files(case: Case) -> list[Path]:
    return sorted(path for path in case.place.iterdir() if path.name[0] not in "._")


@each_directory
def test_what_a_file_is(case: Case) -> None:
    readers = [MemoryReader(path.read_bytes(), path.name) for path in data_files(case)]
    found = {detect.detect_file(reader, FileReading()) for reader in readers if reader.size_bytes}
    assert found == {case.format}


@pytest.mark.parametrize("chunk_bytes", [257, 256 << 10])
@each_directory
def test_every_record_is_read(case: Case, chunk_bytes: int) -> None:
    """Each file has its number of records; the last of equal keys counts, wherever chunks end."""
    options = FileReading(*(case.fields or ("key", "value")))
    files = []
    for path in data_files(case):
        reader = MemoryReader(path.read_bytes(), path.name, chunk_bytes=chunk_bytes)
        files.append([pair for batch in detect.batches(case.format, reader, options) for pair in batch])
    assert tuple(map(len, files)) == case.files
    pairs = list(itertools.chain.from_iterable(files))
    assert dict(pairs) == case.records
    assert len(pairs) - len(case.records) == case.duplicates
