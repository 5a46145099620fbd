"""Reading a request out of a scanned frame, and writing an answer: MessagePack in C, nothing allocated.

Every reader works inside one frame that the scanner has passed, so lengths fit; each still checks against the
cursor's end, because a defect there must be a refused request and not a read beyond a buffer.  A reader that finds
another type than it wants leaves the cursor where it was and says so.

Every writer requires that the caller has reserved the room: `HEAD_BYTES` for a head, and the bytes it copies.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from gossipkv.wire._buffer cimport Buffer, buffer_reserve

cdef enum:
    HEAD_BYTES = 9  # The longest head of any value.
    ENVELOPE_BYTES = 3  # An answer's beside its id and what it says: array, kind, nil.
    ERROR_BYTES = 512  # The longest error that is written here, envelope included.

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
    Cursor params  # one whole array


cdef inline uint64_t big_endian(const uint8_t* data, int width) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(width):
        value = (value << 8) | data[i]
    return value


cdef inline bint take_length(Cursor* cursor, int width, Py_ssize_t* length) noexcept nogil:
    """The head's length field; the cursor stands behind it afterwards."""
    if width >= cursor.end - cursor.at:
        return False
    length[0] = <Py_ssize_t>big_endian(cursor.at + 1, width)
    cursor.at += 1 + width
    return True


cdef inline bint take_blob(Cursor* cursor, Blob* blob) noexcept nogil:
    """A `str` or a `bin`: both mean their bytes."""
    cdef const uint8_t* start = cursor.at
    cdef uint8_t head
    cdef bint known = True
    if cursor.at >= cursor.end:
        return False
    head = cursor.at[0]
    if 0xA0 <= head <= 0xBF:
        blob.size = head & 0x1F
        cursor.at += 1
    elif head == 0xC4 or head == 0xD9:
        known = take_length(cursor, 1, &blob.size)
    elif head == 0xC5 or head == 0xDA:
        known = take_length(cursor, 2, &blob.size)
    elif head == 0xC6 or head == 0xDB:
        known = take_length(cursor, 4, &blob.size)
    else:
        return False
    if not known or blob.size > cursor.end - cursor.at:
        cursor.at = start
        return False
    blob.data = cursor.at
    cursor.at += blob.size
    return True


cdef inline bint take_unsigned(Cursor* cursor, uint64_t* value) noexcept nogil:
    """An integer that is not negative, in any of the forms that libraries choose."""
    cdef uint8_t head
    cdef int width
    if cursor.at >= cursor.end:
        return False
    head = cursor.at[0]
    if head < 0x80:
        value[0] = head
        cursor.at += 1
        return True
    if 0xCC <= head <= 0xCF:
        width = 1 << (head - 0xCC)
    elif 0xD0 <= head <= 0xD3:
        width = 1 << (head - 0xD0)
    else:
        return False
    if width >= cursor.end - cursor.at or (head >= 0xD0 and cursor.at[1] & 0x80):
        return False
    value[0] = big_endian(cursor.at + 1, width)
    cursor.at += 1 + width
    return True


cdef inline Py_ssize_t take_container(Cursor* cursor, uint8_t short_head, uint8_t long_head) noexcept nogil:
    """The count of an array (0x90, 0xdc) or map (0x80, 0xde); -1 when it is another type."""
    cdef Py_ssize_t count = -1
    cdef uint8_t head
    if cursor.at >= cursor.end:
        return -1
    head = cursor.at[0]
    if head & 0xF0 == short_head:
        cursor.at += 1
        return head & 0x0F
    if head == long_head and take_length(cursor, 2, &count):
        return count
    if head == long_head + 1 and take_length(cursor, 4, &count):
        return count
    return -1


cdef inline Py_ssize_t take_array(Cursor* cursor) noexcept nogil:
    return take_container(cursor, 0x90, 0xDC)


cdef inline Py_ssize_t take_map(Cursor* cursor) noexcept nogil:
    return take_container(cursor, 0x80, 0xDE)


cdef inline bint blob_is(const Blob* blob, const char* text, Py_ssize_t size) noexcept nogil:
    return blob.size == size and memcmp(blob.data, text, size) == 0


