"""Files whose maps cannot be read any more, and the signal that says so; `sigbus.h` is the whole of it.

The list of maps and the handler are this module's, one of each in a process.
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
    """Note a mapped file before its first byte is read; NULL: no memory."""
    return gkv_map_add(start, size)


cdef void map_remove(Map* map) noexcept:
    """Forget it before it is unmapped."""
    gkv_map_remove(map)


cdef bint map_is_lost(const Map* map) noexcept nogil:
    """Whether a byte of it was missed."""
    return gkv_map_is_lost(map)


cdef uint64_t map_lose(Map* map, uint64_t offset) noexcept nogil:
    """Let nothing be read in this map again; the offset of the first byte that was missed, `offset` if none was."""
    gkv_map_lose(map, offset)
    return gkv_map_lost_at(map)


def install_handler():
    """Let a mapped file that is cut short, or that its disk does not give, be damaged, and not end this process.

    For the process, from now on, whoever opened the file.

    Raises:
        OSError: the system refuses.
    """
    if gkv_sigbus_install() < 0:
        raise OSError(errno, os.strerror(errno))
