"""The hashes that determine the partition of a key.

All of Java's hashes are one polynomial, h * 31 + unit in 32 wrapping bits, with different units and starts of h:

    name        unit                    starts  partition of N
    sequins     byte, unsigned          0       (h & 0x7fffffff) % N
    text        byte, signed            1       (h & 0x7fffffff) % N
    string      UTF-16 code unit        0       (h & 0x7fffffff) % N
    spark       UTF-16 code unit        0       h floor-mod N
    cascading   UTF-16 code unit        0       ((h + 31) & 0x7fffffff) % N

Invariant: each agrees with the program that it is named after on every key that the program can hold. Other keys have
no hash and no partition, never a substitute. Old jobs wrote their files by these functions, so none may ever change.

Arithmetic is unsigned throughout, since signed overflow is undefined in C; only the result is read as signed. Words are
assembled from bytes, so neither alignment nor byte order matters; compilers make one load of them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport int8_t, int32_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

# 31 to the powers of two, three and four: four units a step leave one multiplication on the critical path.
cdef enum:
    P2 = 961
    P3 = 29791
    P4 = 923521

cdef enum:
    POSITIVE = 0x7FFFFFFF  # Java's Integer.MAX_VALUE, a mask that drops the sign.
    # The hash of a Cascading tuple of one element is 31 * 1 + the element's.
    TUPLE_START = 31


cdef int32_t sequins_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """`hashCode` of stripe/sequins: Java's String rule on unsigned bytes, which equals Java's for ASCII only."""
    cdef uint32_t h = 0
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        h = h * P4 + data[at] * P3 + data[at + 1] * P2 + data[at + 2] * 31 + data[at + 3]
        at += 4
    while at < size:
        h = h * 31 + data[at]
        at += 1
    return <int32_t>h


cdef int32_t writable_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Hadoop's `WritableComparator.hashBytes`: the `hashCode` of Text and BytesWritable."""
    cdef uint32_t h = 1
    cdef const int8_t* units = <const int8_t*>data
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        h = h * P4 + <uint32_t>(units[at] * P3 + units[at + 1] * P2 + units[at + 2] * 31 + units[at + 3])
        at += 4
    while at < size:
        h = h * 31 + <uint32_t>units[at]
        at += 1
    return <int32_t>h


cdef Py_ssize_t string_hash(const unsigned char* data, Py_ssize_t size, int32_t* hash) noexcept nogil:
    """`java.lang.String.hashCode` of the text with this UTF-8.

    Strict, like the reporting decoder of a JVM and Python's: no overlong forms, no surrogates, nothing over U+10FFFF.
    """
    cdef uint32_t h = 0
    cdef uint32_t code, least
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t width, i
    while at < size:
        if data[at] < 0x80:
            if size - at >= 4 and (data[at] | data[at + 1] | data[at + 2] | data[at + 3]) < 0x80:
                h = h * P4 + data[at] * P3 + data[at + 1] * P2 + data[at + 2] * 31 + data[at + 3]
                at += 4
            else:
                h = h * 31 + data[at]
                at += 1
            continue
        if data[at] < 0xC0:
            return at  # A continuation byte cannot lead.
        elif data[at] < 0xE0:
            width, least = 2, 0x80
        elif data[at] < 0xF0:
            width, least = 3, 0x800
        elif data[at] < 0xF8:
            width, least = 4, 0x10000
        else:
            return at
        if width > size - at:
            return at
        code = data[at] & (0x7F >> width)
        for i in range(1, width):
            if data[at + i] & 0xC0 != 0x80:
                return at
            code = code << 6 | (data[at + i] & 0x3F)
        if code < least or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            return at
        if code < 0x10000:
            h = h * 31 + code
        else:
            h = h * P2 + (0xD800 + ((code - 0x10000) >> 10)) * 31 + (0xDC00 + (code & 0x3FF))
        at += width
    hash[0] = <int32_t>h
    return -1


cdef inline Py_ssize_t masked(uint32_t h, Py_ssize_t count) noexcept nogil:
    """Hadoop's HashPartitioner: drop the sign, then the remainder."""
    return <Py_ssize_t>((h & <uint32_t>POSITIVE) % <uint64_t>count)


cdef inline Py_ssize_t floored(int32_t h, Py_ssize_t count) noexcept nogil:
    """Spark's `nonNegativeMod`: the remainder that has the divisor's sign."""
    if h >= 0:
        return <Py_ssize_t>(<uint64_t>h % <uint64_t>count)
    # -1 - h is never negative and cannot overflow; it counts down from the last partition.
    return count - 1 - <Py_ssize_t>(<uint64_t>(-1 - h) % <uint64_t>count)


cdef Py_ssize_t partition_of(
    int function, const unsigned char* data, Py_ssize_t size, Py_ssize_t count
) noexcept nogil:
    """Return the partition of a key under a function's code, or -1."""
    cdef int32_t h = 0
    if count < 1:
        return -1
    if function == SEQUINS:
        return masked(<uint32_t>sequins_hash(data, size), count)
    if function == TEXT:
        return masked(<uint32_t>writable_hash(data, size), count)
    if function < SEQUINS or function > CASCADING or string_hash(data, size, &h) >= 0:
        return -1
    return partition_of_hash(function, h, count)


