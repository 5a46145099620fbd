from libc.stdint cimport int64_t, uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob


# Arrow's C data interface: https://arrow.apache.org/docs/format/CDataInterface.html
cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data


cdef class Column:
    cdef Buffer data  # the values, one behind the other
    cdef Buffer ends  # 0, and the end of each value in `data`: 64-bit integers
    cdef Buffer validity  # a bit for each value: 0 for None
    cdef readonly bint is_text
    cdef readonly Py_ssize_t null_count
    cdef Py_ssize_t length

    cdef int expect(self, Py_ssize_t count, Py_ssize_t size) except -1
    cdef int add(self, const Blob* value) except -1
    cdef int add_nothing(self) except -1
    cdef void adopt(self, Buffer* received, const uint8_t* values) noexcept


cdef class Records:
    cdef readonly Column keys
    cdef readonly Column values
    cdef Py_ssize_t length
