"""Results from files: the output of `gossipkv loadtest --json`, read back and checked field by field.

A file may contain anything, so each value is checked against the type that the result declares.  Missing fields have
their defaults, and unknown fields are ignored, so that results of newer programs in this format can be read.
"""

from __future__ import annotations

import json
import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Final, ForwardRef, get_args, get_origin, get_type_hints

from gossipkv.environment import small_file
from gossipkv.errors import ConfigError
from gossipkv.loadtest.result import FORMAT, Result

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.loadtest.result import Json

SHOWN: Final = 40  # A message shows this many characters of a value.
SCALARS: Final = (str, int, bool)
NAMES: Final[dict[object, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a map",
}
RESULT: Final = small_file.Kind("result of a load test", 1 << 28, is_private=False)


def load(path: Path) -> Result:
    """Read a result from a file.

    Raises:
        ConfigError: there is no file, or it holds something else.
    """
    text = small_file.read(path, RESULT)
    try:
        found = parse(json.loads(text))
    except (ValueError, RecursionError) as error:  # Invalid UTF-8 and invalid JSON are ValueErrors.
        raise ConfigError(
            f"{path} is not the result of a load test: {error}; write one with `gossipkv loadtest ... --json > FILE`"
        ) from None
    return found


def parse(document: Json) -> Result:
    """Decode the result from a document.

    Raises:
        ValueError: it is malformed; says where.
    """
    if not isinstance(document, dict) or "format" not in document:
        raise ValueError("expected a map with `format`")
    if document["format"] != FORMAT:
        raise ValueError(f"the format is {document['format']!r}, and this program reads only format {FORMAT}")
    found = _value(Result, document, "")
    assert isinstance(found, Result)
    return found


def _value(kind: object, value: Json, path: str) -> object:
    """Return a value checked against its declared type."""
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        return _object(kind, value, path)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return _alternative(parts, value, path)
    if origin is list and isinstance(value, list):
        return [_value(parts[0], item, f"{path}[{at}]") for at, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {name: _value(parts[1], item, f"{path}.{name}") for name, item in value.items()}
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"`{path}` is {value}, expected a number")
        return float(value)
    if kind in SCALARS and type(value) is kind:
        return value
    expected = NAMES.get(origin or kind, NAMES[dict])  # All other types are maps of our own.
    raise ValueError(f"`{path}` is {_short(value)}, expected {expected}")


def _object(kind: type, value: dict[str, Json], path: str) -> object:
    """Return a map as the dataclass that declares its fields; missing fields have their defaults."""
    declared = get_type_hints(kind)
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
