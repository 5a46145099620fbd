"""MessagePack in C, without allocation: reads and writes values, and the messages that they make up.

    request       [0, id, method, params]
    response      [1, id, error, result]
    notification  [2, method, params]

Every reader checks against the cursor's end only. In a scanned frame the lengths fit; a defect there must lead to a
refused message and not to a read beyond the buffer. A reader that finds another type, or too few bytes, returns False
and leaves the cursor unchanged.

Every writer requires that the caller has reserved the room: `HEAD_BYTES` for a head, and the bytes it copies.

Node, client and load generator read and write with these functions only; messages of one of them alone (an error's
text, a scan's cursor) are in its own modules.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from gossipkv.wire._buffer cimport Buffer

cdef enum:
    HEAD_BYTES = 9  # The longest head of any value.
    ENVELOPE_BYTES = 3  # Array, kind and nil of an answer, besides its id and content.

cdef enum EnvelopeKind:
    BAD_ENVELOPE = -2  # not a message, and no id to answer it under
    BAD_REQUEST = -1  # not a request, but its id can be read
    IS_REQUEST = 0
    IS_RESPONSE = 1
    IS_NOTIFICATION = 2

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end

cdef struct Blob:
    const uint8_t* data
    Py_ssize_t size

cdef struct Envelope:
    uint32_t msgid
    Blob method
    Cursor params  # a whole array


# Reading values ---------------------------------------------------------------------------------------------------


cdef inline bint take_number(Cursor* cursor, int width, uint64_t* number) noexcept nogil:
    """Read the big-endian number behind a head, and move the cursor behind it."""
    if width >= cursor.end - cursor.at:
        return False
    number[0] = big_endian(cursor.at + 1, width)
    cursor.at += 1 + width
    return True


cdef inline bint take_nil(Cursor* cursor) noexcept nogil:
    if cursor.at >= cursor.end or cursor.at[0] != NIL:
        return False
    cursor.at += 1
    return True


cdef inline bint take_unsigned(Cursor* cursor, uint64_t* value) noexcept nogil:
    """Take a non-negative integer, in any form that libraries choose."""
    cdef uint8_t head
    if cursor.at >= cursor.end:
        return False
    head = cursor.at[0]
    if head < FIX_MAP:
        value[0] = head
        cursor.at += 1
        return True
    if UINT_8 <= head < UINT_8 + 4:
        return take_number(cursor, 1 << (head - UINT_8), value)
    if not INT_8 <= head < INT_8 + 4 or cursor.end - cursor.at < 2 or cursor.at[1] & 0x80:
        return False
    return take_number(cursor, 1 << (head - INT_8), value)


cdef inline bint take_body(Cursor* cursor, int width, Blob* blob) noexcept nogil:
    """Take the bytes of a value whose length is in `width` bytes behind its head."""
    cdef Cursor ahead = cursor[0]
    cdef uint64_t size
    if not take_number(&ahead, width, &size) or size > <uint64_t>(ahead.end - ahead.at):
        return False
    blob.data = ahead.at
    blob.size = <Py_ssize_t>size
    cursor.at = ahead.at + size
    return True


cdef inline bint take_sized(Cursor* cursor, uint8_t head_8, Blob* blob) noexcept nogil:
    """Take a value of the family that begins with `head_8`."""
    cdef uint8_t form
    if cursor.at >= cursor.end:
        return False
    form = <uint8_t>(cursor.at[0] - head_8)
    if form == 0:
        return take_body(cursor, 1, blob)
    if form > 2:
        return False
    return take_body(cursor, 2, blob) if form == 1 else take_body(cursor, 4, blob)


cdef inline bint take_bin(Cursor* cursor, Blob* blob) noexcept nogil:
    return take_sized(cursor, BIN_8, blob)


cdef inline bint take_str(Cursor* cursor, Blob* blob) noexcept nogil:
    """Take the bytes of a `str`; readers that want text must check that they are UTF-8."""
    cdef Py_ssize_t size
    if cursor.at >= cursor.end or not FIX_STR <= cursor.at[0] < NIL:
        return take_sized(cursor, STR_8, blob)
    size = cursor.at[0] & 0x1F
    if size >= cursor.end - cursor.at:
        return False
    blob.data = cursor.at + 1
    blob.size = size
    cursor.at += 1 + size
    return True


cdef inline bint take_blob(Cursor* cursor, Blob* blob) noexcept nogil:
    """Take a `str` or a `bin`: both mean their bytes."""
    return take_bin(cursor, blob) or take_str(cursor, blob)


cdef inline bint take_blob_or_nil(Cursor* cursor, Blob* blob, bint* given) noexcept nogil:
    """Take an option; nil counts as not given, and of a repeated name the last value counts."""
    given[0] = not take_nil(cursor)
    return not given[0] or take_blob(cursor, blob)


cdef inline bint take_flag_or_nil(Cursor* cursor, bint* flag) noexcept nogil:
    """Take true or false; nil is false."""
    if cursor.at >= cursor.end or cursor.at[0] not in (NIL, FALSE, TRUE):
        return False
    flag[0] = cursor.at[0] == TRUE
    cursor.at += 1
    return True


cdef inline bint blob_is(const Blob* blob, const char* text, Py_ssize_t size) noexcept nogil:
    return blob.size == size and memcmp(blob.data, text, size) == 0


cdef inline Py_ssize_t take_container(Cursor* cursor, uint8_t fix_head, uint8_t head_16) noexcept nogil:
    cdef uint64_t count
    cdef uint8_t head
    if cursor.at >= cursor.end:
        return -1
    head = cursor.at[0]
    if head & 0xF0 == fix_head:
        cursor.at += 1
        return head & 0x0F
    if head == head_16 and take_number(cursor, 2, &count):
        return <Py_ssize_t>count
    if head == head_16 + 1 and take_number(cursor, 4, &count):
        return <Py_ssize_t>count
    return -1


cdef inline Py_ssize_t take_array(Cursor* cursor) noexcept nogil:
    """Take an array's head, and return the number of elements that follow; -1 for another type."""
    return take_container(cursor, FIX_ARRAY, ARRAY_16)


