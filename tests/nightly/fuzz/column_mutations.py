"""Mutated files with columns through the reader, in a separate process that may crash; a number fixes each case.

    python -m tests.nightly.fuzz.column_mutations FIRST COUNT PLACE

The program tries cases FIRST to FIRST + COUNT - 1, keeps the number of the current case at PLACE, and prints the count
of each outcome. A mutation without a checksum changes the content, so any records are accepted.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, feather, orc
from pyarrow import parquet as pq

from gossipkv.dataset.formats.detect import batches
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from tests.unit.dataset.formats.cut_reader import CutReader, everything

SEED = 20_030_007
ROWS = 200
FOOTER_BYTES = 700  # The approximate size, so that half of the mutations hit the footers.
ODD = [0, 1, 0x15, 0x7F, 0x80, 0xFF]


def originals() -> list[tuple[str, bytes]]:
    """Return small files of every kind, with their formats: Parquet of many ways, Arrow, ORC and CSV."""
    rng = random.Random(SEED)
    values = [b"v" * rng.randrange(30) + b"%d" % (row % 9) for row in range(ROWS)]
    plain = pa.table({"key": [b"key%d" % row for row in range(ROWS)], "value": values})
    fixed = pa.table(
        {
            "key": pa.array([b"%04d" % row for row in range(ROWS)], pa.binary(4)),
            "value": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(),
        }
    )
    deltas = {"key": "DELTA_BYTE_ARRAY", "value": "DELTA_LENGTH_BYTE_ARRAY"}
    files: list[tuple[str, bytes]] = []
    for table, options in (
        (plain, {}),
        (plain, {"use_dictionary": False, "compression": "none"}),
        (plain, {"data_page_version": "2.0", "compression": "zstd"}),
        (plain, {"use_dictionary": False, "column_encoding": deltas}),
        (plain, {"row_group_size": 50, "write_page_index": True, "compression": "gzip", "data_page_size": 100}),
        (fixed, {"compression": "none"}),
    ):
        target = io.BytesIO()
        pq.write_table(table, target, **options)
        files.append(("parquet", target.getvalue()))
    for table in (plain, fixed):
        for compression in ("lz4", "uncompressed"):
            target = io.BytesIO()
            feather.write_feather(table, target, compression=compression, chunksize=70)
            files.append(("arrow", target.getvalue()))
        target = io.BytesIO()
        with pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table, max_chunksize=70)
        files.append(("arrow", target.getvalue()))
        target = io.BytesIO()
        orc.write_table(table.set_column(1, "value", table["value"].cast(pa.string())), target)
        files.append(("orc", target.getvalue()))
    target = io.BytesIO()
    csv.write_csv(plain, target)
    return [*files, ("csv", target.getvalue())]


def mutated(files: list[tuple[str, bytes]], case: int) -> tuple[str, bytes]:
    rng = random.Random(SEED + case)
    form, original = rng.choice(files)
    data = bytearray(original)
    for _ in range(rng.choice([1, 1, 2, 4, 10])):
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            at = max(0, len(data) - 1 - rng.randrange(FOOTER_BYTES))
        kind = rng.randrange(7)
        if kind < 2:
            data[at] = rng.randrange(256)
        elif kind < 4:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 6:
            data[at] = rng.choice(ODD)
        else:
            del data[at : at + rng.randrange(1, 9)]
    return form, bytes(data)


def outcome(form: str, data: bytes) -> str:
    """Return the outcome of reading a file; any other exception ends the process with its traceback."""
    try:
        for value in ("value", "*"):
            everything(batches(form, CutReader(data), FileReading(value=value)))
    except SourceError:
        return "refused"
    return "read"


def main() -> None:
    first, count, place = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    files = originals()
    counts: Counter[str] = Counter()
    for case in range(first, first + count):
        place.write_text(f"{case} {json.dumps(counts)}")
        counts[outcome(*mutated(files, case))] += 1
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main()
