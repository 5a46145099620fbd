r"""Reading of a `scan`'s lines: records, and the last one with the cursor; one pass without allocation.

    {"key":FORM,"value":FORM}           FORM is a string (its UTF-8 bytes), or {"base64":"..."}
    {"cursor":FORM or null, ...}

Space may stand between the parts, as in JSON; other fields, and another order, may not.  Decoded bytes go into a buffer
with room for all of the lines: no form is shorter than its bytes.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp, strlen

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, put

cdef enum:
    QUOTE = 34
    BACKSLASH = 92
    FIRST_TEXT = 32  # Lower bytes are control characters, which strings contain only as escapes.
    HIGH_SURROGATE = 0xD800
    LOW_SURROGATE = 0xDC00
    BEHIND_SURROGATES = 0xE000
    NO_NUMBER = 0xFFFFFFFF

cdef enum LastLine:
    NO_CURSOR = 0
    HAS_CURSOR = 1
    NO_LAST_LINE = 2


cdef inline const uint8_t* passed(const uint8_t* at, const uint8_t* end, const char* token) noexcept nogil:
    """Return the place behind a token, which space may precede; NULL if the token is not here."""
    cdef Py_ssize_t size = <Py_ssize_t>strlen(token)
    while at < end and (at[0] == 32 or at[0] == 9 or at[0] == 13 or at[0] == 10):
        at += 1
    return at + size if end - at >= size and memcmp(at, token, size) == 0 else NULL


cdef inline uint32_t hexadecimal(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return the number of four hexadecimal digits."""
    cdef uint32_t number = 0
    cdef uint8_t letter
    cdef int i
    if end - at < 4:
        return NO_NUMBER
    for i in range(4):
        letter = at[i] | 32
        if 48 <= at[i] <= 57:
            number = 16 * number + at[i] - 48
        elif 97 <= letter <= 102:
            number = 16 * number + letter - 87
        else:
            return NO_NUMBER
    return number


cdef inline void put_character(Buffer* into, uint32_t code) noexcept nogil:
    """Write a character in UTF-8."""
    if code < 0x80:
        put(into, <uint8_t>code)
        return
    if code < 0x800:
        put(into, <uint8_t>(0xC0 | code >> 6))
    else:
        if code < 0x10000:
            put(into, <uint8_t>(0xE0 | code >> 12))
        else:
            put(into, <uint8_t>(0xF0 | code >> 18))
            put(into, <uint8_t>(0x80 | (code >> 12 & 63)))
        put(into, <uint8_t>(0x80 | (code >> 6 & 63)))
    put(into, <uint8_t>(0x80 | (code & 63)))


cdef inline const uint8_t* take_escape(const uint8_t* at, const uint8_t* end, Buffer* into) noexcept nogil:
    """Take the rest of an escape behind its backslash."""
    cdef const char* plain = b'"\\/bfnrt'
    cdef const char* meant = b'"\\/\x08\x0c\n\r\t'
    cdef const uint8_t* found
    cdef uint32_t code
    cdef uint32_t low
    if at == end:
        return NULL
    if at[0] != 117:
        found = <const uint8_t*>memchr(plain, at[0], 8)
        if found == NULL:
            return NULL
        put(into, <uint8_t>meant[found - <const uint8_t*>plain])
        return at + 1
    code = hexadecimal(at + 1, end)
    at += 5
    if HIGH_SURROGATE <= code < LOW_SURROGATE:
        if end - at < 6 or at[0] != BACKSLASH or at[1] != 117:
            return NULL
        low = hexadecimal(at + 2, end)
        if not LOW_SURROGATE <= low < BEHIND_SURROGATES:
            return NULL
        code = 0x10000 + ((code - HIGH_SURROGATE) << 10) + low - LOW_SURROGATE
        at += 6
    elif code == NO_NUMBER or LOW_SURROGATE <= code < BEHIND_SURROGATES:
        return NULL
    put_character(into, code)
    return at


