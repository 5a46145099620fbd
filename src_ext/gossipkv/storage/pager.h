/* Threads that read pages of mapped files into memory, so that a serving thread never waits for a disk.
 *
 * The serving thread requests reads, hands over those of a round at once, and takes completed reads at once. So there
 * are two queues under one lock, which nobody holds while waiting for the disk. If the queue of completed reads was
 * empty, `told` is written to, which the serving thread watches among its other descriptors. The threads touch no
 * Python object. A map stays unchanged until its reads have completed.
 *
 * Serving threads share the reader threads, and the queue of waiting reads. Each read has its asker, and completes into
 * the asker's own queue. A serving thread that ends waits only for its own reads.
 *
 * A reader thread takes a few reads at a time, starts all of them on the disk, and then waits for each. With one read
 * each, 16 threads need half as much CPU again for sleeping and waking, and complete three quarters of the reads. More
 * than a few would wait too long behind a slow read.
 *
 * Waiting uses `pread`: an error is an errno, while a touch of the map would raise SIGBUS. The map is populated once
 * the page is in memory: this spares the serving thread a fault, and the kernel reads nothing under the lock of the
 * process's maps. */
#ifndef GOSSIPKV_PAGER_H
#define GOSSIPKV_PAGER_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gossipkv/storage/residency.h"

#define GKV_PAGER_THREADS 16
#define GKV_PAGER_TAKES 4  /* Reads per thread at a time. */
#define GKV_PAGER_KEEPS 16 /* Maximum of requested reads before they are handed over. */
#define GKV_PAGER_PAGE 4096

typedef struct gkv_page_read {
    struct gkv_page_read *next; /* Link in a queue. */
    struct gkv_pager *asker;
    int descriptor;
    const unsigned char *base; /* Start of the map. */
    uint64_t first;            /* Offset of the first page. */
    uint64_t size;
    uint64_t ahead; /* Bytes from `first` on that will be wanted soon. */
    int failed;
} gkv_page_read;

typedef struct {
    gkv_page_read *first;
    gkv_page_read *last;
} gkv_page_line;

/* Shared by all serving threads. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    pthread_cond_t came_back; /* A serving thread waits for it when it ends. */
    gkv_page_line waiting;
    pthread_t threads[GKV_PAGER_THREADS];
    int thread_count;
    int idle_count;
    int one_comes; /* A woken thread has not taken the lock yet. */
    int ends;
} gkv_page_threads;

/* Belongs to one serving thread. */
typedef struct gkv_pager {
    gkv_page_line asked; /* Only the serving thread uses these four fields. */
    gkv_page_line taken;
    int asked_count;
    int has_threads;
    int told; /* An eventfd owned by the caller; -1: there is none. */
    gkv_page_threads *threads;
    gkv_page_line done; /* Guarded by the lock of `threads`, as are the fields below. */
    int has_done;       /* True if `done` is not empty; may be read without the lock. */
    int begun;          /* Reads that threads have taken and not completed. */
} gkv_pager;

static void gkv_page_line_put(gkv_page_line *line, gkv_page_read *read) {
    read->next = NULL;
    if (line->last != NULL) line->last->next = read;
    else line->first = read;
    line->last = read;
}

static gkv_page_read *gkv_page_line_take(gkv_page_line *line) {
    gkv_page_read *read = line->first;
    if (read == NULL) return NULL;
    line->first = read->next;
    if (line->first == NULL) line->last = NULL;
    return read;
}

/* Appends all of one queue to the other. */
static void gkv_page_line_move(gkv_page_line *line, gkv_page_line *from) {
    if (from->first == NULL) return;
    if (line->last != NULL) line->last->next = from->first;
    else line->first = from->first;
    line->last = from->last;
    from->first = from->last = NULL;
}

static void gkv_page_read_begin(const gkv_page_read *read) {
    uint64_t size = read->ahead > read->size ? read->ahead : read->size;
    gkv_read_ahead(read->descriptor, (off_t)read->first, (off_t)size);
}

static void gkv_page_read_end(gkv_page_read *read) {
    uint64_t at;
    char byte;
    for (at = read->first; at < read->first + read->size; at += GKV_PAGER_PAGE) {
        ssize_t got;
        do got = pread(read->descriptor, &byte, 1, (off_t)at);
        while (got < 0 && errno == EINTR);
        if (got != 1) { /* The disk failed, or the file was cut short. */
            read->failed = 1;
            return;
        }
    }
    gkv_populate(read->base + read->first, (size_t)(at - read->first));
}

static void *gkv_pager_run(void *argument);

