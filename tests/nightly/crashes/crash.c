/* Kills a process before its Nth call that changes a file below a directory, and records each earlier call.
 *
 * The library is loaded by LD_PRELOAD into a process and its children. The environment configures it:
 *
 *     CRASH_BELOW  the directory, an absolute path; calls outside are neither counted nor recorded
 *     CRASH_NOTES  a directory with two files: `calls` of 8 bytes, the number of calls of all processes, and
 *                  `trace`, a line for each call: its kind, TAB, its path, and for a rename TAB and the new path
 *     CRASH_AT     N; 0 kills nobody
 *
 * The Nth call is recorded as `crash` and not made, except that a write writes its first half. Afterwards nothing
 * below the directory changes any more: a process that tries is killed as well, so that the parent of a killed process
 * does not repair the state before a restart finds it.
 *
 * A killed process leaves its writes, synced or not. `tests.world.simulated_files` simulates the losses of a power
 * cut; the trace shows that the real calls are made, and in which order.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef char Path[2 * PATH_MAX];

static const char *below;
static const char *notes;
static uint64_t crash_at;
static uint64_t *calls;

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("CRASH_AT");
    Path place;
    below = getenv("CRASH_BELOW");
    notes = getenv("CRASH_NOTES");
    if (below == NULL || notes == NULL || at == NULL)
        return;
    crash_at = strtoull(at, NULL, 10);
    snprintf(place, sizeof place, "%s/calls", notes);
    int descriptor = syscall(SYS_openat, AT_FDCWD, place, O_RDWR | O_CLOEXEC, 0);
    void *page = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (descriptor < 0 || page == MAP_FAILED)
        abort();
    close(descriptor);
    calls = page;
}

/* The path of a descriptor; empty if it has none. */
static void path_of(int descriptor, Path found) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, found, PATH_MAX);
    found[size < 0 ? 0 : size] = 0;
}

/* The absolute path of a call's argument. */
static void path_at(int directory, const char *path, Path found) {
    found[0] = 0;
    if (path[0] != '/') {
        if (directory != AT_FDCWD)
            path_of(directory, found);
        else if (getcwd(found, PATH_MAX) == NULL)
            found[0] = 0;
        strcat(found, "/");
    }
    strncat(found, path, PATH_MAX);
}

static int is_below(const char *path) {
    size_t size = strlen(below);
    return strncmp(path, below, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static void write_down(const char *what, const char *path, const char *target) {
    static const char *const forms[] = {"%s\t%s\n", "%s\t%s\t%s\n"};
    char line[5 * PATH_MAX];
    Path place;
    snprintf(place, sizeof place, "%s/trace", notes);
    int descriptor = syscall(SYS_openat, AT_FDCWD, place, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int size = snprintf(line, sizeof line, forms[target != NULL], what, path, target);
    if (syscall(SYS_write, descriptor, line, size) != size)
        abort();
    syscall(SYS_close, descriptor);
}

/* Count and record a watched call; return true if the process must end before it. */
static int is_last(const char *what, const char *path, const char *target) {
    if (calls == NULL || !(is_below(path) || (target != NULL && is_below(target))))
        return 0;
    uint64_t number = __atomic_add_fetch(calls, 1, __ATOMIC_SEQ_CST);
    if (crash_at == 0 || number < crash_at) {
        write_down(what, path, target);
        return 0;
    }
    if (number > crash_at)
        kill(getpid(), SIGKILL);
    write_down("crash", what, path);
    return 1;
}

static int before(const char *what, const char *path, const char *target) {
    int saved = errno;
    if (is_last(what, path, target))
        kill(getpid(), SIGKILL);
    errno = saved;
    return 0;
}

/* The number of bytes that a write may still write. */
static size_t before_write(int descriptor, size_t size, int *last) {
    int saved = errno;
    Path path;
    *last = 0;
    if (calls != NULL && descriptor > 2) {
        path_of(descriptor, path);
        *last = is_last("write", path, NULL);
    }
    errno = saved;
    return *last ? size / 2 : size;
}

static ssize_t after_write(ssize_t done, int last) {
    if (last)
        kill(getpid(), SIGKILL);
    return done;
}

EXPORT ssize_t write(int descriptor, const void *data, size_t size) {
    int last;
    size = before_write(descriptor, size, &last);
    return after_write(syscall(SYS_write, descriptor, data, size), last);
}

EXPORT ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    int last;
    size = before_write(descriptor, size, &last);
    return after_write(syscall(SYS_pwrite64, descriptor, data, size, offset), last);
}

EXPORT ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    int last;
    int made = (int)before_write(descriptor, (size_t)count, &last);
    return after_write(syscall(SYS_writev, descriptor, parts, made), last);
}

EXPORT ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    int last;
    size = before_write(out, size, &last);
    return after_write(syscall(SYS_copy_file_range, in, from, out, to, size, flags), last);
}

static int sync_as(const char *what, long number, int descriptor) {
    Path path;
    path_of(descriptor, path);
    before(what, path, NULL);
    return syscall(number, descriptor);
}

EXPORT int fsync(int descriptor) { return sync_as("sync", SYS_fsync, descriptor); }

EXPORT int fdatasync(int descriptor) { return sync_as("sync", SYS_fdatasync, descriptor); }

EXPORT int ftruncate64(int descriptor, off64_t size) {
    Path path;
    path_of(descriptor, path);
    before("write", path, NULL);
    return syscall(SYS_ftruncate, descriptor, size);
}

EXPORT int renameat(int directory, const char *path, int into, const char *target) {
    Path from, to;
    path_at(directory, path, from);
    path_at(into, target, to);
    before("rename", from, to);
    return syscall(SYS_renameat2, directory, path, into, target, 0);
}

EXPORT int rename(const char *path, const char *target) { return renameat(AT_FDCWD, path, AT_FDCWD, target); }

EXPORT int linkat(int directory, const char *path, int into, const char *target, int flags) {
    Path from, to;
    path_at(directory, path, from);
    path_at(into, target, to);
    before("link", from, to);
    return syscall(SYS_linkat, directory, path, into, target, flags);
}

EXPORT int link(const char *path, const char *target) { return linkat(AT_FDCWD, path, AT_FDCWD, target, 0); }

EXPORT int unlinkat(int directory, const char *path, int flags) {
    Path found;
    path_at(directory, path, found);
    before("remove", found, NULL);
    return syscall(SYS_unlinkat, directory, path, flags);
}

EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int mkdirat(int directory, const char *path, mode_t mode) {
    Path found;
    path_at(directory, path, found);
    before("create", found, NULL);
    return syscall(SYS_mkdirat, directory, path, mode);
}

EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int openat64(int directory, const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        Path found;
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        path_at(directory, path, found);
        before("create", found, NULL);
    }
    return syscall(SYS_openat, directory, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return openat64(AT_FDCWD, path, flags, mode);
}
