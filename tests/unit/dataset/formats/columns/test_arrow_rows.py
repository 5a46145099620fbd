"""Rows of Arrow columns as keys and values, against Python's own readers of JSON and MessagePack."""

import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.formats._formats import LAYOUTS, PART_KINDS, Column, RowEncoder, fill_columns
from gossipkv.dataset.formats.columns import arrow_rows
from gossipkv.dataset.formats.columns.arrow_rows import ArrowRows, RowPlace
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from gossipkv.storage.batch import RecordBatch
from tests.oracle import rows as oracle
from tests.unit.dataset.formats.cut_reader import everything

UUIDS = [UUID("123e4567-e89b-12d3-a456-426614174000"), None, UUID(int=0)]
# Arrays of three rows: their texts, what JSON reads back, and what MessagePack does.
COLUMNS = {
    "text": (pa.array(['a"\\\n\x01é𝄞', "", None]), ['a"\\\n\x01é𝄞', "", None], None),
    "view": (pa.array(["a", "b" * 40, None], pa.string_view()), ["a", "b" * 40, None], None),
    "binary": (pa.array([b"a", b"\xff\0", None]), ["a", {"base64": "/wA="}, None], [b"a", b"\xff\0", None]),
    "sized": (pa.array([b"a", b"\xff", None], pa.binary(1)), ["a", {"base64": "/w=="}, None], [b"a", b"\xff", None]),
    "dictionary": (pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"], None),
    "numbered": (pa.array([7, None, 8]).dictionary_encode(), [7, None, 8], None),
    "int": (pa.array([2**63 - 1, None, -(2**63)]), [2**63 - 1, None, -(2**63)], None),
    "small": (pa.array([-128, None, 127], pa.int8()), [-128, None, 127], None),
    "uint": (pa.array([2**64 - 1, None, 0], pa.uint64()), [2**64 - 1, None, 0], None),
    "float": (pa.array([0.1, float("nan"), None]), [0.1, None, None], [0.1, float("nan"), None]),
    "single": (pa.array([0.5, float("-inf"), None], pa.float32()), [0.5, None, None], [0.5, float("-inf"), None]),
    "bool": (pa.array([True, None, False]), [True, None, False], None),
    "decimal": (pa.array([Decimal("12.30"), None, Decimal("-0.05")]), [12.3, None, -0.05], ["12.30", None, "-0.05"]),
    "date": (pa.array([date(2024, 1, 31), None, date(1969, 12, 31)]), ["2024-01-31", None, "1969-12-31"], None),
    "time": (pa.array([time(1, 2, 3), None, time(23)]), ["01:02:03.000000", None, "23:00:00.000000"], None),
    "stamp": (
        pa.array([datetime.fromisoformat("2024-01-31 01:02:03.000004"), None, datetime.fromisoformat("1950-01-01")]),
        ["2024-01-31T01:02:03.000004", None, "1950-01-01T00:00:00.000000"],
        None,
    ),
    "zoned": (
        pa.array([datetime(2024, 7, 1, tzinfo=UTC)] * 3, pa.timestamp("s", "Europe/Berlin")),
        ["2024-07-01T00:00:00Z"] * 3,
        None,
    ),
    "duration": (pa.array([timedelta(seconds=5), None, timedelta(0)], pa.duration("s")), [5, None, 0], None),
    "uuid": (pa.array([u and u.bytes for u in UUIDS], pa.uuid()), [u and str(u) for u in UUIDS], None),
    "json": (
        pa.array(['{"a": [1, 2]}', None, "no json"], pa.json_()),
        [{"a": [1, 2]}, None, "no json"],
        ['{"a": [1, 2]}', None, "no json"],
    ),
    "opaque": (
        pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "hstore", "pg"), pa.array(["a", None, "b"])),
        ["a", None, "b"],
        None,
    ),
    "list": (pa.array([[1, None], None, []]), [[1, None], None, []], None),
    "struct": (
        pa.array([{"d": date(2024, 1, 31), "b": b"\xff", "n": Decimal("1.50")}, None, {"d": None}]),
        [{"d": "2024-01-31", "b": {"base64": "/w=="}, "n": 1.5}, None, {"d": None, "b": None, "n": None}],
        [{"d": "2024-01-31", "b": b"\xff", "n": "1.50"}, None, {"d": None, "b": None, "n": None}],
    ),
    "map": (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), [{"a": 1}, None, {}], None),
    "null": (pa.nulls(3), [None] * 3, None),
    "small decimal": (
        pa.array([Decimal("0E-18"), None, Decimal("0.000000010000000000")]), [0.0, None, 1e-8],
        ["0.000000000000000000", None, "0.000000010000000000"],
    ),
    "nested times": (
        pa.array(
            [{"at": 1, "on": [1], "m": [(0, 5)], "f": 0.1}, None, {"at": None, "on": [None], "m": [], "f": None}],
            pa.struct([
                ("at", pa.timestamp("ns", "UTC")), ("on", pa.list_view(pa.date32())),
                ("m", pa.map_(pa.time32("s"), pa.duration("s"))), ("f", pa.float32()),
            ]),
        ),
        [
            {"at": "1970-01-01T00:00:00.000000001Z", "on": ["1970-01-02"], "m": {"00:00:00": 5}, "f": 0.1}, None,
            {"at": None, "on": [None], "m": {}, "f": None},
        ],
        [
            {"at": "1970-01-01T00:00:00.000000001Z", "on": ["1970-01-02"], "m": {"00:00:00": 5},
             "f": 0.10000000149011612}, None,
            {"at": None, "on": [None], "m": {}, "f": None},
        ],
    ),
}  # fmt: skip
KEYS = pa.array(["k0", "k1", "k2"])


