"""A disk in memory that loses power: everything that was not synced may be forgotten, in any combination.

The model, as unkind as a journaling file system may be:

* What is written to a file is seen at once and durable at its `sync`.  At a power loss each un-synced write has
  reached the disk or not, sector by sector (512 bytes unless told; a sector is never torn), in any combination.
* A name (made by creation, renamed, removed) is durable when its directory is synced.  At a power loss each un-synced
  change has happened or not, in any combination; but a change of a name whose earlier change is lost is lost, too.
  One rename is one change, also between two directories, and is durable only when both of them are synced.
* A file whose name is lost is lost; one whose removal is lost is back, with what it durably held.
* What is written counts against `capacity_bytes`; a write beyond it is done in part and fails with ENOSPC.

`power_loss(seed)` returns the disk as the next start finds it, which says how many of its files hold a write in part;
the same seed after the same operations finds the same.  Paths are absolute; there are no links.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.environment.seam import READ, Entry
from gossipkv.testing.faulty_files import Crash

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from gossipkv.environment.seam import Path

SECTOR_BYTES = 512


@dataclass(eq=False)
class _File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    modified_ns: int = 0
    locked: bool = False

    def after_loss(self, chance: random.Random, sector_bytes: int) -> tuple[_File, bool]:
        """What the disk holds, and whether some write is torn: each sector of each landed or did not."""
        content = bytearray(self.durable)
        likelihood = chance.choice((0.0, 0.5, 1.0, chance.random()))
        is_torn = False
        for offset, data in self.unsynced:
            landed, at = set(), 0
            while at < len(data):
                end = min(len(data), at + sector_bytes - (offset + at) % sector_bytes)
                lands = chance.random() < likelihood
                landed.add(lands)
                if lands:
                    _place(content, data[at:end], offset + at)
                at = end
            is_torn |= len(landed) > 1
        is_torn = is_torn and content not in (self.durable, self.live)  # Else nobody can tell.
        return _File(bytearray(content), bytes(content), modified_ns=self.modified_ns), is_torn


@dataclass(eq=False)
class _Directory:
    live: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    modified_ns: int = 0


@dataclass(eq=False)
class _Change:
    """One un-synced change of names, in one directory or two: what each name leads to from now on."""

    names: list[tuple[_Directory, str, _File | _Directory | None]]
    unsynced: list[_Directory]

    @property
    def places(self) -> set[tuple[int, str]]:
        """What it touches."""
        return {(id(directory), name) for directory, name, _ in self.names}


def _place(content: bytearray, data: bytes, offset: int) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _refuse(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class SimulatedFiles:
    """The simulated disk."""

    def __init__(self, capacity_bytes: int = 1 << 40, *, sector_bytes: int = SECTOR_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self.torn = 0  # How many files the loss of power left with a write in part, as whoever reads them can tell.
        self._root = _Directory()
        self._changes: list[_Change] = []
        self._open: dict[int, tuple[_File, bool]] = {}
        self._next_descriptor = 3
        self._time_ns = 1_000_000_000
        self._dead = False

    def power_loss(self, seed: int) -> SimulatedFiles:
        """The disk after the power came back; this object is dead from now on."""
        chance = random.Random(seed)  # noqa: S311  # To be replayed, not to be secret.
        likelihood = chance.choice((0.0, 0.5, 1.0, chance.random()))
        lost: set[tuple[int, str]] = set()
        for change in self._changes:
            if chance.random() < likelihood and not change.places & lost:
                _apply(change)
            else:
                lost |= change.places
        restarted = SimulatedFiles(self.capacity_bytes, sector_bytes=self.sector_bytes)
        restarted._time_ns = self._time_ns
        restarted._root = restarted._survivor(self._root, chance)
        self._dead = True
        return restarted

    def copied(self) -> SimulatedFiles:
        """A disk that holds durably what this one holds; this one goes on."""
        copy = SimulatedFiles(self.capacity_bytes, sector_bytes=self.sector_bytes)
        copy._time_ns = self._time_ns
        copy._root = _copy(self._root)
        return copy

    def _survivor(self, root: _Directory, chance: random.Random) -> _Directory:
        """A copy of what is durable below `root`."""
        copy = _Directory(modified_ns=root.modified_ns)
        for name in sorted(root.durable):
            node = root.durable[name]
            if isinstance(node, _Directory):
                copy.durable[name] = self._survivor(node, chance)
            else:
                copy.durable[name], is_torn = node.after_loss(chance, self.sector_bytes)
                self.torn += is_torn
        copy.live = dict(copy.durable)
        return copy

    def close_all(self) -> None:
        """The process that had files open is gone: none is open, none locked."""
        for descriptor in tuple(self._open):
            self.close(descriptor)

    # Paths

    def _node(self, path: Path) -> _File | _Directory:
        node: _File | _Directory = self._root
        for part in _parts(path):
            if not isinstance(node, _Directory):
                raise _refuse(errno.ENOTDIR, os.fspath(path))
            found = node.live.get(part)
            if found is None:
                raise _refuse(errno.ENOENT, os.fspath(path))
            node = found
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise _refuse(errno.ENOTDIR, os.fspath(path))
        return node

    def _place_of(self, path: Path) -> tuple[_Directory, str]:
        *above, name = _parts(path)
        return self._directory("/" + "/".join(above)), name

    def _change(self, *names: tuple[_Directory, str, _File | _Directory | None]) -> None:
        for directory, name, node in names:
            if node is None:
                directory.live.pop(name, None)
            else:
                directory.live[name] = node
            directory.modified_ns = self._tick()
        self._changes.append(_Change(list(names), [directory for directory, _, _ in names]))

    def _tick(self) -> int:
        if self._dead:
            raise Crash
        self._time_ns += 1_000_000
        return self._time_ns

    # Operations

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        assert mode >= 0  # Nobody is refused here.
        self._tick()
        directory, name = self._place_of(path)
        node = directory.live.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise _refuse(errno.ENOENT, os.fspath(path))
            node = _File(modified_ns=self._time_ns)
            self._change((directory, name, node))
        elif flags & os.O_EXCL:
            raise _refuse(errno.EEXIST, os.fspath(path))
        if isinstance(node, _Directory):
            raise _refuse(errno.EISDIR, os.fspath(path))
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._open[descriptor] = (node, False)
        return descriptor

    def _file(self, descriptor: int) -> _File:
        self._tick()
        if descriptor not in self._open:
            raise _refuse(errno.EBADF, str(descriptor))
        return self._open[descriptor][0]

    def close(self, descriptor: int) -> None:
        file, holds_lock = self._open.pop(descriptor)
        if holds_lock:
            file.locked = False

    def size(self, descriptor: int) -> int:
        return len(self._file(descriptor).live)

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        return bytes(self._file(descriptor).live[offset : offset + size_bytes])

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        file = self._file(descriptor)
        content = bytes(data)
        growth = max(0, offset + len(content) - len(file.live))
        free = self.free_bytes("/")
        if growth > free:
            content = content[: max(0, len(content) - (growth - free))]
        _place(file.live, content, offset)
        file.unsynced.append((offset, content))
        file.modified_ns = self._time_ns
        if growth > free:
            raise _refuse(errno.ENOSPC, str(descriptor))

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        data = self.pread(source, size_bytes, offset)
        self.pwrite(target, data, offset)
        return len(data)

    def sync(self, descriptor: int) -> None:
        file = self._file(descriptor)
        file.durable = bytes(file.live)
        file.unsynced.clear()

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        assert min(offset, size_bytes) >= 0
        self._file(descriptor)

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        return bytes(self._file(descriptor).live[:size_bytes])

    def sync_directory(self, path: Path) -> None:
        self._tick()
        directory = self._directory(path)
        waiting = []
        held_up: set[tuple[int, str]] = set()
        for change in self._changes:
            change.unsynced = [other for other in change.unsynced if other is not directory]
            if change.unsynced or change.places & held_up:
                waiting.append(change)
                held_up |= change.places
            else:
                _apply(change)
        self._changes = waiting

    def rename(self, source: Path, target: Path) -> None:
        self._tick()
        node = self._node(source)
        old, old_name = self._place_of(source)
        new, new_name = self._place_of(target)
        there = new.live.get(new_name)
        if there is node:
            return
        if isinstance(node, _Directory) and isinstance(there, _Directory) and there.live:
            raise _refuse(errno.ENOTEMPTY, os.fspath(target))
        if there is not None and isinstance(node, _Directory) != isinstance(there, _Directory):
            raise _refuse(errno.EISDIR if isinstance(there, _Directory) else errno.ENOTDIR, os.fspath(target))
        self._change((old, old_name, None), (new, new_name, node))

    def unlink(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if isinstance(self._node(path), _Directory):
            raise _refuse(errno.EISDIR, os.fspath(path))
        self._change((directory, name, None))

    def make_directory(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if name in directory.live:
            raise _refuse(errno.EEXIST, os.fspath(path))
        self._change((directory, name, _Directory(modified_ns=self._time_ns)))

    def remove_directory(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if self._directory(path).live:
            raise _refuse(errno.ENOTEMPTY, os.fspath(path))
        self._change((directory, name, None))

    def list_directory(self, path: Path) -> list[Entry]:
        self._tick()
        live = self._directory(path).live
        return [_entry(name, live[name]) for name in sorted(live, key=os.fsencode)]

    def stat(self, path: Path) -> Entry:
        self._tick()
        return _entry(posixpath.basename(os.fspath(path)), self._node(path))

    def resolve(self, path: Path) -> str:
        self._node(path)
        return "/" + "/".join(_parts(path))

    def free_bytes(self, path: Path) -> int:
        self._node(path)
        files: set[_File] = {file for file, _ in self._open.values()}
        waiting: list[_File | _Directory] = [self._root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, _Directory):
                waiting.extend(node.live.values())
            else:
                files.add(node)
        return max(0, self.capacity_bytes - sum(len(file.live) for file in files))

    def lock(self, descriptor: int) -> None:
        file = self._file(descriptor)
        if file.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        file.locked = True
        self._open[descriptor] = (file, True)


def _parts(path: Path) -> list[str]:
    normal = posixpath.normpath(os.fspath(path))
    assert normal.startswith("/"), f"{path}: simulated paths are absolute"
    return [part for part in normal.split("/") if part]


def _entry(name: str, node: _File | _Directory) -> Entry:
    if isinstance(node, _Directory):
        return Entry(name, "directory", 0, node.modified_ns)
    return Entry(name, "file", len(node.live), node.modified_ns)


def _apply(change: _Change) -> None:
    for directory, name, node in change.names:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _copy(directory: _Directory) -> _Directory:
    copy = _Directory(modified_ns=directory.modified_ns)
    for name, node in directory.live.items():
        if isinstance(node, _Directory):
            copy.durable[name] = _copy(node)
        else:
            copy.durable[name] = _File(bytearray(node.live), bytes(node.live), modified_ns=node.modified_ns)
    copy.live = dict(copy.durable)
    return copy
