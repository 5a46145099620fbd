"""A disk in memory that loses power: all unsynced changes may be lost, in any combination.

The model is as unkind as a journaling file system may be:

* A write to a file is seen at once and durable at its `sync`.  At a power loss each unsynced write has reached the disk
  or not, sector by sector (512 bytes by default; a sector is never torn), in any combination.
* An allocation is seen at once, too, and durable at the file's `sync`.  At a power loss an unsynced allocation has
  happened or not, as a whole, independently of the writes into it.
* A name (created, linked, renamed, removed) is durable when its directory is synced.  At a power loss each unsynced
  change has happened or not, in any combination; but if an earlier change of a name is lost, its later changes are lost
  too.  One rename is one change, also between two directories, and is durable only when both of them are synced.
* A file whose every name is lost is lost; one whose removal is lost is back, with its durable content.
* Written and allocated bytes count against `capacity_bytes`, once however many names the file has; a write beyond the
  capacity is done in part and fails with ENOSPC, an allocation fails as a whole.

`power_loss(seed)` returns the disk as the next start finds it, with the number of files with a torn write; the same
seed after the same operations gives the same disk.  `power_loss_states()` returns every such disk, as long as `pending`
counts few.  Paths are absolute; there are no symbolic links.

An operation costs as much as it touches: a write its blocks, a sync the writes since the last one; unwritten zeros take
no memory.  So a log of many small syncs is cheap however long it is.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from typing import TYPE_CHECKING

from gossipkv.environment.seam import READ, FileEntry
from tests.world.faulty_files import Crash
from tests.world.power_loss import count_pending, draw_changes, draw_content, survivor, survivors
from tests.world.simulated_tree import Change, Directory, File, apply, names_of_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer as Buffer

    from gossipkv.environment.seam import Path
    from tests.world.sparse_bytes import SparseBytes

SECTOR_BYTES = 512


def _refuse(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class SimulatedFiles:
    def __init__(self, capacity_bytes: int = 1 << 40, *, sector_bytes: int = SECTOR_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self.torn = 0  # The number of files in which a drawn power loss left a visibly torn write.
        self._root = Directory()
        self._changes: list[Change] = []
        self._open: dict[int, tuple[File, bool]] = {}
        self._used_bytes = 0
        self._next_descriptor = 3
        self._time_ns = 1_000_000_000
        self._dead = False

    @property
    def pending(self) -> int:
        """The number of unsynced sector writes, allocations and changes of names with a possible effect."""
        return count_pending(self._root, self._changes, self.sector_bytes)

    def power_loss(self, seed: int) -> SimulatedFiles:
        """Return the disk after the power came back; this object is dead from now on."""
        chance = random.Random(seed)  # The randomness is for replay, not for secrecy.
        torn = 0

        def content(file: File) -> SparseBytes:
            nonlocal torn
            drawn, is_torn = draw_content(file, chance, self.sector_bytes)
            torn += is_torn
            return drawn

        root = survivor(self._root, draw_changes(self._changes, chance), content)
        restarted = self._restarted(root, self._time_ns)
        restarted.torn = torn
        self._dead = True
        return restarted

    def power_loss_states(self) -> Iterator[SimulatedFiles]:
        """Return every disk that `power_loss` could return now, each once apart from times; this disk goes on.

        Raises:
            ValueError: more than 12 writes of sectors, allocations and changes of names are pending.
        """
        time_ns = self._time_ns
        roots = survivors(self._root, self._changes, self.sector_bytes)
        return (self._restarted(root, time_ns) for root in roots)

    def copied(self) -> SimulatedFiles:
        """Return a disk with the same contents, all durable; this disk goes on."""
        return self._restarted(_copy(self._root, {}), self._time_ns)

    def _restarted(self, root: Directory, time_ns: int) -> SimulatedFiles:
        """Return a disk of this kind with the durable contents below `root`."""
        restarted = SimulatedFiles(self.capacity_bytes, sector_bytes=self.sector_bytes)
        restarted._time_ns = time_ns
        restarted._root = root
        for file in names_of_files(root):
            restarted._hold(file)
        return restarted

    def close_all(self) -> None:
        """Close and unlock all files, as at the end of the process."""
        for descriptor in tuple(self._open):
            self.close(descriptor)

    # Paths

    def _node(self, path: Path) -> File | Directory:
        node: File | Directory = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                raise _refuse(errno.ENOTDIR, os.fspath(path))
            found = node.live.get(part)
            if found is None:
                raise _refuse(errno.ENOENT, os.fspath(path))
            node = found
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise _refuse(errno.ENOTDIR, os.fspath(path))
        return node

    def _place_of(self, path: Path) -> tuple[Directory, str]:
        *above, name = _parts(path)
        return self._directory("/" + "/".join(above)), name

    def _change(self, *names: tuple[Directory, str, File | Directory | None]) -> None:
        for directory, name, node in names:
            before = directory.live.pop(name, None)
            if node is not None:
                directory.live[name] = node
            if isinstance(node, File):
                self._hold(node)
            if isinstance(before, File):
                self._let_go(before)
            directory.modified_ns = self._tick()
        self._changes.append(Change(list(names), [directory for directory, _, _ in names]))

    def _hold(self, file: File) -> None:
        if file.holders == 0:
            self._used_bytes += file.content.size_bytes
        file.holders += 1

    def _let_go(self, file: File) -> None:
        """Release one holder; without any the file's space is free."""
        file.holders -= 1
        if file.holders == 0:
            self._used_bytes -= file.content.size_bytes

    def _tick(self) -> int:
        if self._dead:
            raise Crash
        self._time_ns += 1_000_000
        return self._time_ns

    # Operations

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        assert mode >= 0  # Permissions are not simulated.
        self._tick()
        directory, name = self._place_of(path)
        node = directory.live.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise _refuse(errno.ENOENT, os.fspath(path))
            node = File(modified_ns=self._time_ns)
            self._change((directory, name, node))
        elif flags & os.O_EXCL:
            raise _refuse(errno.EEXIST, os.fspath(path))
        if isinstance(node, Directory):
            raise _refuse(errno.EISDIR, os.fspath(path))
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._open[descriptor] = (node, False)
        self._hold(node)
        return descriptor

    def _file(self, descriptor: int) -> File:
        self._tick()
        if descriptor not in self._open:
            raise _refuse(errno.EBADF, str(descriptor))
        return self._open[descriptor][0]

    def close(self, descriptor: int) -> None:
        file, holds_lock = self._open.pop(descriptor)
        if holds_lock:
            file.locked = False
        self._let_go(file)

    def size(self, descriptor: int) -> int:
        return self._file(descriptor).content.size_bytes

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        file = self._file(descriptor)
        if offset < 0:
            raise _refuse(errno.EINVAL, str(descriptor))
        return file.content.read(offset, size_bytes)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        file = self._file(descriptor)
        if offset < 0:
            raise _refuse(errno.EINVAL, str(descriptor))
        content = bytes(data)
        before = file.content.size_bytes
        growth = max(0, offset + len(content) - before) if content else 0
        free = self._free_bytes()
        if growth > free:
            content = content[: max(0, len(content) - (growth - free))]
        file.write(offset, content)
        file.modified_ns = self._time_ns
        self._used_bytes += file.content.size_bytes - before
        if growth > free:
            raise _refuse(errno.ENOSPC, str(descriptor))

    def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
        file = self._file(descriptor)
        if offset < 0 or size_bytes <= 0:
            raise _refuse(errno.EINVAL, str(descriptor))
        growth = max(0, offset + size_bytes - file.content.size_bytes)
        if growth > self._free_bytes():
            raise _refuse(errno.ENOSPC, str(descriptor))
        file.allocate(offset + size_bytes)
        file.modified_ns = self._time_ns
        self._used_bytes += growth

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        data = self.pread(source, size_bytes, offset)
        self.pwrite(target, data, offset)
        return len(data)

    def sync(self, descriptor: int) -> None:
        self._file(descriptor).sync()

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        assert min(offset, size_bytes) >= 0
        self._file(descriptor)

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        return self._file(descriptor).content.mapped(size_bytes)

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
                apply(change)
        self._changes = waiting

    def rename(self, source: Path, target: Path) -> None:
        self._tick()
        old, old_name = self._place_of(source)
        new, new_name = self._place_of(target)
        node = self._node(source)
        there = new.live.get(new_name)
        if there is node:
            return
        if _is_within(target, source):
            raise _refuse(errno.EINVAL, os.fspath(target))
        if _is_within(source, target):
            raise _refuse(errno.ENOTEMPTY, os.fspath(target))
        if isinstance(node, Directory) and isinstance(there, Directory) and there.live:
            raise _refuse(errno.ENOTEMPTY, os.fspath(target))
        if there is not None and isinstance(node, Directory) != isinstance(there, Directory):
            raise _refuse(errno.EISDIR if isinstance(there, Directory) else errno.ENOTDIR, os.fspath(target))
        self._change((old, old_name, None), (new, new_name, node))

    def link(self, source: Path, target: Path) -> None:
        self._tick()
        node = self._node(source)
        directory, name = self._place_of(target)
        if name in directory.live:
            raise _refuse(errno.EEXIST, os.fspath(target))
        if isinstance(node, Directory):
            raise _refuse(errno.EPERM, os.fspath(source))
        self._change((directory, name, node))

    def unlink(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if isinstance(self._node(path), Directory):
            raise _refuse(errno.EISDIR, os.fspath(path))
        self._change((directory, name, None))

    def make_directory(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if name in directory.live:
            raise _refuse(errno.EEXIST, os.fspath(path))
        self._change((directory, name, Directory(modified_ns=self._time_ns)))

    def remove_directory(self, path: Path) -> None:
        self._tick()
        directory, name = self._place_of(path)
        if self._directory(path).live:
            raise _refuse(errno.ENOTEMPTY, os.fspath(path))
        self._change((directory, name, None))

    def list_directory(self, path: Path) -> list[FileEntry]:
        self._tick()
        live = self._directory(path).live
        return [_entry(name, live[name]) for name in sorted(live, key=os.fsencode)]

    def stat(self, path: Path) -> FileEntry:
        self._tick()
        return _entry(posixpath.basename(os.fspath(path)), self._node(path))

    def resolve(self, path: Path) -> str:
        self._node(path)
        return "/" + "/".join(_parts(path))

    def free_bytes(self, path: Path) -> int:
        self._node(path)
        return self._free_bytes()

    def size_bytes(self, path: Path) -> int:
        self._node(path)
        return self.capacity_bytes

    def _free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self._used_bytes)

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


def _is_within(path: Path, directory: Path) -> bool:
    parts, above = _parts(path), _parts(directory)
    return len(parts) > len(above) and parts[: len(above)] == above


def _entry(name: str, node: File | Directory) -> FileEntry:
    if isinstance(node, Directory):
        return FileEntry(name, "directory", 0, node.modified_ns)
    return FileEntry(name, "file", node.content.size_bytes, node.modified_ns)


def _copy(directory: Directory, made: dict[File, File]) -> Directory:
    copy = Directory(modified_ns=directory.modified_ns)
    for name, node in directory.live.items():
        if isinstance(node, Directory):
            copy.durable[name] = _copy(node, made)
        else:
            if node not in made:
                made[node] = node.holding(node.content.copied())
            copy.durable[name] = made[node]
    copy.live = dict(copy.durable)
    return copy
