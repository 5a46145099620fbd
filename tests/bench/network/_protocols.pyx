"""The protocols of peers, for the same loop that asks a node: so the servers are compared, and not the clients.

    ConstantDialect   requests and answers of a fixed size without meaning: the kernel's share
    CallDialect       a method of a node without parameters, whose result is known
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from gossipkv.loadtest._dialect cimport (
    COMPLETE,
    GARBAGE,
    NO_SLOT,
    PARTIAL,
    UNASKED,
    Dialect,
    Reply,
    Window,
    reply_begin,
    window_find,
    window_oldest,
)
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport HEAD_BYTES, Cursor, put_bytes, put_request, take_response


@cython.final
cdef class ConstantDialect(Dialect):
    """Requests of one fixed size, and answers of another."""

    cdef Py_ssize_t request_size
    cdef Py_ssize_t reply_size

    def __cinit__(self, Py_ssize_t request_size, Py_ssize_t reply_size):
        self.in_order = True
        self.request_size = request_size
        self.reply_size = reply_size
        self.keep([(b"", b"")])

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return self.request_size

    cdef void write(self, Buffer* out, uint32_t id, uint8_t kind, const uint32_t* keys, uint32_t count) noexcept nogil:
        out.end += self.request_size

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        if window.in_flight == 0:
            return UNASKED
        reply_begin(reply, window_oldest(window))
        reply.size = self.reply_size
        return COMPLETE if size >= self.reply_size else PARTIAL


@cython.final
cdef class CallDialect(Dialect):
    """`[0, id, method, []]` and `[1, id, nil, <the result>]`, whose encoding is compared."""

    cdef bytes tail  # This owns `tail_at`.
    cdef bytes expected  # This owns `expected_at`.
    cdef const uint8_t* tail_at
    cdef Py_ssize_t tail_size
    cdef const uint8_t* expected_at
    cdef Py_ssize_t expected_size

    def __cinit__(self, method, bytes result not None):
        self.in_order = False
        self.tail = bytes([0xD9, len(method)]) + method + b"\x90"
        self.expected = b"\xc0" + result
        self.tail_at = <const uint8_t*>PyBytes_AS_STRING(self.tail)
        self.tail_size = PyBytes_GET_SIZE(self.tail)
        self.expected_at = <const uint8_t*>PyBytes_AS_STRING(self.expected)
        self.expected_size = PyBytes_GET_SIZE(self.expected)
        self.keep([(b"", b"")])

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return 3 * HEAD_BYTES + self.tail_size

    cdef void write(self, Buffer* out, uint32_t id, uint8_t kind, const uint32_t* keys, uint32_t count) noexcept nogil:
        put_request(out, id)
        put_bytes(out, self.tail_at, self.tail_size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor cursor = Cursor(data, data + size)
        cdef uint32_t id
        if not take_response(&cursor, &id):
            return PARTIAL if size < 3 * HEAD_BYTES else GARBAGE
        if cursor.end - cursor.at < self.expected_size:
            return PARTIAL
        reply_begin(reply, window_find(window, id))
        if reply.slot == NO_SLOT:
            return UNASKED
        if memcmp(cursor.at, self.expected_at, self.expected_size) != 0:
            return GARBAGE
        reply.size = cursor.at + self.expected_size - data
        return COMPLETE
