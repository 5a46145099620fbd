"""ORC, through pyarrow.

Rows are read in batches: ORC keeps a buffer for each stream of a column, and the dictionaries of a stripe.  A stripe is
read as its rows are needed, so its size does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc

from gossipkv.dataset.formats.columns.arrow_file import ArrowFile
from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows, RowPlace, refusing
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable

BATCH_BYTES: Final = 4 << 20
# Values are larger in memory than in the file by this much at most, or a batch is larger than meant.
EXPANSION: Final = 8
MAX_ROWS: Final = 16_384


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order.

    Raises:
        SourceError: with `file`, and `row` (from 1) for an error in a row.
    """
    pa.set_cpu_count(1)
    with refusing(reader.name, 0, "the file cannot be read as ORC"):
        file = orc.ORCFile(ArrowFile(reader))
        schema, rows_in_file = file.schema, file.nrows
        del file
    rows = ArrowRows(reader.name, schema, options)
    if not rows_in_file:
        return
    at_once = max(1, min(MAX_ROWS, BATCH_BYTES * rows_in_file // (EXPANSION * reader.size_bytes)))
    with refusing(reader.name, 0, "the file cannot be read"):
        fragment = ds.OrcFileFormat().make_fragment(pa.PythonFile(ArrowFile(reader), mode="r"))
        scanner = ds.Scanner.from_fragment(
            fragment,
            columns=rows.columns,
            batch_size=at_once,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        found = scanner.to_reader()
    batch = RecordBatch()
    before = 0
    while True:
        with refusing(reader.name, 0, f"the rows from {before + 1:,} on cannot be read"):
            arrow_rows = next(found, None)
        if arrow_rows is None:
            return
        yield from rows.records(arrow_rows, RowPlace(reader.name, 0, "file", before), batch)
        before += arrow_rows.num_rows
        del arrow_rows  # Release the rows before the next ones are read.
