/* CRC-32C (Castagnoli), by the processor's instruction if it has one, else by tables. The choice is made once, at run
 * time, since a wheel is built for the most basic processor. */
#ifndef GOSSIPKV_CRC32C_H
#define GOSSIPKV_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GKV_CRC32C_POLYNOMIAL 0x82F63B78u

typedef uint32_t (*gkv_crc32c_function)(uint32_t crc, const uint8_t *data, size_t size);

static uint32_t gkv_crc32c_table[8][256];

static void gkv_crc32c_make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? GKV_CRC32C_POLYNOMIAL : 0);
        gkv_crc32c_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int lane = 1; lane < 8; lane++) {
            uint32_t crc = gkv_crc32c_table[lane - 1][byte];
            gkv_crc32c_table[lane][byte] = (crc >> 8) ^ gkv_crc32c_table[0][crc & 255];
        }
}

/* The instruction takes three cycles and can start every cycle, so three lanes run at once, of this many bytes each. */
#define GKV_CRC32C_LANE 336

/* The effect of a lane of zeros on a register, for each value of each of its bytes. */
static uint32_t gkv_crc32c_passed[4][256];

static inline uint32_t gkv_crc32c_pass_lane(uint32_t crc) {
    return gkv_crc32c_passed[0][crc & 255] ^ gkv_crc32c_passed[1][(crc >> 8) & 255] ^
           gkv_crc32c_passed[2][(crc >> 16) & 255] ^ gkv_crc32c_passed[3][crc >> 24];
}

static uint32_t gkv_crc32c_scalar(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (int lane = 0; lane < 8; lane++) crc ^= gkv_crc32c_table[7 - lane][(word >> (8 * lane)) & 255];
    }
    for (; size; size--, data++) crc = (crc >> 8) ^ gkv_crc32c_table[0][(crc ^ *data) & 255];
    return crc;
}

static void gkv_crc32c_make_lanes(void) {
    static const uint8_t zeros[GKV_CRC32C_LANE];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            gkv_crc32c_passed[byte][value] = gkv_crc32c_scalar(value << (8 * byte), zeros, GKV_CRC32C_LANE);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t gkv_crc32c_hardware(uint32_t start, const uint8_t *data,
                                                                      size_t size) {
    uint64_t crc = start;
    for (; size >= 3 * GKV_CRC32C_LANE; size -= 3 * GKV_CRC32C_LANE, data += 3 * GKV_CRC32C_LANE) {
        uint64_t middle = 0, last = 0;
        for (size_t at = 0; at < GKV_CRC32C_LANE; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], data + at, 8);
            memcpy(&words[1], data + at + GKV_CRC32C_LANE, 8);
            memcpy(&words[2], data + at + 2 * GKV_CRC32C_LANE, 8);
            crc = __builtin_ia32_crc32di(crc, words[0]);
            middle = __builtin_ia32_crc32di(middle, words[1]);
            last = __builtin_ia32_crc32di(last, words[2]);
        }
        crc = gkv_crc32c_pass_lane(gkv_crc32c_pass_lane((uint32_t)crc) ^ (uint32_t)middle) ^ last;
    }
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size; size--, data++) crc = __builtin_ia32_crc32qi((uint32_t)crc, *data);
    return (uint32_t)crc;
}
static int gkv_crc32c_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
__attribute__((target("+crc"))) static uint32_t gkv_crc32c_hardware(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        __asm__("crc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; size; size--, data++) __asm__("crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*data));
    return crc;
}
static int gkv_crc32c_has_hardware(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
static uint32_t gkv_crc32c_hardware(uint32_t crc, const uint8_t *data, size_t size) {
    return gkv_crc32c_scalar(crc, data, size);
}
static int gkv_crc32c_has_hardware(void) { return 0; }
#endif

#endif
