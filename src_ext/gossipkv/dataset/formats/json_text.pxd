from libc.stdint cimport uint8_t


cdef enum:
    MAX_DEPTH = 1024


cdef enum Fault:
    SOUND = 0
    ENDS
    SYNTAX
    NOT_FINITE
    CONTROL
    ESCAPE
    NOT_UTF8
    LONE_SURROGATE
    TOO_DEEP


cdef struct Cursor:
    const uint8_t* at  # It stands at the fault, if there was one.
    const uint8_t* end
    Fault fault


cdef struct Span:
    const uint8_t* at  # A string begins without its quote.
    Py_ssize_t size
    bint changed  # A string has escapes, or another value has space between its parts.


cdef void skip_space(Cursor* cursor) noexcept nogil
cdef bint take_byte(Cursor* cursor, uint8_t expected) noexcept nogil
cdef bint take_string(Cursor* cursor, Span* span) noexcept nogil
cdef bint take_value(Cursor* cursor, Span* span) noexcept nogil
cdef Py_ssize_t unescape(const Span* span, uint8_t* target) noexcept nogil
cdef Py_ssize_t compact(const Span* span, uint8_t* target) noexcept nogil
cdef Py_ssize_t decode_base64(const uint8_t* text, Py_ssize_t size, uint8_t* target) noexcept nogil