def read(columns, slices=1, **options):
    table = pa.RecordBatch.from_pydict(columns)
    rows = ArrowRows("file", table.schema, FileReading(**options))
    size = -(-table.num_rows // slices)
    batch = RecordBatch()

    def found():
        for at in range(0, table.num_rows, size):
            part = table.slice(at, size).select(rows.columns)
            yield from rows.records(part, RowPlace("file", 4, "block", at), batch)

    return everything(found())[0]


def refused(columns, **options):
    with pytest.raises(SourceError, match=r"^file: ") as caught:
        read(columns, **options)
    return caught.value.details


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("nulls", ["omit", "null"])
@pytest.mark.parametrize("slices", [1, 3])
def test_every_type_is_part_of_a_row(name, nulls, slices):
    """Rows read back as what went in, also from slices; the text of JSON is not altered otherwise."""
    array, as_json, as_msgpack = COLUMNS[name]
    columns = {"key": KEYS, 'a "column" é': array}
    for encoding, loads, values in (("json", json.loads, as_json), ("msgpack", msgpack.unpackb, as_msgpack or as_json)):
        found = read(columns, slices, value="*", nulls=nulls, encoding=encoding)
        assert [key for key, _ in found] == [b"k0", b"k1", b"k2"]
        expected = [{"key": f"k{at}", 'a "column" é': value} for at, value in enumerate(values)]
        if nulls == "omit":
            expected = [{name: value for name, value in row.items() if value is not None} for row in expected]
        assert str([loads(value) for _, value in found]) == str(expected)  # The text of NaN equals itself.


TEXTS = {
    "text": None, "view": None, "dictionary": None, "opaque": None, "sized": [b"a", b"\xff"], "json": None,
    "int": [b"9223372036854775807", b"-9223372036854775808"], "uint": [b"18446744073709551615", b"0"],
    "bool": [b"true", b"false"], "decimal": [b"12.30", b"-0.05"], "date": [b"2024-01-31", b"1969-12-31"],
    "small decimal": [b"0.000000000000000000", b"0.000000010000000000"],
    "time": [b"01:02:03.000000", b"23:00:00.000000"], "numbered": [b"7", b"8"], "zoned": [b"2024-07-01T00:00:00Z"] * 3,
    "stamp": [b"2024-01-31T01:02:03.000004", b"1950-01-01T00:00:00.000000"], "duration": [b"5", b"0"],
    "uuid": [b"123e4567-e89b-12d3-a456-426614174000", b"00000000-0000-0000-0000-000000000000"],
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_every_scalar_is_a_key_and_a_value_by_one_text(name):
    array = COLUMNS[name][0]
    array = array[:2] if name == "view" else array.drop_null()
    expected = TEXTS[name] or [str(text).encode() for text in array.to_pylist()]
    if name == "json":
        expected = [b'{"a": [1, 2]}', b"no json"]
    assert read({"key": array, "value": array}) == [(text, text) for text in expected]


def test_other_single_values():
    """Floats have a text as values, and lists, maps and structs are encoded."""
    columns = {"key": ["a", "b"], "value": [0.1, float("nan")]}
    assert read(columns) == [(b"a", b"0.1"), (b"b", b"nan")]
    columns = {"key": ["a"], "value": [{"x": [1]}]}
    assert read(columns) == [(b"a", b'{"x":[1]}')]
    assert read(columns, encoding="msgpack") == [(b"a", msgpack.packb({"x": [1]}))]


def test_keys_of_several_columns():
    """They are joined or an array; only the last part of a joined key may contain the separator."""
    columns = {
        "country": ["DE", "D"],
        "id": [5, -1],
        "on": [date(2024, 1, 31)] * 2,
        "value": ["a", "b"],
        "x": ["p", "q:"],
    }
    assert read(columns, key=("country", "id"), separator=":") == [(b"DE:5", b"a"), (b"D:-1", b"b")]
    found = read(columns, key=("country", "id", "on"), value=("id",))
    assert [msgpack.unpackb(key) for key, _ in found] == [["DE", 5, "2024-01-31"], ["D", -1, "2024-01-31"]]
    assert [value for _, value in found] == [b'{"id":5}', b'{"id":-1}']
    assert read(columns, key=("country", "x"), separator=":")[1][0] == b"D:q:"
    details = refused(columns, key=("x", "country"), separator=":")
    assert details["row"] == 2
    assert "the column 'x' contains the separator ':'" in details["reason"]
    assert read(columns, key=("country",), separator=":")[0][0] == b"DE"


def test_refusals_name_the_column_and_the_row():
    assert refused({"key": ["a", None], "value": ["b", "c"]})["row"] == 2
    assert refused({"key": ["a"], "id": pa.nulls(1, pa.int8()), "value": ["b"]}, key=("key", "id"))["row"] == 1
    assert refused({"key": ["a"], "value": ["b"]}, value=("nope",))["reason"].startswith(
        "the column 'nope' does not exist"
    )
    assert "'key' has the type double and cannot be a key" in refused({"key": [1.5], "value": ["a"]})["reason"]
    interval = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    for column in (interval, union, pa.ListArray.from_arrays([0, 1], union)):
        assert "which cannot be read" in refused({"key": ["a"], "value": column})["reason"]
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))
    assert "a map contains a key twice" in refused({"key": ["a"], "value": twice})["reason"]
    assert refused({"key": ["a"], "value": ["x" * 9]}, value="*", max_value_bytes=9)["row"] == 1


