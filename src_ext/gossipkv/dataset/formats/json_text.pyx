"""A scanner of JSON as written (RFC 8259): checks a text and finds the bounds of its parts, without making objects.

Strings are checked in passing: UTF-8 without surrogates, no bare control character, escapes in pairs where UTF-16 needs
pairs.  A level of nesting costs one bit and no machine stack, so that no text ends the process.  Nesting deeper than
`MAX_DEPTH` is refused, since no usual reader of the value could follow.  Every function stops at `cursor.end` and reads
no byte from there on.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "gossipkv/storage/bits.h" nogil:
    uint64_t load64 "gkv_load64"(const void* at)

cdef extern from * nogil:
    """
    #define GKV_ONES 0x0101010101010101ULL
    #define GKV_HIGHS 0x8080808080808080ULL
    """
    const uint64_t ONES "GKV_ONES"
    const uint64_t HIGHS "GKV_HIGHS"
    int trailing_zeros "__builtin_ctzll"(unsigned long long word)

cdef enum:
    DEPTH_WORDS = 16  # Each level of MAX_DEPTH has one bit.
    QUOTE = 34
    PLUS = 43
    COMMA = 44
    MINUS = 45
    POINT = 46
    SLASH = 47
    ZERO = 48
    FALSE_BEGINS = 102  # The first letters of words.
    NULL_BEGINS = 110
    TRUE_BEGINS = 116
    NINE = 57
    COLON = 58
    EQUALS = 61
    OPEN_LIST = 91
    BACKSLASH = 92
    CLOSE_LIST = 93
    OPEN_OBJECT = 123
    CLOSE_OBJECT = 125


cdef inline bint wrong(Cursor* cursor, Fault fault) noexcept nogil:
    cursor.fault = ENDS if cursor.at >= cursor.end else fault
    return False


cdef void skip_space(Cursor* cursor) noexcept nogil:
    """Skip space, TAB, LF and CR."""
    while cursor.at < cursor.end and (cursor.at[0] == 32 or cursor.at[0] == 9 or cursor.at[0] == 13
                                      or cursor.at[0] == 10):
        cursor.at += 1


cdef bint take_byte(Cursor* cursor, uint8_t expected) noexcept nogil:
    """Take a byte of structure."""
    if cursor.at >= cursor.end or cursor.at[0] != expected:
        return wrong(cursor, SYNTAX)
    cursor.at += 1
    return True


# -- strings -----------------------------------------------------------------------------------------------------------

cdef inline uint64_t special(uint64_t word) noexcept nogil:
    """Return a word whose lowest set bit marks the first control character, quote, backslash or non-ASCII byte."""
    cdef uint64_t quotes = word ^ (ONES * QUOTE), slashes = word ^ (ONES * BACKSLASH)
    return (word | (word - ONES * 32) | (quotes - ONES) | (slashes - ONES)) & HIGHS


cdef bint take_string(Cursor* cursor, Span* span) noexcept nogil:
    """Take a string, from its opening quote to its closing one."""
    cdef uint64_t found
    cdef uint8_t byte
    cdef int size
    if not take_byte(cursor, QUOTE):
        return False
    span.at = cursor.at
    span.changed = False
    while True:
        while cursor.end - cursor.at >= 8:
            found = special(load64(cursor.at))
            if found != 0:
                cursor.at += <Py_ssize_t> (trailing_zeros(found) >> 3)
                break
            cursor.at += 8
        if cursor.at >= cursor.end:
            return wrong(cursor, ENDS)
        byte = cursor.at[0]
        if byte == QUOTE:
            span.size = cursor.at - span.at
            cursor.at += 1
            return True
        if byte == BACKSLASH:
            span.changed = True
            if not take_escape(cursor):
                return False
        elif byte < 32:
            return wrong(cursor, CONTROL)
        elif byte < 128:
            cursor.at += 1
        else:
            size = character_size(cursor.at, cursor.end)
            if size == 0:
                return wrong(cursor, NOT_UTF8)
            cursor.at += size


cdef int character_size(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return the size of the character that begins here with a byte over 127; 0 if it is not UTF-8 (RFC 3629)."""
    cdef uint8_t first = at[0], least = 0x80, most = 0xBF
    cdef int size, i
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            least = 0xA0  # Below, two bytes would do.
        elif first == 0xED:
            most = 0x9F  # Above are the surrogates.
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            least = 0x90
        elif first == 0xF4:
            most = 0x8F  # Above, Unicode ends.
    else:
        return 0
    if end - at < size or not least <= at[1] <= most:
        return 0
    for i in range(2, size):
        if at[i] & 0xC0 != 0x80:
            return 0
    return size


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if ZERO <= byte <= NINE:
        return byte - ZERO
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


cdef int code_unit(const uint8_t* at, const uint8_t* end) noexcept nogil:
    r"""Return the sixteen bits of a \uXXXX that begins here, or -1."""
    cdef int i, digit, unit = 0
    if end - at < 6 or at[0] != BACKSLASH or at[1] != 117:
        return -1
    for i in range(2, 6):
        digit = hex_digit(at[i])
        if digit < 0:
            return -1
        unit = unit * 16 + digit
    return unit


