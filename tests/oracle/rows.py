"""Rows of byte strings and numbers, encoded by Python's own libraries."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import msgpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Value = bytes | int | bool | float | None


def as_json(row: Mapping[str, Value], *, omits_nulls: bool) -> bytes:
    """Return an object of JSON; bytes that are not UTF-8 are base64."""
    shown = {name: _shown(value) for name, value in row.items() if not (omits_nulls and value is None)}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return re.sub(r"\\\\|\\b|\\f", lambda found: _ESCAPES.get(found[0], found[0]), text).encode()


def as_map(row: Mapping[str, Value], *, omits_nulls: bool) -> bytes:
    """Return a map of MessagePack; bytes that are UTF-8 are a string."""
    return msgpack.packb({name: _text(value) for name, value in row.items() if not (omits_nulls and value is None)})


def as_array(values: Sequence[Value]) -> bytes:
    """Return an array of MessagePack."""
    return msgpack.packb([_text(value) for value in values])


def joined(parts: Sequence[bytes], separator: bytes) -> bytes | None:
    """Return the parts with the separator between them; None if two keys could be the same."""
    return None if any(separator in part for part in parts[:-1]) else separator.join(parts)


_ESCAPES = {"\\b": "\\u0008", "\\f": "\\u000c"}


def _text(value: Value) -> Value | str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _shown(value: Value) -> object:
    text = _text(value)
    return {"base64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text
