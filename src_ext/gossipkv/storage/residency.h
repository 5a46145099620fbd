/* How the pages of a mapped file come into memory: in large pieces where all fits, one by one where it does not.
 *
 * All but the last are wishes: kernels and file systems that have no such thing refuse, and that is fine. */
#ifndef GOSSIPKV_RESIDENCY_H
#define GOSSIPKV_RESIDENCY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gossipkv/storage/region.h"

/* Read a mapped file in single pages from now on, and none of them before it is asked for: what is larger than memory
 * would else be read, and thrown away again, in pieces of the disk's read-ahead.  Large pages that are cached are let go,
 * since one of them is kept, or thrown away, as a whole. */
static inline void gkv_read_by_page(int descriptor, const void *region, size_t size) {
    (void)madvise((void *)region, size, MADV_NOHUGEPAGE);
    (void)madvise((void *)region, size, MADV_RANDOM);
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    (void)madvise((void *)region, size, MADV_DONTNEED);
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/* Read it as the kernel thinks best, in large pages where there are any. */
static inline void gkv_read_by_stretch(int descriptor, const void *region, size_t size) {
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_NORMAL);
    (void)madvise((void *)region, size, MADV_NORMAL);
    gkv_wish_large_pages(region, size);
}

/* Have the disk begin to read this stretch of a file; does not wait for it. */
static inline void gkv_read_ahead(int descriptor, off_t offset, off_t size) {
    (void)posix_fadvise(descriptor, offset, size, POSIX_FADV_WILLNEED);
}

/* Wait until this stretch of a mapped file is in memory, and mapped. */
static inline void gkv_populate(const void *region, size_t size) {
#ifdef MADV_POPULATE_READ
    (void)madvise((void *)region, size, MADV_POPULATE_READ);
#else
    (void)madvise((void *)region, size, MADV_WILLNEED);
#endif
}

/* Whether the kernel tells who we are which pages of this file are in memory.  Of files that are not one's own `mincore`
 * says that all are. */
static inline int gkv_may_look(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 && (geteuid() == 0 || status.st_uid == geteuid());
}

/* Whether a page of a map is in memory, read to its end.  `may_look`: what `gkv_may_look` said.  Where it may not, a read
 * that does not wait is tried, which is slower: the kernel begins to read what is missing before it refuses.  Rejected:
 * cachestat(2), which takes a third of the time of `mincore`, and counts a page that is still being read. */
static inline int gkv_is_in_memory(int may_look, int descriptor, const unsigned char *base, size_t offset) {
    unsigned char there = 1;
    char byte;
    struct iovec one = {&byte, 1};
    if (may_look) return mincore((void *)(base + offset), 1, &there) != 0 || (there & 1);
    return preadv2(descriptor, &one, 1, (off_t)offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

#endif
