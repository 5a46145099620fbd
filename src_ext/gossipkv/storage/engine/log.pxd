# Frames of the log and their batches; `log.pyx` draws the bytes.

from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    BATCH_FRAME = 1
    MARK_FRAME = 2
    NEXT_FRAME = 3
    BEGIN_FRAME = 4
    FRAME_HEADER_BYTES = 32
    SEGMENT_HEADER_BYTES = 4096
    MAX_BATCH_BYTES = 268435456    # More than most segments have; a batch's maker holds all of it in memory.


cdef class Batch:
    cdef uint8_t* data              # Operations end to end: the payload of a frame.
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t puts   # Records with a value.
    cdef uint32_t space             # Space of the first record, and of all unless `is_mixed`.
    cdef bint is_mixed
    cdef bint is_relief             # Set by the maker.
    cdef public bint may_fill       # True: if room is scarce, it may use the open segment only.
    cdef public bint is_open        # Set by the writer: the batch may be extended.

    cdef int add(
        self, uint8_t kind, uint32_t space,
        const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size,
    ) except -1
    cdef int reserve(self, Py_ssize_t more) except -1
    cdef tuple spaces_of(self, uint8_t least, uint8_t most)


cdef class FrameBuffer:
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef Py_ssize_t views           # Number of views of `data`, which must not move meanwhile.
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


cdef class FrameParser:
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef uint64_t base              # Offset of the buffer in the file.
    cdef uint64_t limit             # Size of the file.
    cdef uint32_t seed
    cdef readonly uint64_t offset
    cdef readonly uint64_t position
    cdef readonly uint64_t first
    cdef readonly uint64_t synced
    cdef readonly uint64_t wanted
    cdef readonly bint is_torn
    cdef readonly bint has_ended    # True once `touching` has read a `next` frame.

    cdef const uint8_t* look(self) noexcept nogil
    cdef void step(self, const uint8_t* header) noexcept nogil
    cdef bint is_whole(self, uint64_t at) noexcept nogil
    cdef uint64_t highest_claim(self, uint64_t at, uint64_t least) except? 0xFFFFFFFFFFFFFFFF
