"""The bytes drawn in docs/users/wire.md are the bytes on the wire."""

from __future__ import annotations

import re
from pathlib import Path

from gossipkv.client.parts import PART_KEYS
from gossipkv.dataset.formats import reading
from gossipkv.register.metadata import operations
from gossipkv.settings import tables
from gossipkv.settings.config import Config
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS, MAX_FRAME_BYTES

PAGE = (Path(__file__).parents[3] / "docs" / "users" / "wire.md").read_text(encoding="utf-8")
ROW = re.compile(r"^(\d+) +((?:[0-9a-f]{2} )*[0-9a-f]{2})  ", re.MULTILINE)


def drawn() -> list[bytes]:
    """Return the bytes of each drawing, and assert every offset."""
    drawings: list[bytes] = []
    for offset, octets in ROW.findall(PAGE):
        if offset == "0":
            drawings.append(b"")
        assert int(offset) == len(drawings[-1])
        drawings[-1] += bytes.fromhex(octets)
    return drawings


def test_the_drawn_frames() -> None:
    assert drawn() == [rpc.request(7, "get", ["geo", b"lima"]), rpc.response(7, [b"Peru", "2"])]


def test_the_stated_limits() -> None:
    defaults = Config()
    assert defaults.max_depth == MAX_DEPTH
    assert PART_KEYS + 100 < defaults.max_elements < MAX_ELEMENTS
    assert f"| size of a frame | `max_frame`, {defaults.max_frame >> 20} MiB |" in PAGE
    assert f"| nesting | `max_depth`, {MAX_DEPTH} |" in PAGE
    assert f"each | `max_elements`, {defaults.max_elements:,} |" in PAGE
    assert f"elements up to {MAX_ELEMENTS:,}" in PAGE
    assert f"takes frames of {MAX_FRAME_BYTES >> 20} MiB" in PAGE


def test_the_stated_limits_of_keys_and_values() -> None:
    assert f"| key | {reading.MAX_KEY_BYTES:,} bytes | {tables.MAX_KEY_BYTES:,} bytes |" in PAGE
    value = f"{reading.MAX_VALUE_BYTES:,} bytes ({reading.MAX_VALUE_BYTES >> 20} MiB)"
    assert f"| value | {value} | {tables.MAX_VALUE_BYTES:,} bytes |" in PAGE
    assert f"| first key of a range | | {operations.MAX_KEY_BYTES} bytes;" in PAGE
