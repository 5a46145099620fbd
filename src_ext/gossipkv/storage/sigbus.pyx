"""Loss of mapped files, and the signal that reports it; `sigbus.h` implements both.

This module owns the process's only list of maps and only handler.
"""

from libc.errno cimport errno
from libc.stdint cimport uint64_t

cdef extern from "gossipkv/storage/sigbus.h" nogil:
    Map* gkv_map_add(const void* start, size_t size)
    void gkv_map_remove(Map* map)
    int gkv_map_is_lost(const Map* map)
    int gkv_map_lose(Map* map, uint64_t offset)
    uint64_t gkv_map_lost_at(const Map* map)
    int gkv_sigbus_install()

import os


cdef Map* map_add(const void* start, size_t size) noexcept:
    """Register a mapped file before its first byte is read; NULL: no memory."""
    return gkv_map_add(start, size)


cdef void map_remove(Map* map) noexcept:
    """Unregister a map before it is unmapped."""
    gkv_map_remove(map)


cdef bint map_is_lost(const Map* map) noexcept nogil:
    """Return True if reading any byte of the map failed."""
    return gkv_map_is_lost(map)


cdef uint64_t map_lose(Map* map, uint64_t offset) noexcept nogil:
    """Make the map unreadable for good; returns the offset of the first lost byte, `offset` if none was lost before."""
    gkv_map_lose(map, offset)
    return gkv_map_lost_at(map)


def install_handler():
    """Report a mapped file that is cut short, or that its disk cannot read, as damaged instead of ending the process.

    The handler applies to the whole process from now on, to every mapped file.

    Raises:
        OSError: the system refuses.
    """
    if gkv_sigbus_install() < 0:
        raise OSError(errno, os.strerror(errno))
