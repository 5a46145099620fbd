/* A disk that delays or fails reads while a file says `hold` or `fail`.
 *
 * The library is loaded before libc. A read of one byte waits for a page to come into memory (`storage/pager.h`);
 * all other reads are unchanged. `SLOW_DISK` names the file; each held or failed read adds a byte to the file `.met`
 * beside it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char said(void) {
    char word = 0;
    const char *path = getenv("SLOW_DISK");
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, &word, 1) != 1) word = 0;
        close(file);
    }
    return word;
}

static void note(void) {
    char path[PATH_MAX];
    int file;
    snprintf(path, sizeof path, "%s.met", getenv("SLOW_DISK"));
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, ".", 1) != 1) abort(); /* The test counts them. */
    close(file);
}

ssize_t pread(int file, void *into, size_t size, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    struct timespec moment = {0, 5000000};
    char word;
    if (real == NULL) real = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (size == 1 && (word = said()) != 0) {
        if (word == 'h' || word == 'f') note();
        while (word == 'h') {
            nanosleep(&moment, NULL);
            word = said();
        }
        if (word == 'f') {
            errno = EIO;
            return -1;
        }
    }
    return real(file, into, size, at);
}

ssize_t pread64(int file, void *into, size_t size, off_t at) {
    return pread(file, into, size, at);
}

/* Read-ahead would load the page although its read fails. */
int posix_fadvise(int file, off_t at, off_t size, int advice) {
    static int (*real)(int, off_t, off_t, int);
    if (real == NULL) real = (int (*)(int, off_t, off_t, int))dlsym(RTLD_NEXT, "posix_fadvise");
    return advice == POSIX_FADV_WILLNEED && said() != 0 ? 0 : real(file, at, size, advice);
}

int posix_fadvise64(int file, off_t at, off_t size, int advice) {
    return posix_fadvise(file, at, size, advice);
}
