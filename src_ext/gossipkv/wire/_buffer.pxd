"""A growable byte buffer with a start: the received or outgoing bytes of a connection.

`data[start:end]` is the content. Memory is allocated only when content is added, and `buffer_release` returns all of
it, so an idle connection holds none. A failed allocation changes nothing and returns -1.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    MIN_CAPACITY = 1024  # A handful of small replies; the capacity doubles from there.
    LARGE_CAPACITY = 262144  # Above this, unused memory is returned.

cdef struct Buffer:
    uint8_t* data
    Py_ssize_t start
    Py_ssize_t end
    Py_ssize_t capacity


cdef inline void buffer_init(Buffer* buffer) noexcept nogil:
    buffer.data = NULL
    buffer.start = 0
    buffer.end = 0
    buffer.capacity = 0


cdef inline Py_ssize_t buffer_size(const Buffer* buffer) noexcept nogil:
    return buffer.end - buffer.start


cdef inline void buffer_release(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    buffer_init(buffer)


cdef inline int buffer_grow(Buffer* buffer, Py_ssize_t extra) noexcept nogil:
    """Move the content to the front, or allocate: the slow half of `buffer_reserve`."""
    cdef Py_ssize_t size = buffer_size(buffer)
    cdef Py_ssize_t capacity = buffer.capacity if buffer.capacity > 0 else MIN_CAPACITY
    cdef uint8_t* data
    if buffer.start > 0:
        memmove(buffer.data, buffer.data + buffer.start, size)
        buffer.start = 0
        buffer.end = size
    while capacity - size < extra:
        capacity *= 2
    if capacity > buffer.capacity:
        data = <uint8_t*>realloc(buffer.data, capacity)
        if data == NULL:
            return -1
        buffer.data = data
        buffer.capacity = capacity
    return 0


cdef inline int buffer_reserve(Buffer* buffer, Py_ssize_t extra) noexcept nogil:
    """Ensure room for `extra` bytes after `end`."""
    if extra <= buffer.capacity - buffer.end:
        return 0
    return buffer_grow(buffer, extra)


cdef inline int buffer_append(Buffer* buffer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    if buffer_reserve(buffer, size) < 0:
        return -1
    if size > 0:
        memcpy(buffer.data + buffer.end, data, size)
        buffer.end += size
    return 0


cdef inline void buffer_shrink(Buffer* buffer) noexcept nogil:
    """Return memory left over from large content, so that capacity stays proportional to content."""
    cdef Py_ssize_t size = buffer_size(buffer)
    cdef uint8_t* data
    memmove(buffer.data, buffer.data + buffer.start, size)
    buffer.start = 0
    buffer.end = size
    data = <uint8_t*>realloc(buffer.data, 2 * size + MIN_CAPACITY)
    if data != NULL:
        buffer.data = data
        buffer.capacity = 2 * size + MIN_CAPACITY


cdef inline void buffer_drop(Buffer* buffer, Py_ssize_t size) noexcept nogil:
    """Drop the first `size` bytes; an empty buffer returns all of its memory, a mostly empty one most of it."""
    buffer.start += size
    if buffer.start >= buffer.end:
        buffer_release(buffer)
    elif buffer.capacity > LARGE_CAPACITY and buffer_size(buffer) < buffer.capacity // 8:
        buffer_shrink(buffer)
