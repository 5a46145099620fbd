"""The positions of deleted rows in a data file, as a snapshot of a table has them.

    deletion vector  size, magic number and a bitmap of 64 bits in Roaring's portable form, CRC-32 of both; Delta has it
                     in a file beside the data or inline (then without size and CRC-32), Iceberg as a blob of Puffin
    positions        a Parquet file of Iceberg with the columns `file_path` and `pos`

A bitmap takes at most an eighth of a byte for each row of the data file.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.reader import SourceReader
from gossipkv.errors import GossipKVError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyroaring import BitMap64

    from gossipkv.dataset.formats.reading import Deleted
    from gossipkv.dataset.source.files import DeletedRows, SourceFiles

MAGIC: Final = (1_681_511_377).to_bytes(4, "little")
SIZE_BYTES: Final = 4
POSITIONS_ROWS: Final = 65_536


def deleted_rows(files: SourceFiles, places: Iterable[DeletedRows]) -> Deleted | None:
    """Read which rows of a file are deleted; None if no row is.

    Raises:
        SourceError: a vector or a file of positions is damaged, or is gone.
        StorageError: the system refused.
    """
    if not places:
        return None
    from pyroaring import BitMap64  # noqa: PLC0415  # An extra, and few files need it.

    rows = BitMap64()
    for place in places:
        try:
            rows |= _positions(files, place) if place.offset is None and place.path else _vector(files, place)
        except GossipKVError:
            raise
        except Exception as error:
            where = place.path or "a deletion vector in the log"
            reason = getattr(error, "strerror", None) or str(error)
            raise SourceError(f"{where}: the deleted rows cannot be read: {reason}", {"file": where}) from error
    return lambda first, count: rows & BitMap64(range(first, first + count))


def _vector(files: SourceFiles, place: DeletedRows) -> BitMap64:
    from pyroaring import BitMap64  # noqa: PLC0415  # As above.

    if not place.path:
        data = base64.b64decode(place.inline)
    else:
        with _open(files, place) as reader:
            offset = place.offset or 0
            size = int.from_bytes(reader.read_at(offset, SIZE_BYTES), "big")
            data = reader.read_at(offset + SIZE_BYTES, size)
            if zlib.crc32(data) != int.from_bytes(reader.read_at(offset + SIZE_BYTES + size, SIZE_BYTES), "big"):
                raise ValueError(f"the checksum of the vector at byte {offset:,} is wrong")
    if not data.startswith(MAGIC):
        raise ValueError(f"it begins with {data[:4]!r}, and not as a deletion vector")
    return BitMap64.deserialize(data[len(MAGIC) :])


def _positions(files: SourceFiles, place: DeletedRows) -> BitMap64:
    import pyarrow.compute as pc  # noqa: PLC0415  # pyarrow takes 60 MB, and a node may import this module.
    from pyarrow import parquet as pq  # noqa: PLC0415
    from pyroaring import BitMap64  # noqa: PLC0415

    from gossipkv.dataset.formats.columns.arrow_file import ArrowFile  # noqa: PLC0415

    rows = BitMap64()
    with _open(files, place) as reader:
        file = pq.ParquetFile(ArrowFile(reader), pre_buffer=False)
        for batch in file.iter_batches(POSITIONS_ROWS, columns=["file_path", "pos"], use_threads=False):
            rows.update(batch.filter(pc.equal(batch["file_path"], place.row_file))["pos"].to_pylist())
    return rows


def _open(files: SourceFiles, place: DeletedRows) -> SourceReader:
    entry = files.stat(place.path)
    return SourceReader(files, SourceFile(place.path, place.path, entry.size_bytes, entry.modified_ns, entry.tag))
