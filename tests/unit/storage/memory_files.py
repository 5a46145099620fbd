"""Files in memory, with counters and a hook that alters bytes read back; fast enough for hypothesis.

Descriptors, names and nameless files behave as the system's do; nothing is ever lost, so syncs do nothing.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from gossipkv.environment.seam import READ, READ_WRITE_NEW, FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Path


def _no_lie(data: bytes, _offset: int) -> bytes:
    return data


class MemoryFiles:
    """A flat directory with the interface of `Files` that storage uses."""

    def __init__(self) -> None:
        self.named: dict[str, bytearray] = {}
        self.opened: dict[int, bytearray] = {}
        self.scratch_opened = 0  # Scratch files ever opened.
        self.scratch_open = 0
        self.scratch_open_most = 0
        self.scratch_bytes = 0  # Bytes written to scratch files.
        self.synced: list[str] = []
        self.lie: Callable[[bytes, int], bytes] = _no_lie  # The disk's change to bytes that are read back.
        self._scratches: set[int] = set()
        self._next = 100

    def open(self, path: Path, flags: int = READ, _mode: int = 0o644) -> int:
        name = os.fspath(path)
        if flags & os.O_CREAT:
            if name in self.named:
                raise FileExistsError(errno.EEXIST, "exists", name)
            self.named[name] = bytearray()
        elif name not in self.named:
            raise FileNotFoundError(errno.ENOENT, "missing", name)
        self._next += 1
        self.opened[self._next] = self.named[name]
        if flags == READ_WRITE_NEW:
            self._scratches.add(self._next)
            self.scratch_opened += 1
            self.scratch_open += 1
            self.scratch_open_most = max(self.scratch_open, self.scratch_open_most)
        return self._next

    def close(self, descriptor: int) -> None:
        del self.opened[descriptor]
        if descriptor in self._scratches:
            self._scratches.remove(descriptor)
            self.scratch_open -= 1

    def size(self, descriptor: int) -> int:
        return len(self.opened[descriptor])

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        return self.lie(bytes(self.opened[descriptor][offset : offset + size_bytes]), offset)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        held = self.opened[descriptor]
        assert offset <= len(held), "nothing is written behind a hole"
        held[offset : offset + len(data)] = data
        if descriptor in self._scratches:
            self.scratch_bytes += len(data)

    def sync(self, descriptor: int) -> None:
        self.synced += [name for name, held in self.named.items() if held is self.opened[descriptor]]

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        pass

    def map(self, descriptor: int, size_bytes: int) -> bytes:
        return bytes(self.opened[descriptor][:size_bytes])

    def sync_directory(self, path: Path) -> None:
        self.synced.append(os.fspath(path))

    def rename(self, source: Path, target: Path) -> None:
        self.named[os.fspath(target)] = self.named.pop(os.fspath(source))

    def unlink(self, path: Path) -> None:
        if self.named.pop(os.fspath(path), None) is None:
            raise FileNotFoundError(errno.ENOENT, "missing", os.fspath(path))

    def list_directory(self, path: Path) -> list[FileEntry]:
        prefix = os.fspath(path) + os.sep
        return [
            FileEntry(name.removeprefix(prefix), "file", len(held), 0)
            for name, held in sorted(self.named.items())
            if name.startswith(prefix)
        ]
