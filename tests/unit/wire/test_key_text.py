"""Keys as operators read and type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.wire.key_text import SHOWN_BYTES, shown, typed

KEYS = [
    (b"", "''"), (b"k'1", '"k\'1"'), (b"0x12", "'0x12'"), (b"\x00\xff", "0x00ff"), (b"a\n", "0x610a"),
    ("größe".encode(), "'größe'"), ("größe".encode()[:3], "0x6772c3"), (b"\xff" * 61, f"0x{'ff' * 60}..."),
    (b"k" * 61, f"'{'k' * 60}'..."), (("k" * 59 + "ö").encode(), f"'{'k' * 59}'..."),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_text_is_quoted_and_what_is_none_is_digits(key, text):
    """The two forms cannot be confused."""
    assert shown(key) == text


@given(st.binary(max_size=SHOWN_BYTES))
def test_what_is_shown_can_be_typed(key):
    """Hexadecimal keys may omit the 0x."""
    text = shown(key)
    assert (typed(text) == key) if text.startswith("0x") else (eval(text).encode() == key)
    assert typed(key.hex()) == typed(f"0x{key.hex()}") == key
