"""The protocols of peers, for the same loop that asks a node: so the servers are compared, and not the clients.

    ConstantDialect   requests and answers of a fixed size without meaning: the kernel's share
    CallDialect       a method of a node without parameters, whose result is known
    TokenDialect      gets of a table, each with the same token
    PutDialect        puts to a table, of the records of `data.numbered` from a number on
    SetDialect        the same by Redis' protocol
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gossipkv.loadtest._loadtest cimport (
    ABSENT,
    COMPLETE,
    GARBAGE,
    NO_SLOT,
    PARTIAL,
    UNASKED,
    Asked,
    Dialect,
    Reply,
    Slot,
    Window,
    blob_of,
    reply_begin,
    reply_error,
    reply_value,
    reply_wrong,
    scan_message,
    window_asked,
    window_find,
    window_oldest,
)
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport (
    FRAME_COMPLETE,
    FRAME_PARTIAL,
    HEAD_BYTES,
    Blob,
    Cursor,
    put_bin,
    put_bytes,
    put_request,
    take_array,
    take_bin,
    take_blob,
    take_nil,
    take_response,
)

from tests.bench import data

cdef enum:
    KEY_BYTES = 16  # The sizes of `data`.
    VALUE_BYTES = 100

cdef uint64_t FACTOR = data.FACTOR


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

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        return self.request_size

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
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

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        return 3 * HEAD_BYTES + self.tail_size

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        put_request(out, slot.id)
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


cdef int take_answer(
    const Window* window, const uint8_t* data, Py_ssize_t size, Cursor* result, Reply* reply
) noexcept nogil:
    """Take a whole answer; its result is at the cursor if it is no error."""
    cdef Blob code
    cdef uint32_t id
    cdef int scanned = scan_message(data, size, &reply.size)
    cdef Py_ssize_t whole = reply.size
    if scanned != FRAME_COMPLETE:
        return PARTIAL if scanned == FRAME_PARTIAL else GARBAGE
    result[0] = Cursor(data, data + whole)
    if not take_response(result, &id):
        return GARBAGE
    reply_begin(reply, window_find(window, id))
    if reply.slot == NO_SLOT:
        return UNASKED
    if not take_nil(result):
        if take_array(result) != 3 or not take_blob(result, &code):
            return GARBAGE
        reply_error(reply, code.data, code.size)
    return COMPLETE


@cython.final
cdef class TokenDialect(Dialect):
    """`[0, id, "get", [table, key, {"token": ...}]]`, whose value is compared."""

    cdef Blob middle
    cdef Blob tail

    def __cinit__(self, bytes table not None, records, bytes token not None):
        self.in_order = False
        self.pieces = [b"\xa3get\x93\xd9%c%b" % (len(table), table), b"\x81\xa5token\xc5" + len(token).to_bytes(2) + token]
        self.middle = blob_of(self.pieces[0])
        self.tail = blob_of(self.pieces[1])
        self.keep(records)

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        return 4 * HEAD_BYTES + self.middle.size + self.longest_key + self.tail.size

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        put_request(out, slot.id)
        put_bytes(out, self.middle.data, self.middle.size)
        put_bin(out, self.records[asked[0].key].key, self.records[asked[0].key].key_size)
        put_bytes(out, self.tail.data, self.tail.size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor result
        cdef Blob value
        cdef int taken = take_answer(window, data, size, &result, reply)
        if taken == COMPLETE and not reply.is_error:
            if take_array(&result) != 2 or not take_bin(&result, &value):
                return GARBAGE
            reply_value(reply, self.records, window_asked(window, reply.slot).key, value.data, value.size)
        return taken


cdef class NumberedDialect(Dialect):
    """Writes the records of `data.numbered`, each once."""

    cdef readonly uint64_t next  # The number of the next record.

    cdef void begin(self, uint64_t first):
        self.next = first
        self.keep([(b"", b"")])

    cdef void make(self, uint8_t* key, uint8_t* value) noexcept nogil:
        """Make the next record."""
        cdef uint64_t number = self.next * FACTOR
        cdef int i
        for i in range(KEY_BYTES):
            key[i] = b"0123456789abcdef"[number >> 60]
            number <<= 4
        for i in range(VALUE_BYTES):
            value[i] = key[i % KEY_BYTES]
        self.next += 1


@cython.final
cdef class PutDialect(NumberedDialect):
    """`[0, id, "put", [table, key, value]]`, answered with a token; a `patient` one waits for half a minute."""

    cdef Blob middle
    cdef Blob tail

    def __cinit__(self, bytes table not None, uint64_t first, bint patient=False):
        self.in_order = False
        self.pieces = [
            b"\xa3put%c\xd9%c%b" % (0x94 if patient else 0x93, len(table), table),
            b"\x81\xaatimeout_ms\xcd" + (30_000).to_bytes(2) if patient else b"",
        ]
        self.middle = blob_of(self.pieces[0])
        self.tail = blob_of(self.pieces[1])
        self.begin(first)

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        return 5 * HEAD_BYTES + self.middle.size + KEY_BYTES + VALUE_BYTES + self.tail.size

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        cdef uint8_t key[KEY_BYTES]
        cdef uint8_t value[VALUE_BYTES]
        self.make(key, value)
        put_request(out, slot.id)
        put_bytes(out, self.middle.data, self.middle.size)
        put_bin(out, key, KEY_BYTES)
        put_bin(out, value, VALUE_BYTES)
        put_bytes(out, self.tail.data, self.tail.size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor result
        cdef Blob token
        cdef int taken = take_answer(window, data, size, &result, reply)
        if taken == COMPLETE and not reply.is_error and not take_bin(&result, &token):
            reply_wrong(reply, ABSENT, NULL, 0)
        return taken


@cython.final
cdef class SetDialect(NumberedDialect):
    """SET in a `database`; with `waits` followed by WAITAOF, so that this server and a replica have synced."""

    cdef Blob head
    cdef Blob middle
    cdef Blob tail
    cdef Blob expected

    def __cinit__(self, uint64_t first, int database=0, bint waits=False):
        self.in_order = True
        self.pieces = [
            b"*2\r\n$6\r\nSELECT\r\n$1\r\n%d\r\n" % database,
            b"*3\r\n$3\r\nSET\r\n$%d\r\n" % KEY_BYTES,
            b"\r\n$%d\r\n" % VALUE_BYTES,
            b"\r\n" + (b"*4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n0\r\n" if waits else b""),
            b"+OK\r\n" + (b"*2\r\n:1\r\n:1\r\n" if waits else b""),
        ]
        self.greeting = blob_of(self.pieces[0])
        self.head = blob_of(self.pieces[1])
        self.middle = blob_of(self.pieces[2])
        self.tail = blob_of(self.pieces[3])
        self.expected = blob_of(self.pieces[4])
        self.begin(first)

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        return self.head.size + KEY_BYTES + self.middle.size + VALUE_BYTES + self.tail.size

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        cdef uint8_t key[KEY_BYTES]
        cdef uint8_t value[VALUE_BYTES]
        self.make(key, value)
        put_bytes(out, self.head.data, self.head.size)
        put_bytes(out, key, KEY_BYTES)
        put_bytes(out, self.middle.data, self.middle.size)
        put_bytes(out, value, VALUE_BYTES)
        put_bytes(out, self.tail.data, self.tail.size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Py_ssize_t i
        reply_begin(reply, window_oldest(window))
        if reply.slot == NO_SLOT:
            return UNASKED
        for i in range(min(size, self.expected.size)):
            # Both replicas may have synced.
            if data[i] != self.expected.data[i] and not (i == self.expected.size - 3 and data[i] == b"2"):
                return GARBAGE
        reply.size = self.expected.size
        return COMPLETE if size >= reply.size else PARTIAL

    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(min(size, 5)):
            if data[i] != <uint8_t>b"+OK\r\n"[i]:
                return GARBAGE
        reply.size = 5
        return COMPLETE if size >= 5 else PARTIAL