cdef inline int read_envelope(const uint8_t* data, Py_ssize_t size, Envelope* envelope) noexcept nogil:
    """What a frame is.  It may be cut or refused by the scanner: then only the id, if it is there, can be had."""
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


cdef inline void put(Buffer* out, uint8_t value) noexcept nogil:
    out.data[out.end] = value
    out.end += 1


cdef inline void put_number(Buffer* out, uint64_t value, int width) noexcept nogil:
    """Big-endian."""
    cdef int shift = 8 * width
    while shift > 0:
        shift -= 8
        put(out, <uint8_t>(value >> shift))


cdef inline void put_unsigned(Buffer* out, uint64_t value) noexcept nogil:
    if value < 0x80:
        put(out, <uint8_t>value)
    elif value <= 0xFF:
        put(out, 0xCC)
        put_number(out, value, 1)
    elif value <= 0xFFFF:
        put(out, 0xCD)
        put_number(out, value, 2)
    elif value <= 0xFFFFFFFFU:
        put(out, 0xCE)
        put_number(out, value, 4)
    else:
        put(out, 0xCF)
        put_number(out, value, 8)


cdef inline void put_bytes(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Bytes as they are."""
    memcpy(out.data + out.end, data, size)
    out.end += size


cdef inline void put_bin_head(Buffer* out, Py_ssize_t size) noexcept nogil:
    if size <= 0xFF:
        put(out, 0xC4)
        put_number(out, <uint64_t>size, 1)
    elif size <= 0xFFFF:
        put(out, 0xC5)
        put_number(out, <uint64_t>size, 2)
    else:
        put(out, 0xC6)
        put_number(out, <uint64_t>size, 4)


cdef inline void put_bin(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    put_bin_head(out, size)
    put_bytes(out, data, size)


cdef inline void put_array(Buffer* out, Py_ssize_t count) noexcept nogil:
    if count < 16:
        put(out, <uint8_t>(0x90 | count))
    elif count <= 0xFFFF:
        put(out, 0xDC)
        put_number(out, <uint64_t>count, 2)
    else:
        put(out, 0xDD)
        put_number(out, <uint64_t>count, 4)


cdef inline void put_text(Buffer* out, const char* text) noexcept nogil:
    """A short `str`: at most 255 bytes."""
    cdef Py_ssize_t size = <Py_ssize_t>strlen(text)
    if size < 32:
        put(out, <uint8_t>(0xA0 | size))
    else:
        put(out, 0xD9)
        put(out, <uint8_t>size)
    put_bytes(out, <const uint8_t*>text, size)


cdef inline int unsigned_size(uint64_t value) noexcept nogil:
    """How many bytes `put_unsigned` writes."""
    if value < 0x80:
        return 1
    return 2 if value <= 0xFF else 3 if value <= 0xFFFF else 5 if value <= 0xFFFFFFFFU else 9


cdef inline void put_response(Buffer* out, uint32_t msgid) noexcept nogil:
    """The head of an answer; error and result follow."""
    put(out, 0x94)
    put(out, 0x01)
    put_unsigned(out, msgid)


cdef inline void put_answer(Buffer* out, uint32_t msgid) noexcept nogil:
    """The envelope of a success; the result follows."""
    put_response(out, msgid)
    put(out, 0xC0)


cdef inline int write_error(
    Buffer* out, uint32_t msgid, const char* code, const char* message, Py_ssize_t limit, Py_ssize_t size
) noexcept nogil:
    """A whole error answer, `[1, id, [code, message, {limit, size}], nil]`; what is negative is left out."""
    if buffer_reserve(out, ERROR_BYTES) < 0:
        return -1
    put_response(out, msgid)
    put(out, 0x93)
    put_text(out, code)
    put_text(out, message)
    put(out, <uint8_t>(0x80 | (<int>(limit >= 0) + <int>(size >= 0))))
    if limit >= 0:
        put_text(out, b"limit")
        put_unsigned(out, <uint64_t>limit)
    if size >= 0:
        put_text(out, b"size")
        put_unsigned(out, <uint64_t>size)
    put(out, 0xC0)
    return 0


cdef inline int write_bad_request(Buffer* out, uint32_t msgid, const char* message) noexcept nogil:
    return write_error(out, msgid, b"BAD_REQUEST", message, -1, -1)
