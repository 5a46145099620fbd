"""Building blocks of text protocols, in C: read letters and digits, write words and numbers; nothing is allocated.

Every writer requires that the caller has reserved the room.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, strlen

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, put_bytes


cdef enum:
    LONGEST_DATABASE = 255  # A database's name is a directory name.


cdef inline uint8_t lower(uint8_t letter) noexcept nogil:
    return letter | 0x20 if 0x41 <= letter <= 0x5A else letter


cdef inline bint is_space(uint8_t letter) noexcept nogil:
    return letter == 0x20 or 0x09 <= letter <= 0x0D


cdef inline bint is_of_name(uint8_t letter) noexcept nogil:
    """Return True if the letter may occur in a database's or version's name."""
    return 0x61 <= lower(letter) <= 0x7A or 0x30 <= letter <= 0x39 or letter == 0x2D or letter == 0x5F


cdef inline int hex_digit(uint8_t letter) noexcept nogil:
    """Return the digit's value, or -1."""
    if 0x30 <= letter <= 0x39:
        return letter - 0x30
    letter = lower(letter)
    return letter - 0x61 + 10 if 0x61 <= letter <= 0x66 else -1


cdef inline bint word_is(const Blob* word, const char* name) noexcept nogil:
    """Compare a word with `name`, ignoring case. Requires: `name` is in lower case."""
    cdef Py_ssize_t size = <Py_ssize_t>strlen(name)
    cdef Py_ssize_t i
    if word.size != size:
        return False
    for i in range(size):
        if lower(word.data[i]) != <uint8_t>name[i]:
            return False
    return True


cdef inline void put_word(Buffer* out, const char* word) noexcept nogil:
    put_bytes(out, <const uint8_t*>word, <Py_ssize_t>strlen(word))


cdef inline void put_blob(Buffer* out, const Blob* blob) noexcept nogil:
    put_bytes(out, blob.data, blob.size)


cdef inline void put_end(Buffer* out) noexcept nogil:
    """Write the end of a line."""
    memcpy(out.data + out.end, b"\r\n", 2)
    out.end += 2


cdef inline void put_decimal(Buffer* out, uint64_t number) noexcept nogil:
    """Write at most 20 digits."""
    cdef uint8_t digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = <uint8_t>(0x30 + number % 10)
        number //= 10
        if number == 0:
            break
    put_bytes(out, digits + at, 20 - at)
