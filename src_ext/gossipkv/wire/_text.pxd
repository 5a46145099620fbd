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


cdef inline bint host_is_expected(Blob host, Blob names) noexcept nogil:
    """Return True if a `Host` is an address, or one of the names: in lower case, separated by spaces; empty: any is.

    No name looks like an address: digits with three dots, or hexadecimal digits and colons in brackets. A port and the
    last dot of a name are ignored.
    """
    cdef Py_ssize_t size = host.size
    cdef Py_ssize_t same = 0  # The bytes that the host shares with the current name; -1 if they differ.
    cdef Py_ssize_t i
    cdef int dots = 0
    cdef int letters = 0
    if names.size == 0:
        return True
    while size > 0 and 0x30 <= host.data[size - 1] <= 0x39:
        size -= 1
    size = size - 1 if size > 0 and host.data[size - 1] == 0x3A else host.size
    size -= size > 0 and host.data[size - 1] == 0x2E
    if size > 2 and host.data[0] == 0x5B and host.data[size - 1] == 0x5D:
        for i in range(1, size - 1):
            letters += hex_digit(host.data[i]) < 0 and host.data[i] != 0x3A and host.data[i] != 0x2E
        return letters == 0
    for i in range(size):
        dots += host.data[i] == 0x2E
        letters += host.data[i] != 0x2E and not 0x30 <= host.data[i] <= 0x39
    if dots == 3 and letters == 0:
        return True
    for i in range(names.size):
        if names.data[i] == 0x20:
            if same == size:
                return True
            same = 0
        else:
            same = same + 1 if 0 <= same < size and lower(host.data[same]) == names.data[i] else -1
    return same == size


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
