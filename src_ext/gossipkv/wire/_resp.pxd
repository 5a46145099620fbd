"""RESP in C, without allocation: the length and the words of a command, and the values of answers.

    array    *<count>\r\n, then so many   $<size>\r\n<bytes>\r\n
    inline   words\r\n

A command keeps the limits of a frame. After `RESP_COMPLETE` the first `state.position` bytes are one command, and its
words can be read without further bounds.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Cursor, FrameLimits, FrameState, put, put_bytes
from gossipkv.wire._text cimport put_decimal, put_end

cdef enum:
    LONGEST_LINE = 65536  # Longest inline command, as in Redis.
    LONGEST_NUMBER = 32  # Counts and sizes are shorter than this, including their delimiters.
    BULK_BYTES = 32  # The maximum that a value takes besides its bytes.

cdef enum RespResult:
    RESP_TOO_LARGE = -5
    RESP_LONG_LINE = -4
    RESP_BAD_COUNT = -3
    RESP_BAD_SIZE = -2
    RESP_NO_BULK = -1
    RESP_PARTIAL = 0
    RESP_COMPLETE = 1


cdef inline int read_number(const uint8_t* data, Py_ssize_t size, int64_t* number) noexcept nogil:
    """Parse the number that ends a line; returns the offset of the next line, 0 if incomplete, -1 if invalid."""
    cdef bint negative = size > 0 and data[0] == 0x2D
    cdef int at = <int>negative
    cdef int64_t value = 0
    while at < size and at < LONGEST_NUMBER:
        if 0x30 <= data[at] <= 0x39 and value <= 99999999999999999LL:
            value = 10 * value + data[at] - 0x30
            at += 1
        elif data[at] == 0x0D and at > <int>negative:
            if at + 1 == size:
                return 0
            number[0] = -value if negative else value
            return at + 2 if data[at + 1] == 0x0A else -1
        else:
            return -1
    return 0 if at == size else -1


cdef inline int resp_scan(
    FrameState* state, const uint8_t* data, Py_ssize_t size, const FrameLimits* limits
) noexcept nogil:
    """Continue where the last call stopped, as `frame_scan` does. Requires: `size` is at least 1."""
    cdef const uint8_t* found
    cdef int64_t number
    cdef int width
    if not state.closed and state.depth == 0:
        if data[0] != 0x2A:
            found = <const uint8_t*>memchr(data, 0x0A, min(size, <Py_ssize_t>LONGEST_LINE))
            if found == NULL:
                return RESP_LONG_LINE if size >= LONGEST_LINE else RESP_PARTIAL
            state.position = found - data + 1
            state.elements = 1
            state.closed = True
            return RESP_COMPLETE
        width = read_number(data + 1, size - 1, &number)
        if width <= 0:
            return RESP_PARTIAL if width == 0 else RESP_BAD_COUNT
        if number > limits.max_size:  # A word has several bytes.
            return RESP_TOO_LARGE
        state.position = 1 + width
        state.elements = <Py_ssize_t>max(number, <int64_t>0)  # A count of zero or less is no command.
        state.missing[0] = <uint32_t>state.elements
        state.depth = 1
        state.closed = state.elements == 0
    while not state.closed:
        if state.position >= size:
            return RESP_TOO_LARGE if state.position >= limits.max_size else RESP_PARTIAL
        if data[state.position] != 0x24:
            return RESP_NO_BULK
        width = read_number(data + state.position + 1, size - state.position - 1, &number)
        if width <= 0:
            return RESP_PARTIAL if width == 0 else RESP_BAD_SIZE
        if number < 0:
            return RESP_BAD_SIZE
        if state.position + 3 + width + number > limits.max_size:
            return RESP_TOO_LARGE
        state.position += 3 + width + <Py_ssize_t>number
        state.missing[0] -= 1
        state.closed = state.missing[0] == 0
    return RESP_COMPLETE if state.position <= size else RESP_PARTIAL


cdef inline Py_ssize_t scan_get(
    const uint8_t* data, Py_ssize_t size, const FrameLimits* limits, Blob* key
) noexcept nogil:
    """Return the length of a `GET` of one key, as libraries write it, and its key; 0: not such a whole command.

    Most commands are such, so their words are not read twice.
    """
    cdef int64_t length
    cdef int width
    if size < 18 or memcmp(data, b"*2\r\n$3\r\n", 8) != 0 or memcmp(data + 11, b"\r\n$", 3) != 0:
        return 0
    if (data[8] | 0x20) != 0x67 or (data[9] | 0x20) != 0x65 or (data[10] | 0x20) != 0x74:
        return 0
    width = read_number(data + 14, size - 14, &length)
    if width <= 0 or length < 0 or length > min(size, limits.max_size) - 16 - width:
        return 0
    key[0] = Blob(data + 14 + width, <Py_ssize_t>length)
    return 16 + width + <Py_ssize_t>length


cdef inline void take_word(Cursor* cursor, Blob* word) noexcept nogil:
    """Take the next word of a scanned array."""
    cdef int64_t size = 0
    cdef int width = read_number(cursor.at + 1, cursor.end - cursor.at - 1, &size)
    word.data = cursor.at + 1 + width
    word.size = <Py_ssize_t>size
    cursor.at = word.data + size + 2


# Writing values; there is room ------------------------------------------------------------------------------------


cdef inline void put_line(Buffer* out, uint8_t kind, int64_t number) noexcept nogil:
    """Write a number behind its type: `:`, or `$` and `*` for sizes."""
    put(out, kind)
    if number < 0:
        put(out, 0x2D)
    put_decimal(out, <uint64_t>number if number >= 0 else -<uint64_t>number)
    put_end(out)


cdef inline void put_bulk(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    put_line(out, 0x24, size)
    put_bytes(out, data, size)
    put_end(out)


cdef inline void put_null(Buffer* out, int protocol) noexcept nogil:
    """Write the null of the connection's protocol, since clients of one protocol cannot read the other's."""
    if protocol == 3:
        put_bytes(out, <const uint8_t*>b"_\r\n", 3)
    else:
        put_bytes(out, <const uint8_t*>b"$-1\r\n", 5)
