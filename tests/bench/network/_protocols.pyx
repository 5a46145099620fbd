"""What peers speak, for the very loop that asks a node: so the servers are compared, and not the clients.

    RedisDialect     GET and MGET in redis' own protocol, every value compared
    ConstantDialect  requests and answers of a fixed size that mean nothing: the kernel's share
    CallDialect      a method of a node without parameters, whose result is known
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from gossipkv.loadtest._dialect cimport (
    ABSENT,
    COMPLETE,
    GARBAGE,
    NO_SLOT,
    PARTIAL,
    UNASKED,
    Dialect,
    Record,
    Reply,
    Window,
    is_value,
    reply_begin,
    reply_wrong,
    window_find,
    window_oldest,
)
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport HEAD_BYTES, Cursor, put, put_bytes, put_request, take_response

cdef enum:
    NUMBER_BYTES = 24  # `$`, `*`, the digits and the end of the line.
    LONGEST_LINE = 512  # Redis' errors are one line.


cdef struct Line:
    Py_ssize_t number  # behind the first byte
    const uint8_t* at  # behind the line


cdef void put_line(Buffer* out, uint8_t kind, Py_ssize_t number) noexcept nogil:
    cdef uint8_t digits[NUMBER_BYTES]
    cdef int count = 0
    put(out, kind)
    while number > 0 or count == 0:
        digits[count] = <uint8_t>(48 + number % 10)
        number //= 10
        count += 1
    while count > 0:
        count -= 1
        put(out, digits[count])
    put_bytes(out, b"\r\n", 2)


cdef inline void put_bulk(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    put_line(out, 36, size)
    put_bytes(out, data, size)
    put_bytes(out, b"\r\n", 2)


cdef inline int take_line(const uint8_t* at, const uint8_t* end, uint8_t kind, Line* line) noexcept nogil:
    """`<kind><number>\\r\\n`."""
    cdef bint negative = False
    cdef Py_ssize_t number = 0
    if at == end:
        return PARTIAL
    if at[0] != kind:
        return GARBAGE
    at += 1
    if at < end and at[0] == 45:
        negative = True
        at += 1
    while at < end and 48 <= at[0] <= 57 and number <= 0xFFFFFFF:
        number = 10 * number + at[0] - 48
        at += 1
    if end - at < 2:
        return PARTIAL if at == end or at[0] == 13 else GARBAGE
    if at[0] != 13 or at[1] != 10:
        return GARBAGE
    line.number = -number if negative else number
    line.at = at + 2
    return COMPLETE


@cython.final
cdef class RedisDialect(Dialect):
    """GET for one key, MGET for several."""

    def __cinit__(self, records):
        self.in_order = True
        self.keep(records)

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return 2 * NUMBER_BYTES + <Py_ssize_t>batch * (NUMBER_BYTES + self.longest_key + 2)

    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
        cdef uint32_t i
        put_line(out, 42, <Py_ssize_t>batch + 1)
        if batch == 1:
            put_bulk(out, b"GET", 3)
        else:
            put_bulk(out, b"MGET", 4)
        for i in range(batch):
            put_bulk(out, self.records[keys[i]].key, self.records[keys[i]].key_size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef const uint8_t* end = data + size
        cdef const uint32_t* keys
        cdef Line line = Line(0, data)
        cdef uint32_t slot = window_oldest(window)
        cdef uint32_t i
        cdef int result
        if slot == NO_SLOT:
            return UNASKED
        reply_begin(reply, slot)
        if data[0] == 45:
            return self.take_error(data, size, reply)
        keys = window.keys + <Py_ssize_t>slot * window.batch
        if window.batch > 1:
            result = take_line(data, end, 42, &line)
            if result != COMPLETE:
                return result
            if line.number != window.batch:
                return GARBAGE
        for i in range(window.batch):
            result = self.take_value(&line, end, keys[i], reply)
            if result != COMPLETE:
                return result
        reply.size = line.at - data
        return COMPLETE

    cdef int take_value(self, Line* line, const uint8_t* end, uint32_t key, Reply* reply) noexcept nogil:
        """`$<size>\\r\\n<value>\\r\\n`, or `$-1\\r\\n`; `line.at` is where it begins, and then where it ends."""
        cdef const Record* record = self.records + key
        cdef int result = take_line(line.at, end, 36, line)
        if result != COMPLETE:
            return result
        if line.number < 0:
            if record.value_size != ABSENT:
                reply_wrong(reply, key, NULL, 0)
            return COMPLETE
        if end - line.at < line.number + 2:
            return PARTIAL
        if record.value_size == ABSENT or not is_value(record, line.at, line.number):
            reply_wrong(reply, key, line.at, line.number)
        line.at += line.number + 2
        return COMPLETE

    cdef int take_error(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        """`-<code> <message>\\r\\n`."""
        cdef Py_ssize_t at = 1
        cdef Py_ssize_t code = 0
        while at < size and data[at] != 10:
            if data[at] == 32 and code == 0:
                code = at - 1
            at += 1
        if at == size:
            return PARTIAL if size < LONGEST_LINE else GARBAGE
        reply.is_error = True
        reply.code = data + 1
        reply.code_size = code
        reply.size = at + 1
        return COMPLETE


@cython.final
cdef class ConstantDialect(Dialect):
    """So many bytes there, so many bytes back."""

    cdef Py_ssize_t request_size
    cdef Py_ssize_t reply_size

    def __cinit__(self, Py_ssize_t request_size, Py_ssize_t reply_size):
        self.in_order = True
        self.request_size = request_size
        self.reply_size = reply_size
        self.keep([(b"", b"")])

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return self.request_size

    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
        out.end += self.request_size

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        if window.in_flight == 0:
            return UNASKED
        reply_begin(reply, window_oldest(window))
        reply.size = self.reply_size
        return COMPLETE if size >= self.reply_size else PARTIAL


@cython.final
cdef class CallDialect(Dialect):
    """`[0, id, method, []]` and `[1, id, nil, <the result>]`, which is compared as it is encoded."""

    cdef bytes tail  # the owner of `tail_at`
    cdef bytes expected  # and of `expected_at`
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

    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
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