cdef inline Py_ssize_t take_map(Cursor* cursor) noexcept nogil:
    """Take a map's head, and return the number of pairs that follow; -1 for another type."""
    return take_container(cursor, FIX_MAP, MAP_16)


# Writing values ---------------------------------------------------------------------------------------------------


cdef inline void put(Buffer* out, uint8_t value) noexcept nogil:
    out.data[out.end] = value
    out.end += 1


cdef inline void put_bytes(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Write bytes unchanged."""
    memcpy(out.data + out.end, data, size)
    out.end += size


cdef inline void store(uint8_t* at, uint64_t number, int width) noexcept nogil:
    """Write `width` bytes, big-endian."""
    cdef int shift = 8 * width
    while shift > 0:
        shift -= 8
        at[0] = <uint8_t>(number >> shift)
        at += 1


cdef inline void put_number(Buffer* out, uint64_t number, int width) noexcept nogil:
    cdef uint8_t* at = out.data + out.end
    out.end += width
    store(at, number, width)


cdef inline void put_head(Buffer* out, uint8_t head, uint64_t number, int width) noexcept nogil:
    cdef uint8_t* at = out.data + out.end
    out.end += 1 + width
    at[0] = head
    store(at + 1, number, width)


cdef inline void put_nil(Buffer* out) noexcept nogil:
    put(out, NIL)


cdef inline void put_unsigned(Buffer* out, uint64_t value) noexcept nogil:
    if value < FIX_MAP:
        put(out, <uint8_t>value)
    elif value <= 0xFF:
        put_head(out, UINT_8, value, 1)
    elif value <= 0xFFFF:
        put_head(out, UINT_8 + 1, value, 2)
    elif value <= 0xFFFFFFFFU:
        put_head(out, UINT_8 + 2, value, 4)
    else:
        put_head(out, UINT_8 + 3, value, 8)


cdef inline int unsigned_size(uint64_t value) noexcept nogil:
    """Return how many bytes `put_unsigned` writes."""
    if value < FIX_MAP:
        return 1
    return 2 if value <= 0xFF else 3 if value <= 0xFFFF else 5 if value <= 0xFFFFFFFFU else 9


cdef inline void put_bin_head(Buffer* out, Py_ssize_t size) noexcept nogil:
    if size <= 0xFF:
        put_head(out, BIN_8, <uint64_t>size, 1)
    elif size <= 0xFFFF:
        put_head(out, BIN_8 + 1, <uint64_t>size, 2)
    else:
        put_head(out, BIN_8 + 2, <uint64_t>size, 4)


cdef inline void put_bin(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    put_bin_head(out, size)
    put_bytes(out, data, size)


cdef inline void put_text(Buffer* out, const char* text) noexcept nogil:
    """Write a short `str`, at most 255 bytes."""
    cdef Py_ssize_t size = <Py_ssize_t>strlen(text)
    if size < 32:
        put(out, <uint8_t>(FIX_STR | size))
    else:
        put_head(out, STR_8, <uint64_t>size, 1)
    put_bytes(out, <const uint8_t*>text, size)


cdef inline void put_str(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Write a `str` of at most 65,535 bytes, as every library would."""
    if size < 32:
        put(out, <uint8_t>(FIX_STR | size))
    elif size <= 0xFF:
        put_head(out, STR_8, <uint64_t>size, 1)
    else:
        put_head(out, STR_8 + 1, <uint64_t>size, 2)
    put_bytes(out, data, size)


cdef inline void put_container(Buffer* out, uint8_t fix_head, uint8_t head_16, Py_ssize_t count) noexcept nogil:
    if count < 16:
        put(out, <uint8_t>(fix_head | count))
    elif count <= 0xFFFF:
        put_head(out, head_16, <uint64_t>count, 2)
    else:
        put_head(out, head_16 + 1, <uint64_t>count, 4)


cdef inline void put_array(Buffer* out, Py_ssize_t count) noexcept nogil:
    """Write the head of an array; `count` elements follow."""
    put_container(out, FIX_ARRAY, ARRAY_16, count)


cdef inline void put_map(Buffer* out, Py_ssize_t count) noexcept nogil:
    """Write the head of a map; `count` pairs follow."""
    put_container(out, FIX_MAP, MAP_16, count)


# Messages ---------------------------------------------------------------------------------------------------------


cdef inline int read_envelope(const uint8_t* data, Py_ssize_t size, Envelope* envelope) noexcept nogil:
    """Return the kind of a frame; of a frame that is cut or refused, only the id may be readable."""
    cdef Cursor cursor = Cursor(data, data + size)
    cdef Cursor inner
    cdef Py_ssize_t count = take_array(&cursor)
    cdef uint64_t number = 0
    if count < 1 or not take_unsigned(&cursor, &number):
        return BAD_ENVELOPE
    if number == IS_NOTIFICATION or number == IS_RESPONSE:
        return <int>number
    if number != IS_REQUEST or not take_unsigned(&cursor, &number) or number > 0xFFFFFFFFU:
        return BAD_ENVELOPE
    envelope.msgid = <uint32_t>number
    if count != 4 or not take_blob(&cursor, &envelope.method):
        return BAD_REQUEST
    inner = cursor
    if take_array(&inner) < 0:
        return BAD_REQUEST
    envelope.params = cursor
    return IS_REQUEST


cdef inline bint take_response(Cursor* cursor, uint32_t* msgid) noexcept nogil:
    """Take the head of an answer; error and result follow."""
    cdef Cursor ahead = cursor[0]
    cdef uint64_t number = 0
    if take_array(&ahead) != 4 or not take_unsigned(&ahead, &number) or number != IS_RESPONSE:
        return False
    if not take_unsigned(&ahead, &number) or number > 0xFFFFFFFFU:
        return False
    msgid[0] = <uint32_t>number
    cursor[0] = ahead
    return True


cdef inline void put_message(Buffer* out, uint8_t kind, uint32_t msgid) noexcept nogil:
    put_head(out, FIX_ARRAY | 4, kind, 1)
    put_unsigned(out, msgid)


cdef inline void put_request(Buffer* out, uint32_t msgid) noexcept nogil:
    """Write the head of a request; method and parameters follow."""
    put_message(out, IS_REQUEST, msgid)


cdef inline void put_response(Buffer* out, uint32_t msgid) noexcept nogil:
    """Write the head of an answer; error and result follow."""
    put_message(out, IS_RESPONSE, msgid)


cdef inline void put_answer(Buffer* out, uint32_t msgid) noexcept nogil:
    """Write the envelope of a success; the result follows."""
    put_response(out, msgid)
    put_nil(out)
