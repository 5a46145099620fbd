/* Operations that C has and Cython lacks: unaligned little-endian loads, a 64 x 64 -> 128 bit product, bit counts,
 * prefetch, ordered loads, and vector compares of a bucket's twelve fingerprints and of 64 bytes. Nothing here depends
 * on the file format. */
#ifndef GOSSIPKV_BITS_H
#define GOSSIPKV_BITS_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GossipKV runs on little-endian machines only"
#endif

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(_MSC_VER)
#include <intrin.h>
#endif

static inline uint64_t gkv_load64(const void *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint32_t gkv_load32(const void *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}

static inline void gkv_store64(void *at, uint64_t word) { memcpy(at, &word, 8); }

static inline void gkv_store32(void *at, uint32_t word) { memcpy(at, &word, 4); }

static inline uint64_t gkv_load64_big_endian(const void *at) {
    uint64_t word = gkv_load64(at);
#if defined(_MSC_VER)
    return _byteswap_uint64(word);
#else
    return __builtin_bswap64(word);
#endif
}

/* Returns the low half of a 64 x 64 bit product, and the high half in `high`. */
static inline uint64_t gkv_multiply(uint64_t a, uint64_t b, uint64_t *high) {
#if defined(__SIZEOF_INT128__)
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
#elif defined(_M_X64)
    return _umul128(a, b, high);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32);
    uint64_t other = a0 * b1 + (uint32_t)middle;
    *high = a1 * b1 + (middle >> 32) + (other >> 32);
    return (other << 32) | (uint32_t)low;
#endif
}

static inline int gkv_lowest_bit(uint32_t mask) {
#if defined(_MSC_VER)
    unsigned long at;
    _BitScanForward(&at, mask);
    return (int)at;
#else
    return __builtin_ctz(mask);
#endif
}

/* Returns the index of the highest set bit. Requires: the word is not zero. */
static inline int gkv_last_bit(uint64_t word) {
#if defined(_MSC_VER)
    unsigned long at;
    _BitScanReverse64(&at, word);
    return (int)at;
#else
    return 63 - __builtin_clzll(word);
#endif
}

/* Volatile assembly, not __builtin_prefetch: GCC considers a function that only prefetches without effect, and drops
 * calls to it. */
static inline void gkv_prefetch(const void *at) {
#if defined(__x86_64__) && defined(__GNUC__)
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)at));
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*(const char *)at));
#elif defined(_MSC_VER)
    _mm_prefetch((const char *)at, _MM_HINT_T0);
#else
    __builtin_prefetch(at);
#endif
}

/* Bit i is set when bucket[i] == fingerprint, for i in 0..11.  The bucket is 64 bytes, so reading 16 is safe. */
static inline uint32_t gkv_match12(const uint8_t *bucket, uint8_t fingerprint) {
#if defined(__SSE2__) || defined(_M_X64)
    __m128i line = _mm_loadu_si128((const __m128i *)bucket);
    __m128i same = _mm_cmpeq_epi8(line, _mm_set1_epi8((char)fingerprint));
    return (uint32_t)_mm_movemask_epi8(same) & 0xFFFu;
#elif defined(__aarch64__)
    static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 0, 0, 0, 0};
    uint8x16_t same = vandq_u8(vceqq_u8(vld1q_u8(bucket), vdupq_n_u8(fingerprint)), vld1q_u8(weights));
    return (uint32_t)vaddv_u8(vget_low_u8(same)) | ((uint32_t)vaddv_u8(vget_high_u8(same)) << 8);
#else
    uint32_t mask = 0;
    for (int i = 0; i < 12; i++) mask |= (uint32_t)(bucket[i] == fingerprint) << i;
    return mask;
#endif
}

/* Returns true if 64 bytes are equal. */
static inline int gkv_same64(const void *one, const void *other) {
#if defined(__SSE2__) || defined(_M_X64)
    const __m128i *a = (const __m128i *)one, *b = (const __m128i *)other;
    __m128i first = _mm_cmpeq_epi8(_mm_loadu_si128(a), _mm_loadu_si128(b));
    __m128i second = _mm_cmpeq_epi8(_mm_loadu_si128(a + 1), _mm_loadu_si128(b + 1));
    __m128i third = _mm_cmpeq_epi8(_mm_loadu_si128(a + 2), _mm_loadu_si128(b + 2));
    __m128i fourth = _mm_cmpeq_epi8(_mm_loadu_si128(a + 3), _mm_loadu_si128(b + 3));
    return _mm_movemask_epi8(_mm_and_si128(_mm_and_si128(first, second), _mm_and_si128(third, fourth))) == 0xFFFF;
#else
    return memcmp(one, other, 64) == 0;
#endif
}

/* Loads a byte after all earlier reads: neither compiler nor processor moves the load up. */
static inline uint8_t gkv_load8_after(const uint8_t *at) {
#if defined(_MSC_VER)
    MemoryBarrier();
    return *(const volatile uint8_t *)at;
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

/* The bits record which pages were checked. Any reader sets them, and one thread clears them now and then. All accesses
 * are relaxed. A set bit that a clearing overwrites costs only a second check; one that survives a clearing stands for
 * a very recent check. A bit guards no other memory, since a mapped file has no writer. */
static inline int gkv_bit(const uint8_t *bits, uint64_t at) {
#if defined(_MSC_VER)
    return (bits[at >> 3] >> (at & 7)) & 1;
#else
    return (__atomic_load_n(bits + (at >> 3), __ATOMIC_RELAXED) >> (at & 7)) & 1;
#endif
}

static inline void gkv_set_bit(uint8_t *bits, uint64_t at) {
#if defined(_MSC_VER)
    bits[at >> 3] |= (uint8_t)(1u << (at & 7));
#else
    __atomic_fetch_or(bits + (at >> 3), (uint8_t)(1u << (at & 7)), __ATOMIC_RELAXED);
#endif
}

/* Clears the bits from `at` up to `end`, by whole bytes where possible. */
static inline void gkv_clear_bits(uint8_t *bits, uint64_t at, uint64_t end) {
    while (at < end) {
        uint64_t next = (at | 7) + 1 < end ? (at | 7) + 1 : end;
        uint8_t keep = (uint8_t)~((0xFFu << (at & 7)) & (0xFFu >> (7 - ((next - 1) & 7))));
#if defined(_MSC_VER)
        bits[at >> 3] &= keep;
#else
        if (keep == 0)
            __atomic_store_n(bits + (at >> 3), 0, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(bits + (at >> 3), keep, __ATOMIC_RELAXED);
#endif
        at = next;
    }
}

#endif
