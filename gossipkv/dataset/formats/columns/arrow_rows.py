"""From Arrow record batches to records: the one way of all formats with columns.

    key    one column: its text; several: their texts with the `separator` between them, or a MessagePack array
    value  one column: its text; several, or `*` for all: an object of JSON or a map of MessagePack (`encoding`)

`arrow_values` says what the text of a value is.  Single columns of byte strings are not copied.  Nulls are errors in
keys and in single values; in rows they are left out or null (`nulls`).  A file in a directory `country=DE` has a column
`country` of that text, unless a column of it has that name.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgpack
import pyarrow as pa

from gossipkv.dataset.formats._formats import LAYOUTS, PART_KINDS, Column, RowEncoder, fill_columns
from gossipkv.dataset.formats.columns import arrow_values
from gossipkv.dataset.formats.reading import ALL_COLUMNS, MAX_KEY_BYTES, refusal
from gossipkv.errors import GossipKVError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gossipkv.dataset.formats.reading import FileReading
    from gossipkv.storage.batch import RecordBatch

# The metadata of a field whose values cannot be read, whatever its type in Arrow: the name of its type at the source.
UNREADABLE: Final = b"unreadable"
SHOWN_COLUMNS: Final = 12  # A message names this many columns of a schema.
# Encoded rows of one batch; escapes make them up to six times as long as the columns.
ENCODED_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The place of a record batch in its file; `unit` is what begins at `offset`."""

    name: str
    offset: int
    unit: str
    rows_before: int

    def refusal(self, row: int, reason: str) -> SourceError:
        """Return the error for a row of the batch."""
        number = self.rows_before + row + 1
        return SourceError(
            f"{self.name}: row {number:,}, in the {self.unit} at byte {self.offset:,}: {reason}",
            {"file": self.name, "offset": self.offset, "row": number, "reason": reason},
        )


@dataclass(frozen=True, slots=True)
class FramePlace(RowPlace):
    """The place of a record batch in a data frame, which has rows and no bytes."""

    def refusal(self, row: int, reason: str) -> SourceError:
        number = self.rows_before + row + 1
        return SourceError(f"{self.name}: row {number:,}: {reason}", {"row": number, "reason": reason})


@contextlib.contextmanager
def refusing(name: str, offset: int, problem: str) -> Iterator[None]:
    """Convert all errors of a library into the one error."""
    try:
        yield
    except GossipKVError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise refusal(name, offset, f"{problem}: {reason}") from error


