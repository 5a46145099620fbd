"""Single values in C against the plain-Python oracle and msgpack: every width, every cut, any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.wire._wire import read_value, size_of_unsigned, write_value
from tests.oracle import messagepack as oracle

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ["nil", "unsigned", "bin", "str", "blob", "array", "map"]
PACKER = msgpack.Packer(autoreset=True)
# The last value of each width, and the first of the next.
EDGES = [edge for bits in (4, 5, 7, 8, 15, 16, 31, 32) for edge in (2**bits - 1, 2**bits)]
SIZES = [0, *(edge for edge in EDGES if edge <= 2**16)]
NUMBERS = [0, *EDGES, 2**63 - 1, 2**63, 2**64 - 1]
COUNTS = [0, *EDGES[:-1]]
WRITTEN: list[tuple[str, int | bytes | None, bytes]] = [
    ("nil", None, msgpack.packb(None)),
    *(("unsigned", number, msgpack.packb(number)) for number in NUMBERS),
    *(("bin", bytes(size), msgpack.packb(bytes(size))) for size in SIZES),
    *(("str", b"x" * size, msgpack.packb("x" * size)) for size in SIZES if size < 256),
    *(("array", count, PACKER.pack_array_header(count)) for count in COUNTS),
    *(("map", count, PACKER.pack_map_header(count)) for count in COUNTS),
]
# Heads of every kind, and bytes that serve as short lengths and small numbers.
STEERING = st.sampled_from(bytes([*range(0xC0, 0xE0), 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xE0, 0xFF]))
HOSTILE = st.lists(STEERING | st.integers(0, 4) | st.integers(0, 255), max_size=20).map(bytes)


@pytest.mark.parametrize(("kind", "value", "packed"), WRITTEN)
def test_values_are_written_as_msgpack_writes_them(kind: str, value: int | bytes | None, packed: bytes) -> None:
    """Values take the shortest form at the edges of every width, and are read back whatever follows."""
    assert write_value(kind, value) == packed
    assert read_value(kind, packed + b"\xc0\x01", len(packed) + 2) == (value, len(packed))
    assert oracle.read(kind, packed) == (value, len(packed))
    if kind == "unsigned":
        assert isinstance(value, int)
        assert size_of_unsigned(value) == len(packed)


@pytest.mark.parametrize(("kind", "value", "packed"), WRITTEN)
def test_a_part_of_a_value_is_none(kind: str, value: int | bytes | None, packed: bytes) -> None:
    """The first and last cuts are refused, although the missing bytes lie right behind the end."""
    for size in {*range(min(len(packed), 12)), *range(max(0, len(packed) - 12), len(packed))}:
        assert read_value(kind, packed, size) is None, (value, size)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("number", [0, 1, 127, 128, 255])
def test_numbers_are_read_in_any_form(width: int, number: int) -> None:
    """Overlong and signed forms are read; negative numbers are refused."""
    head = {1: 0, 2: 1, 4: 2, 8: 3}[width]
    body = number.to_bytes(width, "big")
    assert read_value("unsigned", bytes([0xCC + head]) + body, 1 + width) == (number, 1 + width)
    signed = (number, 1 + width) if width > 1 or number < 128 else None
    assert read_value("unsigned", bytes([0xD0 + head]) + body, 1 + width) == signed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", [lambda size: b"", bytes, lambda size: b"\xff" * size], ids=["end", "low", "high"])
def test_every_first_byte_is_read_as_by_the_oracle(kind: str, tail: Callable[[int], bytes]) -> None:
    for head in range(256):
        data = bytes([head]) + tail(300)
        assert read_value(kind, data, len(data)) == oracle.read(kind, data), head


@given(st.sampled_from(KINDS), HOSTILE, st.integers(0, 20))
@example("bin", b"\xc6\xff\xff\xff\xff", 5)
@example("array", b"\xdd\xff\xff\xff\xff", 5)
def test_any_bytes_are_read_as_by_the_oracle(kind: str, data: bytes, size: int) -> None:
    """Bytes behind the end have no effect."""
    assert read_value(kind, data, size) == oracle.read(kind, data[:size])
