"""A source file in memory whose chunks end where a test wants."""

from __future__ import annotations

from itertools import cycle


class CutReader:
    """A file as a format reads it."""

    def __init__(self, data, sizes=(1 << 18,), name="file"):
        self.name = name
        self.data = data
        self.sizes = sizes
        self.size_bytes = len(data)
        self.largest_read = 0
        self.taken = 0

    def read_at(self, offset, size_bytes):
        assert 0 <= offset <= offset + size_bytes <= self.size_bytes
        self.largest_read = max(self.largest_read, size_bytes)
        return bytes(self.data[offset : offset + size_bytes])

    def chunks(self, start=0):
        """Yield the rest of the file in chunks of the given sizes, in rotation."""
        for size in cycle(self.sizes):
            if start >= self.size_bytes:
                return
            yield bytes(self.data[start : start + size])
            start += size
            self.taken = start


def everything(batches):
    records, offsets = [], []
    for batch in batches:
        assert len(batch) > 0
        records += list(batch)
        offsets += batch.offsets()
    return records, offsets
