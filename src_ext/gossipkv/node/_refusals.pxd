"""The errors that the core answers by itself, in its words; -1 without memory."""

from libc.stdint cimport uint32_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport write_bad_request, write_error


cdef inline int refuse_message(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(out, msgid, b"a request is [0, id, method, [parameters]]")


cdef inline int refuse_id(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(out, msgid, b"a request with this id is still in flight")


cdef inline int refuse_bounds(Buffer* out, uint32_t msgid) noexcept nogil:
    return write_bad_request(
        out, msgid, b"the request is too deep, too long or no MessagePack; the connection is closed"
    )


cdef inline int refuse_size(Buffer* out, uint32_t msgid, Py_ssize_t limit) noexcept nogil:
    return write_error(
        out, msgid, b"TOO_LARGE", b"the request is larger than the node accepts; the connection is closed", limit, -1
    )


cdef inline int refuse_elements(Buffer* out, uint32_t msgid, Py_ssize_t limit, Py_ssize_t size) noexcept nogil:
    return write_error(
        out, msgid, b"BAD_REQUEST", b"the request has more elements than its method takes", limit, size
    )


cdef inline int refuse_load(Buffer* out, uint32_t msgid, Py_ssize_t limit) noexcept nogil:
    return write_error(
        out, msgid, b"OVERLOADED", b"too much waits for an answer here; try again later", limit, -1
    )


cdef inline int refuse_answer(Buffer* out, uint32_t msgid, Py_ssize_t limit, Py_ssize_t size) noexcept nogil:
    """Instead of an answer that no client would read."""
    return write_error(
        out, msgid, b"TOO_LARGE", b"the answer is larger than a frame may be; ask for less", limit, size
    )
