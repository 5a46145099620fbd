"""JSON as dataclasses and named tuples: each value is checked against the type that its field declares.

Missing fields have their defaults, and unknown fields are ignored, so that documents of newer programs in the same
format can be read.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Final, ForwardRef, TypeVar, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
T = TypeVar("T")

_hints: Final = functools.cache(get_type_hints)  # A manifest may have a hundred thousand rows of one type.

SHOWN: Final = 40  # A message shows this many characters of a value.
SCALARS: Final = (str, int, bool)
NAMES: Final[dict[object, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    bytes: "hexadecimal digits",
    list: "a list",
    tuple: "a list",
    dict: "a map",
}


def typed(kind: type[T], value: Json, path: str = "") -> T:
    """Return a value as that type; errors call it `path`.

    Raises:
        ValueError: it is malformed; says where.
    """
    return cast("T", _value(kind, value, path))


def _value(kind: object, value: Json, path: str) -> object:
    """Return a value checked against its declared type."""
    origin, parts = get_origin(kind), get_args(kind)
    found: object = value
    if origin is types.UnionType:
        found = _alternative(parts, value, path)
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        found = _object(kind, value, path)
    elif isinstance(kind, type) and hasattr(kind, "_fields") and isinstance(value, list):
        found = kind(*_row([*_hints(kind).values()], value, path))
    elif origin is tuple and parts[-1] is not ... and isinstance(value, list):
        found = tuple(_row(parts, value, path))
    elif origin in {list, tuple} and isinstance(value, list):
        found = origin(_value(parts[0], item, f"{path}[{at}]") for at, item in enumerate(value))
    elif origin in {dict, Mapping} and isinstance(value, dict):
        found = {name: _value(parts[1], item, f"{path}.{name}") for name, item in value.items()}
    elif kind is bytes and isinstance(value, str):
        found = bytes.fromhex(value)
    elif kind is float and isinstance(value, int | float) and type(value) is not bool and math.isfinite(value):
        found = float(value)
    elif kind not in SCALARS or type(value) is not kind:
        expected = NAMES.get(origin or kind, NAMES[dict])  # All other types are maps of our own.
        raise ValueError(f"`{path}` is {_short(value)}, expected {expected}")
    return found


def _row(kinds: Sequence[object], value: list[Json], path: str) -> list[object]:
    """Return the values of a list that has one of each kind."""
    pairs = enumerate(zip(kinds, value, strict=True))
    return [_value(kind, item, f"{path}[{at}]") for at, (kind, item) in pairs]


def _object(kind: type, value: dict[str, Json], path: str) -> object:
    """Return a map as the dataclass that declares its fields; missing fields have their defaults."""
    declared = _hints(kind)
    given = {}
    for field in fields(kind):
        place = f"{path}.{field.name}".lstrip(".")
        if field.name in value:
            given[field.name] = _value(declared[field.name], value[field.name], place)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"`{place}` is missing")
    return kind(**given)


def _alternative(kinds: tuple[object, ...], value: Json, path: str) -> object:
    """Return a value of a union: None, or of the other type; a recursive union (JSON) takes anything."""
    if any(isinstance(part, ForwardRef) for kind in kinds for part in get_args(kind)):
        return value
    if value is None and types.NoneType in kinds:
        return None
    return _value(next(kind for kind in kinds if kind is not types.NoneType), value, path)


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
