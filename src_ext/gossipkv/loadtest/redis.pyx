r"""Redis' own protocol as the generator speaks it: GET and MGET, each value compared, SET, MSET and DEL.

    $<size>\r\n<value>\r\n, or $-1\r\n          the answer to GET
    *<count>\r\n, and as many of these          the answer to MGET
    +OK\r\n, and :<count>\r\n                    the answers to SET and MSET, and to DEL
    -<code> <message>\r\n                       an error
    anything else                               garbage

`tests/oracle/load_redis.py` is the same in plain Python.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport put, put_bytes

cdef enum:
    LONGEST_LINE = 512  # Redis' errors are one line.
    LONGEST_NUMBER = 0xFFFFFFF  # Redis takes at most 512 MB.
    ARRAY = 42  # *
    PLUS = 43
    MINUS = 45
    BULK = 36  # $
    INTEGER = 58  # :

cdef struct RespLine:
    Py_ssize_t number  # The number behind the first byte.
    const uint8_t* at  # The place behind the line.


cdef void put_line(Buffer* out, uint8_t kind, Py_ssize_t number) noexcept nogil:
    put(out, kind)
    put_decimal(out, number)
    put_bytes(out, <const uint8_t*>b"\r\n", 2)


cdef inline int take_line(const uint8_t* at, const uint8_t* end, uint8_t kind, RespLine* line) noexcept nogil:
    r"""Take a line `<kind><number>\r\n`."""
    cdef bint negative = False
    cdef const uint8_t* digits
    cdef Py_ssize_t number = 0
    if at == end:
        return PARTIAL
    if at[0] != kind:
        return GARBAGE
    at += 1
    if at < end and at[0] == MINUS:
        negative = True
        at += 1
    digits = at
    while at < end and 48 <= at[0] <= 57 and number <= LONGEST_NUMBER:
        number = 10 * number + at[0] - 48
        at += 1
    if at == end:
        return PARTIAL
    if at == digits or at[0] != CR:
        return GARBAGE
    if end - at < 2:
        return PARTIAL
    if at[1] != LF:
        return GARBAGE
    line.number = -number if negative else number
    line.at = at + 2
    return COMPLETE


@cython.final
cdef class RedisDialect(Dialect):
    """Requests for keys; each connection first sends the token, and selects a `database` other than 0."""

    cdef Py_ssize_t greetings
    cdef Blob names[FORMS]
    cdef Blob lifetime  # The last words of a SET; MSET has none.

    def __cinit__(self, records, *, int database=0, token=None, writes=None, ttl_ms=None):
        cdef list words = []
        cdef int form
        self.writes = writes
        self.in_order = True
        self.keep(records)
        if token is not None:
            words += [b"AUTH", token.encode()]
        if database != 0:
            words += [b"SELECT", b"%d" % database]
        self.greetings = len(words) // 2
        bulks = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self.greeting = self.own(b"".join(map(b"*2\r\n%b%b".__mod__, zip(bulks[::2], bulks[1::2], strict=True))))
        for form, name in enumerate((b"GET", b"MGET", b"", b"SET", b"DEL", b"MSET")):  # Nothing scans in key order.
            self.names[form] = self.own(b"$%d\r\n%b\r\n" % (len(name), name))
        self.lifetime = self.own(b"" if ttl_ms is None else b"$2\r\nPX\r\n$%d\r\n%d\r\n" % (len(str(ttl_ms)), ttl_ms))

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        cdef bint has_values = slot.form == PUT or slot.form == PUT_MANY
        cdef const Record* record
        cdef uint32_t i
        cdef bint expires = slot.form == PUT and self.lifetime.size > 0
        put_line(out, ARRAY, 1 + (1 + has_values) * <Py_ssize_t>slot.count + 2 * expires)
        put_blob(out, &self.names[slot.form])
        for i in range(slot.count):
            record = self.records + asked[i].key
            put_line(out, BULK, record.key_size)
            put_bytes(out, record.key, record.key_size)
            put_bytes(out, <const uint8_t*>b"\r\n", 2)
            if has_values:
                put_line(out, BULK, self.writes.size_of(asked + i))
                self.writes.put_value(out, asked + i)
                put_bytes(out, <const uint8_t*>b"\r\n", 2)
        if expires:
            put_blob(out, &self.lifetime)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef const uint8_t* end = data + size
        cdef const Asked* asked
        cdef const Slot* slot
        cdef RespLine line = RespLine(0, data)
        cdef uint32_t at = window_oldest(window)
        cdef uint32_t i
        cdef int result
        if at == NO_SLOT:
            return UNASKED
        asked = self.expect(window, at, reply)
        slot = window.slots + at
        if data[0] == MINUS:
            return self.take_error(data, size, reply)
        if slot.form == PUT or slot.form == PUT_MANY:
            reply.size = 5
            if memcmp(data, b"+OK\r\n", min(size, <Py_ssize_t>5)) != 0:
                return GARBAGE
            return COMPLETE if size >= 5 else PARTIAL
        if slot.form == DELETE:
            result = take_line(data, end, INTEGER, &line)
            reply.size = line.at - data
            return result
        if slot.form != GET:
            result = take_line(data, end, ARRAY, &line)
            if result != COMPLETE:
                return result
            if line.number != slot.count:
                return GARBAGE
        for i in range(slot.count):
            result = self.take_value(&line, end, asked[i].key, reply)
            if result != COMPLETE:
                return result
        reply.size = line.at - data
        return COMPLETE

    cdef int take_value(self, RespLine* line, const uint8_t* end, uint32_t key, Reply* reply) noexcept nogil:
        r"""Take `$<size>\r\n<value>\r\n`, or `$-1\r\n`, at `line.at`, and move it behind."""
        cdef int result = take_line(line.at, end, BULK, line)
        if result != COMPLETE:
            return result
        if line.number < 0:
            self.judge_value(self.records, key, NULL, 0, reply)
            return COMPLETE
        if end - line.at < line.number + 2:
            return PARTIAL
        if line.at[line.number] != CR or line.at[line.number + 1] != LF:
            return GARBAGE
        self.judge_value(self.records, key, line.at, line.number, reply)
        line.at += line.number + 2
        return COMPLETE

    cdef int take_error(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        r"""Take `-<code> <message>\r\n`."""
        cdef Py_ssize_t at = 1
        cdef Py_ssize_t code = 0
        while at < size and data[at] != LF:
            if code == 0 and (data[at] == SPACE or data[at] == CR):
                code = at - 1
            at += 1
        if at == size:
            return PARTIAL if size < LONGEST_LINE else GARBAGE
        reply_error(reply, data + 1, code)
        reply.size = at + 1
        return COMPLETE

    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        r"""Take `+OK\r\n` for each command; any other answer refuses the database or the token."""
        cdef Py_ssize_t at
        for at in range(min(size, 5 * self.greetings)):
            if data[at] != <uint8_t>b"+OK\r\n"[at % 5]:
                return GARBAGE
        reply.size = 5 * self.greetings
        return COMPLETE if size >= reply.size else PARTIAL
