"""JSON is read as the types that fields declare, and a wrong value is named by its place."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # `typed` reads the types of fields.
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from gossipkv.storage.typed import typed


class Place(NamedTuple):
    name: str
    at: int


@dataclass(frozen=True)
class Whole:
    key: bytes
    places: tuple[Place, ...]
    pair: tuple[str, int | None]
    seen: Mapping[str, list[bool]]
    share: float = 0.5


DOCUMENT = {"key": "00ff", "places": [["a", 1]], "pair": ["b", None], "seen": {"c": [True]}, "later": 1}
WRONG = [
    ("key", 5, "`key` is 5, expected hexadecimal digits"),
    ("key", "0g", "non-hexadecimal"),
    ("places", [["a", "1"]], r"`places\[0\]\[1\]` is '1', expected a whole number"),
    ("places", [["a"]], "shorter"),
    ("pair", ["b", 1, 2], "longer"),
    ("pair", {}, "expected a list"),
    ("seen", {"c": [1]}, r"`seen.c\[0\]` is 1, expected true or false"),
    ("share", float("nan"), "`share` is nan, expected a number"),
    ("share", True, "`share` is True, expected a number"),
]


def test_values_have_their_types():
    """Missing fields have their defaults, and unknown ones are ignored."""
    assert typed(Whole, DOCUMENT) == Whole(b"\0\xff", (Place("a", 1),), ("b", None), {"c": [True]})
    assert typed(Whole, {**DOCUMENT, "share": 1}).share == 1.0


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
def test_a_wrong_value_is_named(field, value, words):
    with pytest.raises(ValueError, match=words):
        typed(Whole, {**DOCUMENT, field: value})


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match="`key` is missing"):
        typed(Whole, {})
