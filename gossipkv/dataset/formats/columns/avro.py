r"""Avro's container files: our own blocks around fastavro's records.

    file    "Obj\1", metadata: a map with the schema and the codec, sync of 16 bytes, blocks
    block   long count of records, long size, records (compressed), the sync again
    long    zigzag varint

fastavro decodes each record.  It bounds no memory, so the header and blocks are read and decompressed here.
Records become Arrow's columns, by the schema: unions of null and one other type are nullable, and `uuid` stays text.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from typing import TYPE_CHECKING, Final, Protocol

import cramjam
import fastavro
import pyarrow as pa

from gossipkv.dataset.formats.codecs import DamagedError, decompressor
from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows, RowPlace, refusing
from gossipkv.dataset.formats.reading import MORE_MEMORY, refusal
from gossipkv.storage.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.dataset.formats.reading import FileReading, Readable

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
MAX_METADATA_BYTES: Final = 16 << 20
MAX_LONG_BYTES: Final = 10
# Records that become columns at once: Python's objects take many times their bytes.
BATCH_BYTES: Final = 1 << 20
BATCH_ROWS: Final = 4_096
MAX_NESTING: Final = 32

_PRIMITIVE: Final = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL: Final = {
    "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"), "local-timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"), "local-timestamp-nanos": pa.timestamp("ns"),
    "duration": pa.month_day_nano_interval(),  # It is refused as a column, as everywhere.
}  # fmt: skip


def batches(reader: Readable, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a file in order; their offsets are those of their blocks.

    Raises:
        SourceError: with `file` and `offset`, and `row` (from 1) for an error in a row.
    """
    with refusing(reader.name, 0, "the file cannot be read as Avro"):
        metadata, at = _header(reader)
        schema = fastavro.parse_schema(_without_uuids(json.loads(metadata["avro.schema"])))
        arrow_schema = _arrow_schema(schema)
        codec = metadata.get("avro.codec", b"null").decode()
        unpack = _CODECS.get(codec)
    if unpack is None:
        raise refusal(
            reader.name, 0, f"the codec {codec!r} is not supported; supported codecs are {', '.join(_CODECS)}"
        )
    rows = ArrowRows(reader.name, arrow_schema, options)
    wanted = pa.schema([arrow_schema.field(name) for name in rows.columns])
    sync = reader.read_at(at - SYNC_BYTES, SYNC_BYTES)
    batch = RecordBatch()
    before = 0
    while at < reader.size_bytes:
        with refusing(reader.name, at, "the Avro block cannot be read"):
            count, size, start = _block_head(reader, at)
            if size > options.max_block_bytes:
                raise ValueError(
                    f"it has {size:,} bytes; the limit is {options.max_block_bytes:,} bytes; {MORE_MEMORY}"
                )
            if reader.read_at(start + size, SYNC_BYTES) != sync:
                raise ValueError("its sync marker differs from the file's")
            found = _arrow_batches(schema, wanted, unpack(reader.read_at(start, size), options.max_block_bytes), count)
        while True:
            with refusing(reader.name, at, "the records of the block cannot be read"):
                arrow_rows = next(found, None)
            if arrow_rows is None:
                break
            yield from rows.records(arrow_rows, RowPlace(reader.name, at, "block", before), batch)
            before += arrow_rows.num_rows
        at = start + size + SYNC_BYTES


def _arrow_batches(schema: object, wanted: pa.Schema, block: bytes, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a block's records, some records at once."""
    data = io.BytesIO(block)
    found: list[list[object]] = [[] for _ in wanted]
    begin = kept = 0
    for number in range(count):
        record = fastavro.schemaless_reader(data, schema, None)
        for column, name in zip(found, wanted.names, strict=True):
            column.append(record[name])
        kept += 1
        if kept < BATCH_ROWS and data.tell() - begin < BATCH_BYTES and number + 1 < count:
            continue
        arrays = [pa.array(column, field.type) for column, field in zip(found, wanted, strict=True)]
        yield pa.record_batch(arrays, schema=wanted) if arrays else _rows_without_columns(kept)
        found = [[] for _ in wanted]
        begin, kept = data.tell(), 0


def _rows_without_columns(count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(count)], names=[""])


# -- blocks ------------------------------------------------------------------------------------------------------------


def _header(reader: Readable) -> tuple[dict[str, bytes], int]:
    """Return the metadata, and the end of the header."""
    if reader.read_at(0, min(len(MAGIC), reader.size_bytes)) != MAGIC:
        raise ValueError(f"it does not begin with {MAGIC!r}")
    metadata: dict[str, bytes] = {}
    at = len(MAGIC)
    while True:
        count, at = _long(reader, at)
        if count == 0:
            return metadata, at + SYNC_BYTES
        if count < 0:
            _, at = _long(reader, at)
        for _ in range(abs(count)):
            name, at = _bytes(reader, at)
            metadata[name.decode()], at = _bytes(reader, at)


def _bytes(reader: Readable, at: int) -> tuple[bytes, int]:
    size, at = _long(reader, at)
    if not 0 <= size <= min(MAX_METADATA_BYTES, reader.size_bytes - at):
        raise ValueError(f"its metadata claim {size:,} bytes, which is too much")
    return reader.read_at(at, size), at + size


