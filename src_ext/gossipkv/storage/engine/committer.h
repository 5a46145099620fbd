/* A thread that writes and syncs, one job at a time, and never touches Python.
 *
 * The submitter fills in the job and writes to `asked`; the thread does the job and writes to `answered`. Both are
 * eventfds, so the submitter can wait for the answer among its other descriptors. The job belongs to one side at a
 * time, and the system calls on the eventfds hand it over. The other side touches no field of it meanwhile, not even
 * `ends`. */
#ifndef GOSSIPKV_COMMITTER_H
#define GOSSIPKV_COMMITTER_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct {
    pthread_t thread;
    int asked;
    int answered;
    int ends; /* Set instead of a job. */
    int descriptor;
    const uint8_t *data;
    size_t size;
    off_t offset;
    int error; /* The result: 0, or an errno. */
} gkv_committer;

/* Returns 0 or an errno. */
static int gkv_committer_write(int descriptor, const uint8_t *data, size_t size, off_t offset) {
    while (size > 0) {
        ssize_t written = pwrite(descriptor, data, size, offset);
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        if (written == 0) return EIO; /* A device that accepts nothing without an error would be retried forever. */
        data += written;
        size -= (size_t)written;
        offset += written;
    }
    return 0;
}

/* Returns 0 or an errno. A failed sync is not retried, since the system may have dropped the unwritten data. */
static int gkv_committer_sync(int descriptor) {
    while (fdatasync(descriptor) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

static int gkv_committer_tell(int descriptor) {
    uint64_t one = 1;
    while (write(descriptor, &one, sizeof one) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

/* Waits. Returns 0, or an errno if foreign code closed the descriptor. */
static int gkv_committer_hear(int descriptor) {
    uint64_t count;
    while (read(descriptor, &count, sizeof count) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

static void *gkv_committer_run(void *argument) {
    gkv_committer *self = (gkv_committer *)argument;
    for (;;) {
        if (gkv_committer_hear(self->asked) != 0 || self->ends) return NULL;
        self->error = gkv_committer_write(self->descriptor, self->data, self->size, self->offset);
        if (self->error == 0) self->error = gkv_committer_sync(self->descriptor);
        gkv_committer_tell(self->answered);
    }
}

/* Returns 0, or an errno, which leaves nothing behind. */
static int gkv_committer_start(gkv_committer *self) {
    sigset_t every, before;
    int error;
    memset(self, 0, sizeof *self);
    self->asked = eventfd(0, EFD_CLOEXEC);
    if (self->asked < 0) return errno;
    self->answered = eventfd(0, EFD_CLOEXEC);
    if (self->answered < 0) {
        error = errno;
        close(self->asked);
        return error;
    }
    /* Only threads known to Python may handle signals; a new thread inherits its maker's mask. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    error = pthread_create(&self->thread, NULL, gkv_committer_run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        close(self->asked);
        close(self->answered);
    }
    return error;
}

/* Waits until the job is done; returns 0 or its errno. */
static int gkv_committer_wait(gkv_committer *self) {
    int error = gkv_committer_hear(self->answered);
    return error != 0 ? error : self->error;
}

/* Returns true if the job is done, so that `gkv_committer_wait` would not wait. */
static int gkv_committer_is_done(gkv_committer *self) {
    struct pollfd answered = {self->answered, POLLIN, 0};
    return poll(&answered, 1, 0) > 0;
}

/* Ends the thread after its current job, and waits for it. */
static void gkv_committer_end(gkv_committer *self) {
    self->ends = 1;
    gkv_committer_tell(self->asked);
    pthread_join(self->thread, NULL);
}

static void gkv_committer_close(gkv_committer *self) {
    close(self->asked);
    close(self->answered);
}

#endif
