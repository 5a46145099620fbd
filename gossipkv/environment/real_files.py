"""The real clock and the real files: the whole world of a process that only builds."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import stat as stat_bits
import sys
import time
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from gossipkv.environment.seam import MAX_ENTRIES, READ, FileEntry, too_many_entries

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Collection
    from concurrent.futures import Future, ThreadPoolExecutor

    from _typeshed import ReadableBuffer as Buffer

    from gossipkv.environment.seam import Path, Threads

SYNCS_AT_ONCE: Final = 16  # A disk gains little from more.
ZEROS_BYTES: Final = 1 << 20  # Per write, where the file system cannot allocate without writing.
_CANNOT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


class RealClock:
    """The system's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def _kind(mode: int) -> str:
    if stat_bits.S_ISREG(mode):
        return "file"
    if stat_bits.S_ISDIR(mode):
        return "directory"
    return "link" if stat_bits.S_ISLNK(mode) else "other"


class RealFiles:
    """The operating system's files."""

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        return os.open(path, flags, mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        parts = []
        while size_bytes > 0:
            part = os.pread(descriptor, size_bytes, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        with memoryview(data).cast("B") as view:
            done = 0
            while done < view.nbytes:
                done += os.pwrite(descriptor, view[done:], offset + done)

    def allocate(self, descriptor: int, offset: int, size_bytes: int) -> None:
        if offset < 0 or size_bytes <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        before, end = os.fstat(descriptor).st_size, offset + size_bytes
        status = os.fstatvfs(descriptor)
        # The system would take all free room before it refuses, and starve other writers meanwhile.
        if end - before > status.f_bavail * status.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            try:
                os.posix_fallocate(descriptor, offset, size_bytes)
            except (AttributeError, OSError) as error:  # Not each system has the function.
                if getattr(error, "errno", errno.ENOSYS) not in _CANNOT_ALLOCATE:
                    raise
                for at in range(max(offset, before), end, ZEROS_BYTES):
                    self.pwrite(descriptor, bytes(min(ZEROS_BYTES, end - at)), at)
        except OSError:
            os.ftruncate(descriptor, before)
            raise

    def copy_range(self, source: int, target: int, offset: int, size_bytes: int) -> int:
        if not hasattr(os, "copy_file_range"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return os.copy_file_range(source, target, size_bytes, offset, offset)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def start_writeback(self, descriptor: int, offset: int, size_bytes: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(descriptor, offset, size_bytes, _SYNC_FILE_RANGE_WRITE)

    def map(self, descriptor: int, size_bytes: int) -> Buffer:
        if sys.version_info >= (3, 13):
            return mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ, trackfd=False)
        return mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, READ | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path) -> None:
        os.mkdir(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def list_directory(self, path: Path) -> list[FileEntry]:
        entries: list[FileEntry] = []
        with os.scandir(path) as found:
            for item in found:
                if len(entries) == MAX_ENTRIES:
                    raise too_many_entries(path)
                with contextlib.suppress(FileNotFoundError):  # The file disappeared after the listing.
                    entries.append(self._entry(item.name, item.stat(follow_symlinks=False)))
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def stat(self, path: Path) -> FileEntry:
        return self._entry(os.path.basename(os.fspath(path)), os.stat(path, follow_symlinks=False))

    def resolve(self, path: Path) -> str:
        return os.path.realpath(path, strict=True)

    def free_bytes(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def size_bytes(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @staticmethod
    def _entry(name: str, status: os.stat_result) -> FileEntry:
        return FileEntry(name, _kind(status.st_mode), status.st_size, status.st_mtime_ns)


_SYNC_FILE_RANGE_WRITE = 2


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux' early write-back, which Python does not wrap; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).sync_file_range
    function.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint]
    return function


_sync_file_range = _find_sync_file_range()


# Alignment of offsets, sizes and memory: at least the block size of any disk.
ALIGNMENT_BYTES: Final = 4096
BUFFER_BYTES: Final = 1 << 20


class DirectFiles(RealFiles):
    """Files read from the disk and not from the system's cache, for one thread; read-only.

    A page in the cache and its block on the disk can be damaged independently, and a hot page stays in the cache for
    months. `O_DIRECT` reads the disk. If a file system refuses it, the range is dropped from the cache before each
    read. That works only for pages that are not mapped, so the cache may be read, and `bypasses_cache` is False. A file
    system in memory has no disk that could differ.
    """

    def __init__(self, direct: int = getattr(os, "O_DIRECT", 0)) -> None:
        self.bypasses_cache = direct != 0  # True if no read so far may have used the cache.
        self._direct = direct
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # A map is aligned to a page, as `O_DIRECT` requires.

    def open(self, path: Path, flags: int = READ, mode: int = 0o644) -> int:
        if self._direct:
            try:
                return super().open(path, flags | self._direct, mode)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self.bypasses_cache = False
        return super().open(path, flags, mode)

    def pread(self, descriptor: int, size_bytes: int, offset: int) -> bytes:
        parts = []
        while size_bytes > 0:
            begin = offset % ALIGNMENT_BYTES
            start = offset - begin
            wanted = min(-(-(begin + size_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, BUFFER_BYTES)
            part = self._buffer[begin : min(self._read(descriptor, wanted, start), begin + size_bytes)]
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def _read(self, descriptor: int, size_bytes: int, offset: int) -> int:
        if not self.bypasses_cache:
            os.posix_fadvise(descriptor, offset, size_bytes, os.POSIX_FADV_DONTNEED)
        with memoryview(self._buffer) as view:
            return os.preadv(descriptor, [view[:size_bytes]], offset)


@final
class BuildFiles(RealFiles):
    """Real files whose syncs run side by side; a rename, and the sync of a directory, wait for all of them.

    A disk commits many files in about the time of one, and a build of thousands would wait for each.  Once a sync has
    failed, every rename fails.
    """

    def __init__(self) -> None:
        # A node imports this module, and only builds need threads.
        futures = importlib.import_module("concurrent.futures")
        self._threads: ThreadPoolExecutor = futures.ThreadPoolExecutor(SYNCS_AT_ONCE, "syncs")
        self._syncs: deque[Future[None]] = deque()
        self._lock = Lock()

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self._wait(most=SYNCS_AT_ONCE - 1)
            self._syncs.append(self._threads.submit(self._sync, os.dup(descriptor)))

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._wait(most=0)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._wait(most=0)
        super().sync_directory(path)

    def _wait(self, most: int) -> None:
        while len(self._syncs) > most:
            self._syncs[0].result()
            self._syncs.popleft()

    def _sync(self, descriptor: int) -> None:
        try:
            super().sync(descriptor)
        finally:
            os.close(descriptor)


@final
class WatchedFiles:
    """Detects changes of a few files by ctime (content, owner and mode), size and inode, or absence."""

    def __init__(self, paths: Collection[pathlib.Path], threads: Threads) -> None:
        self._paths, self._threads = paths, threads
        self._seen: list[tuple[int, int, int] | None] = []

    async def have_changed(self) -> bool:
        """Return True if a file changed since the last call; at the first call, if any file exists."""
        before, self._seen = self._seen, await self._threads.run(self._look)
        return self._seen != before

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in self._paths]


def _state_of(path: pathlib.Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino
