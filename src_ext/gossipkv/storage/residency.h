/* Residency of mapped files: read in large pieces if all of it fits into memory, else page by page.
 *
 * All but the last are hints: kernels and file systems that lack the feature refuse, harmlessly. */
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

/* Reads a mapped file by single pages on demand from now on. Otherwise a file larger than memory would be read, and
 * evicted again, in pieces of the disk's read-ahead. Cached large pages are released, since each is kept or evicted as
 * a whole. Linux ignores the use of pages under MADV_RANDOM when it evicts some. So the index, whose few pages are used
 * all the time, goes without that advice. */
static inline void gkv_read_by_page(int descriptor, const char *region, size_t size, size_t index, size_t index_size) {
    size_t begin = index & ~(size_t)4095;
    (void)madvise((void *)region, size, MADV_NOHUGEPAGE);
    (void)madvise((void *)region, size, MADV_RANDOM);
    (void)madvise((void *)(region + begin), index + index_size - begin, MADV_NORMAL);
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    (void)madvise((void *)region, size, MADV_DONTNEED);
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/* Reads a file as the kernel prefers, in large pages if there are any. */
static inline void gkv_read_by_stretch(int descriptor, const void *region, size_t size) {
    (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_NORMAL);
    (void)madvise((void *)region, size, MADV_NORMAL);
    gkv_wish_large_pages(region, size);
}

/* Starts reading this stretch of a file from the disk; does not wait. */
static inline void gkv_read_ahead(int descriptor, off_t offset, off_t size) {
    (void)posix_fadvise(descriptor, offset, size, POSIX_FADV_WILLNEED);
}

/* Waits until this stretch of a mapped file is in memory, and mapped. */
static inline void gkv_populate(const void *region, size_t size) {
#ifdef MADV_POPULATE_READ
    (void)madvise((void *)region, size, MADV_POPULATE_READ);
#else
    (void)madvise((void *)region, size, MADV_WILLNEED);
#endif
}

/* Returns true if the kernel tells our user which pages of this file are in memory. For files of other owners `mincore`
 * claims that all are. */
static inline int gkv_may_look(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 && (geteuid() == 0 || status.st_uid == geteuid());
}

/* Returns true if a page of a map is in memory, completely read. `may_look`: result of `gkv_may_look`. If it is false,
 * a non-blocking read is tried, which is slower: the kernel starts to read missing pages before it refuses. */
static inline int gkv_is_in_memory(int may_look, int descriptor, const unsigned char *base, size_t offset) {
    unsigned char there = 1;
    char byte;
    struct iovec one = {&byte, 1};
    if (may_look) return mincore((void *)(base + offset), 1, &there) != 0 || (there & 1);
    return preadv2(descriptor, &one, 1, (off_t)offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

#endif
