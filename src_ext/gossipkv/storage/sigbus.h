/* Handling of mapped files that can no longer be read: the file was cut short, or its disk failed.
 *
 * The kernel answers such a read with SIGBUS, which ends a process. With the handler installed, a fault inside a map of
 * ours ends that map instead: all of it becomes zeros, so the read continues and the map cannot fault again. The last
 * byte of a file is never zero; so every reader then sees that its copied bytes may be invalid (`is_whole` in
 * `mapped_file.pxd`). A fault anywhere else goes to the earlier handler.
 *
 * The handler runs between any two instructions of a thread that reads a map, so it takes no lock. It walks a list
 * whose entries are never removed, only reused. Two rules keep it correct:
 *
 * - The thread that faults in a map holds it, so its entry does not change meanwhile.
 * - Another thread may change any other entry. The order of its writes, and of the reads here, never shows a range that
 *   did not exist: an entry in use has an end, which is cleared first and set last.
 *
 * Callers of `gkv_map_add` and `gkv_map_remove` hold the GIL. */
#ifndef GOSSIPKV_SIGBUS_H
#define GOSSIPKV_SIGBUS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct gkv_map {
    struct gkv_map *next;      /* in the list of all; constant once inserted */
    struct gkv_map *next_free; /* in the list of unused entries */
    uintptr_t start;
    uintptr_t end;             /* 0: the entry is unused */
    uint64_t lost;             /* 0: nothing is lost; else 1 + the offset of the first lost byte */
} gkv_map;

static gkv_map *gkv_maps;
static gkv_map *gkv_free_maps;
static struct sigaction gkv_earlier;

/* Adds an entry for a mapped file, before its first byte is read. NULL: no memory. */
static gkv_map *gkv_map_add(const void *start, size_t size) {
    gkv_map *map = gkv_free_maps;
    if (map != NULL) {
        gkv_free_maps = map->next_free;
    } else {
        map = calloc(1, sizeof(gkv_map));
        if (map == NULL) return NULL;
        map->next = gkv_maps;
        __atomic_store_n(&gkv_maps, map, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&map->lost, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&map->start, (uintptr_t)start, __ATOMIC_RELEASE);
    __atomic_store_n(&map->end, (uintptr_t)start + size, __ATOMIC_RELEASE);
    return map;
}

/* Frees an entry. Requires: the file is not read again, and about to be unmapped. */
static void gkv_map_remove(gkv_map *map) {
    __atomic_store_n(&map->end, 0, __ATOMIC_SEQ_CST);
    map->next_free = gkv_free_maps;
    gkv_free_maps = map;
}

/* Returns the entry of the map that contains an address, or NULL. */
static gkv_map *gkv_map_at(uintptr_t address) {
    gkv_map *map = __atomic_load_n(&gkv_maps, __ATOMIC_ACQUIRE);
    for (; map != NULL; map = map->next) {
        uintptr_t end = __atomic_load_n(&map->end, __ATOMIC_ACQUIRE);
        uintptr_t start = __atomic_load_n(&map->start, __ATOMIC_ACQUIRE);
        if (start <= address && address < end && end == __atomic_load_n(&map->end, __ATOMIC_ACQUIRE)) return map;
    }
    return NULL;
}

/* Replaces the whole map by zeros, for good, and records the first lost byte. -1: the system refuses. */
static int gkv_map_lose(gkv_map *map, uint64_t offset) {
    uint64_t nothing = 0;
    __atomic_compare_exchange_n(&map->lost, &nothing, offset + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    /* One mapping replaces one, so neither the number of maps nor the committed memory grows. */
    void *zeros = mmap((void *)map->start, map->end - map->start, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return zeros == MAP_FAILED ? -1 : 0;
}

static int gkv_map_is_lost(const gkv_map *map) { return __atomic_load_n(&map->lost, __ATOMIC_RELAXED) != 0; }

/* Returns the offset of the first lost byte. Requires: a byte was lost. */
static uint64_t gkv_map_lost_at(const gkv_map *map) { return __atomic_load_n(&map->lost, __ATOMIC_RELAXED) - 1; }

/* Handles the signal as before our handler was installed. */
static void gkv_pass_on(int signal, siginfo_t *info, void *context, int is_fault) {
    if (gkv_earlier.sa_flags & SA_SIGINFO) {
        gkv_earlier.sa_sigaction(signal, info, context);
    } else if (gkv_earlier.sa_handler == SIG_DFL || (gkv_earlier.sa_handler == SIG_IGN && is_fault)) {
        /* The signal is blocked here, so it ends the process on return. A fault cannot be ignored. */
        struct sigaction usual;
        memset(&usual, 0, sizeof(usual));
        usual.sa_handler = SIG_DFL;
        sigaction(signal, &usual, NULL);
        raise(signal);
    } else if (gkv_earlier.sa_handler != SIG_IGN) {
        gkv_earlier.sa_handler(signal);
    }
}

static void gkv_on_sigbus(int signal, siginfo_t *info, void *context) {
    int before = errno;
    int is_fault = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR || info->si_code == BUS_MCEERR_AR;
    gkv_map *map = is_fault ? gkv_map_at((uintptr_t)info->si_addr) : NULL;
    if (map == NULL || gkv_map_lose(map, (uintptr_t)info->si_addr - map->start) < 0) {
        gkv_pass_on(signal, info, context, is_fault);
    }
    errno = before;
}

/* Installs the handler, once in a process. A handler installed later must pass on to it. -1: the system refuses. */
static int gkv_sigbus_install(void) {
    static int installed;
    struct sigaction ours;
    if (installed) return 0;
    memset(&ours, 0, sizeof(ours));
    sigemptyset(&ours.sa_mask);
    ours.sa_sigaction = gkv_on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    if (sigaction(SIGBUS, NULL, &gkv_earlier) < 0 || sigaction(SIGBUS, &ours, NULL) < 0) return -1;
    installed = 1;
    return 0;
}

#endif
