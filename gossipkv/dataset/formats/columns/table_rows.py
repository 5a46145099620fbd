"""The rows of a data file as a snapshot of its table has them: other names and types, more columns, fewer rows.

Each field of the snapshot's schema says by what it is found in a file: an id, else a name.

* A field that the file has is cast, without loss, to its type in the snapshot; structs, lists and maps by their fields.
* A column that the file has not is null, or has the value that the table's log tells (`FileReading.partition`).
* Rows that are deleted are left out.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pyarrow as pa

from gossipkv.dataset.formats.columns.arrow_rows import UNREADABLE, refusing
from gossipkv.dataset.formats.columns.arrow_values import TYPES, is_binary, is_bytes, is_uuid
from gossipkv.dataset.formats.reading import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.dataset.formats.reading import FileReading

# The metadata of a field: its id in files, as pyarrow calls it; else its name there; its names in files without ids.
FIELD_ID: Final = b"PARQUET:field_id"
STORED_NAME: Final = b"stored"
NAMES_WITHOUT_ID: Final = b"names"


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as `FileReading` has it."""
    return base64.b64encode(schema.serialize()).decode()


def table_column(name: str, make: Callable[[], pa.Field]) -> pa.Field:
    """Return the field that `make` returns; one that cannot be read if it raises ValueError, which names its type."""
    try:
        return make()
    except ValueError as error:
        return pa.field(name, pa.null(), metadata={UNREADABLE: str(error)})


class TableRows:
    """Makes the record batches of one file those of the snapshot; `schema` is the snapshot's.

    Raises:
        SourceError: names the file, the column and the reason.
    """

    def __init__(self, name: str, offset: int, in_file: pa.Schema, options: FileReading) -> None:
        self._name = name
        self._offset = offset
        self._deleted = options.deleted
        with refusing(name, offset, "the schema of the table cannot be read"):
            self.schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(options.schema)))
        self._stored = {field.name: _matching(field, list(in_file)) for field in self.schema}
        if not any(_id(field) for field in in_file) and any(map(_is_by_id, self.schema)):
            raise refusal(name, offset, "the columns of the file have no ids, and the table maps no names to columns")
        self._values = {}
        for column, text in options.partition:
            if self._stored[column] is None and text is not None:
                with refusing(name, offset, f"the value {text!r} of the column {column!r} in the log cannot be read"):
                    self._values[column] = _scalar(text, self.schema.field(column).type)

    def stored(self, columns: Iterable[str]) -> list[str]:
        """Return the names in the file of those of these columns that are there."""
        return [field.name for column in columns if (field := self._stored[column]) is not None]

    def fit(self, rows: pa.RecordBatch, columns: Sequence[str], first: int) -> pa.RecordBatch:
        """Return these columns of rows that were read from the file; `first` is the number of the first row."""
        if self._deleted is not None and (gone := list(self._deleted(first, rows.num_rows))):
            kept = bytearray(b"\1" * rows.num_rows)
            for row in gone:
                kept[row - first] = 0
            flags = pa.Array.from_buffers(pa.uint8(), len(kept), [None, pa.py_buffer(kept)])
            rows = rows.filter(flags.cast(pa.bool_()))
        return pa.RecordBatch.from_arrays([self._array(rows, column) for column in columns], list(columns))

    def _array(self, rows: pa.RecordBatch, column: str) -> pa.Array:
        wanted, stored = self.schema.field(column), self._stored[column]
        if stored is not None:
            problem = f"the column {column!r} has the type {stored.type}, which cannot be converted to {wanted.type}"
            with refusing(self._name, self._offset, problem):
                return _fitted(rows.column(stored.name), wanted)
        if column in self._values:
            return pa.repeat(self._values[column], rows.num_rows)
        return pa.nulls(rows.num_rows, wanted.type)


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID)


def _is_by_id(field: pa.Field) -> bool:
    return _id(field) is not None and NAMES_WITHOUT_ID not in field.metadata


def _matching(wanted: pa.Field, fields: Sequence[pa.Field]) -> pa.Field | None:
    """Return the field of a file, or of a struct in it, that is the wanted one."""
    metadata = wanted.metadata or {}
    number = metadata.get(FIELD_ID)
    if number is not None and any(map(_id, fields)):
        return next((field for field in fields if _id(field) == number), None)
    names = json.loads(metadata.get(NAMES_WITHOUT_ID, b"[]"))
    if number is None:
        names = [metadata.get(STORED_NAME, wanted.name.encode()).decode()]
    return next((field for field in fields if field.name in names), None)


def _fitted(array: pa.Array, wanted: pa.Field) -> pa.Array:
    """Return an array of a file as the wanted field; the names within are the wanted ones."""
    kind, stored = wanted.type, array.type
    if TYPES.is_struct(kind) and TYPES.is_struct(stored):
        children = [_child(array, inner) for inner in kind]
        fields = [pa.field(inner.name, child.type) for inner, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if TYPES.is_map(kind) and TYPES.is_map(stored):
        array = pa.concat_arrays([array])  # Its offsets begin at 0 then.
        keys, items = _fitted(array.keys, kind.key_field), _fitted(array.items, kind.item_field)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    if _is_list(kind) and _is_list(stored):
        array = pa.concat_arrays([array])
        make = pa.LargeListArray if TYPES.is_large_list(stored) else pa.ListArray
        return make.from_arrays(array.offsets, _fitted(array.values, kind.value_field), mask=array.is_null())
    if stored == kind or (is_bytes(stored) and is_bytes(kind)):
        return array
    if is_uuid(kind):
        return pa.ExtensionArray.from_storage(kind, array.cast(kind.storage_type))
    return array.cast(kind)


def _child(array: pa.StructArray, wanted: pa.Field) -> pa.Array:
    found = _matching(wanted, list(array.type))
    if found is None:
        return pa.nulls(len(array), wanted.type)
    return _fitted(array.field(array.type.get_field_index(found.name)), wanted)


def _is_list(kind: pa.DataType) -> bool:
    return bool(TYPES.is_list(kind) or TYPES.is_large_list(kind))


def _scalar(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a text in a table's log."""
    if is_uuid(kind):
        return pa.scalar(UUID(text).bytes, kind)
    if is_binary(kind) or TYPES.is_nested(kind):
        raise ValueError(f"a partition column has the type {kind}, which cannot be read")
    if TYPES.is_timestamp(kind):  # Times without a zone are in UTC.
        text = text.removesuffix("Z").removesuffix("+00:00")
        return pa.scalar(text).cast(pa.timestamp(kind.unit)).cast(kind)
    return pa.scalar(text).cast(kind)
