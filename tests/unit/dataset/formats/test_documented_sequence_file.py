"""The names and limits in docs/users/sequence-file.md are the reader's, and vints are read rightly."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from gossipkv.dataset.formats import codecs, sequence_file
from gossipkv.dataset.formats._formats import KINDS
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import SourceError
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import read

PAGE = (Path(__file__).parents[4] / "docs" / "users" / "sequence-file.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("drawn", "first", "number"),
    [
        ("-112 to 127", 0x7F, 127),
        ("-113 to -116", 0x8F, 0x71),
        ("-113 to -116", 0x8C, 0x71717171),
        ("-121 to -124", 0x87, ~0x71),
        ("-121 to -124", 0x84, ~0x71717171),
        ("-117 to -120", 0x8B, None),
        ("-125 to -128", 0x83, None),
    ],
)
def test_the_drawn_vints(drawn: str, first: int, number: int | None) -> None:
    """A first byte in the range gives the length of a value."""
    low, high = sorted(int(part) for part in drawn.split(" to "))
    assert low <= struct.unpack("b", bytes([first]))[0] <= high
    kind = oracle.Kind(compression=oracle.NONE)
    value = bytes([first]) + b"\x71" * 9
    data = oracle.write_header(kind) + struct.pack(">ii", 2 + len(value), 2) + b"\1k" + value
    words = "a length is not a number of 32 bits" if number is None else f"a value claims {number:,} bytes"
    with pytest.raises(SourceError, match=re.escape(words)):
        read(data)


def test_the_stated_names_and_limits() -> None:
    """The page has the classes, codecs, versions and sizes of the reader."""
    assert all(f"`{name.removeprefix(sequence_file.PACKAGE)}`" in PAGE for name in KINDS)
    assert all(f"`{name.rpartition('.')[2]}`" in PAGE for name in codecs.CODECS)
    assert " and ".join(map(str, sequence_file.VERSIONS)) in PAGE
    assert f"more than {sequence_file.MAX_METADATA:,} metadata" in PAGE
    assert f"over {sequence_file.MAX_TEXT_BYTES >> 10} KiB" in PAGE
    assert f"`gossipkv build` allows {FileReading().max_block_bytes >> 20} MiB" in PAGE
    assert f"windows of {sequence_file.WINDOW_BYTES >> 20} MiB" in PAGE
    rest = sequence_file.memory_bytes(FileReading(max_value_bytes=0, max_block_bytes=0))
    for most in (
        FileReading(max_value_bytes=0, max_block_bytes=400),
        FileReading(max_value_bytes=400, max_block_bytes=0),
    ):
        assert sequence_file.memory_bytes(most) == rest + 1300
    assert f"at most {rest >> 20} MiB and 3¼ times the largest block or value" in " ".join(PAGE.split())
