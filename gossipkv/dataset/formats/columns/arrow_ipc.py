r"""Arrow's own files and streams (Feather), through pyarrow.

    file    "ARROW1\0\0", messages, footer, u32 its size, "ARROW1"
    stream  messages
    message u32 0xffffffff, u32 size of its metadata, metadata, body; metadata of size 0 ends a stream

A record batch is read whole, so its size is looked up in the metadata before: its body, and the bytes that compressed
buffers become, which are their first 8 bytes.  Metadata and footer are FlatBuffers: a table begins with the distance
back to the offsets of its fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gossipkv.dataset.formats.columns.arrow_file import ArrowFile
from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows, RowPlace, refusing
from gossipkv.dataset.formats.reading import enough_for_columns, refusal
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable

MAGIC: Final = b"ARROW1"
CONTINUES: Final = b"\xff\xff\xff\xff"
MAX_METADATA_BYTES: Final = 16 << 20
BATCH_BYTES: Final = 4 << 20
MAX_ROWS: Final = 16_384
BESIDE_BATCH_BYTES: Final = 16 << 20
DICTIONARY, RECORD_BATCH = 2, 3  # Kinds of messages.
LENGTH_BYTES: Final = 8


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their record batches.

    Raises:
        SourceError: with `file` and `offset`, and `row` (from 1) for an error in a row.
    """
    pa.set_cpu_count(1)
    is_file = reader.read_at(0, min(len(MAGIC), reader.size_bytes)) == MAGIC
    with refusing(reader.name, 0, "the Arrow messages cannot be read"):
        messages = list(_messages(reader, LENGTH_BYTES if is_file else 0))
    for message in messages:
        _check_memory(reader, message, options)
    offsets = iter([message.offset for message in messages if message.kind == RECORD_BATCH])
    with refusing(reader.name, 0, "the file cannot be read as Arrow"):
        open_it = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = open_it(ArrowFile(reader)).schema
    rows = ArrowRows(reader.name, schema, options)
    with refusing(reader.name, 0, "the file cannot be read as Arrow"):
        fields = [number for number, name in enumerate(schema.names) if name in rows.columns]
        reading = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        opened = open_it(ArrowFile(reader), options=reading)
        found = map(opened.get_batch, range(opened.num_record_batches)) if is_file else iter(opened)
    batch = RecordBatch()
    before = 0
    while True:
        place = next(offsets, 0)
        with refusing(reader.name, place, "the record batch cannot be read"):
            arrow_rows = next(found, None)
            if arrow_rows is None:
                return
            arrow_rows.validate()
        at_once = max(1, min(MAX_ROWS, BATCH_BYTES * arrow_rows.num_rows // max(1, arrow_rows.nbytes)))
        for first in range(0, arrow_rows.num_rows, at_once):
            part = arrow_rows.slice(first, at_once)
            yield from rows.records(part, RowPlace(reader.name, place, "record batch", before + first), batch)
        before += arrow_rows.num_rows
        del arrow_rows  # Release the rows before the next ones are read.


@dataclass(frozen=True, slots=True)
class _Message:
    offset: int
    kind: int
    needed_bytes: int


def _check_memory(reader: Readable, message: _Message, options: FileReading) -> None:
    needed_bytes = message.needed_bytes + BESIDE_BATCH_BYTES
    if needed_bytes > options.max_columns_bytes:
        reason = (
            f"the record batch needs {needed_bytes:,} bytes to be read; the limit is {options.max_columns_bytes:,} "
            "bytes; write smaller record batches (chunksize in pandas, record_batch_size in polars); "
            + enough_for_columns(needed_bytes)
        )
        raise SourceError(
            f"{reader.name}: byte {message.offset:,}: {reason}",
            {"file": reader.name, "offset": message.offset, "reason": reason, "columns_bytes": needed_bytes},
        )


def _messages(reader: Readable, at: int) -> Iterator[_Message]:
    """Yield the messages of a file or a stream, with the memory that each takes."""
    while at + LENGTH_BYTES <= reader.size_bytes:
        start = at
        prefix = reader.read_at(at, LENGTH_BYTES)
        if prefix[:4] != CONTINUES:
            return  # The footer follows, or a stream of the time before 0.15, which pyarrow reads itself.
        size = int.from_bytes(prefix[4:], "little")
        at += LENGTH_BYTES
        if size == 0:
            return
        if size > min(MAX_METADATA_BYTES, reader.size_bytes - at):
            raise refusal(reader.name, start, f"the metadata claim {size:,} bytes, which is too much")
        table = _Table.root(reader.read_at(at, size))
        at += size
        kind, body_bytes = table.number(1, "<B"), table.number(3, "<q")
        if not 0 <= body_bytes <= reader.size_bytes - at:
            raise refusal(
                reader.name, start, f"the body claims {body_bytes:,} bytes; {reader.size_bytes - at:,} bytes follow"
            )
        header = table.table(2)
        if header is not None and kind == DICTIONARY:
            header = header.table(1)
        yield _Message(start, kind, body_bytes + _unpacked_bytes(reader, at, body_bytes, header))
        at += body_bytes


def _unpacked_bytes(reader: Readable, at: int, body_bytes: int, header: _Table | None) -> int:
    """Return what the compressed buffers of a record batch become."""
    if header is None or header.table(3) is None:
        return 0
    total = 0
    for offset, length in header.structs(2, "<qq"):
        if length > LENGTH_BYTES and 0 <= offset <= body_bytes - LENGTH_BYTES:
            total += max(0, int.from_bytes(reader.read_at(at + offset, LENGTH_BYTES), "little", signed=True))
    return total


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of FlatBuffers; reading beyond the data raises `struct.error`."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, *struct.unpack_from("<I", data))

    def place(self, field: int) -> int | None:
        offsets = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        if 4 + 2 * field >= struct.unpack_from("<H", self.data, offsets)[0]:
            return None
        distance: int = struct.unpack_from("<H", self.data, offsets + 4 + 2 * field)[0]
        return self.at + distance if distance else None

    def number(self, field: int, form: str) -> int:
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def table(self, field: int) -> _Table | None:
        place = self.place(field)
        return None if place is None else _Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        place = self.place(field)
        if place is None:
            return
        place += struct.unpack_from("<I", self.data, place)[0]
        count = struct.unpack_from("<I", self.data, place)[0]
        for number in range(count):
            yield struct.unpack_from(form, self.data, place + 4 + struct.calcsize(form) * number)
