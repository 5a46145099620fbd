"""Files of public collections, by name: counts and values as another reader finds them, or the one error.

The ORC files come with pyarrow.  The others are read where copies of the repositories parquet-testing and arrow-testing
of Apache lie in the directory CORPORA, or in `shared/data` beside the checkout.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from datetime import UTC, datetime, tzinfo
from itertools import zip_longest
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from gossipkv.dataset.formats import detect
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from tests.fixtures.cases import SHARED
from tests.unit.dataset.formats.columns.real_writers import Number, agree, said
from tests.unit.dataset.formats.cut_reader import CutReader, everything

CORPORA = Path(os.environ.get("CORPORA") or SHARED)
KEY = "·"
# Files of parquet-testing/data that are refused, each by these words; DuckDB takes most of them.
REFUSED = {
    "datapage_v1-corrupt-checksum": "CRC checksum verification failed",
    "rle-dict-uncompressed-corrupt-checksum": "CRC checksum verification failed",
    "large_string_map.brotli": "have 2,147,483,684 bytes and need",
    "incorrect_map_schema": "Map keys must be annotated as required",
    "int96_from_spark": "a value of the type timestamp.us. is after the year 32767",  # The year 290,000.
    "nested_structs.rust": "a value of the type timestamp.us, tz=UTC. is after the year 32767",
}
# DuckDB does not read them; the numbers are those of the collection's own pages.
COUNTED = {"byte_stream_split_extended.gzip": 200, "map_no_value": 3}
BAD = {
    "ARROW-GH-41317": "the column chunk ends 3 values early",
    "ARROW-GH-41321": "Number of decoded rep / def levels do not match",
    "ARROW-GH-45185": "The repetition level at the start of a record must be 0",
    "ARROW-GH-47662": "Unexpected end of stream",
    "ARROW-RS-GH-6229-DICTHEADER": "outside the data",
    "ARROW-RS-GH-6229-LEVELS": "Number of decoded rep / def levels do not match",
    "PARQUET-1481": "the footer cannot be read",
}
# Avro files of arrow-testing with the rows of a Parquet file.
TWINS = {
    **{f"alltypes_plain{codec}": "alltypes_plain" for codec in ("", ".bzip2", ".snappy", ".xz", ".zstandard")},
    **{
        name: name
        for name in (
            "alltypes_dictionary", "binary", "datapage_v2.snappy", "dict-page-offset-zero", "fixed_length_decimal",
            "fixed_length_decimal_legacy", "int32_decimal", "int64_decimal", "list_columns", "nested_lists.snappy",
            "nonnullable.impala", "nullable.impala", "nulls.snappy", "repeated_no_annotation", "single_nan",
        )
    },
}  # fmt: skip


def place(repository: str) -> Path:
    if not (CORPORA / repository).is_dir():
        pytest.skip(f"no copy of {repository}")
    return CORPORA / repository / "data"


def read(path: Path, form: str | None = None) -> list[object]:
    """Return the rows of a file; the name of the key is that of a directory, since few of the files have a key."""
    reader = CutReader(path.read_bytes(), name=path.name)
    options = FileReading(KEY, "*", partition=((KEY, "key"),))
    form = form or str(detect.detect_file(reader, options))
    rows = [json.loads(row, parse_float=Number) for _, row in everything(detect.batches(form, reader, options))[0]]
    assert all(row.pop(KEY) == "key" for row in rows)
    return rows


def of_duckdb(path: Path) -> list[dict[str, object]]:
    relation = duckdb.read_parquet(str(path))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def compare(found: list[object], rows: list[dict[str, object]], zone: tzinfo | None = None) -> None:
    """Compare rows; times without a zone are in `zone`."""
    for row, values in zip_longest(found, rows):
        texts = {name: said(in_utc(value, zone), 6, "json") for name, value in values.items()}
        assert agree(trimmed(row), trimmed({name: text for name, text in texts.items() if text is not None}))


def in_utc(value: object, zone: tzinfo | None) -> object:
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=zone)


def trimmed(value: object) -> object:
    """Return a value whose times have no zeros at their ends: units differ among readers."""
    match value:
        case dict():
            return {name: trimmed(part) for name, part in value.items()}
        case list():
            return [trimmed(part) for part in value]
        case str() if not isinstance(value, Number):
            return re.sub(r"(:\d\d(\.\d*[1-9])?)\.?0*(Z?)$", r"\1\3", value)
    return value


def test_parquet_files_of_apache() -> None:
    paths = sorted(place("parquet-testing").glob("*.parquet"))
    assert len(paths) > 60
    for path in paths:
        if path.stem in REFUSED:
            with pytest.raises(SourceError, match=REFUSED[path.stem]):
                read(path)
        elif path.stem in COUNTED:
            assert len(read(path)) == COUNTED[path.stem]
        else:
            compare(read(path), of_duckdb(path))


def test_bad_and_encrypted_files_are_one_error() -> None:
    folder = place("parquet-testing")
    for name, words in BAD.items():
        with pytest.raises(SourceError, match=words):
            read(folder.parent / "bad_data" / f"{name}.parquet")
    paths = sorted(folder.rglob("*.parquet.encrypted"))
    assert len(paths) > 10
    for path in paths:
        with pytest.raises(SourceError, match="the Parquet file is encrypted"):
            read(path)


def test_avro_files_of_apache() -> None:
    folder, twins = place("arrow-testing") / "avro", place("parquet-testing")
    for name, twin in TWINS.items():
        compare(read(folder / f"{name}.avro"), of_duckdb(twins / f"{twin}.parquet"), UTC)


def test_arrow_files_of_apache() -> None:
    """Streams and files have the same rows, from Arrow 0.14 on, in both orders of bytes."""
    paths = sorted(place("arrow-testing").glob("arrow-ipc-stream/integration/*/*.arrow_file"))
    assert len(paths) > 60
    for path in paths:
        stream = path.with_suffix(".stream")
        if re.search("duplicate|interval|_union", path.name):
            for each in (path, stream):
                with pytest.raises(SourceError, match=r"columns have the name|which cannot be read"):
                    read(each, "arrow")
        else:
            rows = read(path)
            assert rows == read(stream, "arrow")
            assert len(rows) == pa.ipc.open_file(path).read_all().num_rows


ORC = Path(pa.__file__).parent / "tests" / "data" / "orc"


@pytest.mark.parametrize("path", sorted(ORC.glob("*.orc")), ids=lambda path: path.stem)
def test_orc_files_of_apache(path: Path) -> None:
    """The collection has the rows as JSON; binary is a list there, maps are lists of pairs, times have no T."""
    lines = gzip.decompress(path.with_suffix(".jsn.gz").read_bytes()).splitlines()
    found = read(path)
    assert len(found) == len(lines)
    for row, line in zip(found, lines, strict=True):
        expected = json.loads(line)
        for name, value in expected.items():
            if name == "bytes1":
                expected[name] = bytes(value).decode()
            elif name == "map":
                expected[name] = {pair["key"]: pair["value"] for pair in value}
            elif name == "time":
                expected[name] = value.replace(" ", "T")
        assert agree(trimmed(row), trimmed({name: value for name, value in expected.items() if value is not None}))