cdef bint take_escape(Cursor* cursor) noexcept nogil:
    cdef int unit, low
    cdef uint8_t letter
    if cursor.end - cursor.at < 2:
        cursor.at = cursor.end
        return wrong(cursor, ENDS)
    letter = cursor.at[1]
    if letter != 117:
        if short_escape(letter) == 0:
            return wrong(cursor, ESCAPE)
        cursor.at += 2
        return True
    unit = code_unit(cursor.at, cursor.end)
    if unit < 0:
        return wrong(cursor, ESCAPE)
    if 0xD800 <= unit <= 0xDFFF:
        low = code_unit(cursor.at + 6, cursor.end)
        if unit > 0xDBFF or not 0xDC00 <= low <= 0xDFFF:
            return wrong(cursor, LONE_SURROGATE)
        cursor.at += 6
    cursor.at += 6
    return True


cdef inline uint8_t short_escape(uint8_t letter) noexcept nogil:
    """Return the character of a backslash and this letter; 0 if there is none."""
    if letter == QUOTE or letter == BACKSLASH or letter == SLASH:
        return letter
    if letter == 98:     # b
        return 8
    if letter == 102:    # f
        return 12
    if letter == 110:    # n
        return 10
    if letter == 114:    # r
        return 13
    if letter == 116:    # t
        return 9
    return 0


cdef Py_ssize_t unescape(const Span* span, uint8_t* target) noexcept nogil:
    """Write the text of a checked string, at most `span.size` bytes; return its size."""
    cdef const uint8_t* at = span.at
    cdef const uint8_t* end = span.at + span.size
    cdef const uint8_t* slash
    cdef uint8_t* out = target
    cdef uint32_t code
    while at < end:
        slash = <const uint8_t*> memchr(at, BACKSLASH, <size_t> (end - at))
        if slash == NULL:
            slash = end
        memcpy(out, at, <size_t> (slash - at))
        out += slash - at
        at = slash
        if at == end:
            break
        if at[1] != 117:
            out[0] = short_escape(at[1])
            out += 1
            at += 2
            continue
        code = <uint32_t> code_unit(at, end)
        at += 6
        if 0xD800 <= code <= 0xDBFF:
            code = 0x10000 + ((code - 0xD800) << 10) + (<uint32_t> code_unit(at, end) - 0xDC00)
            at += 6
        out += encode(code, out)
    return out - target


cdef inline int encode(uint32_t code, uint8_t* out) noexcept nogil:
    """Encode as UTF-8, which is never longer than the escape that it replaces."""
    if code < 0x80:
        out[0] = <uint8_t> code
        return 1
    if code < 0x800:
        out[0] = <uint8_t> (0xC0 | (code >> 6))
        out[1] = <uint8_t> (0x80 | (code & 0x3F))
        return 2
    if code < 0x10000:
        out[0] = <uint8_t> (0xE0 | (code >> 12))
        out[1] = <uint8_t> (0x80 | ((code >> 6) & 0x3F))
        out[2] = <uint8_t> (0x80 | (code & 0x3F))
        return 3
    out[0] = <uint8_t> (0xF0 | (code >> 18))
    out[1] = <uint8_t> (0x80 | ((code >> 12) & 0x3F))
    out[2] = <uint8_t> (0x80 | ((code >> 6) & 0x3F))
    out[3] = <uint8_t> (0x80 | (code & 0x3F))
    return 4


# -- other values ------------------------------------------------------------------------------------------------------

cdef bint take_digits(Cursor* cursor) noexcept nogil:
    """Take one digit or more."""
    if cursor.at >= cursor.end or not ZERO <= cursor.at[0] <= NINE:
        return wrong(cursor, SYNTAX)
    while cursor.at < cursor.end and ZERO <= cursor.at[0] <= NINE:
        cursor.at += 1
    return True


cdef bint take_number(Cursor* cursor) noexcept nogil:
    if cursor.at[0] == MINUS:
        cursor.at += 1
        if cursor.at < cursor.end and cursor.at[0] == 73:  # The letter I begins -Infinity.
            return wrong(cursor, NOT_FINITE)
    if cursor.at < cursor.end and cursor.at[0] == ZERO:
        cursor.at += 1
    elif not take_digits(cursor):
        return False
    if cursor.at < cursor.end and cursor.at[0] == POINT:
        cursor.at += 1
        if not take_digits(cursor):
            return False
    if cursor.at < cursor.end and cursor.at[0] | 32 == 101:  # An exponent begins with e or E.
        cursor.at += 1
        if cursor.at < cursor.end and (cursor.at[0] == PLUS or cursor.at[0] == MINUS):
            cursor.at += 1
        return take_digits(cursor)
    return True


cdef bint take_word(Cursor* cursor, const char* word, Py_ssize_t size) noexcept nogil:
    if cursor.end - cursor.at < size or memcmp(cursor.at, word, <size_t> size) != 0:
        return wrong(cursor, SYNTAX)
    cursor.at += size
    return True


