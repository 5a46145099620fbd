"""The bytes, names and limits in docs/development/store.md agree with the engine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from gossipkv.storage.checksum import crc32c
from gossipkv.storage.document import read_document
from gossipkv.storage.engine import _engine, manifest, options, policy, segments, shell
from gossipkv.storage.engine._engine import LIFE_GAP, Batch, FrameBuffer
from gossipkv.storage.engine.manifest import SegmentName
from gossipkv.storage.engine.segments import SegmentHeader, encode_header
from tests.unit.storage.engine.logs import ROOT, Log, next_payload
from tests.unit.storage.engine.test_writer import Log as WrittenLog

PAGE = (Path(__file__).parents[4] / "docs" / "development" / "store.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| *([\w+]+) *\| *(\w+) *\| *(.+?) *\|$", re.MULTILINE)
KEY, VALUE = b"key", b"value"
LETTERS = {"k": 4 + len(KEY), "v": len(VALUE), "n": len(VALUE)}  # Values of the page's letters here.

Rows = list[tuple[int, int, str]]


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def measure(text: str) -> int:
    """Return a number of the page, in which letters stand for sizes."""
    return sum(LETTERS[part] if part in LETTERS else int(part) for part in text.split("+"))


def tables(heading: str) -> list[Rows]:
    """Return the tables of offset, size and field under a heading; check that fields are adjacent."""
    found = []
    for block in section(heading).split("| offset | size | field |\n|---|---|---|\n")[1:]:
        rows, at = [], 0
        for offset, size, field in ROW.findall(block.split("\n\n")[0]):
            assert measure(offset) == at, (heading, offset)
            rows.append((at, measure(size), field))
            at += rows[-1][1]
        found.append(rows)
    return found


def fields(rows: Rows, data: bytes) -> list[tuple[str, bytes]]:
    """Return the first words of each field and its bytes; check that the fields cover the data."""
    assert rows[-1][0] + rows[-1][1] == len(data)
    return [(re.split(r"[:,;]", field)[0], data[at : at + width]) for at, width, field in rows]


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def test_the_bytes_of_an_operation() -> None:
    (rows,) = tables("A batch")
    batch = Batch()
    batch.put(0x01020304, KEY, VALUE)
    kind, key_size, value_size, key, value = (data for _, data in fields(rows, batch.payload))
    assert (number(kind), number(key_size), number(value_size)) == (1, 4 + len(KEY), len(VALUE))
    assert (key, value) == (bytes((1, 2, 3, 4)) + KEY, VALUE)


def test_the_bytes_of_a_segment_s_header() -> None:
    """Each field is at its place, and zeros follow to the end of the first block."""
    rows, _ = tables("A segment")
    header = SegmentHeader(store=2**64 - 2, number=3, salt=2**63 + 4, life=5, size_bytes=6 << 20)
    told = fields(rows, encode_header(header))
    assert [name for name, _ in told] == [
        "magic", "format", "1", "store", "number", "salt", "life in which it was made",
        "size of the file", "zero", "CRC-32C of bytes 0 to 59", "zero",
    ]  # fmt: skip
    assert told[0][1] == b"GKVLOG\r\n"
    assert [number(data) for _, data in told[1:9]] == [1, 1, 2**64 - 2, 3, 2**63 + 4, 5, 6 << 20, 0]
    assert number(told[9][1]) == crc32c(encode_header(header)[:60])
    assert not any(told[10][1])


def frame(salt: int, kind: int, payload: bytes) -> bytes:
    frames = FrameBuffer(salt)
    frames.append(kind, 8, 7, payload)
    return bytes(frames.view())


def test_the_bytes_of_a_frame() -> None:
    """Zeros follow up to a multiple of 8, and the checksum depends on the salt."""
    _, rows = tables("A segment")
    data = frame(0x1122334455667788, _engine.BATCH, VALUE)
    assert (len(data), data[37:]) == (40, bytes(3))
    told = fields(rows, data[:37])
    assert [name for name, _ in told] == [
        "CRC-32C", "size of the payload", "position", "synced", "kind", "zero", "payload"
    ]  # fmt: skip
    assert [number(data) for _, data in told[1:6]] == [len(VALUE), 8, 7, 1, 0]
    assert told[6][1] == VALUE
    salted = (0x1122334455667788).to_bytes(8, "little") + data[4:37]
    assert number(told[0][1]) == crc32c(salted)
    assert [row for row in zip(data, frame(0x1122334455667789, _engine.BATCH, VALUE), strict=True) if row[0] != row[1]]


def test_every_kind_has_its_number() -> None:
    """The kinds are those of frames and operations; the payloads of `next` and `begin` have their documented length."""
    ((_, _, of_frames),) = (row for row in tables("A segment")[1] if row[2].startswith("kind"))
    assert re.findall(r"(\d) (\w+)", of_frames) == [
        (str(getattr(_engine, name.upper())), name) for name in ("batch", "mark", "next", "begin")
    ]
    ((_, _, of_operations),) = (row for row in tables("A batch")[0] if row[2].startswith("kind"))
    assert re.findall(r"(\d) ([a-z ]+)", of_operations) == [
        (str(_engine.PUT), "value"), (str(_engine.DELETE), "tombstone"),
        (str(_engine.MADE), "new space"), (str(_engine.DROPPED), "dropped space"),
    ]  # fmt: skip
    assert "number and salt, 8 bytes each" in section("A segment")
    written = WrittenLog()
    written.write_all()
    (begin,) = written.frames(1)
    assert (len(next_payload(SegmentName(1, 2))), len(begin.payload)) == (16, 8)


def test_what_the_manifest_says() -> None:
    """Each key has its line, under the format's number."""
    rows = re.findall(r"^\| (`[^|]+`) \|", section("The manifest"), re.MULTILINE)
    keys = [key for row in rows for key in re.findall(r"`(\w+)`", row)]
    log = Log.made()
    manifest.write_manifest(log.files, ROOT, replace(log.manifest, kept=(log.name,)))
    body = read_document(log.files, ROOT / "MANIFEST", "STORE")
    assert sorted(keys) == sorted(body)
    assert f"of kind `{manifest.KIND}`, format 1," in section("The manifest")
    (run,) = re.findall(r"a list of files, each with (.+?) \|", section("The manifest"))
    assert run == (
        "name, records, size, CRC-32 of its footer, first and last key in hexadecimal, tombstones, records with an "
        "expiry, time from which a third may leave (milliseconds since 1970; 0: never)"
    )
    assert manifest.RunFile._fields == (
        "name", "records", "size_bytes", "seal", "first", "last", "tombstones", "expiring", "stale_ms"
    )  # fmt: skip


