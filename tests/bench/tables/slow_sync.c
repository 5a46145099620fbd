/* A disk whose syncs take longer while a file exists.
 *
 * The library is loaded before libc. `SLOW_SYNC` names the file, and `SLOW_SYNC_MS` the time that is added.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_as_told(void) {
    const char *path = getenv("SLOW_SYNC");
    if (path != NULL && access(path, F_OK) == 0) usleep(1000 * atoi(getenv("SLOW_SYNC_MS")));
}

int fdatasync(int file) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_as_told();
    return real(file);
}

int fsync(int file) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_as_told();
    return real(file);
}