cdef bint take_scalar(Cursor* cursor) noexcept nogil:
    cdef Span string
    cdef uint8_t byte
    if cursor.at >= cursor.end:
        return wrong(cursor, ENDS)
    byte = cursor.at[0]
    if byte == QUOTE:
        return take_string(cursor, &string)
    if byte == MINUS or ZERO <= byte <= NINE:
        return take_number(cursor)
    if byte == 116:
        return take_word(cursor, b"true", 4)
    if byte == 102:
        return take_word(cursor, b"false", 5)
    if byte == 110:
        return take_word(cursor, b"null", 4)
    if byte == 78 or byte == 73:  # The letters begin NaN and Infinity.
        return wrong(cursor, NOT_FINITE)
    return wrong(cursor, SYNTAX)


cdef inline bint take_name(Cursor* cursor) noexcept nogil:
    """Take the name of a member and its colon."""
    cdef Span name
    if not take_string(cursor, &name):
        return False
    skip_space(cursor)
    return take_byte(cursor, COLON)


cdef bint take_value(Cursor* cursor, Span* span) noexcept nogil:
    """Take any value; a string keeps its quotes."""
    cdef uint64_t objects[DEPTH_WORDS]  # Each level has a bit: it is an object, or a list.
    cdef int depth = 0
    cdef const uint8_t* before
    cdef uint8_t byte
    cdef bint is_object, opened
    span.at = cursor.at
    span.changed = False
    while True:
        # A value begins here.
        opened = False
        if cursor.at < cursor.end and (cursor.at[0] == OPEN_OBJECT or cursor.at[0] == OPEN_LIST):
            if depth == MAX_DEPTH:
                return wrong(cursor, TOO_DEEP)
            is_object = cursor.at[0] == OPEN_OBJECT
            if is_object:
                objects[depth >> 6] |= <uint64_t> 1 << (depth & 63)
            else:
                objects[depth >> 6] &= ~(<uint64_t> 1 << (depth & 63))
            depth += 1
            cursor.at += 1
            opened = True
        elif not take_scalar(cursor):
            return False
        # The value ends here, unless it was just opened.
        while depth > 0:
            before = cursor.at
            skip_space(cursor)
            span.changed |= cursor.at > before
            is_object = objects[(depth - 1) >> 6] >> ((depth - 1) & 63) & 1
            byte = cursor.at[0] if cursor.at < cursor.end else 0
            if byte == (CLOSE_OBJECT if is_object else CLOSE_LIST):
                cursor.at += 1
                depth -= 1
                opened = False
                continue
            if not opened:
                if not take_byte(cursor, COMMA):
                    return False
                before = cursor.at
                skip_space(cursor)
                span.changed |= cursor.at > before
            if is_object:
                if not take_name(cursor):
                    return False
                span.changed |= (cursor.at - 2)[0] != QUOTE
                before = cursor.at
                skip_space(cursor)
                span.changed |= cursor.at > before
            break
        if depth == 0:
            span.size = cursor.at - span.at
            return True


cdef Py_ssize_t compact(const Span* span, uint8_t* target) noexcept nogil:
    """Write a checked value without the space between its parts; return its size."""
    cdef const uint8_t* at = span.at
    cdef const uint8_t* end = span.at + span.size
    cdef uint8_t* out = target
    cdef uint8_t byte
    cdef bint inside = False
    while at < end:
        byte = at[0]
        at += 1
        if inside or not (byte == 32 or byte == 9 or byte == 10 or byte == 13):
            out[0] = byte
            out += 1
        if byte == QUOTE:
            inside = not inside
        elif byte == BACKSLASH:
            out[0] = at[0]  # Only strings have a backslash, and another byte follows.
            out += 1
            at += 1
    return out - target


# -- base64 ------------------------------------------------------------------------------------------------------------

cdef inline int base64_digit(uint8_t byte) noexcept nogil:
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if ZERO <= byte <= NINE:
        return byte + 4
    if byte == PLUS:
        return 62
    return 63 if byte == SLASH else -1


cdef Py_ssize_t decode_base64(const uint8_t* text, Py_ssize_t size, uint8_t* target) noexcept nogil:
    """Decode base64 with padding (RFC 4648, section 4); return the size, or -1.

    `target` may be the start of the text.
    """
    cdef Py_ssize_t at, i, kept, written = 0
    cdef uint32_t word
    cdef int digit
    if size % 4 != 0:
        return -1
    for at in range(0, size, 4):
        kept = 4
        if at + 4 == size and text[at + 3] == EQUALS:
            kept = 2 if text[at + 2] == EQUALS else 3
        word = 0
        for i in range(kept):
            digit = base64_digit(text[at + i])
            if digit < 0:
                return -1
            word |= <uint32_t> digit << (18 - 6 * i)
        for i in range(kept - 1):
            target[written] = <uint8_t> ((word >> (16 - 8 * i)) & 0xFF)
            written += 1
    return written
