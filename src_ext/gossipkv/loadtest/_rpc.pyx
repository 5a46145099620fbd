"""MessagePack-RPC as the generator speaks it: `get` for one key, `get_many` for several (`docs/users/wire.md`).

An answer that is as it should be is read straight through, head by head, and its values compared where they lie.
Whatever else comes (an error, another type, another length) is first bounded by the scanner, and then read with care:

    not MessagePack within the limits, not [1, id, error, result]       garbage
    an id that is not in flight                                         unasked
    error is not nil                                                    an error, by the code that it begins with
    result is not [value, version] or [[values], version]               every key is wrong
    a value that is not the record's, a value too few or too many       so many are wrong

`tests/oracle/load_answers.py` says the same in plain Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

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
)
from gossipkv.wire._frames cimport (
    FRAME_BYTES,
    FRAME_COMPLETE,
    FRAME_DEPTH,
    FRAME_ELEMENTS,
    FRAME_PARTIAL,
    FrameLimits,
    FrameState,
    frame_begin,
    frame_scan,
)

cdef enum:
    HEAD_BYTES = 5  # The longest head of a key, of an array and of an id.
    UNUSUAL = 2  # Not what a right answer looks like so far; the scanner has to look first.

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef inline uint64_t big_endian(const uint8_t* data, int width) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(width):
        value = (value << 8) | data[i]
    return value


cdef inline uint8_t* put_number(uint8_t* out, uint8_t head, uint64_t value, int width) noexcept nogil:
    cdef int shift = 8 * width
    out[0] = head
    out += 1
    while shift > 0:
        shift -= 8
        out[0] = <uint8_t>(value >> shift)
        out += 1
    return out


cdef inline uint8_t* put_unsigned(uint8_t* out, uint32_t value) noexcept nogil:
    if value < 0x80:
        return put_number(out, <uint8_t>value, 0, 0)
    if value <= 0xFF:
        return put_number(out, 0xCC, value, 1)
    if value <= 0xFFFF:
        return put_number(out, 0xCD, value, 2)
    return put_number(out, 0xCE, value, 4)


cdef inline uint8_t* put_key(uint8_t* out, const Record* record) noexcept nogil:
    if record.key_size <= 0xFF:
        out = put_number(out, 0xC4, record.key_size, 1)
    elif record.key_size <= 0xFFFF:
        out = put_number(out, 0xC5, record.key_size, 2)
    else:
        out = put_number(out, 0xC6, record.key_size, 4)
    memcpy(out, record.key, record.key_size)
    return out + record.key_size


cdef inline int take_byte(Cursor* cursor, uint8_t wanted) noexcept nogil:
    if cursor.at == cursor.end:
        return PARTIAL
    if cursor.at[0] != wanted:
        return UNUSUAL
    cursor.at += 1
    return COMPLETE


cdef inline int take_number(Cursor* cursor, int width, uint64_t* value) noexcept nogil:
    """The head's number of `width` bytes; the cursor stands behind it afterwards."""
    if cursor.end - cursor.at <= width:
        return PARTIAL
    value[0] = big_endian(cursor.at + 1, width)
    cursor.at += 1 + width
    return COMPLETE


cdef inline int take_id(Cursor* cursor, uint64_t* value) noexcept nogil:
    """An unsigned number, in any of the forms that libraries choose."""
    cdef uint8_t head
    if cursor.at == cursor.end:
        return PARTIAL
    head = cursor.at[0]
    if head < 0x80:
        value[0] = head
        cursor.at += 1
        return COMPLETE
    if 0xCC <= head <= 0xCF:
        return take_number(cursor, 1 << (head - 0xCC), value)
    if 0xD0 <= head <= 0xD3:
        if cursor.end - cursor.at > 1 and cursor.at[1] & 0x80:
            return UNUSUAL
        return take_number(cursor, 1 << (head - 0xD0), value)
    return UNUSUAL


cdef inline int take_array(Cursor* cursor, uint64_t* count) noexcept nogil:
    cdef uint8_t head
    if cursor.at == cursor.end:
        return PARTIAL
    head = cursor.at[0]
    if head & 0xF0 == 0x90:
        count[0] = head & 0x0F
        cursor.at += 1
        return COMPLETE
    if head == 0xDC or head == 0xDD:
        return take_number(cursor, 2 if head == 0xDC else 4, count)
    return UNUSUAL