cdef inline const uint8_t* take_string(
    const uint8_t* at, const uint8_t* end, Buffer* into, Blob* found
) noexcept nogil:
    """Take a string behind its first quote."""
    found.data = into.data + into.end
    while at != NULL and at < end:
        if at[0] == QUOTE:
            found.size = into.data + into.end - found.data
            return at + 1
        if at[0] == BACKSLASH:
            at = take_escape(at + 1, end, into)
        elif at[0] < FIRST_TEXT:
            return NULL
        else:
            put(into, at[0])
            at += 1
    return NULL


cdef inline int of_base_64(uint8_t letter) noexcept nogil:
    """Return the value of a base64 letter, or -1."""
    if 65 <= letter <= 90:
        return letter - 65
    if 97 <= letter <= 122:
        return letter - 71
    if 48 <= letter <= 57:
        return letter + 4
    return 62 if letter == 43 else 63 if letter == 47 else -1


cdef inline bint decode_base_64(Buffer* into, Blob* text) noexcept nogil:
    """Decode a base64 text, the last in the buffer, in place; return False if it is malformed."""
    cdef uint8_t* data = into.data + (text.data - into.data)
    cdef Py_ssize_t size = text.size
    cdef Py_ssize_t to = 0
    cdef Py_ssize_t i
    cdef uint32_t bits = 0
    cdef int held = 0
    cdef int value
    if size % 4 != 0:
        return False
    while size > 0 and text.size - size < 2 and data[size - 1] == 61:
        size -= 1
    for i in range(size):
        value = of_base_64(data[i])
        if value < 0:
            return False
        bits = (bits << 6 | <uint32_t>value) & 0xFFFF
        held += 6
        if held >= 8:
            held -= 8
            data[to] = <uint8_t>(bits >> held)
            to += 1
    text.size = to
    into.end = data + to - into.data
    return True


cdef inline const uint8_t* take_form(const uint8_t* at, const uint8_t* end, Buffer* into, Blob* found) noexcept nogil:
    """Take bytes in JSON's form; return NULL if there are none."""
    cdef const uint8_t* behind = passed(at, end, b'"')
    if behind != NULL:
        return take_string(behind, end, into, found)
    at = passed(at, end, b"{")
    if at != NULL:
        at = passed(at, end, b'"base64"')
    if at != NULL:
        at = passed(at, end, b":")
    if at != NULL:
        at = passed(at, end, b'"')
    if at == NULL:
        return NULL
    at = take_string(at, end, into, found)
    if at == NULL or not decode_base_64(into, found):
        return NULL
    return passed(at, end, b"}")


cdef inline const uint8_t* take_field(
    const uint8_t* at, const uint8_t* end, const char* name, Buffer* into, Blob* found
) noexcept nogil:
    """Take a name, a colon and a form."""
    at = passed(at, end, name)
    if at != NULL:
        at = passed(at, end, b":")
    return take_form(at, end, into, found) if at != NULL else NULL


cdef inline bint take_record_line(
    const uint8_t* at, const uint8_t* end, Buffer* into, Blob* key, Blob* value
) noexcept nogil:
    """Take a line with a record; return False if it is malformed."""
    at = passed(at, end, b"{")
    if at != NULL:
        at = take_field(at, end, b'"key"', into, key)
    if at != NULL:
        at = passed(at, end, b",")
    if at != NULL:
        at = take_field(at, end, b'"value"', into, value)
    if at != NULL:
        at = passed(at, end, b"}")
    return at != NULL and passed(at, end, b"") == end


cdef inline int last_line(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return a `LastLine`: whether more records follow the scan."""
    at = passed(at, end, b"{")
    if at != NULL:
        at = passed(at, end, b'"cursor"')
    if at != NULL:
        at = passed(at, end, b":")
    if at == NULL:
        return NO_LAST_LINE
    return NO_CURSOR if passed(at, end, b"null") != NULL else HAS_CURSOR
