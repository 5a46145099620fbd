"""The columns of Arrow record batches as byte strings: texts of keys and values, and the parts of encoded rows.

    text       byte strings as they are; integers, decimals and booleans as 42, 12.30, true; UUIDs in lower case with
               hyphens; 2024-01-31, 12:30:00.000000, 2024-01-31T12:30:00.000000, with Z if the type has a time zone;
               floats in the shortest form that reads back, which keys may not be; lists, maps and structs encoded
    JSON       the same: numbers and booleans without quotes; NaN and infinities are null
    MessagePack  numbers, booleans and binary have types of their own; decimals and times are the text above

Columns are converted by Arrow's functions in C++.  Only lists, maps and structs become Python objects on their way.
"""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from gossipkv.dataset.formats._formats import PART_KINDS, Column, uuid_texts

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = pa.types

# Lists, maps and structs become objects for so many rows at once.
NESTED_ROWS: Final = 256


def stored(kind: pa.DataType) -> pa.DataType:
    """Return the type behind extension types and dictionaries; UUIDs and JSON remain."""
    while True:
        if isinstance(kind, pa.BaseExtensionType) and not _is(kind, "arrow.uuid", "arrow.json"):
            kind = kind.storage_type
        elif TYPES.is_dictionary(kind) or TYPES.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_uuid(kind: pa.DataType) -> bool:
    """Return True for UUIDs."""
    return _is(kind, "arrow.uuid")


def is_json(kind: pa.DataType) -> bool:
    """Return True for texts of JSON."""
    return _is(kind, "arrow.json")