cdef inline int take_size(Cursor* cursor, uint64_t* size) noexcept nogil:
    """The head of a `bin`."""
    if cursor.at == cursor.end:
        return PARTIAL
    if 0xC4 <= cursor.at[0] <= 0xC6:
        return take_number(cursor, 1 << (cursor.at[0] - 0xC4), size)
    return UNUSUAL


cdef inline int take_text_size(Cursor* cursor, uint64_t* size) noexcept nogil:
    """The head of a `str` or a `bin`."""
    if cursor.at == cursor.end:
        return PARTIAL
    if 0xA0 <= cursor.at[0] <= 0xBF:
        size[0] = cursor.at[0] & 0x1F
        cursor.at += 1
        return COMPLETE
    if 0xD9 <= cursor.at[0] <= 0xDB:
        return take_number(cursor, 1 << (cursor.at[0] - 0xD9), size)
    return take_size(cursor, size)


cdef inline int take_right_value(Cursor* cursor, const Record* record) noexcept nogil:
    """The value that the record has; UNUSUAL when it is another."""
    cdef uint64_t size = 0
    cdef int result
    if record.value_size == ABSENT:
        return take_byte(cursor, 0xC0)
    result = take_size(cursor, &size)
    if result != COMPLETE:
        return result
    if size != record.value_size:
        return UNUSUAL
    if <uint64_t>(cursor.end - cursor.at) < size:
        return PARTIAL
    if not is_value(record, cursor.at, <Py_ssize_t>size):
        return UNUSUAL
    cursor.at += size
    return COMPLETE


cdef Py_ssize_t skip(const Cursor* cursor) noexcept nogil:
    """The length of the value at the cursor, which the scanner has passed as part of the whole."""
    cdef FrameLimits limits = FrameLimits(FRAME_BYTES, FRAME_ELEMENTS, FRAME_DEPTH)
    cdef FrameState state
    frame_begin(&state)
    frame_scan(&state, cursor.at, cursor.end - cursor.at, &limits)
    return state.position


