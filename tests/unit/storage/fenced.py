"""Memory between two pages that may not be touched: reading one byte too many ends the process.

Python's faulthandler says in which test it was.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fenced:
    """`pages` pages between two forbidden ones."""

    def __init__(self, pages: int = 1) -> None:
        self.size = pages * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, self.size + 2 * mmap.PAGESIZE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + mmap.PAGESIZE
        for fence in (self.start - mmap.PAGESIZE, self.start + self.size):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def at(self, address: int, data: bytes) -> ctypes.Array[ctypes.c_char]:
        """A copy of the data at an address, as a buffer."""
        ctypes.memmove(address, data, len(data))
        return (ctypes.c_char * len(data)).from_address(address)

    def at_end(self, data: bytes) -> ctypes.Array[ctypes.c_char]:
        """A copy whose last byte is the last that may be touched."""
        return self.at(self.start + self.size - len(data), data)

    def places(self, data: bytes) -> Iterator[ctypes.Array[ctypes.c_char]]:
        """Copies against the fence behind, and at every alignment behind the fence before."""
        yield self.at_end(data)
        for alignment in range(16):
            yield self.at(self.start + alignment, data)