/* Starts one more thread, up to the maximum; if that fails, the existing threads do the work. Requires: the lock. */
static void gkv_pager_grow(gkv_page_threads *self) {
    sigset_t every, before;
    if (self->thread_count == GKV_PAGER_THREADS) return;
    /* Only threads known to Python may handle signals; a new thread inherits its maker's mask. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    if (pthread_create(&self->threads[self->thread_count], NULL, gkv_pager_run, self) == 0) self->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Unlocks, and lets another thread take waiting reads, a new one if none idles. One thread is woken at a time, and
 * wakes the next if it cannot take all. So a serving thread spends little time here, and later reads are taken with the
 * rest. */
static void gkv_pager_pass_on(gkv_page_threads *self) {
    int wakes = 0;
    if (self->waiting.first != NULL && !self->one_comes && !self->ends) {
        if (self->idle_count > 0) self->one_comes = wakes = 1;
        else gkv_pager_grow(self);
    }
    pthread_mutex_unlock(&self->lock);
    if (wakes) pthread_cond_signal(&self->wanted);
}

/* Waits for reads, and returns how many it took; 0: the threads end. */
static int gkv_pager_next(gkv_page_threads *self, gkv_page_read **reads) {
    int count = 0;
    pthread_mutex_lock(&self->lock);
    while (self->waiting.first == NULL && !self->ends) {
        self->idle_count++;
        pthread_cond_wait(&self->wanted, &self->lock);
        self->idle_count--;
        self->one_comes = 0;
    }
    while (!self->ends && count < GKV_PAGER_TAKES && self->waiting.first != NULL) {
        reads[count] = gkv_page_line_take(&self->waiting);
        reads[count++]->asker->begun++;
    }
    gkv_pager_pass_on(self);
    return count;
}

/* Completes a read. The asker is signalled after the read is queued, since the woken thread may run at once and looks
 * only once. It is signalled without the lock, which it takes then, and before `begun` is decremented: until then the
 * asker exists. */
static void gkv_pager_give_back(gkv_page_threads *self, gkv_page_read *read) {
    gkv_pager *asker = read->asker;
    int tells;
    pthread_mutex_lock(&self->lock);
    tells = !asker->has_done && asker->told >= 0;
    gkv_page_line_put(&asker->done, read);
    __atomic_store_n(&asker->has_done, 1, __ATOMIC_RELAXED);
    if (tells) {
        pthread_mutex_unlock(&self->lock);
        eventfd_write(asker->told, 1);
        pthread_mutex_lock(&self->lock);
    }
    if (--asker->begun == 0) pthread_cond_broadcast(&self->came_back);
    pthread_mutex_unlock(&self->lock);
}

static void *gkv_pager_run(void *argument) {
    gkv_page_threads *self = (gkv_page_threads *)argument;
    gkv_page_read *reads[GKV_PAGER_TAKES];
    int count, i;
    while ((count = gkv_pager_next(self, reads)) > 0) {
        for (i = 0; i < count; i++)
            if (count > 1 || reads[i]->ahead > reads[i]->size) gkv_page_read_begin(reads[i]);
        for (i = 0; i < count; i++) {
            gkv_page_read_end(reads[i]);
            gkv_pager_give_back(self, reads[i]);
        }
    }
    return NULL;
}

/* Hands over the requested reads. */
static void gkv_pager_submit(gkv_pager *self) {
    if (self->asked_count == 0) return;
    self->asked_count = 0;
    pthread_mutex_lock(&self->threads->lock);
    gkv_page_line_move(&self->threads->waiting, &self->asked);
    gkv_pager_pass_on(self->threads);
}

/* Requests a read, to begin soon after `gkv_pager_submit` at the latest. -1: there is no thread for it. */
static int gkv_pager_ask(gkv_pager *self, gkv_page_read *read) {
    if (!self->has_threads) {
        pthread_mutex_lock(&self->threads->lock);
        if (self->threads->thread_count == 0) gkv_pager_grow(self->threads);
        self->has_threads = self->threads->thread_count > 0;
        pthread_mutex_unlock(&self->threads->lock);
        if (!self->has_threads) return -1;
    }
    read->failed = 0;
    read->asker = self;
    gkv_page_line_put(&self->asked, read);
    if (++self->asked_count == GKV_PAGER_KEEPS) gkv_pager_submit(self);
    return 0;
}

/* Returns a completed read, or NULL. */
static gkv_page_read *gkv_pager_take(gkv_pager *self) {
    if (self->taken.first == NULL && __atomic_load_n(&self->has_done, __ATOMIC_RELAXED)) {
        pthread_mutex_lock(&self->threads->lock);
        gkv_page_line_move(&self->taken, &self->done);
        __atomic_store_n(&self->has_done, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&self->threads->lock);
    }
    return gkv_page_line_take(&self->taken);
}

static void gkv_pager_begin(gkv_pager *self, gkv_page_threads *threads) {
    memset(self, 0, sizeof *self);
    self->told = -1;
    self->threads = threads;
}

/* Waits for the reads that threads have begun; waiting ones complete as failed. */
static void gkv_pager_end(gkv_pager *self) {
    gkv_page_line others = {NULL, NULL};
    gkv_page_read *read;
    pthread_mutex_lock(&self->threads->lock);
    gkv_page_line_move(&self->threads->waiting, &self->asked);
    while ((read = gkv_page_line_take(&self->threads->waiting)) != NULL) {
        read->failed |= read->asker == self;
        gkv_page_line_put(read->asker == self ? &self->taken : &others, read);
    }
    self->threads->waiting = others;
    while (self->begun > 0) pthread_cond_wait(&self->threads->came_back, &self->threads->lock);
    gkv_page_line_move(&self->taken, &self->done);
    pthread_mutex_unlock(&self->threads->lock);
}

/* Returns 0 or an errno. */
static int gkv_page_threads_begin(gkv_page_threads *self) {
    int error;
    memset(self, 0, sizeof *self);
    error = pthread_mutex_init(&self->lock, NULL);
    if (error == 0) error = pthread_cond_init(&self->wanted, NULL);
    return error != 0 ? error : pthread_cond_init(&self->came_back, NULL);
}

/* Waits for the threads to end. Requires: all pagers have ended. */
static void gkv_page_threads_end(gkv_page_threads *self) {
    int i;
    pthread_mutex_lock(&self->lock);
    self->ends = 1;
    pthread_cond_broadcast(&self->wanted);
    pthread_mutex_unlock(&self->lock);
    for (i = 0; i < self->thread_count; i++) pthread_join(self->threads[i], NULL);
    self->thread_count = 0;
}

#endif
