from libc.stdint cimport uint8_t

from gossipkv.dataset.formats._json_text cimport Cursor, Span
from gossipkv.dataset.formats._lines cimport Lines

cdef struct Field:
    const uint8_t* name
    Py_ssize_t name_size
    bint found
    Span text               # What the line says of it.
    uint8_t kind            # Its first byte.


cdef class JsonLines(Lines):
    cdef bytes key_name
    cdef bytes value_name
    cdef Field key
    cdef Field value

    # Room for what is not in the source as it is served: with each chunk there is as much as it could need.
    cdef uint8_t* spare

    # What is wrong, and where in the line.
    cdef int wrong
    cdef Py_ssize_t wrong_at

    cdef bint take_member(self, Cursor* cursor) noexcept nogil
    cdef bint find_fields(self, Cursor* cursor) noexcept nogil
    cdef bint serve(self, Field* field, bint is_key, Span* served) noexcept nogil
