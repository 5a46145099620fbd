/* The speed of a disk: random reads of a page each, past the page cache, by concurrent threads.
 *
 *     direct_reads FILE THREADS SECONDS SEED
 *
 * Prints the number of reads, their nanoseconds, and their nanoseconds of processor time. A file system without
 * O_DIRECT is read through a page cache that is dropped before, and asked not to read ahead. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_THREADS = 1024 };

static int file, direct;
static uint64_t pages, end_ns, seed;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t mixed(uint64_t word) { /* splitmix64 */
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

static void *read_pages(void *number) {
    uint64_t state = mixed(seed * MAX_THREADS + (uint64_t)(uintptr_t)number), done = 0;
    void *page;
    if (posix_memalign(&page, PAGE, PAGE) != 0) abort();
    while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
        off_t offset = (off_t)(mixed(state += 0x9E3779B97F4A7C15u) % pages * PAGE);
        if (pread(file, page, PAGE, offset) != PAGE) {
            perror("pread");
            exit(1);
        }
        if (!direct) posix_fadvise(file, offset, PAGE, POSIX_FADV_DONTNEED);
        done++;
    }
    free(page);
    return (void *)(uintptr_t)done;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    uint64_t threads = strtoull(words[2], NULL, 10), done = 0;
    pthread_t running[MAX_THREADS];
    struct stat found;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    file = open(words[1], O_RDONLY | O_DIRECT);
    direct = file >= 0;
    if (!direct && errno == EINVAL) {
        file = open(words[1], O_RDONLY);
        posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (file < 0 || fstat(file, &found) != 0 || (pages = (uint64_t)found.st_size / PAGE) == 0) {
        perror(words[1]);
        return 1;
    }
    seed = strtoull(words[4], NULL, 10);
    uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
    end_ns = begin_ns + (uint64_t)(strtod(words[3], NULL) * 1e9);
    for (uint64_t number = 0; number < threads; number++)
        if (pthread_create(&running[number], NULL, read_pages, (void *)(uintptr_t)number) != 0) return 1;
    for (uint64_t number = 0; number < threads; number++) {
        void *reads;
        pthread_join(running[number], &reads);
        done += (uint64_t)(uintptr_t)reads;
    }
    uint64_t elapsed_ns = clock_ns(CLOCK_MONOTONIC) - begin_ns, used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    printf("%llu %llu %llu\n", (unsigned long long)done, (unsigned long long)elapsed_ns, (unsigned long long)used_ns);
    return 0;
}
