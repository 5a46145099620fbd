"""The reader of one listed file of a source, with suspicion.

A build must read exactly the listed content.  The file's size, time and tag are compared when it is opened and after
all was read.  So a version is never built from two states of a file.  If Hadoop left a checksum file beside the data
(`hadoop_checksums`), every byte is checked before it is returned.  All results are bounded: a chunk, and the pieces
that a checksum covers.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self, final

from gossipkv.dataset.source.hadoop_checksums import HadoopChecksums
from gossipkv.environment.seam import READ
from gossipkv.errors import SourceChanged, SourceError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.dataset.source.files import SourceFile, SourceFiles

# Threads that build together exchange the interpreter's lock a few times per chunk, so a third of this size costs a
# tenth of their time.  The size stays below 1 MiB, from which on glibc maps each buffer anew (`processes.child`).
CHUNK_BYTES = 768 << 10

# Never wait for a fifo's writer, and never follow a link that was put there after the look.
READ_SOURCE = READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


@final
class SourceReader:
    """One file, open within `with`; leaving the block without error checks that the file is unchanged.

    `pace` is called with the size of each read before its data is returned, and may sleep.
    """

    def __init__(self, files: SourceFiles, file: SourceFile, *, pace: Callable[[int], None] = lambda _: None) -> None:
        self.name = file.path
        self.size_bytes = file.size_bytes
        self.read_bytes = 0  # Bytes that were read again count again.
        self._files = files
        self._file = file
        self._pace = pace
        self._descriptor = -1
        self._checksums: HadoopChecksums | None = None

    def __enter__(self) -> Self:
        with self._refusals():
            self._check_unchanged()
            self._descriptor = self._files.open(self._file.path, READ_SOURCE)
        try:
            self._checksums = self._read_checksums()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._close()
        # A changed file is the error, whatever its bytes looked like.
        if error is None or (isinstance(error, SourceError) and not isinstance(error, SourceChanged)):
            with self._refusals():
                self._check_unchanged()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Read exactly `size_bytes` from `offset`.

        Raises:
            SourceChanged: the file is shorter than listed, or is another one.
            SourceError: its checksum file says that it is damaged; or the range was never within the file.
            StorageError: the system refused.
        """
        if offset + size_bytes > self.size_bytes:
            reason = f"{size_bytes:,} bytes are needed here, but the file ends at byte {self.size_bytes:,}"
            raise SourceError(
                f"{self.name}: byte {offset:,}: {reason}", {"file": self.name, "offset": offset, "reason": reason}
            )
        checksums = self._checksums
        if checksums is None:
            return self._read(offset, size_bytes)
        begin, end = checksums.whole_pieces(offset, size_bytes)
        data = self._read(begin, end - begin)
        wrong = checksums.first_wrong(begin, data)
        if wrong is not None:
            with self._refusals():
                self._check_unchanged()
            raise wrong
        return data if len(data) == size_bytes else data[offset - begin : offset - begin + size_bytes]

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from `start` to the end, in order, `CHUNK_BYTES` at a time.

        Raises:
            SourceChanged, SourceError, StorageError: as `read_at`.
        """
        while start < self.size_bytes:
            # Chunks end on multiples of the size, so that pieces under one checksum are not read twice.
            chunk = self.read_at(start, min(CHUNK_BYTES - start % CHUNK_BYTES, self.size_bytes - start))
            start += len(chunk)
            yield chunk

    def _read(self, offset: int, size_bytes: int) -> bytes:
        self._pace(size_bytes)
        with self._refusals():
            data = self._files.pread(self._descriptor, size_bytes, offset)
            if len(data) < size_bytes:
                raise _changed(self._file, f"it ends at byte {offset + len(data):,}")
        self.read_bytes += size_bytes
        return data

    def _read_checksums(self) -> HadoopChecksums | None:
        file = self._file.checksums
        if file is None:
            return None

        def read(offset: int, size_bytes: int) -> bytes:
            with self._refusals(file):
                descriptor = self._files.open(file.path, READ_SOURCE)
                try:
                    return self._files.pread(descriptor, size_bytes, offset)
                finally:
                    self._files.close(descriptor)

        try:
            return HadoopChecksums(self._file, file, read)
        except SourceError:
            with self._refusals(file):
                self._check_unchanged()
            raise

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)

    def _check_unchanged(self) -> None:
        _check_unchanged(self._files, self._file)
        if self._file.checksums is not None:
            _check_unchanged(self._files, self._file.checksums)

    @contextlib.contextmanager
    def _refusals(self, file: SourceFile | None = None) -> Iterator[None]:
        """Convert the system's refusals into one error that names the file; a store may refuse because of a change."""
        file = file or self._file
        try:
            yield
        except FileNotFoundError as error:
            raise _gone(file) from error
        except OSError as error:
            with contextlib.suppress(OSError):
                _check_unchanged(self._files, file)
            raise StorageError(
                f"{file.path}: the file cannot be read: {error.strerror}", {"file": file.path}
            ) from error


def _check_unchanged(files: SourceFiles, file: SourceFile) -> None:
    try:
        entry = files.stat(file.path)
    except FileNotFoundError as error:
        raise _gone(file) from error
    if entry.kind != "file":
        raise _changed(file, "it is not a plain file")
    if file.table is not None:  # A snapshot lists no times and tags, since its files are never written again.
        if entry.size_bytes != file.size_bytes:
            raise SourceError(
                f"{file.path}: the table's snapshot says that the file has {file.size_bytes:,} bytes, and it has "
                f"{entry.size_bytes:,}: it is damaged; restore it, or commit a snapshot without it",
                {"file": file.path},
            )
        return
    if entry.size_bytes != file.size_bytes:
        raise _changed(file, f"it has {entry.size_bytes:,} bytes")
    if entry.modified_ns != file.modified_ns:
        raise _changed(file, "its time of modification differs")
    if entry.tag != file.tag:
        raise _changed(file, "its tag differs")


def _gone(file: SourceFile) -> SourceError:
    if file.table is None:
        return _changed(file, "it does not exist")
    return SourceError(
        f"{file.path}: the table's snapshot lists the file, but it does not exist; VACUUM or an expiry may have "
        "deleted it; keep the files of old snapshots for longer than a build takes",
        {"file": file.path},
    )


def _changed(file: SourceFile, how: str) -> SourceChanged:
    return SourceChanged(
        f"{file.path}: the file changed while the version was read: it was listed with {file.size_bytes:,} bytes, and "
        f"now {how}; write a version under another name and rename it when it is complete, or set require_success_file",
        {"file": file.path, "expected": file.size_bytes},
    )
