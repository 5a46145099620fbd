"""Pages of many records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.serving.test_scan_page import Ask, deal, make

if TYPE_CHECKING:
    from pathlib import Path

    Record = tuple[bytes, bytes]


def test_more_records_than_short_heads_can_say(tmp_path: Path) -> None:
    """The array's head grows in front of written records at 16 and 65,536 records."""
    records = {b"%06d" % number: b"" for number in range(70_000)}
    split = deal(tmp_path, records, 3)
    for count in (0, 1, 15, 16, 65_535, 65_536):
        end = b"%06d" % count
        assert make(split, Ask(end=end)) == ([[key, b""] for key in sorted(records)[:count]], None)
