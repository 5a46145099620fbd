"""Seals of tokens: who has no key of the cluster cannot make or change a token.

    seal    [key id 4 bytes][CRC-32C u32 of the cluster's id and the key id][SipHash-2-4-128 of the token, 16 bytes]

The first half names the key, so a node can tell a token whose key it lacks from one of another cluster.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* SipHash-2-4 with 128 bits (https://github.com/veorq/SipHash); `into` gets 16 bytes. */
    #define GKV_ROTATED(word, bits) (((word) << (bits)) | ((word) >> (64 - (bits))))
    #define GKV_SIP_ROUND \\
        v0 += v1; v1 = GKV_ROTATED(v1, 13); v1 ^= v0; v0 = GKV_ROTATED(v0, 32); \\
        v2 += v3; v3 = GKV_ROTATED(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = GKV_ROTATED(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = GKV_ROTATED(v1, 17); v1 ^= v2; v2 = GKV_ROTATED(v2, 32);

    static inline uint64_t gkv_little_endian(uint64_t word) {
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        return __builtin_bswap64(word);
    #else
        return word;
    #endif
    }

    static inline void gkv_siphash128(const uint64_t key[2], const uint8_t *data, size_t size, uint8_t *into) {
        uint64_t v0 = 0x736f6d6570736575ULL ^ key[0], v1 = 0x646f72616e646f6dULL ^ key[1] ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261ULL ^ key[0], v3 = 0x7465646279746573ULL ^ key[1];
        const uint8_t *end = data + (size & ~(size_t)7);
        uint64_t word, sum[2];
        int round;
        for (; data < end; data += 8) {
            memcpy(&word, data, 8);
            word = gkv_little_endian(word);
            v3 ^= word;
            GKV_SIP_ROUND
            GKV_SIP_ROUND
            v0 ^= word;
        }
        word = 0;
        memcpy(&word, data, size & 7);
        word = gkv_little_endian(word) | (uint64_t)size << 56;
        v3 ^= word;
        GKV_SIP_ROUND
        GKV_SIP_ROUND
        v0 ^= word;
        v2 ^= 0xee;
        for (round = 0; round < 4; round++) { GKV_SIP_ROUND }
        sum[0] = gkv_little_endian(v0 ^ v1 ^ v2 ^ v3);
        v1 ^= 0xdd;
        for (round = 0; round < 4; round++) { GKV_SIP_ROUND }
        sum[1] = gkv_little_endian(v0 ^ v1 ^ v2 ^ v3);
        memcpy(into, sum, 16);
    }

    /* The last short token of each table, by the first byte of its id: most answers of a loop repeat it. */
    typedef struct { uint64_t key[2]; size_t size; uint8_t token[64], sum[16]; } GkvSealedToken;
    static __thread GkvSealedToken gkv_sealed[8];

    static inline void gkv_sum_of_token(const uint64_t key[2], const uint8_t *data, size_t size, uint8_t *into) {
        GkvSealedToken *last = &gkv_sealed[size > 5 ? data[5] & 7 : 0];
        if (size > sizeof last->token) {
            gkv_siphash128(key, data, size, into);
            return;
        }
        if (last->size != size || memcmp(last->token, data, size) || memcmp(last->key, key, sizeof last->key)) {
            gkv_siphash128(key, data, size, last->sum);
            memcpy(last->key, key, sizeof last->key);
            memcpy(last->token, data, size);
            last->size = size;
        }
        memcpy(into, last->sum, 16);
    }

    /* In a time that does not depend on the bytes. */
    static inline int gkv_are_equal_16(const uint8_t *one, const uint8_t *other) {
        uint64_t a[2], b[2];
        memcpy(a, one, 16);
        memcpy(b, other, 16);
        return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
    }
    """
    void siphash128 "gkv_siphash128"(
        const uint64_t* key, const uint8_t* data, size_t size, uint8_t* into
    ) noexcept nogil
    void sum_of_token "gkv_sum_of_token"(
        const uint64_t* key, const uint8_t* data, size_t size, uint8_t* into
    ) noexcept nogil
    bint are_equal_16 "gkv_are_equal_16"(const uint8_t* one, const uint8_t* other) noexcept nogil

cdef enum:
    MAX_TOKEN_KEYS = 16     # A key ring has as many.
    KEY_NAME_BYTES = 8
    TOKEN_SEAL_BYTES = 24

cdef struct TokenKey:
    uint8_t name[KEY_NAME_BYTES]    # The first half of its seals.
    uint64_t secret[2]


cdef class TokenKeys:
    cdef bytes cluster
    cdef Py_ssize_t count
    cdef TokenKey keys[MAX_TOKEN_KEYS]

    cdef bytes name_of(self, bytes id_)


cdef inline void seal_token(TokenKeys keys, const uint8_t* data, Py_ssize_t size, uint8_t* into) noexcept nogil:
    """Write the seal of a token, by the first key."""
    memcpy(into, keys.keys[0].name, KEY_NAME_BYTES)
    sum_of_token(keys.keys[0].secret, data, <size_t>size, into + KEY_NAME_BYTES)


cdef inline bint is_sealed(TokenKeys keys, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """True if the seal behind that many bytes of a token is that of one of the keys."""
    cdef uint8_t sum[16]
    cdef Py_ssize_t at
    for at in range(keys.count):
        if memcmp(keys.keys[at].name, data + size, KEY_NAME_BYTES) == 0:
            sum_of_token(keys.keys[at].secret, data, <size_t>size, sum)
            if are_equal_16(sum, data + size + KEY_NAME_BYTES):
                return True
    return False
