"""A file of a source in the form that pyarrow reads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gossipkv.dataset.formats.reading import Readable

WINDOW_BYTES: Final = 4 << 20  # The size of our reads: a remote source reads ahead this far anyway.


class ArrowFile(io.RawIOBase):
    """A file that is read at any place."""

    def __init__(self, reader: Readable) -> None:
        super().__init__()
        self._reader = reader
        self._at = 0
        self._windows: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reader.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._reader.size_bytes
        start, end = self._at, end if size < 0 else min(end, self._at + size)
        parts: list[bytes] = []
        if end - self._at >= WINDOW_BYTES:  # A window would hold a large page once more.
            self._windows.clear()
            self._at = end
            return self._reader.read_at(start, end - start)
        while self._at < end:
            start, window = self._window()
            parts.append(window[self._at - start : end - start])
            self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _window(self) -> tuple[int, bytes]:
        """Return the bytes around the position and their start; two columns are read alternately, so two are kept."""
        for start, window in self._windows:
            if start <= self._at < start + len(window):
                return start, window
        size = min(WINDOW_BYTES, self._reader.size_bytes - self._at)
        if len(self._windows) > 1:
            del self._windows[0]  # Release it before the next one is read.
        self._windows.append((self._at, self._reader.read_at(self._at, size)))
        return self._windows[-1]
