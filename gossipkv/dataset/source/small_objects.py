"""Small objects of a store, read ahead in the order in which they are needed, several at once.

A build looks at each file more than once: for its format, for its function, and for its records.  Opening an object
costs some requests each time, and each request waits for the store.  So a small object is read whole, and its state
is asked for with the same request or after it: if that is what was listed, these bytes are what was listed.  Bytes are
kept while they fit.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future, ThreadPoolExecutor

    from gossipkv.dataset.source.files import SourceFile
    from gossipkv.environment.seam import FileEntry

# A larger object is read in blocks, by requests of its own.
SMALL_BYTES: Final = 512 << 10
# Requests in flight.
AHEAD: Final = 16
# Bytes that are kept, or on their way.
KEPT_BYTES: Final = 12 << 20


@dataclass(frozen=True, slots=True)
class SmallObject:
    """The bytes of an object, and its state after they were read."""

    entry: FileEntry
    data: bytes


@final
class SmallObjects:
    """The small ones among `files`, in their order; `read` reads as many bytes of one, and raises `OSError`."""

    def __init__(self, files: Iterable[SourceFile], read: Callable[[SourceFile], SmallObject]) -> None:
        self._files = {file.path: file for file in files if file.size_bytes <= SMALL_BYTES}
        self._order = list(self._files)
        self._places = {path: place for place, path in enumerate(self._order)}
        self._read = read
        self._kept: dict[str, Future[SmallObject]] = {}
        self._kept_bytes = 0
        self._lock = threading.Lock()
        # A node imports this module, and only builds need threads.
        futures = importlib.import_module("concurrent.futures")
        self._threads: ThreadPoolExecutor = futures.ThreadPoolExecutor(AHEAD, "small-objects")

    def __contains__(self, path: str) -> bool:
        """True if this object is read whole."""
        return path in self._files

    def get(self, path: str) -> SmallObject:
        """Return an object; an error is forgotten, so that the next call asks the store again.

        Raises:
            OSError: the store refused.
        """
        with self._lock:
            place = self._places[path]
            ahead = self._order[place : place + AHEAD]
            for wanted in ahead:
                file = self._files[wanted]
                if wanted not in self._kept and (wanted == path or self._make_room(file.size_bytes, ahead)):
                    self._kept[wanted] = self._threads.submit(self._read, file)
                    self._kept_bytes += file.size_bytes
            future = self._kept[path]
        try:
            return future.result()
        except BaseException:
            with self._lock:
                self._drop(path)
            raise

    def _make_room(self, size_bytes: int, ahead: list[str]) -> bool:
        """Drop what is not needed soon, the oldest first; return True if there is room then."""
        while self._kept_bytes + size_bytes > KEPT_BYTES:
            oldest = next((path for path in self._kept if path not in ahead), None)
            if oldest is None:
                return False
            self._drop(oldest)
        return True

    def _drop(self, path: str) -> None:
        if self._kept.pop(path, None) is not None:
            self._kept_bytes -= self._files[path].size_bytes