def test_columns_of_directories():
    """A file's directories name columns of text; a column of the file comes first."""
    options = {"partition": (("country", "DE"), ("id", "7"), ("none", None))}
    found = read({"key": ["a"], "id": [1]}, value="*", **options)
    assert found == [(b"a", b'{"key":"a","id":1,"country":"DE"}')]
    assert read({"id": [1, 2], "value": ["x", "y"]}, key=("country", "id"), separator="/", **options)[1] == (
        b"DE/2",
        b"y",
    )
    assert read({"value": ["x"]}, key="country", **options) == [(b"DE", b"x")]


def test_long_rows_come_in_parts(monkeypatch):
    """Encoded rows are bounded, however long they become."""
    monkeypatch.setattr(arrow_rows, "ENCODED_BYTES", 1000)
    columns = {"key": [f"k{at}" for at in range(500)], "value": ["\x01" * (at % 50) for at in range(500)]}
    found = read(columns, value=("value",))
    assert [(key.decode(), json.loads(value)["value"]) for key, value in found] == list(
        zip(*columns.values(), strict=True)
    )


BYTES = st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode))


@given(
    st.lists(st.tuples(BYTES, st.none() | BYTES, st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.booleans(),
)
def test_rows_are_what_the_oracle_makes(rows, omits_nulls):
    """Names, byte strings of any kind, numbers and nulls, byte for byte."""
    keys, texts, numbers = zip(*rows, strict=True)
    text = pa.array(texts, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(text), text.buffers())
    columns = {"key": pa.array(keys, pa.binary()), 'a"é': text, "n": pa.array(numbers, pa.int64())}
    options = {"value": ('a"é', "n"), "nulls": "omit" if omits_nulls else "null"}
    parts = [{'a"é': text, "n": number} for text, number in zip(texts, numbers, strict=True)]
    for encoding, encoded in (("json", oracle.as_json), ("msgpack", oracle.as_map)):
        found = read(columns, encoding=encoding, **options)
        assert found == [(key, encoded(part, omits_nulls=omits_nulls)) for key, part in zip(keys, parts, strict=True)]


@given(st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=1), st.sampled_from([":", "--", "é"]))
def test_keys_are_what_the_oracle_makes(rows, separator):
    columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows], "value": ["v"]}
    expected = oracle.joined(rows[0], separator.encode())
    if expected is None:
        assert (
            "the column 'a' contains the separator" in refused(columns, key=("a", "b"), separator=separator)["reason"]
        )
    else:
        assert read(columns, key=("a", "b"), separator=separator) == [(expected, b"v")]


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_messagepack_are_as_short_as_its_own(number):
    for kind, code in (("signed", "<q"), ("unsigned", "<Q")):
        if number < 0 and kind == "unsigned":
            continue
        column = Column(struct.pack(code, number), 1, width=8)
        encoder = RowEncoder(LAYOUTS["array"], [PART_KINDS[kind]], [b""])
        keys, batch = encoder.encode([column], 0, 100), RecordBatch()
        assert fill_columns(batch, keys, keys, 0, 100, 0) == 1
        assert batch.keys(1) == [oracle.as_array([number])]


