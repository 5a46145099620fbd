"""Files of real libraries: how each is written, and the rows that must be read, by the rules of docs/users/formats.md.

A writer gets a path and a table of Arrow.  The expected rows are made of the Python values behind that table: neither
our code nor Arrow converts them.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import duckdb
import fastavro
import msgpack
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import feather, orc
from pyarrow import parquet as pq

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.settings.csv_dialect import CsvDialect
from tests.unit.dataset.formats.cut_reader import CutReader, everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 2000
moment = dt.datetime.fromisoformat
SPAN = range(ROWS)
NAMES = ["", "plain", 'with "quotes", commas\nand lines', "\ttab\\", "é𝄞 ünïcödé", None, "x" * 300]
MOMENTS = [moment("1969-12-31T23:59:59.999999"), moment("2024-01-31T01:02:03.000004"), None]
INSTANT = dt.datetime(2024, 6, 30, 22, 0, 0, 120_000, dt.UTC)
TYPES = {
    "id": pa.int64(), "name": pa.string(), "small": pa.int16(), "big": pa.int64(), "x": pa.float64(),
    "single": pa.float32(), "flag": pa.bool_(), "price": pa.decimal128(9, 2), "tiny": pa.decimal128(38, 18),
    "day": pa.date32(), "at": pa.timestamp("us"), "far": pa.timestamp("us"), "when": pa.timestamp("us", "UTC"),
    "clock": pa.time64("us"), "raw": pa.binary(), "tags": pa.list_(pa.string()),
    "pair": pa.struct([("a", pa.int32()), ("on", pa.date32()), ("at", pa.timestamp("us"))]),
    "code": pa.binary(4),
}  # fmt: skip
VALUES: dict[str, list[object]] = {
    "id": list(SPAN),
    "name": [NAMES[row % 7] for row in SPAN],
    "small": [row % 1000 - 500 if row % 5 else None for row in SPAN],
    "big": [(-1) ** row * (2**62 + row) for row in SPAN],
    "x": [None if row % 9 == 0 else row / 8 - 100 for row in SPAN],
    "single": [struct.unpack("f", struct.pack("f", row / 3))[0] for row in SPAN],
    "flag": [row % 3 == 0 for row in SPAN],
    "price": [Decimal(row * 37 - 5000).scaleb(-2) for row in SPAN],
    "tiny": [Decimal(row % 3).scaleb(-18 * (row % 2)) for row in SPAN],
    "day": [dt.date(1600, 2, 29) + dt.timedelta(row * 1500) for row in SPAN],
    "at": [MOMENTS[row % 3] for row in SPAN],
    "far": [moment("9999-12-31T23:59") if row % 2 else moment("1600-01-01") for row in SPAN],
    "when": [INSTANT + dt.timedelta(hours=row) for row in SPAN],
    "clock": [dt.time(row % 24, 5, 6, row) for row in SPAN],
    "raw": [bytes([row % 256, 65]) if row % 4 else b"text" for row in SPAN],
    "tags": [None if row % 11 == 0 else [f"t{at}" for at in range(row % 4)] for row in SPAN],
    "pair": [
        {"a": row, "on": dt.date(2024, 1, 1 + row % 31), "at": moment("9999-01-01")} if row % 6 else None
        for row in SPAN
    ],
    "code": [b"%04x" % row for row in SPAN],
}
VALUES["tiny"] = [value.quantize(Decimal(1).scaleb(-18)) for value in VALUES["tiny"]]
TABLE = pa.table({name: pa.array(values, TYPES[name]) for name, values in VALUES.items()})
ALL = tuple(TYPES)
FLAT = tuple(name for name in ALL if not pa.types.is_nested(TYPES[name]))
SIMPLE = ("id", "name", "x", "flag")


@dataclass(frozen=True)
class Case:
    """A file of one writer; `seen` says how a value is read if not as it was written."""

    name: str
    write: Callable[[Path, pa.Table], object]
    columns: tuple[str, ...] = ALL
    digits: int = 6  # Times show so many digits of a second.
    seen: dict[str, Callable[[object], object]] = field(default_factory=dict)
    form: str | None = None
    csv: CsvDialect = field(default_factory=CsvDialect)

    def rows(self) -> list[dict[str, object]]:
        columns = [[self.seen.get(name, same)(value) for value in VALUES[name]] for name in self.columns]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]


class Number(str):
    """A number with a fraction as JSON has it."""

    __slots__ = ()


def same(value: object) -> object:
    return value


def check(case: Case, path: Path) -> None:
    """Read a file in both encodings, and compare the number of records and all keys and values."""
    rows = case.rows()
    for encoding in ("json", "msgpack"):
        reader = CutReader(path.read_bytes(), name=path.name)
        options = FileReading("id", case.columns, encoding=encoding, csv=case.csv)
        form = case.form or detect.detect_file(reader, options)
        found = everything(detect.batches(form, reader, options))[0]
        assert len(found) == len(rows)
        for (key, value), row in zip(found, rows, strict=True):
            assert key == str(row["id"]).encode()
            read = json.loads(value, parse_float=Number) if encoding == "json" else msgpack.unpackb(value)
            expected = {name: said(part, case.digits, encoding) for name, part in row.items() if part is not None}
            assert agree(read, expected), (encoding, read, expected)


def said(value: object, digits: int, encoding: str) -> object:  # noqa: PLR0911  # The table of the page.
    """Return what a reader of JSON or MessagePack finds where a value was written."""
    match value:
        case bytes() if encoding == "json":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case Decimal() if encoding == "msgpack":
            return f"{value:f}"
        case float() if encoding == "json" and not math.isfinite(value):
            return None
        case dt.datetime():
            ending = "Z" if value.tzinfo else ""
            return f"{value:%H:%M:%S}".join([f"{value.year:04}-{value:%m-%d}T", fraction(value, digits)]) + ending
        case dt.time():
            return f"{value:%H:%M:%S}{fraction(value, digits)}"
        case dt.date() | uuid.UUID():
            return str(value)
        case dict():
            return {str(name): said(part, digits, encoding) for name, part in value.items()}
        case list():
            return [said(part, digits, encoding) for part in value]
    return value


def fraction(value: dt.datetime | dt.time, digits: int) -> str:
    return f".{value.microsecond:06}000"[: digits + 1] if digits else ""


def agree(found: object, expected: object) -> bool:
    """Compare; decimals digit by digit, and floats by what they are, in the precision of the expected one."""
    match expected:
        case dict():
            same_names = isinstance(found, dict) and found.keys() == expected.keys()
            return same_names and all(agree(found[name], expected[name]) for name in expected)
        case list():
            return isinstance(found, list) and len(found) == len(expected) and all(map(agree, found, expected))
        case Decimal():
            return type(found) is Number and found == Number(f"{expected:f}")
        case float():
            short = struct.pack("f", expected)
            is_single = struct.unpack("f", short)[0] == expected
            number = float(found) if isinstance(found, int | float | Number) else math.nan
            return number == expected or (is_single and struct.pack("f", number) == short)
    return type(found) is type(expected) and found == expected


# -- writers -----------------------------------------------------------------------------------------------------------


def parquet(path: Path, table: pa.Table, **options: object) -> None:
    pq.write_table(table, path, **options)


def recast(kinds: dict[pa.DataType, pa.DataType], write: Callable[..., object]) -> Callable[[Path, pa.Table], object]:
    """Return a writer of other types."""

    def changed(path: Path, table: pa.Table) -> object:
        fields = [pa.field(field.name, kinds.get(field.type, field.type)) for field in table.schema]
        return write(path, table.cast(pa.schema(fields)))

    return changed


def dictionaries(write: Callable[..., object]) -> Callable[[Path, pa.Table], object]:
    def changed(path: Path, table: pa.Table) -> object:
        columns = {
            name: table[name].dictionary_encode() if name in {"name", "small", "day", "raw"} else table[name]
            for name in table.column_names
        }
        return write(path, pa.table(columns))

    return changed


def ipc(path: Path, table: pa.Table, make: Callable[..., pa.RecordBatchWriter], **options: object) -> None:
    with make(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=300)


def avro(path: Path, table: pa.Table, codec: str) -> None:
    logical = {"day": ("int", "date"), "at": ("long", "local-timestamp-micros"), "clock": ("long", "time-micros")}
    logical |= {"when": ("long", "timestamp-micros"), "price": ("bytes", "decimal")}
    plain = {"id": "long", "name": "string", "small": "int", "big": "long", "x": "double", "single": "float"}
    plain |= {"flag": "boolean", "raw": "bytes", "tags": {"type": "array", "items": "string"}}
    plain |= {"code": {"type": "fixed", "name": "code", "size": 4}}
    kinds = {name: {"type": kind, "logicalType": word} for name, (kind, word) in logical.items()} | plain
    kinds["price"] |= {"precision": 9, "scale": 2}
    fields = [{"name": name, "type": ["null", kinds[name]]} for name in table.column_names]
    schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
    columns = [VALUES[name] for name in table.column_names]
    rows = (dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True))
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec)


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a frame as pandas makes it of Python's values."""
    return pd.DataFrame({name: VALUES[name] for name in table.column_names})


