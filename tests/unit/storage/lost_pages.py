"""Pages of mapped files that cannot be read any more, in this process."""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from pathlib import Path

PAGE = mmap.PAGESIZE
MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def lose_page(path: Path, page: int) -> None:
    """Replace a page of this process's only map of a file, so that reads raise SIGBUS as after a disk failure.

    The replacement is a page after the end of an empty file.
    """
    address = _address(path, page * PAGE)
    with tempfile.TemporaryFile() as empty:
        placed = _libc.mmap(address, PAGE, mmap.PROT_READ, mmap.MAP_SHARED | MAP_FIXED, empty.fileno(), 0)
    assert placed == address, ctypes.get_errno()


def pages_of(path: Path) -> range:
    return range(-(-path.stat().st_size // PAGE))


def _address(path: Path, offset: int) -> int:
    """Return the address at which a byte of a file is mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, begins, *_, name = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        within = offset - int(begins, 16)
        if name == str(path) and 0 <= within < end - start:
            return start + within
    raise AssertionError(f"byte {offset} of {path} is not mapped")