cdef Py_ssize_t partition_of_hash(int function, int32_t h, Py_ssize_t count) noexcept nogil:
    """Return the partition of a key with a known hash: Java's rule from 0 over the units of `function`; not for TEXT.
    """
    if function == SPARK:
        return floored(h, count)
    return masked(<uint32_t>h + (TUPLE_START if function == CASCADING else 0), count)


cdef Py_ssize_t sequins_alternate(const unsigned char* data, Py_ssize_t size, Py_ssize_t count) noexcept nogil:
    """Return the partition, in Sequins' terms, in which a file partitioned by Cascading would hold the key.

    Adding 31 shifts every key by the same number of partitions, so a Cascading file is still one partition of Sequins'.
    Only if h + 31 passes 2**31 - 1, the mask breaks that, and the key lies 31 before its tuple's partition. Hashes from
    -31 to -1 break it as well. Sequins gives those no alternate, and this function follows it.
    """
    cdef int32_t h
    cdef uint64_t tuple_partition
    if count < 1:
        return -1
    h = sequins_hash(data, size)
    if h <= POSITIVE - 32:
        return masked(<uint32_t>h, count)
    tuple_partition = <uint64_t>masked(<uint32_t>h + TUPLE_START, count)
    return <Py_ssize_t>((tuple_partition + <uint64_t>count - <uint64_t>TUPLE_START % <uint64_t>count) % <uint64_t>count)


cdef inline uint32_t rotated(uint32_t word, int by) noexcept nogil:
    return word << by | word >> (32 - by)


cdef inline uint32_t little_endian(const unsigned char* data) noexcept nogil:
    return <uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24


cdef inline uint32_t big_endian(const unsigned char* data) noexcept nogil:
    return <uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | <uint32_t>data[3]


