"""The positions of deleted rows in a data file, as a snapshot of a table has them.

    deletion vector  size, magic number, a bitmap of 64 bits in Roaring's portable form, CRC-32 of the last two; in a
                     file beside the data, or in the log without size and CRC-32 (Delta)
    Puffin           a file of such vectors, each for the data file that its footer names (Iceberg)
    positions        a Parquet file with the columns `file_path` and `pos` (Iceberg)

A bitmap takes at most an eighth of a byte for each row of the data file.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
from pyarrow import parquet as pq
from pyroaring import BitMap64

from gossipkv.dataset.formats.columns.arrow_file import ArrowFile
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import GossipKVError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.formats.reading import Deleted
    from gossipkv.dataset.source.files import DeletedRows, SourceFiles

VECTOR_MAGIC: Final = (1_681_511_377).to_bytes(4, "little")
PUFFIN_MAGIC: Final = b"PFA1"
PUFFIN_TAIL_BYTES: Final = 12  # The size of the footer, flags, and the magic number.
SIZE_BYTES: Final = 4
POSITIONS_ROWS: Final = 65_536


def deleted_rows(files: SourceFiles, places: Iterable[DeletedRows]) -> Deleted:
    """Read which rows of a file are deleted.

    Raises:
        SourceError: a vector or a file of positions is damaged, or is gone.
        StorageError: the system refused.
    """
    rows = BitMap64()
    for place in places:
        where = place.path or "a deletion vector in the log"
        try:
            rows |= _in_file(files, place) if place.path else _bitmap(base64.b64decode(place.inline))
        except GossipKVError:
            raise
        except Exception as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SourceError(f"{where}: the deleted rows cannot be read: {reason}", {"file": where}) from error
    return lambda first, count: rows & BitMap64(range(first, first + count))


def _in_file(files: SourceFiles, place: DeletedRows) -> BitMap64:
    entry = files.stat(place.path)
    file = SourceFile(place.path, place.path, entry.size_bytes, entry.modified_ns, entry.tag)
    with SourceReader(files, file) as reader:
        if not place.row_file:
            return _vector(reader, place.offset)
        if reader.read_at(0, len(PUFFIN_MAGIC)) == PUFFIN_MAGIC:
            return _puffin(reader, place.row_file)
        return _positions(reader, place.row_file)


def _vector(reader: SourceReader, offset: int) -> BitMap64:
    size = int.from_bytes(reader.read_at(offset, SIZE_BYTES), "big")
    data = reader.read_at(offset + SIZE_BYTES, size)
    if zlib.crc32(data) != int.from_bytes(reader.read_at(offset + SIZE_BYTES + size, SIZE_BYTES), "big"):
        raise ValueError(f"the checksum of the vector at byte {offset:,} is wrong")
    return _bitmap(data)


def _bitmap(data: bytes) -> BitMap64:
    if not data.startswith(VECTOR_MAGIC):
        raise ValueError(f"it begins with {data[:4]!r}, not with {VECTOR_MAGIC!r}")
    return BitMap64.deserialize(data[len(VECTOR_MAGIC) :])


def _puffin(reader: SourceReader, row_file: str) -> BitMap64:
    tail = reader.read_at(reader.size_bytes - PUFFIN_TAIL_BYTES, PUFFIN_TAIL_BYTES)
    if any(tail[4:8]):
        raise ValueError("its footer is compressed and cannot be read")
    size = int.from_bytes(tail[:4], "little")
    rows = BitMap64()
    for blob in json.loads(reader.read_at(reader.size_bytes - PUFFIN_TAIL_BYTES - size, size))["blobs"]:
        if blob["type"] == "deletion-vector-v1" and blob["properties"]["referenced-data-file"] == row_file:
            rows |= _vector(reader, blob["offset"])
    return rows


def _positions(reader: SourceReader, row_file: str) -> BitMap64:
    rows = BitMap64()
    file = pq.ParquetFile(ArrowFile(reader), pre_buffer=False)
    for batch in file.iter_batches(POSITIONS_ROWS, columns=["file_path", "pos"], use_threads=False):
        rows.update(batch.filter(pc.equal(batch["file_path"], row_file))["pos"].to_pylist())
    return rows
