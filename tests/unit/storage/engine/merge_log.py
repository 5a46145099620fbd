"""Segments of a log for tests of merges, as large as their batches need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage.engine._engine import BATCH, HEADER_BYTES, MARK, FrameBuffer
from gossipkv.storage.engine.manifest import LOG, segment_path
from gossipkv.storage.engine.merge import LogInput
from gossipkv.storage.engine.segments import SegmentHeader, encode_header
from tests.unit.storage.engine.merge_world import STORE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_segment(directory: Path, number: int, batches: Iterable[bytes]) -> LogInput:
    """Write a segment of these batches, closed by a mark; return the input that names the segment."""
    salt = number * 0x1234_5678_9ABC
    frames = FrameBuffer(salt)
    position = number * 1_000
    for batch in batches:
        position += 1
        frames.append(BATCH, position, 0, batch)
    frames.append(MARK, position + 1, position, b"")
    data = bytes(frames.view())
    (directory / LOG).mkdir(exist_ok=True)
    header = SegmentHeader(STORE, number, salt, life=1, size_bytes=HEADER_BYTES + len(data))
    segment_path(directory, number).write_bytes(encode_header(header) + data)
    return LogInput(number, salt, HEADER_BYTES + len(data))