cdef uint32_t murmur3(const unsigned char* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """MurmurHash3_x86_32, by Austin Appleby (public domain): M3's hash of series to virtual shards."""
    cdef uint32_t c1 = 0xCC9E2D51
    cdef uint32_t c2 = 0x1B873593
    cdef uint32_t m = 0xE6546B64
    cdef uint32_t h = seed
    cdef uint32_t k = 0
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        h = rotated(h ^ rotated(little_endian(data + at) * c1, 15) * c2, 13) * 5 + m
        at += 4
    if size - at == 3:
        k = <uint32_t>data[at + 2] << 16
    if size - at >= 2:
        k |= <uint32_t>data[at + 1] << 8
    if size - at >= 1:
        k |= data[at]
        h ^= rotated(k * c1, 15) * c2
    h ^= <uint32_t>size
    h = (h ^ h >> 16) * <uint32_t>0x85EBCA6B
    h = (h ^ h >> 13) * <uint32_t>0xC2B2AE35
    return h ^ h >> 16


cdef inline uint32_t sha1_word(uint32_t* w, int t) noexcept nogil:
    """Return word t of the message schedule, and store it in place of word t - 16.

    A ring of sixteen is used instead of a list of eighty: compilers vectorise the list's recurrence by twos, which
    takes twice the time.
    """
    if t >= 16:
        w[t & 15] = rotated(w[(t - 3) & 15] ^ w[(t - 8) & 15] ^ w[(t - 14) & 15] ^ w[t & 15], 1)
    return w[t & 15]


cdef inline void sha1_round(uint32_t* v, uint32_t mixed) noexcept nogil:
    """Advance the five working words; `mixed` is the round's function, constant and message word together."""
    cdef uint32_t turned = rotated(v[0], 5) + mixed + v[4]
    v[4] = v[3]
    v[3] = v[2]
    v[2] = rotated(v[1], 30)
    v[1] = v[0]
    v[0] = turned


cdef void sha1_block(uint32_t* state, const unsigned char* block) noexcept nogil:
    """Process one block of the message: FIPS 180-4, section 6.1.2."""
    cdef uint32_t w[16]
    cdef uint32_t v[5]
    cdef int t
    for t in range(16):
        w[t] = big_endian(block + 4 * t)
    memcpy(v, state, sizeof(v))
    for t in range(0, 20):
        sha1_round(v, sha1_word(w, t) + <uint32_t>0x5A827999 + (v[3] ^ (v[1] & (v[2] ^ v[3]))))
    for t in range(20, 40):
        sha1_round(v, sha1_word(w, t) + <uint32_t>0x6ED9EBA1 + (v[1] ^ v[2] ^ v[3]))
    for t in range(40, 60):
        sha1_round(v, sha1_word(w, t) + <uint32_t>0x8F1BBCDC + ((v[1] & v[2]) | (v[3] & (v[1] | v[2]))))
    for t in range(60, 80):
        sha1_round(v, sha1_word(w, t) + <uint32_t>0xCA62C1D6 + (v[1] ^ v[2] ^ v[3]))
    for t in range(5):
        state[t] += v[t]


cdef void sha1_digest(const unsigned char* data, Py_ssize_t size, unsigned char* digest) noexcept nogil:
    """Compute the SHA-1 of the whole message; `digest` has room for twenty bytes."""
    cdef uint32_t state[5]
    cdef unsigned char last[128]  # The remaining bytes, 0x80, zeros, and the length in bits: one block or two.
    cdef Py_ssize_t left = size % 64
    cdef Py_ssize_t padded = 64 if left < 56 else 128
    cdef Py_ssize_t at
    cdef int i
    state[0] = 0x67452301
    state[1] = 0xEFCDAB89
    state[2] = 0x98BADCFE
    state[3] = 0x10325476
    state[4] = 0xC3D2E1F0
    for at in range(0, size - left, 64):
        sha1_block(state, data + at)
    memset(last, 0, sizeof(last))
    memcpy(last, data + (size - left), <size_t>left)
    last[left] = 0x80
    for i in range(8):
        last[padded - 1 - i] = <unsigned char>(<uint64_t>size * 8 >> (8 * i))
    for at in range(0, padded, 64):
        sha1_block(state, last + at)
    for i in range(20):
        digest[i] = <unsigned char>(state[i // 4] >> (24 - 8 * (i % 4)))


cdef inline const unsigned char* bytes_of(bytes key) noexcept:
    return <const unsigned char*>PyBytes_AS_STRING(key)


cdef object not_text(bytes key, Py_ssize_t offset):
    return ValueError(
        f"this key has no string hash: it is not UTF-8 at byte {offset} (0x{key[offset]:02x}), "
        f"in {key[:64]!r}{'...' if len(key) > 64 else ''}; only sequins and text hash any bytes"
    )


cdef Py_ssize_t checked_count(object count) except -1:
    """Return the partition count passed by Python; raise ValueError if it is out of range, TypeError if no integer."""
    cdef Py_ssize_t checked
    try:
        checked = count
    except OverflowError:
        checked = 0
    if checked < 1:
        raise ValueError(f"the partition count must be from 1 to {PY_SSIZE_T_MAX}, got {count}")
    return checked


def sequins(bytes key not None, /):
    """Return Sequins' hash, as Java's signed 32 bits."""
    return sequins_hash(bytes_of(key), PyBytes_GET_SIZE(key))


def text(bytes key not None, /):
    """Return Hadoop's hash of a Text or a BytesWritable, as Java's signed 32 bits."""
    return writable_hash(bytes_of(key), PyBytes_GET_SIZE(key))


cdef int32_t hash_of_text(bytes key) except? -1:
    cdef int32_t h = 0
    cdef Py_ssize_t bad = string_hash(bytes_of(key), PyBytes_GET_SIZE(key), &h)
    if bad >= 0:
        raise not_text(key, bad)
    return h


def string(bytes key not None, /):
    """Return `String.hashCode` of the text with this UTF-8.

    Raises:
        ValueError: the key is not UTF-8.
    """
    return hash_of_text(key)


def cascading(bytes key not None, /):
    """Return `hashCode` of Cascading's tuple (before 2.7) around that String: 31 more, in wrapping 32 bits.

    Raises:
        ValueError: the key is not UTF-8.
    """
    return <int32_t>(<uint32_t>hash_of_text(key) + TUPLE_START)


def partition(int function, bytes key not None, count, /):
    """Return the partition, from 0 to count - 1, under the function with that code.

    Raises:
        ValueError: an unknown code, a count out of range, or a key that this function cannot hash.
    """
    cdef int32_t h = 0
    cdef Py_ssize_t checked = checked_count(count)
    cdef Py_ssize_t found = partition_of(function, bytes_of(key), PyBytes_GET_SIZE(key), checked)
    if found >= 0:
        return found
    if function < SEQUINS or function > CASCADING:
        raise ValueError(f"the code of a partition function must be from {SEQUINS} to {CASCADING}, got {function}")
    raise not_text(key, string_hash(bytes_of(key), PyBytes_GET_SIZE(key), &h))


def alternate(bytes key not None, count, /):
    """Return the second partition in which Sequins looks for a key; usually the first one again.

    Raises:
        ValueError: a count out of range.
    """
    return sequins_alternate(bytes_of(key), PyBytes_GET_SIZE(key), checked_count(count))


def murmur3_32(bytes key not None, seed=0, /):
    """Return MurmurHash3_x86_32, unsigned.

    Raises:
        ValueError: the seed is not an unsigned 32-bit number.
    """
    cdef uint32_t checked
    try:
        checked = seed
    except OverflowError:
        raise ValueError(f"the seed must be from 0 to 4294967295, got {seed}") from None
    return murmur3(bytes_of(key), PyBytes_GET_SIZE(key), checked)


def sha1(bytes key not None, /):
    """Return the twenty bytes of SHA-1."""
    cdef unsigned char digest[20]
    sha1_digest(bytes_of(key), PyBytes_GET_SIZE(key), digest)
    return <bytes>digest[:20]