def is_bytes(kind: pa.DataType) -> bool:
    """Return True for byte strings, as text or binary."""
    is_text = TYPES.is_string(kind) or TYPES.is_large_string(kind) or TYPES.is_string_view(kind)
    return is_text or is_binary(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Return True for byte strings that are not said to be text."""
    is_sized = TYPES.is_fixed_size_binary(kind) and not TYPES.is_decimal(kind)
    return bool(is_sized or TYPES.is_binary(kind) or TYPES.is_large_binary(kind) or TYPES.is_binary_view(kind))


def is_scalar(kind: pa.DataType) -> bool:
    """Return True if a type without its extension has texts, but is no float."""
    return (
        is_bytes(kind) or is_uuid(kind) or is_json(kind) or TYPES.is_boolean(kind) or TYPES.is_integer(kind)
        or TYPES.is_decimal(kind) or TYPES.is_date(kind) or TYPES.is_time(kind) or TYPES.is_timestamp(kind)
        or TYPES.is_duration(kind)
    )  # fmt: skip


def is_readable(kind: pa.DataType) -> bool:
    """Return True if a value may have this type; unions, over which pyarrow may crash, and intervals are not read."""
    kind = stored(kind)
    if TYPES.is_nested(kind):
        parts = [kind.field(number).type for number in range(kind.num_fields)]
        return not TYPES.is_union(kind) and all(map(is_readable, parts))
    return is_scalar(kind) or TYPES.is_floating(kind) or TYPES.is_null(kind)


def _is(kind: pa.DataType, *names: str) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name in names


# -- columns -----------------------------------------------------------------------------------------------------------


def text_column(array: pa.Array, encoding: str) -> Column:
    """Return the texts of an array; nulls are marked, unless values are shared by a dictionary."""
    if TYPES.is_dictionary(array.type) and is_bytes(array.type.value_type):
        if array.dictionary.null_count:
            raise ValueError("its dictionary contains a null")
        buffer, width = array.indices.buffers()[1], array.indices.type.bit_width // 8
        return bytes_column(array.dictionary).chosen(buffer, width, first=array.indices.offset, count=len(array))
    array = unwrapped(array)
    if TYPES.is_nested(array.type):
        return _nested_column(array, encoding)
    return _text_column(array)


def part_kind(kind: pa.DataType, encoding: str) -> int:
    """Return how a column of a type, as `stored` returns it, becomes a part of a row."""
    name = "string"
    if TYPES.is_nested(kind) or TYPES.is_null(kind):
        name = "as is"
    elif is_json(kind):
        name = "json"
    elif encoding == "json":
        is_number = TYPES.is_boolean(kind) or TYPES.is_integer(kind) or TYPES.is_decimal(kind)
        name = "as is" if is_number or TYPES.is_floating(kind) or TYPES.is_duration(kind) else "string"
    elif TYPES.is_boolean(kind):
        name = "boolean"
    elif TYPES.is_unsigned_integer(kind):
        name = "unsigned"
    elif TYPES.is_integer(kind) or TYPES.is_duration(kind):
        name = "signed"
    elif TYPES.is_floating(kind):
        name = "double"
    elif is_binary(kind):
        name = "binary"
    return PART_KINDS[name]


def part_column(array: pa.Array, encoding: str, kind: int) -> Column:
    """Return an array as a part of rows."""
    array = unwrapped(array)
    if TYPES.is_nested(array.type):
        return _nested_column(array, encoding)
    if encoding == "json":
        if TYPES.is_floating(array.type):
            array = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
        return _text_column(array)
    for name, number in (("signed", pa.int64()), ("unsigned", pa.uint64()), ("double", pa.float64())):
        if kind == PART_KINDS[name]:
            return _fixed_column(array.cast(number), 8)
    if kind == PART_KINDS["boolean"]:
        return _fixed_column(array.cast(pa.uint8()), 1)
    return _text_column(array)


def unwrapped(array: pa.Array) -> pa.Array:
    """Return an array without extension types, but UUIDs and JSON, and without dictionaries and runs."""
    while True:
        if isinstance(array.type, pa.BaseExtensionType) and not (is_uuid(array.type) or is_json(array.type)):
            array = array.storage
        elif TYPES.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif TYPES.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def bytes_column(array: pa.Array) -> Column:
    """Return an array of byte strings, in place where its layout allows it."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if TYPES.is_binary_view(array.type) or TYPES.is_string_view(array.type):
        array = array.cast(pa.large_binary())
    if TYPES.is_fixed_size_binary(array.type):
        return _fixed_column(array, array.type.byte_width)
    large = TYPES.is_large_binary(array.type) or TYPES.is_large_string(array.type)
    valid, offsets, data = array.buffers()
    return Column(
        data, len(array), first=array.offset, offsets=offsets, offset_bytes=8 if large else 4,
        valid=valid if array.null_count else None,
    )  # fmt: skip


def _fixed_column(array: pa.Array, width: int) -> Column:
    valid, data = array.buffers()
    return Column(data, len(array), first=array.offset, width=width, valid=valid if array.null_count else None)


def _text_column(array: pa.Array) -> Column:
    kind = array.type
    if is_uuid(kind):
        return uuid_texts(_fixed_column(array.storage, 16))
    return bytes_column(array if is_bytes(kind) or is_json(kind) else _texts(array))


def _texts(array: pa.Array) -> pa.Array:
    """Return the texts of numbers, booleans and times."""
    kind = array.type
    if TYPES.is_duration(kind):
        array = array.cast(pa.int64())
    elif TYPES.is_float16(kind):
        array = array.cast(pa.float32())
    elif TYPES.is_timestamp(kind):
        array = array.cast(pa.timestamp(kind.unit))
    texts = array.cast(pa.string())
    if TYPES.is_decimal(kind) and pc.any(pc.match_substring(texts, "E")).as_py():
        texts = pa.array([text and f"{Decimal(text):f}" for text in texts.to_pylist()], pa.string())
    if (TYPES.is_date(kind) or TYPES.is_timestamp(kind)) and pc.any(pc.starts_with(texts, "<")).as_py():
        raise ValueError(f"a value of the type {kind} is after the year 32767")
    if TYPES.is_timestamp(kind):
        texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(texts, "Z", "") if kind.tz is not None else texts
    return texts


# -- lists, maps and structs -------------------------------------------------------------------------------------------


def _nested_column(array: pa.Array, encoding: str) -> Column:
    encode: Callable[[object], bytes] = _json_bytes if encoding == "json" else _msgpack_bytes
    texts: list[bytes | None] = []
    for first in range(0, len(array), NESTED_ROWS):
        values = _objects(array.slice(first, NESTED_ROWS), encoding)
        texts += [None if value is None else encode(value) for value in values]
    return bytes_column(pa.array(texts, pa.large_binary()))


def _objects(array: pa.Array, encoding: str) -> list[object]:
    """Return values as objects; within others, times and floats have the same texts as columns of their own."""
    array = unwrapped(array)
    kind = array.type
    is_list = TYPES.is_list(kind) or TYPES.is_large_list(kind) or TYPES.is_fixed_size_list(kind)
    if TYPES.is_map(kind):
        entry = pa.struct([pa.field("key", kind.key_type, nullable=False), ("value", kind.item_type)])
        entries = array.cast(pa.list_(entry))
        pairs = zip(*(_objects(part, encoding) for part in entries.flatten().flatten()), strict=True)
        return [size if size is None else _mapping(list(islice(pairs, size))) for size in _sizes(entries)]
    if TYPES.is_struct(kind):
        parts = [_objects(part, encoding) for part in array.flatten()]
        rows = zip(*parts, strict=True) if parts else [()] * len(array)
        names = [field.name for field in kind]
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if is_list or TYPES.is_list_view(kind) or TYPES.is_large_list_view(kind):
        rest = iter(_objects(array.flatten(), encoding))
        return [size if size is None else list(islice(rest, size)) for size in _sizes(array)]
    if TYPES.is_date(kind) or TYPES.is_time(kind) or TYPES.is_timestamp(kind):
        array = _texts(array)
    elif TYPES.is_duration(kind):
        array = array.cast(pa.int64())
    elif encoding == "json" and TYPES.is_floating(kind):
        return [text and float(text) for text in _texts(array).to_pylist()]
    found: list[object] = array.to_pylist()
    return found


def _sizes(lists: pa.Array) -> list[int | None]:
    sizes: list[int | None] = pc.list_value_length(lists).to_pylist()
    return sizes


def _mapping(pairs: list[tuple[object, ...]]) -> dict[object, object]:
    found = {key: value for key, value in pairs}  # noqa: C416  # The type checker sees no pairs.
    if len(found) < len(pairs):
        raise ValueError("a map contains a key twice")
    return found


def _json_bytes(value: object) -> bytes:
    return _json(value).encode()


def _json(value: object) -> str:  # noqa: PLR0911  # Each kind of value has its line.
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value) if math.isfinite(value) else "null"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "{" + ",".join(f"{_json(_name(name))}:{_json(inner)}" for name, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_json, value)) + "]"
        case bytes():
            try:
                return json.dumps(value.decode(), ensure_ascii=False)
            except UnicodeDecodeError:
                return json.dumps({"base64": base64.b64encode(value).decode()}, separators=(",", ":"))
    return json.dumps(_text(value))


def _msgpack_bytes(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, default=_text)
    return packed


def _name(value: object) -> str:
    return value if isinstance(value, str) else _json(value).strip('"')


def _text(value: object) -> str:
    match value:
        case Decimal():
            return f"{value:f}"
        case UUID():
            return str(value)
    raise TypeError(f"a nested value has the type {type(value).__name__}, which cannot be read")
