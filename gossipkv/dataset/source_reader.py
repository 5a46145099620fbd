"""The bytes of one file of a source, as it was listed.

The source is somebody else's: a file that is not what it was is an error of its own (`SourceChanged`), which begins
the build anew, and is looked for at opening, at every read, and at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, final

from gossipkv.dataset.source import _READ_SOURCE as READ_SOURCE
from gossipkv.dataset.source import CHUNK_BYTES
from gossipkv.dataset.source import _changed as source_changed
from gossipkv.dataset.source import _check_unchanged as check_unchanged
from gossipkv.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from gossipkv.dataset.source import SourceFile
    from gossipkv.environment import Files


@final
class SourceReader:
    """Reads a listed file; use it as a context manager.

    `pace` is called with the size of each piece before it is handed out, and may sleep.

    Raises:
        SourceChanged: the file is not what it was when it was listed.
        StorageError: the system refused.
    """

    def __init__(self, files: Files, file: SourceFile, *, pace: Callable[[int], None] = lambda _: None) -> None:
        self.name = file.path
        self.size_bytes = file.size_bytes
        self._files = files
        self._file = file
        self._pace = pace
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        try:
            check_unchanged(self._files, self._file)
            self._descriptor = self._files.open(self._file.path, READ_SOURCE)
        except FileNotFoundError as error:
            raise source_changed(self._file, "it is gone") from error
        except OSError as error:
            raise self._refusal(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._files.close(descriptor)
        if kind is None:
            try:
                check_unchanged(self._files, self._file)
            except FileNotFoundError as gone:
                raise source_changed(self._file, "it is gone") from gone
            except OSError as refused:
                raise self._refusal(refused) from refused

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Exactly `size_bytes`, which the file has there."""
        assert self._descriptor is not None
        try:
            data = self._files.pread(self._descriptor, size_bytes, offset)
        except OSError as error:
            raise self._refusal(error) from error
        if len(data) < size_bytes:
            raise source_changed(self._file, f"it ends at byte {offset + len(data):,}")
        self._pace(len(data))
        return data

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """All from `start` on, in pieces."""
        while start < self.size_bytes:
            chunk = self.read_at(start, min(CHUNK_BYTES, self.size_bytes - start))
            start += len(chunk)
            yield chunk

    def _refusal(self, error: OSError) -> StorageError:
        return StorageError(f"{self.name}: cannot be read: {error.strerror}", {"file": self.name})
