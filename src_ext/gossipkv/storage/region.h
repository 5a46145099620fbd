/* Large buffers that grow, straight from the kernel.
 *
 * glibc moves its threshold for such buffers up each time one is freed, and then carves the next ones out of a heap
 * that it cannot give back: a build within its budget would hold half as much again. */
#ifndef GOSSIPKV_REGION_H
#define GOSSIPKV_REGION_H

#include <stddef.h>
#include <stdlib.h>

#if defined(__linux__)
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
/* The headers declare mremap only when _GNU_SOURCE came before any of them. */
extern void *mremap(void *old, size_t old_size, size_t size, int flags, ...);
#ifndef MREMAP_MAYMOVE
#define MREMAP_MAYMOVE 1
#endif

/* A large page, and the least size of a region that asks for them: it holds less than one of them beyond its use.
 * They cost a fault for each 2 MiB instead of each 4 KiB, which is most of what new memory costs. */
#define GKV_LARGE_PAGE ((size_t)2 << 20)
#define GKV_LARGE_REGION (2 * GKV_LARGE_PAGE)

/* What is mapped for a region: whole large pages, which the kernel then also aligns. */
static inline size_t gkv_region_mapped(size_t size) {
    return size < GKV_LARGE_REGION ? size : (size + GKV_LARGE_PAGE - 1) & ~(GKV_LARGE_PAGE - 1);
}

/* The region with another size, possibly elsewhere; `old` NULL: a new one.  NULL: no memory, and `old` is as it was. */
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

/* Ask for large pages under a mapped file.  A wish: kernels and file systems that have none refuse, and that is fine. */
static inline void gkv_wish_large_pages(const void *region, size_t size) {
    (void)madvise((void *)region, size, MADV_HUGEPAGE);
}

/* Let go of the pages of a part of a mapped file, whose ends are pages' ends: whoever reads them again finds them anew. */
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
