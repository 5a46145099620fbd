"""The yardstick under all engines: two loads from memory, the second of which needs the first, as index and record."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("chase.c")
TARGET = Path(__file__).parents[2] / "build" / "bench" / "chase.so"
MISSES = 2


class Chase:
    """A ring of pointers as large as a file of so many bytes, in one order."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        """Compile the chase if its source is newer, and lay the ring out."""
        if not TARGET.exists() or TARGET.stat().st_mtime < SOURCE.stat().st_mtime:
            TARGET.parent.mkdir(parents=True, exist_ok=True)
            compiler = (sysconfig.get_config_var("CC") or "cc").split()
            command = [*compiler, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", str(SOURCE), "-o", str(TARGET)]
            subprocess.run(command, check=True)
        library = ctypes.CDLL(str(TARGET))
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
