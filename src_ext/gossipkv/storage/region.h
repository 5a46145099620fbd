/* Large buffers that grow, straight from the kernel.
 *
 * glibc raises its threshold for such buffers each time one is freed. It then allocates the next ones from a heap that
 * it cannot return: a build within its budget would take half as much memory again. */
#ifndef GOSSIPKV_REGION_H
#define GOSSIPKV_REGION_H

#include <stddef.h>
#include <stdlib.h>

#if defined(__linux__)
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
/* The headers declare mremap only if _GNU_SOURCE was defined before any of them. */
extern void *mremap(void *old, size_t old_size, size_t size, int flags, ...);
#ifndef MREMAP_MAYMOVE
#define MREMAP_MAYMOVE 1
#endif

/* A large page, and the smallest region that requests large pages, so that it wastes less than one. They cost one page
 * fault per 2 MiB instead of per 4 KiB, and faults are most of the cost of new memory. */
#define GKV_LARGE_PAGE ((size_t)2 << 20)
#define GKV_LARGE_REGION (2 * GKV_LARGE_PAGE)

/* Returns the mapped size of a region: whole large pages, which the kernel then also aligns. */
static inline size_t gkv_region_mapped(size_t size) {
    return size < GKV_LARGE_REGION ? size : (size + GKV_LARGE_PAGE - 1) & ~(GKV_LARGE_PAGE - 1);
}

/* Resizes a region, possibly moving it; `old` NULL: a new region. NULL: no memory, and `old` is unchanged. */
static inline void *gkv_region_resize(void *old, size_t old_size, size_t size) {
    size_t mapped = gkv_region_mapped(size);
    void *region = old == NULL ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                               : mremap(old, gkv_region_mapped(old_size), mapped, MREMAP_MAYMOVE);
    if (region == MAP_FAILED) return NULL;
    if (size >= GKV_LARGE_REGION) (void)madvise(region, mapped, MADV_HUGEPAGE);
    return region;
}

static inline void gkv_region_free(void *region, size_t size) {
    if (region != NULL) munmap(region, gkv_region_mapped(size));
}

/* Requests large pages under a mapped file. Kernels and file systems without them refuse, harmlessly. */
static inline void gkv_wish_large_pages(const void *region, size_t size) {
    (void)madvise((void *)region, size, MADV_HUGEPAGE);
}

/* Releases the pages of a part of a mapped file, which begins and ends at pages; later reads load them again. */
static inline void gkv_forget_pages(const void *region, size_t size) {
    (void)madvise((void *)region, size, MADV_DONTNEED);
}
#else
static inline void gkv_forget_pages(const void *region, size_t size) {
    (void)region;
    (void)size;
}

static inline void gkv_wish_large_pages(const void *region, size_t size) {
    (void)region;
    (void)size;
}

static inline void *gkv_region_resize(void *old, size_t old_size, size_t size) {
    (void)old_size;
    return realloc(old, size);
}

static inline void gkv_region_free(void *region, size_t size) {
    (void)size;
    free(region);
}
#endif

#endif
