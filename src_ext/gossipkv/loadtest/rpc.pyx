"""MessagePack-RPC as the generator speaks it: reads, and writes of tables (`docs/users/wire.md`).

An expected answer is read straight through, and its values compared in place with the version that answered last. Every
other answer (an error, a part, another version) is first bounded by the scanner and, if complete, read carefully:

    not MessagePack within the limits, not [1, id, error, result]       garbage
    an id that is not in flight                                         unasked
    error is not nil                                                    an error, by the code that it begins with
    result is not [value, version] or [[values], version]               every key is wrong
    result of a write                                                   its token
    a wrong, missing or surplus value; a scan that left one out         each is wrong

`tests/oracle/load_answers.py` is the same in plain Python.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from msgpack import packb

from gossipkv.wire.rpc import request

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport (
    FRAME_COMPLETE, FRAME_PARTIAL, Blob, Cursor, put_array, put_bin, put_bin_head, put_bytes,
    put_map, put_request, put_unsigned, take_array, take_bin, take_blob, take_nil, take_response,
)


cdef inline bint take_right_value(Cursor* cursor, const Record* record, Reply* reply) noexcept nogil:
    """Take the right value of the record, or its right absence."""
    cdef Cursor ahead = cursor[0]
    cdef Blob value
    if may_be_absent(record) and take_nil(cursor):
        reply.misses += 1
    elif not take_bin(&ahead, &value) or not is_value(record, value.data, value.size):
        return False
    else:
        cursor[0] = ahead
    if is_unknown(record):
        reply.unchecked += 1
    return True


@cython.final
cdef class RpcDialect(Dialect):
    """Requests for one database; each connection first sends the token.

    With `writes` it is a table, and the session's token stands where a version does.
    """

    cdef Blob middles[FORMS]  # The bytes between the id and the key.
    cdef Blob options[FORMS]  # Stand behind the other parameters.
    cdef int option_counts[FORMS]

    def __cinit__(self, database, records, *, token=None, writes=None, level=None, ttl_ms=None, int timeout_ms=1000):
        cdef bytes name = database.encode()
        cdef int form
        if len(name) > 0xFF:
            raise ValueError(f"the name of a database must have at most 255 bytes, got {len(name)}")
        self.writes = writes
        self.in_order = False
        self.keep(records)
        if token is not None:
            self.greeting = self.own(request(0, "auth", [token]))
        waits = {} if writes is None or not writes.sessions else {"wait_ms": WAIT_MS}
        reaches = {**waits, "timeout_ms": timeout_ms, **({} if level is None else {"level": level})}
        for form, method in enumerate((b"get", b"get_many", b"scan", b"put", b"delete", b"put_many")):
            options = reaches if form >= PUT else waits
            if ttl_ms is not None and (form == PUT or form == PUT_MANY):
                options = {**options, "ttl_ms": ttl_ms}
            self.option_counts[form] = len(options) + 2 * (form == SCAN)
            self.options[form] = self.own(packb(options)[1:])
            params = 3 if form == PUT else 1 if form == SCAN else 2
            head = bytes([0xA0 + len(method)]) + method + bytes([0x90 + params + (self.option_counts[form] > 0)])
            self.middles[form] = self.own(head + bytes([0xD9, len(name)]) + name)

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        cdef const Record* record
        cdef uint32_t i
        put_request(out, slot.id)
        put_blob(out, &self.middles[slot.form])
        if slot.form == GET_MANY or slot.form == PUT_MANY:
            put_array(out, slot.count)
        for i in range(0 if slot.form == SCAN else slot.count):
            record = self.records + asked[i].key
            if slot.form == PUT_MANY:
                put_array(out, 2)
            put_bin(out, record.key, record.key_size)
            if slot.form == PUT or slot.form == PUT_MANY:
                put_bin_head(out, self.writes.size_of(asked + i))
                self.writes.put_value(out, asked + i)
        if self.option_counts[slot.form] > 0:
            self.write_options(out, slot, self.records + asked[0].key)

    cdef void write_options(self, Buffer* out, const Slot* slot, const Record* first) noexcept nogil:
        cdef Blob token = token_of(slot)
        put_map(out, self.option_counts[slot.form] + (token.size > 0))
        put_blob(out, &self.options[slot.form])
        if token.size > 0:
            put_bytes(out, <const uint8_t*>b"\xa5token", 6)
            put_bin(out, token.data, token.size)
        if slot.form == SCAN:
            put_bytes(out, <const uint8_t*>b"\xa5start", 6)
            put_bin(out, first.key, first.key_size)
            put_bytes(out, <const uint8_t*>b"\xa5limit", 6)
            put_unsigned(out, slot.count)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor cursor = Cursor(data, data + size)
        if self.writes is not None or not self.take_right(window, &cursor, reply):
            return self.take_unusual(window, data, size, reply)
        reply.size = cursor.at - data
        return COMPLETE

    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        """Take the answer to the token; a refusal is GARBAGE."""
        cdef Cursor cursor
        cdef uint32_t id
        cdef int result = scan_message(data, size, &reply.size)
        if result != FRAME_COMPLETE:
            return PARTIAL if result == FRAME_PARTIAL else GARBAGE
        cursor = Cursor(data, data + reply.size)
        return COMPLETE if take_response(&cursor, &id) and take_nil(&cursor) else GARBAGE

    cdef bint take_right(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """Take a complete and right answer to a read, in the form in which a node writes it."""
        cdef const Asked* asked
        cdef const Slot* slot
        cdef Blob version
        cdef uint32_t id
        cdef uint32_t at
        cdef uint32_t i
        if not take_response(cursor, &id):
            return False
        at = window_find(window, id)
        if at == NO_SLOT or not take_nil(cursor) or take_array(cursor) != 2:
            return False
        slot = window.slots + at
        if slot.form == SCAN or (slot.form != GET and take_array(cursor) != slot.count):
            return False
        reply_begin(reply, at)  # Cheaper than `expect`: nothing is written here.
        reply.keys = slot.count
        asked = window_asked(window, at)
        for i in range(slot.count):
            if not take_right_value(cursor, self.records + asked[i].key, reply):
                return False
        if not take_blob(cursor, &version) or self.truth.table_of(version.data, version.size) != self.records:
            return False
        reply.version = version.data
        reply.version_size = version.size
        return True

    cdef int take_unusual(
        self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply
    ) noexcept nogil:
        """Take any other answer, including a partial one."""
        cdef Cursor cursor
        cdef const Slot* slot
        cdef const Asked* asked
        cdef uint32_t id
        cdef uint32_t at
        cdef int result = scan_message(data, size, &size)
        if result != FRAME_COMPLETE:
            return PARTIAL if result == FRAME_PARTIAL else GARBAGE
        cursor = Cursor(data, data + size)
        if not take_response(&cursor, &id):
            return GARBAGE
        at = window_find(window, id)
        if at == NO_SLOT:
            return UNASKED
        asked = self.expect(window, at, reply)
        reply.size = size
        slot = window.slots + at
        if not take_nil(&cursor):
            self.read_error(&cursor, reply)
        elif slot.form >= PUT:
            self.read_version(cursor, 0, reply)
        elif slot.form == SCAN:
            self.compare_scan(&cursor, asked[0].key, slot.count, reply)
        else:
            self.compare(&cursor, slot.form == GET, asked, reply)
        return COMPLETE

    cdef void read_error(self, Cursor* cursor, Reply* reply) noexcept nogil:
        """Read the code, which is the first element, if it is text."""
        cdef Blob code
        reply.is_error = True
        if take_array(cursor) > 0 and take_blob(cursor, &code):
            reply_error(reply, code.data, code.size)

    cdef const Record* read_version(self, Cursor cursor, int behind, Reply* reply) noexcept nogil:
        """Return the table of the version `behind` values after the cursor; other types name no version."""
        cdef Blob version = Blob(NULL, 0)
        for _ in range(behind):
            skip(&cursor)
        take_blob(&cursor, &version)
        return self.answered_from(&version, reply)

    cdef void compare(self, Cursor* cursor, bint is_one, const Asked* asked, Reply* reply) noexcept nogil:
        """Compare `[value or [value, ...], version]`."""
        cdef const Record* table = NULL
        cdef Py_ssize_t count = 0
        if take_array(cursor) == 2:
            table = self.read_version(cursor[0], 1, reply)
            count = 1 if is_one else take_array(cursor)
        self.judge_values(cursor, count, table, asked, reply)

    cdef void compare_scan(self, Cursor* cursor, uint32_t start, uint32_t limit, Reply* reply) noexcept nogil:
        """Compare `[[[key, value], ...], cursor or nil, version]` with the records from the start on."""
        cdef const Record* table = NULL
        cdef Py_ssize_t count = -1
        cdef ScanCheck scan
        reply.keys = 0
        if take_array(cursor) == 3:
            table = self.read_version(cursor[0], 2, reply)
            count = take_array(cursor)
        if count < 0:
            reply_wrong(reply, start, NULL, 0)
            return
        reply.keys = <uint32_t>count
        self.scan_begin(&scan, table, start)
        for _ in range(count):
            self.compare_record(cursor, &scan, reply)
        reply_too_many(reply, count, limit)
        self.scan_end(&scan, not take_nil(cursor), reply)

    cdef void compare_record(self, Cursor* cursor, ScanCheck* scan, Reply* reply) noexcept nogil:
        """Compare a `[key, value]`."""
        cdef Cursor whole = cursor[0]
        cdef Blob key
        cdef Blob value
        if take_array(cursor) == 2 and take_bin(cursor, &key) and take_bin(cursor, &value):
            self.scan_record(scan, &key, &value, reply)
        else:
            cursor[0] = whole
            skip(cursor)
            reply_wrong(reply, ABSENT, NULL, 0)