def _block_head(reader: Readable, at: int) -> tuple[int, int, int]:
    """Return the number of records, the size, and the start of a block's data."""
    count, at = _long(reader, at)
    size, at = _long(reader, at)
    if count < 0 or not 0 <= size <= reader.size_bytes - at - SYNC_BYTES:
        left = reader.size_bytes - at
        raise ValueError(f"it claims {count:,} records in {size:,} bytes, but the file ends after {left:,} bytes")
    return count, size, at


def _long(reader: Readable, at: int) -> tuple[int, int]:
    """Return a number, and its end."""
    value = 0
    data = reader.read_at(at, min(MAX_LONG_BYTES, reader.size_bytes - at))
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004  # The top bit announces another byte.
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise ValueError("a number has no end")


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _bounded(start: Callable[[], _Decompressor]) -> Callable[[bytes, int], bytes]:
    def unpack(data: bytes, limit: int) -> bytes:
        found: bytes = start().decompress(data, limit + 1)
        return _checked(found, limit)

    return unpack


def _checked(data: bytes | bytearray, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueError(f"it expands to more than {limit:,} bytes; {MORE_MEMORY}")
    return bytes(data)


def _snappy(data: bytes, limit: int) -> bytes:
    """Decompress a block, which ends with the CRC-32 of its content."""
    if cramjam.snappy.decompress_raw_len(data[:-4]) > limit:
        raise ValueError(f"it expands to more than {limit:,} bytes; {MORE_MEMORY}")
    found = bytes(cramjam.snappy.decompress_raw(data[:-4]))
    if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        raise ValueError("its CRC-32 does not match")
    return found


def _zstandard(data: bytes, limit: int) -> bytes:
    unpack = decompressor("org.apache.hadoop.io.compress.ZStandardCodec")
    assert unpack is not None
    try:
        return bytes(unpack(data, limit))
    except DamagedError as error:
        raise ValueError(str(error)) from error


_CODECS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "null": _checked,
    "deflate": _bounded(lambda: zlib.decompressobj(-15)),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bounded(bz2.BZ2Decompressor),
    "xz": _bounded(lzma.LZMADecompressor),
}


# -- schema ------------------------------------------------------------------------------------------------------------


def _without_uuids(schema: object) -> object:
    """Return a schema without the logical types that fastavro would make objects of, where the text is wanted."""
    if isinstance(schema, list):
        return [_without_uuids(part) for part in schema]
    if isinstance(schema, dict):
        return {
            name: _without_uuids(part)
            for name, part in schema.items()
            if name != "logicalType" or part in {*_LOGICAL, "decimal"} or schema.get("type") == "fixed"
        }
    return schema


def _arrow_schema(schema: object) -> pa.Schema:
    kind = _arrow_type(schema, {}, 0)
    if not pa.types.is_struct(kind):
        raise TypeError("its records have no fields")
    return pa.schema(list(kind))


def _arrow_type(schema: object, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    if depth > MAX_NESTING:
        raise TypeError(f"its types are nested deeper than {MAX_NESTING} levels, or contain themselves")
    if isinstance(schema, list):
        others = [part for part in schema if part != "null"]
        if len(others) > 1:
            raise TypeError(f"a union has {len(others)} types besides null; at most one can be read")
        return _arrow_type(others[0], named, depth) if others else pa.null()
    if isinstance(schema, str):
        found = _PRIMITIVE.get(schema) or named.get(schema)
        if found is None:
            raise TypeError(f"the type {schema!r} is unknown or contains itself")
        return found
    if not isinstance(schema, dict):
        raise TypeError(f"the type {schema!r} is unknown")
    kind = _complex_type(schema, named, depth)
    if "name" in schema:
        named[str(schema["name"])] = kind
    return kind


def _complex_type(schema: dict[str, object], named: dict[str, pa.DataType], depth: int) -> pa.DataType:  # noqa: PLR0911  # A line for each.
    match schema:
        case {"logicalType": "decimal", "precision": int(precision)}:
            scale = schema.get("scale", 0)
            assert isinstance(scale, int)
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)  # noqa: PLR2004  # Arrow's limit.
        case {"logicalType": str(name)} if name in _LOGICAL:
            return _LOGICAL[name]
        case {"type": "record", "fields": list(fields)}:
            return pa.struct([(str(item["name"]), _arrow_type(item["type"], named, depth + 1)) for item in fields])
        case {"type": "array", "items": items}:
            return pa.list_(_arrow_type(items, named, depth + 1))
        case {"type": "map", "values": values}:
            return pa.map_(pa.string(), _arrow_type(values, named, depth + 1))
        case {"type": "enum"}:
            return pa.string()
        case {"type": "fixed", "logicalType": "uuid"}:
            return pa.uuid()
        case {"type": "fixed", "size": int(size)}:
            return pa.binary(size)
        case {"type": inner}:
            return _arrow_type(inner, named, depth + 1)
    raise TypeError(f"the type {schema!r} is unknown")
