"""MessagePack-RPC as the generator speaks it: `get` for one key, `get_many` for several (`docs/users/wire.md`).

An answer that is as it should be is read straight through, head by head, and its values compared where they lie.
Whatever else comes (an error, another type, another length, a part of an answer) is first bounded by the scanner, and
then, if it is whole, read with care:

    not MessagePack within the limits, not [1, id, error, result]       garbage
    an id that is not in flight                                         unasked
    error is not nil                                                    an error, by the code that it begins with
    result is not [value, version] or [[values], version]               every key is wrong
    a value that is not the record's, a value too few or too many       so many are wrong

`tests/oracle/load_answers.py` says the same in plain Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

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
from gossipkv.wire._buffer cimport Buffer
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
from gossipkv.wire._message cimport (
    HEAD_BYTES,
    Blob,
    Cursor,
    put_array,
    put_bin,
    put_bytes,
    put_request,
    take_array,
    take_bin,
    take_blob,
    take_nil,
    take_response,
)


cdef inline bint take_right_value(Cursor* cursor, const Record* record) noexcept nogil:
    """The value that the record has."""
    cdef Cursor ahead = cursor[0]
    cdef Blob value
    if record.value_size == ABSENT:
        return take_nil(cursor)
    if not take_bin(&ahead, &value) or not is_value(record, value.data, value.size):
        return False
    cursor[0] = ahead
    return True


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

    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
        cdef const Record* record
        cdef uint32_t i
        put_request(out, id)
        if batch == 1:
            put_bytes(out, self.get_bytes, self.get_size)
        else:
            put_bytes(out, self.get_many_bytes, self.get_many_size)
            put_array(out, batch)
        for i in range(batch):
            record = self.records + keys[i]
            put_bin(out, record.key, record.key_size)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef Cursor cursor = Cursor(data, data + size)
        if not self.take_right(window, &cursor, reply):
            return self.take_unusual(window, data, size, reply)
        reply.size = cursor.at - data
        return COMPLETE

    cdef bint take_right(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """An answer that is whole, and what it should be, in the form in which a node writes it."""
        cdef const uint32_t* keys
        cdef Blob version
        cdef uint32_t id
        cdef uint32_t slot
        cdef uint32_t i
        if not take_response(cursor, &id):
            return False
        slot = window_find(window, id)
        if slot == NO_SLOT or not take_nil(cursor) or take_array(cursor) != 2:
            return False
        if window.batch > 1 and take_array(cursor) != window.batch:
            return False
        reply_begin(reply, slot)
        keys = window.keys + <Py_ssize_t>slot * window.batch
        for i in range(window.batch):
            if not take_right_value(cursor, self.records + keys[i]):
                return False
        return take_blob(cursor, &version)

    cdef int take_unusual(
        self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply
    ) noexcept nogil:
        """Whatever else an answer may be, one that is not whole yet among it."""
        cdef FrameLimits limits = FrameLimits(FRAME_BYTES, FRAME_ELEMENTS, FRAME_DEPTH)
        cdef FrameState state
        cdef Cursor cursor
        cdef uint32_t id
        cdef int result
        frame_begin(&state)
        result = frame_scan(&state, data, size, &limits)
        if result != FRAME_COMPLETE:
            return PARTIAL if result == FRAME_PARTIAL else GARBAGE
        reply.size = state.position
        cursor = Cursor(data, data + state.position)
        if not take_response(&cursor, &id):
            return GARBAGE
        reply_begin(reply, window_find(window, id))
        if reply.slot == NO_SLOT:
            return UNASKED
        if take_nil(&cursor):
            self.compare(window, &cursor, reply)
        else:
            self.read_error(&cursor, reply)
        return COMPLETE

    cdef void read_error(self, Cursor* cursor, Reply* reply) noexcept nogil:
        """The code is the first element, if it is text."""
        cdef Blob code
        reply.is_error = True
        reply.code_size = 0
        if take_array(cursor) > 0 and take_blob(cursor, &code):
            reply.code = code.data
            reply.code_size = code.size

    cdef void compare(self, const Window* window, Cursor* cursor, Reply* reply) noexcept nogil:
        """Count what is wrong in a result."""
        cdef const uint32_t* keys = window.keys + <Py_ssize_t>reply.slot * window.batch
        cdef Py_ssize_t count = 0
        cdef uint32_t i
        if take_array(cursor) == 2:
            count = 1 if window.batch == 1 else max(<Py_ssize_t>0, take_array(cursor))
        for i in range(window.batch):
            if i < count:
                self.compare_one(cursor, keys[i], reply)
            else:
                reply_wrong(reply, keys[i], NULL, 0)
        while count > window.batch:
            count -= 1
            reply_wrong(reply, ABSENT, NULL, 0)

    cdef void compare_one(self, Cursor* cursor, uint32_t key, Reply* reply) noexcept nogil:
        cdef Blob value
        if take_right_value(cursor, self.records + key):
            return
        if take_bin(cursor, &value):
            reply_wrong(reply, key, value.data, value.size)
        else:
            reply_wrong(reply, key, NULL, 0)
            cursor.at += skip(cursor)