def polars(path: Path, table: pa.Table, method: str, **options: object) -> None:
    getattr(pl.from_arrow(table), method)(path, **options)


def duck(path: Path, table: pa.Table, options: str = "") -> None:
    with duckdb.connect() as connection:
        connection.register("rows", table).sql(f"COPY rows TO '{path}' {options}")


def text_of(yes: str, no: str) -> dict[str, Callable[[object], object]]:
    """Return how the texts of CSV are read: an empty one is null, unless it is quoted."""
    return {
        "id": str, "x": lambda value: None if value is None else f"{value}", "flag": lambda value: yes if value else no,
    }  # fmt: skip


def nested(write: Callable[..., object]) -> Callable[[Path, pa.Table], object]:
    """Return a writer of lists, maps and structs within each other, in place of `pair`."""

    def changed(path: Path, table: pa.Table) -> object:
        entry = pa.struct([("m", pa.map_(pa.string(), pa.time64("ns"))), ("f", pa.float32())])
        values = pa.array([deep(value) for value in VALUES["pair"]], pa.list_(entry))
        return write(path, table.set_column(table.column_names.index("pair"), "pair", values))

    return changed


def deep(value: object) -> object:
    clock = dt.time(1, 2, 3)
    return value and [{"m": {"k": clock, "l": None}, "f": 0.5}, None, {"m": {}, "f": None}]


