from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint64_t


cdef class Memory:
    cdef Py_buffer view
    cdef bint held


cdef class Column:
    cdef readonly Py_ssize_t count
    cdef list owners

    # The values: one behind the other, either of one size, or from one offset to the next.
    cdef const uint8_t* data
    cdef uint64_t data_size
    cdef uint64_t width             # 0: there are offsets.
    cdef const uint8_t* offsets
    cdef uint64_t offset_size
    cdef uint64_t value_count

    # Which value a row has, where values are shared.
    cdef const uint8_t* indices
    cdef uint64_t index_size

    cdef const uint8_t* own(self, object buffer, uint64_t* size) except? NULL
    cdef bint get(self, Py_ssize_t row, const uint8_t** value, uint64_t* size) noexcept nogil
