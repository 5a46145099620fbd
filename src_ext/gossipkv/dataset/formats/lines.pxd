from libc.stdint cimport uint8_t, uint64_t

from gossipkv.storage._storage cimport RecordBatch

cdef enum:
    MAX_KEY_BYTES = 65535  # The same as in `gossipkv.dataset.formats.reading`.


cdef enum LineResult:
    TAKEN = 0  # The line is in the batch, or is blank.
    BATCH_FULL = 1
    WRONG_LINE = 2  # `reason` gives the reason.


cdef class Lines:
    cdef readonly str name
    cdef readonly Py_ssize_t max_value_bytes
    cdef Py_ssize_t max_line_bytes

    # The current chunk, and the beginning of a line that has not ended yet.
    cdef bytes chunk
    cdef Py_ssize_t at
    cdef list carried
    cdef Py_ssize_t carried_bytes

    # The next line's number from 1, and the offset of its first byte.
    cdef readonly uint64_t line
    cdef readonly uint64_t offset

    cdef int begin(self, Py_ssize_t size, RecordBatch batch) except -1
    cdef LineResult take(self, const uint8_t* line, Py_ssize_t size, RecordBatch batch) noexcept nogil
    cdef str reason(self, bytes line)

    cdef bint take_whole(self, bytes line, RecordBatch batch) except -1
    cdef int carry(self, Py_ssize_t start) except -1
    cdef int refuse(self, bytes line) except -1