class ArrowRows:
    """Turns the record batches of one file into records; `columns` are those to read from the file, in its order.

    Raises:
        SourceError: a column is missing, or of a type that cannot be a key or a value; names the file and the column.
    """

    def __init__(self, name: str, schema: pa.Schema, options: FileReading, *, offset: int = 0) -> None:
        self._name = name
        self._options = options
        self._offset = offset
        in_file = list(schema.names)
        self._constants = {name: text for name, text in options.partition if name not in in_file}
        names = [*in_file, *self._constants]
        self._keys = [options.key] if isinstance(options.key, str) else list(options.key)
        self._values = _value_columns(options, names)
        for column in dict.fromkeys((*self._keys, *self._values)):
            self._check_name(column, names)
        fields = {field.name: field for field in schema}
        self._types = {
            column: arrow_values.stored(fields[column].type if column in fields else pa.string())
            for column in dict.fromkeys((*self._keys, *self._values))
        }
        for column in self._types.keys() & fields.keys():
            if (kind := (fields[column].metadata or {}).get(UNREADABLE)) is not None:
                raise self._unreadable(column, kind.decode())
        self._check_types()
        self.columns = [column for column in in_file if column in self._types]
        self._key_encoder = self._make_key_encoder()
        self._value_encoder = self._make_value_encoder()

    @classmethod
    def wanted(cls, options: FileReading, names: Iterable[str]) -> list[str]:
        """Return the columns among these that keys and values need; others may be missing."""
        names = list(names)
        keys = [options.key] if isinstance(options.key, str) else options.key
        needed = {*keys, *_value_columns(options, names)}
        return [name for name in names if name in needed]

    def records(self, rows: pa.RecordBatch, place: RowPlace, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield the records of a record batch, reusing `batch`; its columns are those to read, in any order.

        Raises:
            SourceError: a row has no key or no value, or one that is too long; names the row.
        """
        before = 0
        while rows.num_rows:
            part = replace(place, rows_before=place.rows_before + before)
            keys = self._key_column(part, rows)
            values = self._value_column(part, rows)
            count = min(keys.count, values.count)
            at = 0
            while at < count:
                at = fill_columns(batch, keys, values, at, self._options.max_value_bytes, place.offset)
                if at < count and not batch.full:
                    raise self._refused_row(part, keys, values, at)
                yield batch
                batch.clear()
            del keys, values
            rows = rows.slice(count)
            before += count

    # -- schema --------------------------------------------------------------------------------------------------------

    def _refusal(self, reason: str) -> SourceError:
        return refusal(self._name, self._offset, reason)

    def _check_name(self, column: str, names: list[str]) -> None:
        count = names.count(column)
        if count != 1:
            reason = f"{count} columns have the name {column!r}" if count else f"the column {column!r} does not exist"
            shown = ", ".join(sorted(set(names))[:SHOWN_COLUMNS]) + (", …" if len(set(names)) > SHOWN_COLUMNS else "")
            raise self._refusal(f"{reason}; the columns are {shown}; set `key` and `value` to the columns to serve")

    def _check_types(self) -> None:
        for column in self._keys:
            kind = self._types[column]
            if not arrow_values.is_scalar(kind):
                raise self._refusal(
                    f"the column {column!r} has the type {kind} and cannot be a key, because its values have no "
                    f"unique text; write it as an integer or a string (in Spark: col({column!r}).cast('string'))"
                )
        for column in self._values:
            kind = self._types[column]
            if not arrow_values.is_readable(kind):
                raise self._unreadable(column, kind)

    def _unreadable(self, column: str, kind: object) -> SourceError:
        return self._refusal(f"the column {column!r} has the type {kind}, which cannot be read; write a string")

    def _make_key_encoder(self) -> RowEncoder | None:
        count, separator = len(self._keys), self._options.separator
        if isinstance(self._options.key, str):
            return None
        if separator is not None:
            kinds = [PART_KINDS["as is"]] * count
            return RowEncoder(LAYOUTS["joined"], kinds, [b""] * count, separator.encode())
        kinds = [arrow_values.part_kind(self._types[column], "msgpack") for column in self._keys]
        return RowEncoder(LAYOUTS["array"], kinds, [b""] * count)

    def _make_value_encoder(self) -> RowEncoder | None:
        encoding = self._options.encoding
        if isinstance(self._options.value, str) and self._options.value != ALL_COLUMNS:
            return None
        kinds = [arrow_values.part_kind(self._types[column], encoding) for column in self._values]
        if encoding == "json":
            layout, names = "object", [json.dumps(name, ensure_ascii=False).encode() + b":" for name in self._values]
        else:
            layout, names = "map", [msgpack.packb(name) for name in self._values]
        with refusing(self._name, self._offset, "the columns cannot be combined into rows"):
            return RowEncoder(LAYOUTS[layout], kinds, names, omits_nulls=self._options.nulls == "omit")

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _array(self, rows: pa.RecordBatch, column: str) -> pa.Array:
        if column in self._constants:
            return pa.repeat(pa.scalar(self._constants[column], pa.string()), rows.num_rows)
        return rows.column(column)

    def _key_column(self, place: RowPlace, rows: pa.RecordBatch) -> Column:
        arrays = [self._array(rows, column) for column in self._keys]
        for column, array in zip(self._keys, arrays, strict=True):
            self._check_nulls(place, array, column)
        if self._key_encoder is None:
            return self._text_column(place, arrays[0], self._keys[0])
        if self._options.separator is not None:
            parts = [self._text_column(place, array, name) for name, array in zip(self._keys, arrays, strict=True)]
            return self._encoded(place, self._key_encoder, parts, self._keys)
        return self._encoded(place, self._key_encoder, self._parts(place, rows, self._keys, "msgpack"), self._keys)

    def _value_column(self, place: RowPlace, rows: pa.RecordBatch) -> Column:
        if self._value_encoder is not None:
            parts = self._parts(place, rows, self._values, self._options.encoding)
            return self._encoded(place, self._value_encoder, parts, self._values)
        (column,) = self._values
        array = self._array(rows, column)
        self._check_nulls(place, array, column)
        return self._text_column(place, array, column)

    def _text_column(self, place: RowPlace, array: pa.Array, column: str) -> Column:
        with refusing(place.name, place.offset, f"the column {column!r} is damaged"):
            return arrow_values.text_column(array, self._options.encoding)

    def _parts(self, place: RowPlace, rows: pa.RecordBatch, columns: list[str], encoding: str) -> list[Column]:
        parts = []
        for column in columns:
            with refusing(place.name, place.offset, f"the column {column!r} is damaged"):
                kind = arrow_values.part_kind(self._types[column], encoding)
                parts.append(arrow_values.part_column(self._array(rows, column), encoding, kind))
        return parts

    def _encoded(self, place: RowPlace, encoder: RowEncoder, parts: list[Column], names: list[str]) -> Column:
        encoded = encoder.encode(parts, 0, ENCODED_BYTES)
        if encoder.fault >= 0 and not encoded.count:
            reason = f"the column {names[encoder.fault]!r} is damaged: its value has no bytes"
            if parts[encoder.fault].size_of(0) is not None:
                reason = (
                    f"the column {names[encoder.fault]!r} contains the separator {self._options.separator!r}, so two "
                    "rows could get the same key; choose another `separator`, or none for a MessagePack array"
                )
            raise place.refusal(0, reason)
        return encoded

    def _check_nulls(self, place: RowPlace, array: pa.Array, column: str) -> None:
        if array.null_count:
            row = array.is_null().index(True).as_py()
            raise place.refusal(row, f"the column {column!r} is null; every record needs a key and a value")

    def _refused_row(self, place: RowPlace, keys: Column, values: Column, row: int) -> SourceError:
        key, value = keys.size_of(row), values.size_of(row)
        if key is None or value is None:
            reason = "the row is damaged: its key or value has no bytes"
        elif key > MAX_KEY_BYTES:
            reason = f"the key has {key:,} bytes; the limit is {MAX_KEY_BYTES:,} bytes"
        else:
            reason = f"the value has {value:,} bytes; the limit is {self._options.max_value_bytes:,} bytes"
        return place.refusal(row, reason)


def _value_columns(options: FileReading, names: list[str]) -> list[str]:
    if options.value == ALL_COLUMNS:
        return list(names)
    return [options.value] if isinstance(options.value, str) else list(options.value)
