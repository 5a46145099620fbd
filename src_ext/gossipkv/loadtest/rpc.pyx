"""MessagePack-RPC as the generator speaks it: `get`, `get_many` and `scan` (`docs/users/wire.md`).

An expected answer is read straight through, and its values compared in place with the version that answered last. Every
other answer (an error, a part, another version) is first bounded by the scanner and, if complete, read carefully:

    not MessagePack within the limits, not [1, id, error, result]       garbage
    an id that is not in flight                                         unasked
    error is not nil                                                    an error, by the code that it begins with
    result is not [value, version] or [[values], version]               every key is wrong
    a wrong, missing or surplus value; a scan that left one out         each is wrong

`tests/oracle/load_answers.py` is the same in plain Python.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from gossipkv.wire.rpc import request

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport (
    FRAME_COMPLETE, FRAME_PARTIAL, HEAD_BYTES, Blob, Cursor, put_array, put_bin, put_bytes, put_request, put_unsigned,
    take_array, take_bin, take_blob, take_nil, take_response,
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


cdef void skip(Cursor* cursor) noexcept nogil:
    """Skip the value at the cursor, which the scanner has checked."""
    cdef Py_ssize_t size
    scan_message(cursor.at, cursor.end - cursor.at, &size)
    cursor.at += size


@cython.final
cdef class RpcDialect(Dialect):
    """`get`, `get_many` and `scan` of one database; each connection first sends the token."""

    cdef Blob get_middle  # The bytes between the id and the key.
    cdef Blob get_many_middle
    cdef Blob scan_middle

    def __cinit__(self, database, records, *, token=None):
        cdef bytes name = database.encode()
        if len(name) > 0xFF:
            raise ValueError(f"a database's name has at most 255 bytes, got {len(name)}")
        cdef bytes head = bytes([0xD9, len(name)]) + name
        self.pieces = [b"\xa3get\x92" + head, b"\xa8get_many\x92" + head, b"\xa4scan\x92" + head + b"\x82\xa5start"]
        self.get_middle = blob_of(self.pieces[0])
        self.get_many_middle = blob_of(self.pieces[1])
        self.scan_middle = blob_of(self.pieces[2])
        self.in_order = False
        if token is not None:
            self.pieces.append(request(0, "auth", [token]))
            self.greeting = blob_of(self.pieces[3])
        self.keep(records)

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        # The middle of a scan, with its limit behind the key, is the longest.
        return 6 * HEAD_BYTES + self.scan_middle.size + <Py_ssize_t>batch * (HEAD_BYTES + self.longest_key)

    cdef void write(self, Buffer* out, uint32_t id, uint8_t kind, const uint32_t* keys, uint32_t count) noexcept nogil:
        cdef const Record* record = self.records + keys[0]
        cdef uint32_t i
        put_request(out, id)
        if kind == GET:
            put_bytes(out, self.get_middle.data, self.get_middle.size)
            put_bin(out, record.key, record.key_size)
        elif kind == SCAN:
            put_bytes(out, self.scan_middle.data, self.scan_middle.size)
            put_bin(out, record.key, record.key_size)
            put_bytes(out, <const uint8_t*>b"\xa5limit", 6)
            put_unsigned(out, count)
        else:
            put_bytes(out, self.get_many_middle.data, self.get_many_middle.size)
            put_array(out, count)
            for i in range(count):
                record = self.records + keys[i]
                put_bin(out, record.key, record.key_size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor cursor = Cursor(data, data + size)
        if not self.take_right(window, &cursor, reply):
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
        cdef const uint32_t* keys
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
        if slot.kind == SCAN or (slot.kind != GET and take_array(cursor) != slot.count):
            return False
        reply_begin(reply, at)
        reply.keys = slot.count
        keys = window.keys + <Py_ssize_t>at * window.batch
        for i in range(slot.count):
            if not take_right_value(cursor, self.records + keys[i], reply):
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
        cdef uint32_t id
        cdef int result = scan_message(data, size, &size)
        if result != FRAME_COMPLETE:
            return PARTIAL if result == FRAME_PARTIAL else GARBAGE
        cursor = Cursor(data, data + size)
        if not take_response(&cursor, &id):
            return GARBAGE
        reply_begin(reply, window_find(window, id))
        reply.size = size
        if reply.slot == NO_SLOT:
            return UNASKED
        if not take_nil(&cursor):
            self.read_error(&cursor, reply)
        elif window.slots[reply.slot].kind == SCAN:
            self.compare_scan(window, &cursor, reply)
        else:
            self.compare(window, &cursor, reply)
        return COMPLETE

    cdef void read_error(self, Cursor* cursor, Reply* reply) noexcept nogil:
        """Read the code, which is the first element, if it is text."""
        cdef Blob code
        reply.is_error = True
        if take_array(cursor) > 0 and take_blob(cursor, &code):
            reply_error(reply, code.data, code.size)

    cdef const Record* read_version(self, Cursor cursor, int behind, Reply* reply) noexcept nogil:
        """Return the table of the version `behind` values after the cursor; other types name no version."""
        cdef const Record* table
        cdef Blob version
        for _ in range(behind):
            skip(&cursor)
        if take_blob(&cursor, &version):
            reply.version = version.data
            reply.version_size = version.size
        table = self.truth.table_of(reply.version, reply.version_size)
        if table != NULL:
            self.records = table
        return table

    cdef void compare(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """Count the wrong values of a result."""
        cdef const Slot* slot = window.slots + reply.slot
        cdef const uint32_t* keys = window.keys + <Py_ssize_t>reply.slot * window.batch
        cdef const Record* table = NULL
        cdef Py_ssize_t count = 0
        cdef uint32_t i
        reply.keys = slot.count
        if take_array(cursor) == 2:
            table = self.read_version(cursor[0], 1, reply)
            count = 1 if slot.kind == GET else max(<Py_ssize_t>0, take_array(cursor))
        for i in range(slot.count):
            if i < count:
                self.compare_one(cursor, table, keys[i], reply)
            else:
                reply_wrong(reply, keys[i], NULL, 0)
        reply_too_many(reply, count, slot.count)

    cdef void compare_one(self, Cursor* cursor, const Record* table, uint32_t key, Reply* reply) noexcept nogil:
        cdef Blob value
        if take_bin(cursor, &value):
            reply_value(reply, table, key, value.data, value.size)
        elif take_nil(cursor):
            reply_value(reply, table, key, NULL, 0)
        else:
            reply_wrong(reply, key, NULL, 0)
            skip(cursor)

    cdef void compare_scan(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """Compare `[[[key, value], ...], cursor or nil, version]` with the records from the start on."""
        cdef const Slot* slot = window.slots + reply.slot
        cdef uint32_t start = window.keys[<Py_ssize_t>reply.slot * window.batch]
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
        reply_too_many(reply, count, slot.count)
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
