"""The filter of merges for expired records, in plain Python: clocks are dicts, and rows are tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.oracle import record

if TYPE_CHECKING:
    from collections.abc import Sequence

RETRY_MS = 600_000


class Row(NamedTuple):
    first: bytes
    end: bytes
    settled: dict[int, int]
    named: tuple[int, ...] | None
    horizon_ms: int


def leaves_at(rows: Sequence[Row], default_ms: int, now_ms: int, key: bytes, data: bytes) -> int | None:
    """Return the time of day from which a record may leave: 0, now; None: never."""
    fields = record.decode(data)
    if fields is None or not fields[6] or key[4:5] != b"\1":
        return None
    time, origin, counter, _, _, _, expires_ms = fields
    over_ms = max(expires_ms, time >> 16)
    row = next((row for row in rows if row.first <= key < row.end), Row(b"", b"", {}, None, default_ms))
    if over_ms >= row.horizon_ms:
        return now_ms + min(over_ms - row.horizon_ms, 1 << 62)
    is_settled = row.settled.get(origin, 0) >= counter or (row.named is not None and origin not in row.named)
    return 0 if is_settled else now_ms + RETRY_MS
