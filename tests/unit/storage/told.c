/* A woken reader finds its page: the program asks for one page so many times and sleeps until it is woken.
 *
 * On one core the woken thread runs before the thread that woke it goes on.  Prints how often no page was found. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

#include "gossipkv/storage/pager.h"

int main(int argc, char **argv) {
    static gkv_page_threads threads;
    static gkv_pager pager;
    gkv_page_read read = {0};
    cpu_set_t one;
    eventfd_t ignored;
    int rounds, round, missing = 0, told = eventfd(0, EFD_CLOEXEC), descriptor = open(argv[1], O_RDONLY);
    const unsigned char *base = mmap(NULL, GKV_PAGER_PAGE, PROT_READ, MAP_SHARED, descriptor, 0);
    if (argc != 3 || told < 0 || descriptor < 0 || base == MAP_FAILED) return 2;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    rounds = atoi(argv[2]);
    gkv_page_threads_begin(&threads);
    gkv_pager_begin(&pager, &threads);
    pager.told = told;
    for (round = 0; round < rounds; round++) {
        read.descriptor = descriptor;
        read.base = base;
        read.first = 0;
        read.size = GKV_PAGER_PAGE;
        if (gkv_pager_ask(&pager, &read) < 0) return 2;
        gkv_pager_submit(&pager);
        if (eventfd_read(told, &ignored) < 0) return 2;
        if (gkv_pager_take(&pager) == NULL) {
            missing++;
            while (gkv_pager_take(&pager) == NULL) sched_yield();
        }
    }
    gkv_pager_end(&pager);
    gkv_page_threads_end(&threads);
    printf("%d of %d\n", missing, rounds);
    return missing > 0;
}