def test_what_a_store_s_files_are_called() -> None:
    drawn = section("The directory")
    path = manifest.segment_path(PurePath("tables"), 1)
    for name in (manifest.MANIFEST, manifest.LOCK, str(path.relative_to("tables")), f"{manifest.RUNS}/00000001-0001"):
        assert re.search(rf"^  {re.escape(name)}\b", drawn, re.MULTILINE), name


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("A batch", f"A key has up to {_engine.KEY_LIMIT:,} bytes"),
        ("A batch", f"a value up to {_engine.VALUE_LIMIT:,}."),
        ("A segment", f"From offset {_engine.HEADER_BYTES} on"),
        ("A segment", f"`begin` takes one 2^{LIFE_GAP.bit_length() - 1} above it"),
        ("A segment", f"Batches end {segments.RESERVED_BYTES:,} bytes before"),
        ("Promises", f"what waits for the disk ({options.MAX_WAITING_BYTES >> 20} MiB)"),
        ("Promises", {0.5: "half a second after the last write"}[shell.MARK_AFTER_S]),
        ("Merging", f"at most {policy.YOUNG_AIM} young runs"), ("Merging", {2: "below half of"}[policy.OLDEST_SHARE]),
    ],
)  # fmt: skip
def test_limits(heading: str, words: str) -> None:
    assert words in section(heading).replace("\n", " ").replace("  ", " ")