def deep_seen(value: object) -> object:
    return value and [{"m": {"k": "01:02:03.000000000", "l": None}, "f": 0.5}, None, {"m": {}, "f": None}]


PANDAS_TEXTS = text_of("True", "False") | {"name": lambda value: value or None}
AVRO = tuple(name for name in ALL if name not in {"tiny", "far", "pair"})
# ORC has no times, and pyarrow's ORC has nanoseconds.
ORC = tuple(name for name in ALL if name not in {"clock", "far", "pair"})
PANDAS = tuple(name for name in ALL if name not in {"small", "code"})
POLARS = {"clock": lambda value: f"{value:%H:%M:%S}.{value.microsecond:06}000"}
NEAR = tuple(name for name in ALL if name not in {"far", "pair"})
NAIVE = {"when": lambda value: value.replace(tzinfo=None)}
DECODED = {"name": lambda value: None if value is None else value.encode()}
BYTES = {pa.string(): pa.binary()}
LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary(), TYPES["tags"]: pa.large_list(pa.string())}
VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
NANOSECONDS = {
    TYPES["at"]: pa.timestamp("ns"),
    TYPES["when"]: pa.timestamp("ns", "UTC"),
    pa.time64("us"): pa.time64("ns"),
}
IN_PARQUET: dict[str, dict[str, object]] = {
    "default": {},
    **{f"{codec}": {"compression": codec} for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2, zstd": {"data_page_version": "2.0", "compression": "zstd", "row_group_size": 777},
    "no dictionary": {"use_dictionary": False},
    "small row groups": {"row_group_size": 100},
    "small pages": {"data_page_size": 512, "write_batch_size": 32, "dictionary_pagesize_limit": 1024},
    "no schema of Arrow": {"store_schema": False},
    "format 1.0": {"version": "1.0"},
    "items": {"use_compliant_nested_type": False},
    "indices": {"write_page_index": True, "write_page_checksum": True, "write_statistics": False},
    "decimals as integers": {"store_decimal_as_integer": True},
    "streams": {"use_dictionary": False, "column_encoding": dict.fromkeys(("x", "single", "big"), "BYTE_STREAM_SPLIT")},
    "deltas": {
        "use_dictionary": False,
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "name": "DELTA_BYTE_ARRAY", "raw": "DELTA_LENGTH_BYTE_ARRAY"},
    },
}
CASES = [
    *(Case(f"pyarrow {name}.parquet", partial(parquet, **options)) for name, options in IN_PARQUET.items()),
    Case("pyarrow int96.parquet", partial(parquet, use_deprecated_int96_timestamps=True), NEAR, seen=NAIVE),
    Case(
        "pyarrow as Impala.parquet",
        recast(BYTES, partial(parquet, use_deprecated_int96_timestamps=True, store_schema=False, version="1.0")),
        NEAR, seen=NAIVE | DECODED,
    ),
    Case(
        "pyarrow milliseconds.parquet",
        partial(parquet, coerce_timestamps="ms", allow_truncated_timestamps=True),
        ("id", "far", "when"), digits=3,
    ),
    Case("pyarrow nanoseconds.parquet", recast(NANOSECONDS, parquet), NEAR, digits=9),
    Case("pyarrow large.parquet", recast(LARGE, parquet)),
    Case("pyarrow views.parquet", recast(VIEWS, parquet)),
    Case("pyarrow dictionaries.parquet", dictionaries(parquet)),
    Case("pyarrow nested.parquet", nested(parquet), seen={"pair": deep_seen}),
    Case("pyarrow file.arrow", partial(ipc, make=pa.ipc.new_file)),
    Case("pyarrow file of no extension", partial(ipc, make=pa.ipc.new_file, compression="zstd")),
    Case("pyarrow stream of no extension", partial(ipc, make=pa.ipc.new_stream)),
    Case("pyarrow lz4.arrows", partial(ipc, make=pa.ipc.new_stream, compression="lz4")),
    Case("pyarrow views.arrow", recast(VIEWS, partial(ipc, make=pa.ipc.new_file))),
    Case("pyarrow dictionaries.arrows", dictionaries(partial(ipc, make=pa.ipc.new_stream))),
    Case("pyarrow nested.arrow", nested(partial(ipc, make=pa.ipc.new_file)), seen={"pair": deep_seen}),
    *(
        Case(f"pyarrow {codec}.feather", lambda path, table, codec=codec: feather.write_feather(table, path, codec))
        for codec in ("lz4", "zstd", "uncompressed")
    ),
    *(
        Case(
            f"pyarrow {codec}.orc", lambda path, table, codec=codec: orc.write_table(table, path, compression=codec),
            ORC, digits=9,
        )
        for codec in ("uncompressed", "zlib", "snappy", "lz4", "zstd")
    ),
    Case(
        "pyarrow stripes.orc",
        lambda path, table: orc.write_table(
            table, path, stripe_size=1000, dictionary_key_size_threshold=1, file_version="0.11"
        ),
        ORC, digits=9,
    ),
    *(
        Case(f"fastavro {codec}.avro", partial(avro, codec=codec), AVRO)
        for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
    ),
    Case("pandas.parquet", lambda path, table: frame(table).to_parquet(path), PANDAS),
    Case("pandas index.parquet", lambda path, table: frame(table).set_index("big").to_parquet(path), PANDAS),
    Case("pandas.feather", lambda path, table: frame(table).to_feather(path), PANDAS),
    Case("pandas.orc", lambda path, table: frame(table).to_orc(path), (*SIMPLE, "at", "raw"), digits=9),
    Case("pandas.csv", lambda path, table: frame(table).to_csv(path), SIMPLE, seen=PANDAS_TEXTS),
    Case("pandas.csv.gz", lambda path, table: frame(table).to_csv(path), SIMPLE, seen=PANDAS_TEXTS),
    Case(
        "pandas.tsv", lambda path, table: frame(table).to_csv(path, sep="\t", index=False), SIMPLE,
        seen=PANDAS_TEXTS, form="csv",
    ),
    Case(
        "pandas.jsonl", lambda path, table: frame(table).to_json(path, orient="records", lines=True),
        (*SIMPLE, "tags"),
    ),
    Case("polars.parquet", partial(polars, method="write_parquet"), seen=POLARS),
    Case(
        "polars gzip.parquet",
        partial(polars, method="write_parquet", compression="gzip", row_group_size=500), seen=POLARS,
    ),
    Case("polars.arrow", partial(polars, method="write_ipc"), seen=POLARS),
    Case("polars zstd.feather", partial(polars, method="write_ipc", compression="zstd"), seen=POLARS),
    Case("polars.arrows", partial(polars, method="write_ipc_stream"), seen=POLARS),
    *(
        Case(
            f"polars {codec}.avro", partial(polars, method="write_avro", compression=codec),
            ("id", "name", "x", "single", "flag", "day", "raw", "tags"),
        )
        for codec in ("uncompressed", "snappy", "deflate")
    ),
    Case("polars.csv", partial(polars, method="write_csv"), SIMPLE, seen=text_of("true", "false")),
    Case("polars.ndjson", partial(polars, method="write_ndjson"), (*SIMPLE, "day", "tags")),
    Case("duckdb.parquet", duck),
    *(
        Case(f"duckdb {codec}.parquet", partial(duck, options=f"(FORMAT parquet, COMPRESSION {codec})"))
        for codec in ("uncompressed", "gzip", "zstd", "brotli", "lz4_raw")
    ),
    Case("duckdb pages of version 2.parquet", partial(duck, options="(FORMAT parquet, PARQUET_VERSION v2)")),
    Case("duckdb row groups.parquet", partial(duck, options="(FORMAT parquet, ROW_GROUP_SIZE 128)")),
    Case("duckdb.csv", duck, SIMPLE, seen=text_of("true", "false")),
    Case("duckdb.csv.gz", duck, SIMPLE, seen=text_of("true", "false")),
    Case("duckdb.tsv", partial(duck, options="(DELIMITER '\t')"), SIMPLE, seen=text_of("true", "false"), form="csv"),
    Case("duckdb.json", duck, (*SIMPLE, "day", "tags")),
]  # fmt: skip
