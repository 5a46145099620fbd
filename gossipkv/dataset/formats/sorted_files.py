"""Our own sorted files as a source of records, in their order.

A version of only sorted files that fit together is adopted instead (`dataset.build.adopt`).  This module reads the
others: files of several builds, of another number of partitions, or with a key in a wrong place.

Invariant: no record is returned from a page before its checksum was verified.  The file is read in pieces and never
mapped: its owner may truncate it at any moment, which would end the process.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gossipkv.dataset.formats._formats import Placement, decompress_block, fill_records, first_longer, record_span
from gossipkv.dataset.formats.excerpt import excerpt
from gossipkv.dataset.formats.reading import refusal
from gossipkv.errors import Corrupt
from gossipkv.storage.batch import RecordBatch
from gossipkv.storage.label import HEADER_BYTES, PAGE_BYTES, CheckedBody, read_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.dataset.formats.reading import FileReading
    from gossipkv.storage.label import Label, RandomAccess

__all__ = ["PIECE_BYTES", "Placement", "batches", "walk"]

# A piece of records, in whole pages: large enough for a store that answers slowly, small enough to be held twice.
PIECE_BYTES: Final = 1 << 20

# Entries of the block table read at once: those of 32 MiB of records.
_ENTRIES: Final = 8_192

_STORED_AS_IS: Final = 1 << 63
# The blocks of a record with the longest key and value.
_LONGEST_BLOCKS: Final = (16_842_760 + PAGE_BYTES - 1) // PAGE_BYTES

_BAD_RECORD: Final = "a record is longer than its file or than the limit"


def batches(reader: RandomAccess, options: FileReading) -> Iterator[RecordBatch]:
    """Yield the records of a sorted file in key order, with the offset of the record or its compressed block.

    Raises:
        UnsupportedFormat: it is no sorted file, or one of a newer format.
        Corrupt: it is damaged; no record behind the damage is returned.
        SourceError: a value is longer than `options` allow.
    """
    label = read_label(reader)
    for batch in walk(CheckedBody(reader, label.body_bytes), label):
        number = first_longer(batch, options.max_value_bytes)
        if number < len(batch):
            key, value = list(batch)[number]
            offset = batch.offsets()[number]
            limit = options.max_value_bytes
            reason = f"the value of key {excerpt(key)} has {len(value):,} bytes; the limit is {limit:,} bytes"
            raise refusal(label.name, offset, reason)
        yield batch


def walk(body: CheckedBody, label: Label) -> Iterator[RecordBatch]:
    """Yield the records of a file with this label, whatever their size.  Raises Corrupt."""
    return _compressed(body, label) if label.compression == "lz4" else _uncompressed(body, label)


def _uncompressed(body: CheckedBody, label: Label) -> Iterator[RecordBatch]:
    """Walk adjacent records; a record cut by the end of a piece is carried to the next."""
    batch = RecordBatch()
    carried, offset, end = b"", HEADER_BYTES, label.records_end
    while offset < end:
        # Pieces end on multiples of their size, so that no page is read twice.
        wanted = PIECE_BYTES - offset % PIECE_BYTES
        if carried:
            missing = _missing(carried, 0, label.name, offset - len(carried))
            wanted += max(0, -(-(missing - wanted) // PAGE_BYTES)) * PAGE_BYTES
        piece = body.read(offset, min(wanted, end - offset))
        data = carried + piece
        offset += len(piece)
        start, at = offset - len(data), 0
        while at < len(data):
            reached = fill_records(batch, data, at, start, 1)
            if batch:
                yield batch
                batch.clear()
            elif reached == at:
                _missing(data, at, label.name, start + at)
                break
            at = reached
        carried = data[at:]
    if carried:
        raise Corrupt(label.name, end - len(carried), _BAD_RECORD)


def _missing(data: bytes, at: int, name: str, offset: int) -> int:
    """Return the number of missing bytes of the record at `data[at]`, at least one."""
    size = record_span(data, at)
    if size <= len(data) - at:
        raise Corrupt(name, offset, _BAD_RECORD)
    return size - (len(data) - at)


def _compressed(body: CheckedBody, label: Label) -> Iterator[RecordBatch]:
    """Walk units of compressed blocks; no record crosses the end of its unit."""
    batch = RecordBatch()
    held, data = 0, b""  # A piece of the file, and its start.
    unit_bytes = 0  # The size of the units to which the batch points.
    for start, end, blocks, as_it_is in _units(body, label):
        if not held <= start <= end <= held + len(data):
            held, stop = start, min(max(end, start + PIECE_BYTES), label.records_end)
            data = body.read(held, stop - held)
        at, stop = start - held, end - held
        unit = data[at:stop] if as_it_is else decompress_block(data, at, stop, blocks * PAGE_BYTES)
        if unit is None or len(unit) > blocks * PAGE_BYTES:
            raise Corrupt(label.name, start, "a compressed block cannot be decompressed")
        at, unit_bytes = 0, unit_bytes + len(unit)
        while at < len(unit):
            reached = fill_records(batch, unit, at, start, 0)
            if reached == at and not batch.full:
                raise Corrupt(label.name, start, _BAD_RECORD)
            at = reached
            if batch.full or unit_bytes >= PIECE_BYTES:
                yield batch
                batch.clear()
                unit_bytes = 0
    if batch:
        yield batch


def _units(body: CheckedBody, label: Label) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the start and end of each unit, its number of blocks, and True if it is stored uncompressed."""
    expected = HEADER_BYTES
    unit: tuple[int, int, int, bool] | None = None
    for block, (entry, after) in enumerate(_entries(body, label)):
        start, end = entry & ~_STORED_AS_IS, after & ~_STORED_AS_IS
        if start != expected or end < start or end > label.records_end:
            raise Corrupt(
                label.name, label.blocks_at + 8 * block, "an entry of the block table points past the records"
            )
        expected = end
        if start == end:
            if unit is None or unit[2] >= _LONGEST_BLOCKS:
                raise Corrupt(label.name, label.blocks_at + 8 * block, "a block has no bytes")
            unit = (unit[0], unit[1], unit[2] + 1, unit[3])
            continue
        if unit is not None:
            yield unit
        unit = (start, end, 1, bool(entry & _STORED_AS_IS))
    if unit is not None:
        yield unit
    if expected != label.records_end:
        raise Corrupt(label.name, label.blocks_at + 8 * label.blocks, "the block table ends before the records do")


def _entries(body: CheckedBody, label: Label) -> Iterator[tuple[int, int]]:
    """Yield each entry of the block table with the next one."""
    for first in range(0, label.blocks, _ENTRIES):
        count = min(_ENTRIES, label.blocks - first) + 1
        entries = struct.unpack(f"<{count}Q", body.read(label.blocks_at + 8 * first, 8 * count))
        yield from pairwise(entries)
