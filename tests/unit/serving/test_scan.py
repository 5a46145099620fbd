"""Scans: partitions are merged in order, both ways, page by page; damaged cursors are refused."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossipkv.errors import BadRequest, NotServed
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving import scan
from gossipkv.serving.published import PublishedVersion, publish
from gossipkv.serving.scan import ScanBounds, ScanOrder, decode_cursor, encode_cursor
from tests.unit.serving.driven import BuiltVersion, make_version

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [b"", b"\x00", b"\xff", b"\xff\xff", *(b"a%d" % n for n in range(30)), *(b"b\x00%d" % n for n in range(30))]
RECORDS = {key: b"value of " + key for key in KEYS}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> PublishedVersion:
    return of(tmp_path_factory.mktemp("scan"), 5)


def of(directory: Path, partitions: int) -> PublishedVersion:
    return publish([(make_version(directory, "db", "v1", RECORDS, partitions), True)]).databases["db"].versions[0]


def page(
    version: PublishedVersion, bounds: ScanBounds, limit: int, page_bytes: int, max_value: int
) -> tuple[list[list[bytes]], bytes | None]:
    """Return the records of a page of all partitions, and the cursor."""
    whole = PartitionSet.whole(len(version.files))
    packed, last = scan.page(ScanOrder(version, whole, bounds.narrowed(), limit, page_bytes, max_value), whole)
    return msgpack.unpackb(packed), None if last is None else encode_cursor(version.name, last)


def expected(bounds: ScanBounds) -> list[tuple[bytes, bytes]]:
    found = [
        (key, value)
        for key, value in sorted(RECORDS.items())
        if (bounds.start is None or key >= bounds.start)
        and (bounds.end is None or key < bounds.end)
        and (bounds.prefix is None or key.startswith(bounds.prefix))
    ]
    return found[::-1] if bounds.reverse else found


def pages(
    version: PublishedVersion, bounds: ScanBounds, limit: int, page_bytes: int
) -> list[list[tuple[bytes, bytes]]]:
    found = []
    while True:
        records, cursor = page(version, bounds, limit, page_bytes, 1 << 20)
        found.append([(key, value) for key, value in records])
        if cursor is None:
            return found
        assert records
        name, last = decode_cursor(cursor)
        assert (name, last) == ("v1", found[-1][-1][0])
        bounds = bounds.after(last)


KEY = st.none() | st.sampled_from(KEYS) | st.sampled_from([b"a", b"a1", b"b", b"b\x00", b"c", b"\xff\xff\xff"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bounds=st.builds(ScanBounds, KEY, KEY, KEY, st.booleans()), limit=st.integers(1, 70), page_bytes=st.integers(1, 500)
)
def test_pages_join_to_the_whole(version: PublishedVersion, bounds: ScanBounds, limit: int, page_bytes: int) -> None:
    """For any bounds and page size, the pages together are the sorted list's answer."""
    found = pages(version, bounds, limit, page_bytes)
    assert list(itertools.chain(*found)) == expected(bounds)
    for records in found:
        assert len(records) <= limit
        assert len(records) == 1 or sum(len(key) + len(value) for key, value in records) <= page_bytes


def test_one_partition_needs_no_merge(tmp_path: Path) -> None:
    """A single file gives the same."""
    everything = ScanBounds(None, None, None, reverse=False)
    records = [[key, value] for key, value in expected(everything)]
    assert page(of(tmp_path, 1), everything, 1000, 1 << 20, 1 << 20) == (records, None)


def test_the_last_page_has_no_cursor(version: PublishedVersion) -> None:
    """With exactly as many records as the limit, no further request is needed."""
    everything = ScanBounds(None, None, None, reverse=False)
    records, cursor = page(version, everything, len(RECORDS), 1 << 20, 1 << 20)
    assert len(records) == len(RECORDS)
    assert cursor is None
    records, cursor = page(version, everything, len(RECORDS) - 1, 1 << 20, 1 << 20)
    assert len(records) == len(RECORDS) - 1
    assert cursor is not None


def test_missing_partitions() -> None:
    (held,) = publish([(BuiltVersion("db", "1", [None]), True)]).databases["db"].versions
    with pytest.raises(NotServed):
        page(held, ScanBounds(None, None, None, reverse=False), 1, 1, 1)


def test_files_can_be_closed_after_a_page(tmp_path: Path) -> None:
    """A page that ends early leaves no file pinned."""
    version = of(tmp_path, 3)
    page(version, ScanBounds(None, None, None, reverse=False), 2, 1 << 20, 1 << 20)
    for file in version.files:
        assert file is not None
        file.close()


def test_cursors_are_whole_or_refused() -> None:
    """A cursor with a flipped bit, a truncated cursor and an invented one are refused."""
    cursor = encode_cursor("v1", b"key")
    assert decode_cursor(cursor) == ("v1", b"key")
    wrong = [cursor[:end] for end in range(len(cursor))] + [b"\0\0\0\0", cursor + b"\0", b"x" * 20]
    for at in range(len(cursor)):
        for bit in range(8):
            flipped = bytearray(cursor)
            flipped[at] ^= 1 << bit
            wrong.append(bytes(flipped))
    for data in wrong:
        with pytest.raises(BadRequest, match="cursor"):
            decode_cursor(data)


def test_a_cursor_cannot_name_what_is_no_version() -> None:
    """A megabyte with a correct checksum is refused, and neither looked up nor echoed."""
    with pytest.raises(BadRequest, match="not returned by this method"):
        decode_cursor(encode_cursor("1" * 1_000_000, b""))
