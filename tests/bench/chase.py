"""The yardstick under all engines: two loads from memory, the second of which needs the first, as index and record."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.bench import compiled

SOURCE = Path(__file__).with_name("chase.c")
MISSES = 2


class Chase:
    """A ring of pointers as large as a file of so many bytes, in one order."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        library = ctypes.CDLL(str(compiled.from_c(SOURCE, "-shared", "-fPIC")))
        library.chase_new.restype = ctypes.c_void_p
        library.chase_new.argtypes = [ctypes.c_size_t, ctypes.c_uint64]
        library.chase.restype = ctypes.c_int64
        library.chase.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64]
        self._chase = library.chase
        self._at = ctypes.c_void_p(library.chase_new(size_bytes, seed))
        if not self._at:
            raise MemoryError

    def time(self, count: int) -> float:
        """Nanoseconds of two misses, the mean of so many."""
        elapsed: int = self._chase(ctypes.byref(self._at), MISSES * count)
        return elapsed / count
