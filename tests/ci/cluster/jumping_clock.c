/* A wall clock that jumps: every read is an hour later, or earlier, than the read before.
 *
 * The library is loaded before libc. The monotonic clocks are unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define HOUR_S 3600

static atomic_long looks;

static long jump(void) {
    return atomic_fetch_add(&looks, 1) % 2 ? HOUR_S : -HOUR_S;
}

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    int result;
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    result = real(clock, found);
    if (result == 0 && is_wall(clock))
        found->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL)
        *found = now.tv_sec;
    return now.tv_sec;
}