@pytest.mark.parametrize("count", [15, 16, 300])
def test_many_columns(count):
    columns = {"key": ["a"], **{f"c{at}": [at] for at in range(count - 1)}}
    for encoding, loads in (("json", json.loads), ("msgpack", msgpack.unpackb)):
        ((_, value),) = read(columns, value="*", encoding=encoding)
        assert loads(value) == {name: column[0] for name, column in columns.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        (9, [0], [b""]),
        (0, [], []),
        (0, [9], [b""]),
        (0, [0], ["x"]),
        (0, [0] * 5000, [b""] * 5000),
        (0, [0], [b"", b""]),
    ],
)
def test_wrong_encoders_are_refused(arguments):
    with pytest.raises(ValueError, match=r"a row needs|a part has an unknown kind"):
        RowEncoder(*arguments)


def test_wrong_columns_are_refused():
    """Numbers have eight bytes, a bitmap covers all rows, and each part has a column."""
    encoder = RowEncoder(LAYOUTS["array"], [PART_KINDS["signed"]], [b""])
    with pytest.raises(ValueError, match="the numbers of a column must have 8 bytes"):
        encoder.encode([Column(b"abcd", 1, width=4)], 0, 100)
    with pytest.raises(ValueError, match="the number of columns must be the number of parts"):
        encoder.encode([], 0, 100)
    with pytest.raises(ValueError, match="fewer bits than rows"):
        Column(bytes(72), 9, width=8, valid=b"\xff")
