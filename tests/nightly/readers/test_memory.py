"""The memory of builds from files of 2 GB, in each format."""

from __future__ import annotations

import dataclasses
import shutil
import struct
from contextlib import closing
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import duckdb
import fastavro
import pyarrow as pa
import pytest
from pyarrow import csv, orc

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.local.version import open_version
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from tests.oracle import sequence_file
from tests.unit.dataset.build import test_build_child_slow as usual
from tests.unit.dataset.build.test_build_child_slow import last_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

start = usual.start
INPUT_BYTES = 2 << 30
LEAST_BYTES = 2_000_000_000
MEMORY_BYTES = 256 << 20
BESIDE_BYTES = 64 << 20
BATCH_ROWS = 20_000
VALUE_BYTES = 400
POOL_BYTES = 32 << 20
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])


def batches() -> Iterator[pa.RecordBatch]:
    """Yield rows without end, in no order; values are digits that compress to half of their size."""
    rng = Random(1)
    pool = rng.randbytes(POOL_BYTES // 2).hex().encode()
    offsets = pa.py_buffer(struct.pack(f"<{BATCH_ROWS + 1}i", *range(0, VALUE_BYTES * (BATCH_ROWS + 1), VALUE_BYTES)))
    for number in count():
        begin = rng.randrange(POOL_BYTES - VALUE_BYTES * BATCH_ROWS)
        data = pa.py_buffer(pool[begin : begin + VALUE_BYTES * BATCH_ROWS])
        keys = pa.array([f"{rng.getrandbits(32):08x}{number:05}{row:05}" for row in range(BATCH_ROWS)])
        values = pa.Array.from_buffers(pa.string(), BATCH_ROWS, [None, offsets, data])
        yield pa.record_batch([keys, values], schema=SCHEMA)


def until_full(path: Path, target: object, write: Callable[[pa.RecordBatch], object]) -> int:
    """Write batches until the file is large enough; return the number of rows."""
    for number, batch in enumerate(batches(), 1):
        write(batch)
        target.flush()
        if path.stat().st_size >= INPUT_BYTES:
            return number * BATCH_ROWS
    raise AssertionError


def by_arrow(path: Path, make: Callable[..., object], **options: object) -> int:
    with pa.OSFile(str(path), "wb") as target, make(target, SCHEMA, **options) as writer:
        write = getattr(writer, "write_batch", writer.write)
        return until_full(path, target, write)


def in_orc(path: Path) -> int:
    with pa.OSFile(str(path), "wb") as target, orc.ORCWriter(target) as writer:
        return until_full(path, target, lambda batch: writer.write(pa.table(batch)))


def by_lines(path: Path, line: Callable[[bytes, bytes], bytes], head: bytes = b"") -> int:
    def write(batch: pa.RecordBatch) -> None:
        keys, values = (column.cast(pa.binary()).to_pylist() for column in batch.columns)
        target.write(b"".join(map(line, keys, values)))

    with path.open("wb") as target:
        target.write(head)
        return until_full(path, target, write)


def in_avro(path: Path) -> int:
    fields = [{"name": name, "type": "string"} for name in SCHEMA.names]
    schema = {"type": "record", "name": "Row", "fields": fields}
    rows = INPUT_BYTES // VALUE_BYTES // BATCH_ROWS * BATCH_ROWS
    found = (row for _, batch in zip(range(rows // BATCH_ROWS), batches(), strict=False) for row in batch.to_pylist())
    with path.open("wb") as target:
        fastavro.writer(target, fastavro.parse_schema(schema), found, codec="null")
    return rows


def by_duckdb(path: Path) -> int:
    rows = INPUT_BYTES // VALUE_BYTES // BATCH_ROWS * BATCH_ROWS
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with duckdb.connect() as connection:
        connection.register("rows", reader).sql(f"COPY (SELECT * FROM rows LIMIT {rows}) TO '{path}' (FORMAT parquet)")
    return rows


def in_sequence_file(path: Path) -> int:
    head = sequence_file.write([], sequence_file.Kind(compression=sequence_file.NONE))

    def record(key: bytes, value: bytes) -> bytes:
        key, value = sequence_file.text(key), sequence_file.text(value)
        return struct.pack(">ii", len(key) + len(value), len(key)) + key + value

    return by_lines(path, record, head)


WRITERS: dict[str, tuple[str, Callable[[Path], int]]] = {
    "DuckDB's Parquet": ("parquet", by_duckdb),
    "Arrow file": ("arrow", partial(by_arrow, make=pa.ipc.new_file)),
    "Arrow stream": ("arrow", partial(by_arrow, make=pa.ipc.new_stream)),
    "compressed Feather": (
        "arrow", partial(by_arrow, make=pa.ipc.new_file, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    ),
    "ORC": ("orc", in_orc),
    "Avro": ("avro", in_avro),
    "CSV": ("csv", partial(by_arrow, make=csv.CSVWriter)),
    "TSV": ("tsv", partial(by_lines, line=lambda key, value: b"%b\t%b\n" % (key, value))),
    "JSON lines": ("json", partial(by_lines, line=lambda key, value: b'{"key":"%b","value":"%b"}\n' % (key, value))),
    "SequenceFile": ("sequence", in_sequence_file),
}  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WRITERS)
def test_two_gigabytes_are_built_within_the_memory(
    tmp_path: Path, name: str, start: Callable[..., tuple], record_property: Callable[[str, object], None]
) -> None:
    """The peak is that of the whole process, with Python and all libraries."""
    form, write = WRITERS[name]
    place, built = tmp_path / "source" / "db" / "v1", tmp_path / "built"
    place.mkdir(parents=True)
    built.mkdir()
    rows = write(place / "part-0")
    assert (place / "part-0").stat().st_size > LEAST_BYTES
    version = SourceRoot(tmp_path / "source", RealFiles()).version("db", "v1")
    job = BuildJob.of(version, str(built))
    child, _ = start(dataclasses.replace(job, format=form, reading=FileReading()), memory_bytes=MEMORY_BYTES)
    said, status = last_word(child)
    (place / "part-0").unlink()
    assert status == 0, said
    with closing(open_version(RealFiles(), built, "db", "v1")) as made:
        assert made.records == rows
    shutil.rmtree(built)
    record_property("measured", f"{rows:,} rows, {said['done'] >> 20} MiB")
    assert said["done"] <= MEMORY_BYTES + BESIDE_BYTES
