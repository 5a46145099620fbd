/* A connection that stalls amid the next long answer after a file appears.
 *
 * The library is loaded before libc. `STALLING` names the file, which is renamed to end in `.met`; the rest of the
 * answer is withheld until that file is removed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONG = 100000, BEGINNING = 1000 };

ssize_t send(int socket, const void *data, size_t size, int flags) {
    static ssize_t (*real)(int, const void *, size_t, int);
    static int stalled = -1;
    const char *path = getenv("STALLING");
    char met[PATH_MAX];
    if (real == NULL) real = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    snprintf(met, sizeof met, "%s.met", path);
    if (socket == stalled && access(met, F_OK) == 0) {
        usleep(1000); /* The socket has room, so the caller retries at once. */
        errno = EAGAIN;
        return -1;
    }
    stalled = socket == stalled ? -1 : stalled;
    if (size > LONG && rename(path, met) == 0) {
        stalled = socket;
        size = BEGINNING;
    }
    return real(socket, data, size, flags);
}
