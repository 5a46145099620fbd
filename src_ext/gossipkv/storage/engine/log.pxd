# Frames of the log and the batches in them; `log.pyx` draws the bytes.

from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    BATCH_FRAME = 1
    MARK_FRAME = 2
    NEXT_FRAME = 3
    BEGIN_FRAME = 4
    FRAME_HEADER_BYTES = 32
    SEGMENT_HEADER_BYTES = 4096
    MOST_BATCH_BYTES = 268435456    # More than most segments have; whoever writes a batch holds all of it in memory.


cdef class Batch:
    cdef uint8_t* data              # Operations end to end: the payload of a frame.
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t puts   # Of the records, those with a value.
    cdef uint32_t space             # Of the first record, and of all of them unless `is_mixed`.
    cdef bint is_mixed
    cdef bint is_relief             # Its maker says so.
    cdef public bint may_fill       # Where room is scarce: the segment that is open, and no other.

    cdef int add(
        self, uint8_t kind, uint32_t space,
        const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size,
    ) except -1
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef tuple spaces_of(self, uint8_t least, uint8_t most)


cdef class Frames:
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef Py_ssize_t views           # How many look at `data`, which must stay where it is.
    cdef uint32_t seed

    cdef int append_bytes(
        self, uint8_t kind, uint64_t position, uint64_t synced, const uint8_t* payload, Py_ssize_t size
    ) except -1


cdef class Frame:
    cdef readonly uint64_t offset
    cdef readonly uint64_t end
    cdef readonly uint64_t position
    cdef readonly uint64_t synced
    cdef readonly int kind
    cdef readonly bytes payload


cdef class FrameReader:
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef uint64_t base              # Where in the file the buffer begins.
    cdef uint64_t limit             # How long the file is.
    cdef uint32_t seed
    cdef readonly uint64_t offset
    cdef readonly uint64_t position
    cdef readonly uint64_t first
    cdef readonly uint64_t synced
    cdef readonly uint64_t wanted
    cdef readonly bint is_torn
    cdef readonly bint has_ended    # `touching` came to a `next`.

    cdef const uint8_t* look(self) noexcept nogil
    cdef void step(self, const uint8_t* header) noexcept nogil
    cdef bint is_whole(self, uint64_t at) noexcept nogil
    cdef uint64_t highest_claim(self, uint64_t at, uint64_t least) except? 0xFFFFFFFFFFFFFFFF
