/* A replacement of ThreadSanitizer's library that records each thread's stores, by cache line and instruction.
 *
 * Code compiled with -fsanitize=thread calls a function before each access. Between `recorder_begin` and `recorder_end`
 * each thread records its stores and atomic operations in its own table, with the stores of memcpy and its relatives
 * and each locked mutex. Stores of the kernel (a receive, a wait for events) and of the allocator are not seen.
 *
 * Only threads that run such code are reported. An entry has the first store to a line, and the instruction behind
 * the store.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE_BYTES = 64, PLACES = 1 << 16, THREADS = 64 };

struct entry {
    uintptr_t address; /* 0: none */
    uintptr_t instruction;
};

struct table {
    bool is_told;
    bool is_full;
    size_t count;
    struct entry entries[PLACES];
};

static struct table *tables[THREADS];
static unsigned table_count;
static bool is_recording;
static __thread struct table *own;

static struct table *own_table(void) {
    if (own == NULL) {
        unsigned number = __atomic_fetch_add(&table_count, 1, __ATOMIC_RELAXED);
        void *made = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (number >= THREADS || made == MAP_FAILED)
            __builtin_trap();
        own = tables[number] = made;
    }
    return own;
}

static void stored(const void *where, size_t size, void *instruction, bool is_told) {
    if (!__atomic_load_n(&is_recording, __ATOMIC_RELAXED) || size == 0)
        return;
    struct table *table = own_table();
    uintptr_t first = (uintptr_t)where;
    table->is_told |= is_told;
    for (uintptr_t line = first / LINE_BYTES; line <= (first + size - 1) / LINE_BYTES; line++) {
        size_t at = line * 0x9E3779B97F4A7C15u >> 48;
        while (table->entries[at].address != 0 && table->entries[at].address / LINE_BYTES != line)
            at = (at + 1) % PLACES;
        if (table->entries[at].address != 0)
            continue;
        if (table->count == PLACES - 1) {
            table->is_full = true;
            return;
        }
        table->count++;
        table->entries[at].address = line == first / LINE_BYTES ? first : line * LINE_BYTES;
        table->entries[at].instruction = (uintptr_t)instruction;
    }
}

/* The interface ---------------------------------------------------------------------------------------------------- */

void recorder_begin(void) { __atomic_store_n(&is_recording, true, __ATOMIC_SEQ_CST); }
void recorder_end(void) { __atomic_store_n(&is_recording, false, __ATOMIC_SEQ_CST); }

/* Copy a thread's entries to `entries` and return their number; 0: unreported, -1: no such thread, -2: too many. */
long recorder_take(unsigned thread, struct entry *entries) {
    long count = 0;
    if (thread >= __atomic_load_n(&table_count, __ATOMIC_SEQ_CST))
        return -1;
    if (tables[thread]->is_full)
        return -2;
    for (size_t at = 0; tables[thread]->is_told && at < PLACES; at++)
        if (tables[thread]->entries[at].address != 0)
            entries[count++] = tables[thread]->entries[at];
    return count;
}

/* Calls before each access ----------------------------------------------------------------------------------------- */

#define FROM __builtin_return_address(0)

#define ACCESS(bytes)                                                                                                  \
    void __tsan_read##bytes(void *at) { (void)at; }                                                                    \
    void __tsan_unaligned_read##bytes(void *at) { (void)at; }                                                          \
    void __tsan_write##bytes(void *at) { stored(at, bytes, FROM, true); }                                              \
    void __tsan_unaligned_write##bytes(void *at) { stored(at, bytes, FROM, true); }

ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)

#define ATOMIC(bits, type)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                              \
        (void)order;                                                                                                   \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                  \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) {                                       \
        (void)order;                                                                                                   \
        stored((const void *)at, sizeof(type), FROM, true);                                                            \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                 \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(                                                                 \
        volatile type *at, type *expected, type value, int order, int failed) {                                        \
        (void)order, (void)failed;                                                                                     \
        stored((const void *)at, sizeof(type), FROM, true);                                                            \
        return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                \
    }                                                                                                                  \
    CHANGE(bits, type, exchange, __atomic_exchange_n)                                                                  \
    CHANGE(bits, type, fetch_add, __atomic_fetch_add)                                                                  \
    CHANGE(bits, type, fetch_sub, __atomic_fetch_sub)                                                                  \
    CHANGE(bits, type, fetch_and, __atomic_fetch_and)                                                                  \
    CHANGE(bits, type, fetch_or, __atomic_fetch_or)

#define CHANGE(bits, type, name, how)                                                                                  \
    type __tsan_atomic##bits##_##name(volatile type *at, type value, int order) {                                      \
        (void)order;                                                                                                   \
        stored((const void *)at, sizeof(type), FROM, true);                                                            \
        return how(at, value, __ATOMIC_SEQ_CST);                                                                       \
    }

ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t)

void __tsan_init(void) {}
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_read_range(void *at, size_t size) { (void)at, (void)size; }
void __tsan_write_range(void *at, size_t size) { stored(at, size, FROM, true); }

/* Calls in place of libc ------------------------------------------------------------------------------------------- */

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    void *at = to;
    stored(to, size, FROM, false);
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size) : : "memory");
    return to;
}

void *memset(void *to, int value, size_t size) {
    void *at = to;
    stored(to, size, FROM, false);
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(value) : "memory");
    return to;
}

void *memmove(void *to, const void *from, size_t size) {
    char *at = to;
    const char *source = from;
    stored(to, size, FROM, false);
    if (at <= source || at >= source + size) {
        __asm__ volatile("rep movsb" : "+D"(at), "+S"(source), "+c"(size) : : "memory");
        return to;
    }
    while (size-- > 0) {
        at[size] = source[size];
        __asm__ volatile("" : : : "memory"); /* Otherwise the compiler would call this function itself. */
    }
    return to;
}

int __pthread_mutex_lock(pthread_mutex_t *mutex);

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    stored(mutex, sizeof *mutex, FROM, false);
    return __pthread_mutex_lock(mutex);
}
