"""An index of sorted keys, by looking at each."""

from __future__ import annotations

from typing import TypeVar

_Value = TypeVar("_Value")


def find(keys: list[bytes], values: list[_Value], key: bytes) -> _Value:
    return [*values[:1], *(value for first, value in zip(keys[1:], values[1:], strict=True) if first <= key)][-1]
