"""Records of nodes' answers: decoded from MessagePack's maps and lists, and encoded to them.

The sender may be older or newer than the reader, or may be no node of ours.  A field that is missing, or of another
type, gets its default; unknown fields are ignored.  Decoded text is printable.

The default of a field is the declared one, else None where the type allows None, else the empty value of the type; of
a `Literal` the first one.  A name that Python reserves, or that is a type's, ends in an underscore in the record.
Records are no dataclasses, which would be compiled whenever a command starts, half a millisecond each.
"""

from __future__ import annotations

import functools
import math
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from gossipkv.status.words import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.wire.rpc import Value

    Reader = Callable[[object], object]  # Returns None for a value of another type.


@dataclass_transform(frozen_default=True)
class Record:
    """The base of records: its subclasses declare fields, and are created like dataclasses."""

    def __init__(self, *values: object, **named: object) -> None:
        self.__dict__.update(zip(_types(type(self)), values, strict=False), **named)

    def __eq__(self, other: object) -> bool:
        """Return True for a record of this type with equal fields."""
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in _types(type(self))
        )

    __hash__ = None  # type: ignore[assignment]  # Records with maps have no hash.

    def __repr__(self) -> str:
        """Show the fields that have no default."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


R = TypeVar("R", bound=Record)
_TYPES: Final[dict[type[Record], dict[str, object]]] = {}
_READERS: Final[dict[type[Record], Reader]] = {}


def _types(record: type[Record]) -> dict[str, object]:
    """Return the types of the fields; the first time also give the class the default values of its fields."""
    if record not in _TYPES:
        types = {name: kind for name, kind in get_type_hints(record).items() if not name.startswith("__")}
        for name in types.keys() - vars(record).keys():
            setattr(record, name, _empty(types[name]))
        _TYPES[record] = types
    return _TYPES[record]


def _text(value: object) -> str | None:
    if isinstance(value, str) and value.isprintable():
        return value
    return plain(value) if isinstance(value, (str, bytes, int, float)) else None


_SCALARS: Final[dict[object, tuple[Reader, object]]] = {  # With the empty value of the type.
    str: (_text, "-"),
    int: (lambda value: value if isinstance(value, int) and not isinstance(value, bool) else None, 0),
    float: (lambda value: float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None, 0.0),
    bool: (lambda value: value if isinstance(value, bool) else None, False),
    bytes: (lambda value: value if isinstance(value, bytes) else None, b""),
    object: (lambda value: value, None),
}


_CHECKED: Final = (int, bool, bytes)  # No value of these types needs to be looked at.


def decode(record: type[R], value: object) -> R:
    """Return a record; one with all defaults if the value is no map."""
    return cast("R", _record_reader(record)(value if isinstance(value, dict) else {}))


def replace(record: R, **named: object) -> R:
    """Return a record with some other values."""
    return type(record)(**vars(record) | named)


def decode_list(record: type[R], value: object) -> tuple[R, ...]:
    """Return the records in a list; empty if the value is no list."""
    return tuple(decode(record, item) for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def encode(record: Record) -> dict[str, Value]:
    """Return a record, with all its parts, as a map."""
    return {name.rstrip("_"): _encoded(getattr(record, name)) for name in _types(type(record))}


def facts(record: Record) -> dict[str, Value]:
    """Return a record as a map, without the parts that are None, false, 0, or an empty list or map."""
    return {name: part for name, part in encode(record).items() if part or part == ""}


def _encoded(value: object) -> Value:
    if isinstance(value, (tuple, list)):
        return [*map(_encoded, value)]
    if isinstance(value, dict):
        return {name: _encoded(part) for name, part in value.items()}
    return encode(value) if isinstance(value, Record) else cast("Value", value)


def _record_reader(record: type[Record]) -> Reader:
    if record in _READERS:
        return _READERS[record]
    readers = {
        name.rstrip("_"): (name, _reader(kind), kind if kind in _CHECKED else None)
        for name, kind in _types(record).items()
    }

    def read(value: object) -> object:
        if not isinstance(value, dict):
            return None
        made: object = object.__new__(record)
        found = made.__dict__  # The class has the fields that are missing here.
        for name, part in value.items():
            if name in readers:
                attribute, reader, checked = readers[name]
                if type(part) is checked or (part := reader(part)) is not None:
                    found[attribute] = part
        return made

    _READERS[record] = read
    return read


def _empty(kind: object) -> object:
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None
    if isinstance(kind, type) and issubclass(kind, Record):
        return decode(kind, None)
    if origin is Literal:
        return parts[0]
    return origin() if origin in {tuple, dict} else _SCALARS[kind][1]


def _reader(kind: object) -> Reader:
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return _reader(next(part for part in parts if part is not NoneType))
    if origin is Literal:
        return lambda value: value if value in parts else None
    if origin is dict:
        return functools.partial(_read_map, _reader(parts[1]))
    if origin is tuple:
        is_list = parts[-1] is ...
        readers = [_reader(part) for part in parts if part is not ...]
        return functools.partial(_read_list, readers[0]) if is_list else functools.partial(_read_row, readers)
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record_reader(kind)
    return _SCALARS[kind][0]


def _read_map(read: Reader, value: object) -> object:
    found = value.items() if isinstance(value, dict) else ()
    return {plain(name): decoded for name, part in found if (decoded := read(part)) is not None}


def _read_list(read: Reader, value: object) -> object:
    found = value if isinstance(value, list) else ()
    return tuple([decoded for item in found if (decoded := read(item)) is not None])


def _read_row(readers: list[Reader], value: object) -> object:
    if not isinstance(value, list) or len(value) != len(readers):
        return None
    row = tuple(read(part) for read, part in zip(readers, value, strict=True))
    return None if None in row else row