@cython.final
cdef class RpcDialect(Dialect):
    """`get` and `get_many` of one database."""

    cdef bytes get_middle  # From behind the id to before the key.
    cdef bytes get_many_middle
    cdef const uint8_t* get_bytes
    cdef const uint8_t* get_many_bytes
    cdef Py_ssize_t get_size
    cdef Py_ssize_t get_many_size

    def __cinit__(self, database, records):
        cdef bytes name = database.encode()
        if len(name) > 0xFF:
            raise ValueError(f"a database's name has at most 255 bytes, got {len(name)}")
        cdef bytes head = bytes([0xD9, len(name)]) + name
        self.get_middle = b"\xa3get\x92" + head
        self.get_many_middle = b"\xa8get_many\x92" + head
        self.get_bytes = <const uint8_t*>PyBytes_AS_STRING(self.get_middle)
        self.get_many_bytes = <const uint8_t*>PyBytes_AS_STRING(self.get_many_middle)
        self.get_size = PyBytes_GET_SIZE(self.get_middle)
        self.get_many_size = PyBytes_GET_SIZE(self.get_many_middle)
        self.in_order = False
        self.keep(records)

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return 3 * HEAD_BYTES + self.get_many_size + <Py_ssize_t>batch * (HEAD_BYTES + self.longest_key)

    cdef uint8_t* write(self, uint8_t* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
        cdef uint32_t i
        out[0] = 0x94
        out[1] = 0x00
        out = put_unsigned(out + 2, id)
        if batch == 1:
            memcpy(out, self.get_bytes, self.get_size)
            return put_key(out + self.get_size, self.records + keys[0])
        memcpy(out, self.get_many_bytes, self.get_many_size)
        out += self.get_many_size
        if batch < 16:
            out = put_number(out, <uint8_t>(0x90 | batch), 0, 0)
        else:
            out = put_number(out, 0xDD, batch, 4)
        for i in range(batch):
            out = put_key(out, self.records + keys[i])
        return out

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor cursor = Cursor(data, data + size)
        cdef int result = self.take_right(window, &cursor, reply)
        if result == UNUSUAL:
            return self.take_unusual(window, data, size, reply)
        reply.size = cursor.at - data
        return result

    cdef int take_right(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """An answer that is what it should be, in the form in which a node writes it; else UNUSUAL."""
        cdef const uint32_t* keys
        cdef uint64_t number = 0
        cdef uint32_t slot
        cdef uint32_t i
        cdef int result
        if cursor.end - cursor.at < 2:
            return PARTIAL if cursor.at == cursor.end or cursor.at[0] == 0x94 else UNUSUAL
        if cursor.at[0] != 0x94 or cursor.at[1] != 0x01:
            return UNUSUAL
        cursor.at += 2
        result = take_id(cursor, &number)
        if result != COMPLETE:
            return result
        slot = window_find(window, <uint32_t>number) if number <= 0xFFFFFFFFU else NO_SLOT
        if slot == NO_SLOT:
            return UNUSUAL
        reply_begin(reply, slot)
        keys = window.keys + <Py_ssize_t>slot * window.batch
        if cursor.end - cursor.at < 2:
            return PARTIAL if cursor.at == cursor.end or cursor.at[0] == 0xC0 else UNUSUAL
        if cursor.at[0] != 0xC0 or cursor.at[1] != 0x92:
            return UNUSUAL
        cursor.at += 2
        if window.batch > 1:
            result = take_array(cursor, &number)
            if result != COMPLETE:
                return result
            if number != window.batch:
                return UNUSUAL
        for i in range(window.batch):
            result = take_right_value(cursor, self.records + keys[i])
            if result != COMPLETE:
                return result
        if cursor.at == cursor.end:
            return PARTIAL
        if not 0xA0 <= cursor.at[0] <= 0xBF:
            return UNUSUAL
        number = 1 + (cursor.at[0] & 0x1F)
        if <uint64_t>(cursor.end - cursor.at) < number:
            return PARTIAL
        cursor.at += number
        return COMPLETE

    cdef int take_unusual(
        self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply
    ) noexcept nogil:
        """Whatever else an answer may be."""
        cdef FrameLimits limits = FrameLimits(FRAME_BYTES, FRAME_ELEMENTS, FRAME_DEPTH)
        cdef FrameState state
        cdef Cursor cursor
        cdef uint64_t number = 0
        cdef int result
        frame_begin(&state)
        result = frame_scan(&state, data, size, &limits)
        if result != FRAME_COMPLETE:
            return PARTIAL if result == FRAME_PARTIAL else GARBAGE
        reply.size = state.position
        cursor = Cursor(data, data + state.position)
        if take_array(&cursor, &number) != COMPLETE or number != 4:
            return GARBAGE
        if take_id(&cursor, &number) != COMPLETE or number != 1:
            return GARBAGE
        if take_id(&cursor, &number) != COMPLETE or number > 0xFFFFFFFFU:
            return GARBAGE
        reply_begin(reply, window_find(window, <uint32_t>number))
        if reply.slot == NO_SLOT:
            return UNASKED
        if take_byte(&cursor, 0xC0) == COMPLETE:
            self.compare(window, &cursor, reply)
        else:
            self.read_error(&cursor, reply)
        return COMPLETE

    cdef void read_error(self, Cursor* cursor, Reply* reply) noexcept nogil:
        """The code is the first element, if it is text."""
        cdef uint64_t number = 0
        reply.is_error = True
        reply.code_size = 0
        if take_array(cursor, &number) == COMPLETE and number > 0 and take_text_size(cursor, &number) == COMPLETE:
            reply.code = cursor.at
            reply.code_size = <Py_ssize_t>number

    cdef void compare(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """Count what is wrong in a result."""
        cdef const uint32_t* keys = window.keys + <Py_ssize_t>reply.slot * window.batch
        cdef uint64_t count = 0
        cdef uint32_t i
        if take_array(cursor, &count) != COMPLETE or count != 2:
            count = 0
        elif window.batch == 1:
            count = 1
        elif take_array(cursor, &count) != COMPLETE:
            count = 0
        for i in range(window.batch):
            if i < count:
                self.compare_one(cursor, keys[i], reply)
            else:
                reply_wrong(reply, keys[i], NULL, 0)
        while count > window.batch:
            count -= 1
            reply_wrong(reply, ABSENT, NULL, 0)

    cdef void compare_one(self, Cursor* cursor, uint32_t key, Reply* reply) noexcept nogil:
        cdef const uint8_t* start = cursor.at
        cdef uint64_t size = 0
        if take_right_value(cursor, self.records + key) == COMPLETE:
            return
        cursor.at = start
        if take_size(cursor, &size) == COMPLETE:
            reply_wrong(reply, key, cursor.at, <Py_ssize_t>size)
            cursor.at += size
        else:
            reply_wrong(reply, key, NULL, 0)
            cursor.at = start + skip(cursor)
