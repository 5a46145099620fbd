# The layout of a sorted file, shared by reader and writer; `docs/development/sorted-file.md` specifies it.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp


cdef extern from "gossipkv/storage/bits.h" nogil:
    uint64_t load64 "gkv_load64"(const void* at)
    uint32_t load32 "gkv_load32"(const void* at)
    void store64 "gkv_store64"(void* at, uint64_t word)
    void store32 "gkv_store32"(void* at, uint32_t word)
    uint64_t load64_big_endian "gkv_load64_big_endian"(const void* at)
    uint64_t multiply "gkv_multiply"(uint64_t a, uint64_t b, uint64_t* high)
    int lowest_bit "gkv_lowest_bit"(uint32_t mask)
    int highest_bit "gkv_last_bit"(uint64_t word)
    void prefetch "gkv_prefetch"(const void* at)
    uint32_t match12 "gkv_match12"(const uint8_t* bucket, uint8_t fingerprint)
    uint8_t load8_after "gkv_load8_after"(const uint8_t* at)
    int bit "gkv_bit"(const uint8_t* bits, uint64_t at)
    void set_bit "gkv_set_bit"(uint8_t* bits, uint64_t at)
    void clear_bits "gkv_clear_bits"(uint8_t* bits, uint64_t at, uint64_t end)

cdef extern from *:
    """
    #define GKV_K0 0x9E3779B97F4A7C15ULL
    #define GKV_K1 0xD6E8FEB86659FD93ULL
    #define GKV_K2 0xA0761D6478BD642FULL
    #define GKV_K3 0xE7037ED1A0B428DBULL
    #define GKV_RAW_BLOCK 0x8000000000000000ULL
    """
    const uint64_t K0 "GKV_K0"
    const uint64_t K1 "GKV_K1"
    const uint64_t K2 "GKV_K2"
    const uint64_t K3 "GKV_K3"
    const uint64_t RAW_BLOCK "GKV_RAW_BLOCK"      # Marks a block table's entry: stored uncompressed.

cdef enum:
    FORMAT_VERSION = 1
    PAGE_SIZE = 4096          # The unit of checksums and anchors, and the size of an lz4 block.
    HEADER_SIZE = 64
    FOOTER_SIZE = 256
    BUCKET_SIZE = 64          # One cache line.
    BUCKET_SLOTS = 12
    BUCKET_CARRIED_AT = 12    # 32 bits, one set by each key that passed through the bucket to the next.
    BUCKET_POSITIONS_AT = 16
    ANCHOR_SIZE = 12          # 8 bytes of key and 4 of position.
    MAX_COMMON_PREFIX = 64    # Longer prefixes are cut, to fit into the footer.
    MAX_KEY_SIZE = 65535
    MAX_VALUE_SIZE = 16777217   # 16 MiB, and one byte for the flag that precedes each value in a table's runs.
    MAX_PLAIN_SIZE = 16777216   # Limit of a value given to a builder.
    MAX_RECORD_SIZE = 16842760  # Key and value, two varints, and padding to 8.
    COMPRESSION_NONE = 0
    COMPRESSION_LZ4 = 1


cdef inline uint64_t mix(uint64_t a, uint64_t b) noexcept nogil:
    # The operands stay in the result, since a product with zero would lose the other operand.
    cdef uint64_t high = 0
    cdef uint64_t low = multiply(a, b, &high)
    return low ^ high ^ a ^ b


cdef inline uint64_t hash64_of(const uint8_t* key, Py_ssize_t size, uint64_t seed) noexcept nogil:
    """Return the index's hash: the bucket comes from its high bits, the fingerprint from its low byte."""
    cdef uint64_t h = seed ^ K0, a, b
    cdef const uint8_t* at = key
    cdef Py_ssize_t left = size
    if size >= 8:
        while left > 16:
            h = mix(load64(at) ^ K1, load64(at + 8) ^ h)
            at += 16
            left -= 16
        if size > 16:
            a = load64(key + size - 16)
            b = load64(key + size - 8)
        else:
            a = load64(key)
            b = load64(key + size - 8)
    elif size >= 4:
        a = (<uint64_t> load32(key) << 32) | load32(key + size - 4)
        b = 0
    elif size > 0:
        a = (<uint64_t> key[0] << 16) | (<uint64_t> key[size >> 1] << 8) | key[size - 1]
        b = 0
    else:
        a = 0
        b = 0
    h = mix(a ^ K1, b ^ h)
    return mix(h ^ K2, <uint64_t> size ^ K3)


cdef inline uint64_t bucket_of(uint64_t hash, uint64_t count) noexcept nogil:
    """Return the hash's high half, scaled to 0 .. count-1. Order is kept, so sorted hashes fill buckets in order."""
    return ((hash >> 32) * count) >> 32


cdef inline uint32_t carried_bit(uint64_t hash) noexcept nogil:
    """Return the bit that a key sets in every bucket that it passes through."""
    return <uint32_t> 1 << ((hash >> 8) & 31)


cdef inline uint64_t aligned8(uint64_t size) noexcept nogil:
    return (size + 7) & ~<uint64_t> 7


cdef inline int compare_keys(
    const uint8_t* a, Py_ssize_t a_size, const uint8_t* b, Py_ssize_t b_size
) noexcept nogil:
    """Compare in byte order; the result is negative, zero or positive."""
    cdef int order = memcmp(a, b, <size_t> (a_size if a_size < b_size else b_size))
    if order != 0:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef inline uint64_t word_of(const uint8_t* key, Py_ssize_t size, Py_ssize_t depth) noexcept nogil:
    """Return eight bytes of the key from `depth` on, zero-padded and big-endian, so that words compare as bytes do."""
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    if size - depth >= 8:
        return load64_big_endian(key + depth)
    for i in range(depth, size):
        word |= <uint64_t> key[i] << (56 - 8 * (i - depth))
    return word


cdef inline int varint_size(uint32_t number) noexcept nogil:
    return 1 + (number >= 0x80) + (number >= 0x4000) + (number >= 0x200000) + (number >= 0x10000000)


cdef inline uint8_t* put_varint(uint8_t* at, uint32_t number) noexcept nogil:
    while number >= 0x80:
        at[0] = <uint8_t> (number | 0x80)
        number >>= 7
        at += 1
    at[0] = <uint8_t> number
    return at + 1


cdef inline uint64_t record_size(Py_ssize_t key_size, Py_ssize_t value_size) noexcept nogil:
    """Return the size of a record, including padding."""
    return aligned8(
        <uint64_t> (varint_size(<uint32_t> key_size) + varint_size(<uint32_t> value_size))
        + <uint64_t> key_size + <uint64_t> value_size
    )
