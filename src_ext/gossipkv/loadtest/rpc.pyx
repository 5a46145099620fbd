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
    FRAME_COMPLETE, FRAME_PARTIAL, HEAD_BYTES, Blob, Cursor, put_array, put_bin, put_bin_head, put_bytes,
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


cdef void skip(Cursor* cursor) noexcept nogil:
    """Skip the value at the cursor, which the scanner has checked."""
    cdef Py_ssize_t size
    scan_message(cursor.at, cursor.end - cursor.at, &size)
    cursor.at += size


@cython.final
cdef class RpcDialect(Dialect):
    """Requests for one database; each connection first sends the token.

    With `writes` it is a table, and the session's token stands where a version does.
    """

    cdef Blob get_middle  # The bytes between the id and the key.
    cdef Blob get_many_middle
    cdef Blob scan_middle
    cdef Blob middles[FORMS]  # Those of a table; options stand behind the other parameters.
    cdef Blob options  # The options of every request to a table, and their number.
    cdef Blob write_options
    cdef int option_count
    cdef int write_option_count

    def __cinit__(self, database, records, *, token=None, writes=None, level=None, int timeout_ms=1000):
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
        if writes is not None:
            self.keep_writes(head, writes, level, timeout_ms)

    cdef int keep_writes(self, bytes head, Writes writes, level, int timeout_ms) except -1:
        cdef int form
        self.writes = writes
        waits = b"\xa7wait_ms" + packb(WAIT_MS) if writes.sessions else b""
        reaches = b"\xaatimeout_ms" + packb(timeout_ms)
        reaches += b"" if level is None else b"\xa5level" + packb(level)
        names = b"\xa3get", b"\xa8get_many", b"\xa4scan", b"\xa3put", b"\xa6delete", b"\xa8put_many"
        self.option_count = len(waits) > 0
        self.write_option_count = self.option_count + 1 + (level is not None)
        for form in range(FORMS):
            has_options = form == SCAN or (self.write_option_count if form >= PUT else self.option_count) > 0
            count = (1 if form == SCAN else 3 if form == PUT else 2) + has_options
            self.pieces.append(names[form] + bytes([0x90 + count]) + head)
            self.middles[form] = blob_of(self.pieces[len(self.pieces) - 1])
        self.pieces += [waits, waits + reaches]
        self.options = blob_of(self.pieces[len(self.pieces) - 2])
        self.write_options = blob_of(self.pieces[len(self.pieces) - 1])
        return 0

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        # The middle of a scan, with its limit behind the key, is the longest.
        cdef Py_ssize_t keys = <Py_ssize_t>batch * (HEAD_BYTES + self.longest_key)
        return 6 * HEAD_BYTES + self.scan_middle.size + keys + self.room_to_write(batch)

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

    cdef void write_slot(self, Buffer* out, const Window* window, uint32_t at) noexcept nogil:
        cdef const Slot* slot = window.slots + at
        cdef const uint32_t* keys = window.keys + <Py_ssize_t>at * window.batch
        cdef const uint32_t* numbers = window.numbers + <Py_ssize_t>at * window.batch
        cdef const Record* record
        cdef uint32_t i
        if self.writes is None:
            self.write(out, slot.id, slot.form, keys, slot.count)
            return
        put_request(out, slot.id)
        put_bytes(out, self.middles[slot.form].data, self.middles[slot.form].size)
        if slot.form == GET_MANY or slot.form == PUT_MANY:
            put_array(out, slot.count)
        for i in range(0 if slot.form == SCAN else slot.count):
            record = self.records + keys[i]
            if slot.form == PUT_MANY:
                put_array(out, 2)
            put_bin(out, record.key, record.key_size)
            if slot.form == PUT or slot.form == PUT_MANY:
                put_bin_head(out, self.writes.size_of(keys[i], numbers[i]))
                self.writes.put_value(out, keys[i], numbers[i])
        self.write_options_of(out, slot, self.records + keys[0])

    cdef void write_options_of(self, Buffer* out, const Slot* slot, const Record* first) noexcept nogil:
        cdef const Blob* usual = &self.write_options if slot.form >= PUT else &self.options
        cdef int count = self.write_option_count if slot.form >= PUT else self.option_count
        cdef Blob token = self.writes.token_of(slot.user)
        if count == 0 and slot.form != SCAN:
            return
        put_map(out, count + (token.size > 0) + 2 * (slot.form == SCAN))
        put_bytes(out, usual.data, usual.size)
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
        if slot.form == SCAN or (slot.form != GET and take_array(cursor) != slot.count):
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
        if self.writes is not None:
            self.writes.attend(window.slots[reply.slot].user)
        if not take_nil(&cursor):
            self.read_error(&cursor, reply)
        elif window.slots[reply.slot].form >= PUT:
            reply.keys = window.slots[reply.slot].count
            self.read_version(cursor, 0, reply)
        elif window.slots[reply.slot].form == SCAN:
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
        cdef Blob version = Blob(NULL, 0)
        for _ in range(behind):
            skip(&cursor)
        if take_blob(&cursor, &version):
            reply.version = version.data
            reply.version_size = version.size
        if self.writes is not None:
            self.writes.saw(&version)
            reply.version_size = 0
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
            count = 1 if slot.form == GET else max(<Py_ssize_t>0, take_array(cursor))
        for i in range(slot.count):
            if i < count:
                self.compare_one(cursor, table, keys[i], reply)
            else:
                reply_wrong(reply, keys[i], NULL, 0)
        reply_too_many(reply, count, slot.count)

    cdef void compare_one(self, Cursor* cursor, const Record* table, uint32_t key, Reply* reply) noexcept nogil:
        cdef Blob value
        if take_bin(cursor, &value):
            self.judge_value(table, key, value.data, value.size, reply)
        elif take_nil(cursor):
            self.judge_value(table, key, NULL, 0, reply)
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
