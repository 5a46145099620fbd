"""Memory of reading Parquet files with large pages or row groups."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.unit.dataset.formats.columns.test_parquet import KEYS, VALUES, written

ROOT = Path(__file__).parents[5]

# pyarrow itself reads 12 MB at a time; its allocator keeps several times that.
BOUND_BYTES = 64 << 20

READ = """
import sys
from gossipkv.dataset.formats.columns.parquet import batches
from gossipkv.dataset.formats.reading import FileReading
from tests.unit.dataset.formats.cut_reader import CutReader

class File(CutReader):
    def __init__(self, path):
        super().__init__(b"", name=path)
        self.file = open(path, "rb")
        self.size_bytes = self.file.seek(0, 2)

    def read_at(self, offset, size_bytes):
        self.file.seek(offset)
        return self.file.read(size_bytes)

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

for _ in batches(File(sys.argv[1]), FileReading()):
    pass
before = peak()
rows = size = 0
for batch in batches(File(sys.argv[2]), FileReading()):
    rows += len(batch)
print(rows, (peak() - before) << 10)
"""


def bytes_taken(tmp_path, data, rows):
    """Return the memory that reading a file adds to a process that has read a small one."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(written({"key": KEYS, "value": VALUES}))
    large.write_bytes(data)
    child = subprocess.run(
        [sys.executable, "-c", READ, str(small), str(large)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found_rows, taken = map(int, child.stdout.split())
    assert found_rows == rows
    return taken


def test_a_large_row_group_is_read_in_pieces(tmp_path):
    """The row group has 96 MiB."""
    value = random.randbytes(1 << 20)
    rows = 6000
    values = [value[number * 100 : number * 100 + (16 << 10)] for number in range(rows)]
    options = {"use_dictionary": False, "compression": "none", "write_batch_size": 64}
    data = written({"key": KEYS[:1] * rows, "value": values}, **options)
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == 1
    assert bytes_taken(tmp_path, data, rows) < BOUND_BYTES


@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_one_long_value_for_every_row_is_no_bomb(tmp_path, encoding):
    """The value of 1 MiB comes ten thousand times: 10 GiB from a file of a few KB."""
    rows = 10_000 if encoding == "dictionary" else 1000
    table = pa.table({"key": [b"k"] * rows, "value": pa.DictionaryArray.from_arrays([0] * rows, [b"v" * (1 << 20)])})
    options = {"use_dictionary": ["value"]}
    if encoding != "dictionary":
        table = table.set_column(1, "value", table["value"].cast(pa.large_binary()))
        options = {"use_dictionary": False, "column_encoding": {"value": encoding}}
    data = written(table, store_schema=False, **options)
    assert len(data) < 1 << 20
    assert bytes_taken(tmp_path, data, rows) < BOUND_BYTES
