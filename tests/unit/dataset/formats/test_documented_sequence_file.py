"""The bytes drawn in docs/users/sequence-file.md are those of the files, and its limits are the reader's."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from gossipkv.dataset.formats import codecs, sequence_file
from gossipkv.dataset.formats._formats import KINDS
from gossipkv.dataset.formats.reading import MAX_KEY_BYTES, FileReading
from gossipkv.errors import SourceError
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import kinds, read

PAGE = (Path(__file__).parents[4] / "docs" / "users" / "sequence-file.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| *(\d*) *\| (.*) \|$", re.MULTILINE)


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the sizes and fields of the table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [(size, field) for size, field in ROW.findall(section) if field != "---|" and "---" not in field]


@pytest.mark.parametrize("kind", list(kinds(pieces=(1,)))[::7])
def test_the_drawn_header(kind: oracle.Kind) -> None:
    """The table covers the whole header, and the sync mark is its last 16 bytes."""
    header = oracle.write_header(kind)
    at = 0
    for size, field in rows("Header"):
        if "only if values are compressed" in field and kind.compression == oracle.NONE:
            continue
        if "only in version 6" in field and kind.version == 5:
            continue
        if size:
            start, at = at, at + int(size)
        else:
            length, at = oracle.read_vint(header, at)
            at += length
        if "metadata" in field:
            for _ in range(2 * struct.unpack(">i", header[start:at])[0]):
                length, at = oracle.read_vint(header, at)
                at += length
    assert at == len(header)
    assert header[at - 16 :] == kind.sync


def test_the_drawn_record() -> None:
    """A record has two ints, a key and a value."""
    sizes = [int(size) for size, _ in rows("Records, without blocks") if size]
    kind = oracle.Kind(compression=oracle.NONE)
    data = oracle.write([(b"key", b"value")], kind)[len(oracle.write_header(kind)) :]
    assert len(data) == sum(sizes) + len(b"\3key\5value")


def test_the_drawn_block() -> None:
    """A block has a sync mark, a count, and four buffers after their sizes."""
    kind = oracle.Kind()
    data = oracle.write([(b"key", b"value")], kind)[len(oracle.write_header(kind)) :]
    (mark, _), (_, count), *buffers = rows("Blocks")
    assert data[4 : int(mark)] == kind.sync
    number, at = oracle.read_vint(data, int(mark))
    assert (number, "a vint" in count) == (1, True)
    for _ in buffers:
        size, at = oracle.read_vint(data, at)
        at += size
    assert at == len(data)


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
    """A first byte in the drawn range gives the stated length of a value."""
    assert drawn in PAGE
    low, high = sorted(int(part) for part in drawn.split(" to "))
    assert low <= struct.unpack("b", bytes([first]))[0] <= high
    kind = oracle.Kind(compression=oracle.NONE)
    value = bytes([first]) + b"\x71" * 9
    data = oracle.write_header(kind) + struct.pack(">ii", 2 + len(value), 2) + b"\1k" + value
    words = "no number of 32 bits" if number is None else f"a value says that it has {number:,} bytes"
    with pytest.raises(SourceError, match=re.escape(words)):
        read(data)


def test_the_stated_names_and_limits() -> None:
    """The page has the classes, codecs, versions and sizes of the reader."""
    assert all(f"`{name.removeprefix(sequence_file.PACKAGE)}`" in PAGE for name in KINDS)
    assert all(f"`{name.rpartition('.')[2]}`" in PAGE for name in codecs.CODECS)
    assert " and ".join(map(str, sequence_file.VERSIONS)) in PAGE
    assert f"more than {sequence_file.MAX_METADATA:,} metadata" in PAGE
    assert f"over {sequence_file.MAX_TEXT_BYTES >> 10} KiB" in PAGE
    assert f"over {MAX_KEY_BYTES:,} bytes" in PAGE
    assert f"{FileReading().max_value_bytes >> 20} MiB unless" in PAGE
    assert f"more than {FileReading().max_block_bytes >> 20} MiB" in PAGE
    assert f"windows of {sequence_file.WINDOW_BYTES >> 20} MiB" in PAGE
    rest = sequence_file.memory_bytes(FileReading(max_value_bytes=0, max_block_bytes=0))
    for most in (
        FileReading(max_value_bytes=0, max_block_bytes=400),
        FileReading(max_value_bytes=400, max_block_bytes=0),
    ):
        assert sequence_file.memory_bytes(most) == rest + 1300
    assert f"at most {rest >> 20} MiB and 3¼ times the\nlargest block or value" in PAGE
