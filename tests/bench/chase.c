/* A chase of pointers through memory that no cache holds: what one miss costs here, and nothing else. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64

/* One ring through all lines of `size` bytes, in an order drawn by `seed`; NULL: there is no memory. */
void **chase_new(size_t size, uint64_t seed) {
    size_t count = size / LINE, i;
    char *region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) return NULL;
    madvise(region, size, MADV_HUGEPAGE); /* As a sorted file is mapped: a miss of the cache, none of the page table. */
    for (i = 0; i < count; i++) *(void **)(region + i * LINE) = region + i * LINE;
    for (i = count - 1; i > 0; i--) { /* Sattolo: a permutation that is one ring. */
        size_t other;
        void **here = (void **)(region + i * LINE), **there, *kept;
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        other = (size_t)((seed >> 33) % i);
        there = (void **)(region + other * LINE);
        kept = *here;
        *here = *there;
        *there = kept;
    }
    return (void **)region;
}

/* Follow so many pointers, each of which stands where the one before it leads, and move `*at` there; the nanoseconds of
 * this thread. */
int64_t chase(void ***at, int64_t steps) {
    struct timespec begin, end;
    void **place = *at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    while (steps-- > 0) place = *place;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    *at = place;
    return (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec;
}
