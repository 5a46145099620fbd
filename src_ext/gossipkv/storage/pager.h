/* Threads that read pages of mapped files into memory, so that whoever serves from them never waits for a disk.
 *
 * Whoever serves asks for reads, hands over those of a round in one go, and takes what is done in one go: two lines
 * under one lock, which nobody holds while it waits for the disk.  When the line of those that are done was empty,
 * `told` is written to: whoever serves has it among its other descriptors.  The threads touch no Python object; a map
 * stays as it is until its reads came back.
 *
 * Several who serve share the threads, and the line of what waits: each read knows who has asked for it, and comes back
 * to that line of those that are done.  Who ends waits for its own reads alone.
 *
 * A thread takes a few reads at a time, has the disk begin all of them, and then waits for each: 16 threads that take
 * one each need half as much of the processor again, for the sleeping and waking, and get three quarters of the reads.
 * It is only a few, since those behind a read that takes long wait with it.
 *
 * The waiting is `pread`: an error is an errno, where a touch of the map would be SIGBUS.  The map is populated after
 * it, when the page is there: whoever serves is spared a fault, and the kernel has nothing to read under the lock of
 * the process's maps. */
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
#define GKV_PAGER_TAKES 4  /* Reads, a thread at a time. */
#define GKV_PAGER_KEEPS 16 /* Reads that are asked for, at most, before they are handed over. */
#define GKV_PAGER_PAGE 4096

typedef struct gkv_page_read {
    struct gkv_page_read *next; /* In the line. */
    struct gkv_pager *asker;
    int descriptor;
    const unsigned char *base; /* Of the map. */
    uint64_t first;            /* A page's first byte. */
    uint64_t size;
    uint64_t ahead; /* How much from there on will be wanted soon. */
    int failed;
} gkv_page_read;

typedef struct {
    gkv_page_read *first;
    gkv_page_read *last;
} gkv_page_line;

/* What all who serve share. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    pthread_cond_t came_back; /* For who ends. */
    gkv_page_line waiting;
    pthread_t threads[GKV_PAGER_THREADS];
    int thread_count;
    int idle_count;
    int one_comes; /* Of those that idled: it was woken, and has not taken the lock yet. */
    int ends;
} gkv_page_threads;

/* Of one who serves. */
typedef struct gkv_pager {
    gkv_page_line asked; /* These four are of whoever serves alone. */
    gkv_page_line taken;
    int asked_count;
    int has_threads;
    int told; /* An eventfd, somebody else's; -1: nobody is told. */
    gkv_page_threads *threads;
    gkv_page_line done; /* With their lock, as what follows. */
    int has_done;       /* Whether `done` has any: what may be looked at without the lock. */
    int begun;          /* Reads that threads have taken, and not given back. */
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

/* Put all of one line behind the other. */
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
        if (got != 1) { /* The disk fails, or the file was cut short. */
            read->failed = 1;
            return;
        }
    }
    gkv_populate(read->base + read->first, (size_t)(at - read->first));
}

static void *gkv_pager_run(void *argument);

/* Make one more thread, if there may be one; where none can be made, those that there are do the work.  Requires: the
 * lock. */
static void gkv_pager_grow(gkv_page_threads *self) {
    sigset_t every, before;
    if (self->thread_count == GKV_PAGER_THREADS) return;
    /* Signals are for the threads that Python knows; a new thread has the mask of the one that makes it. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    if (pthread_create(&self->threads[self->thread_count], NULL, gkv_pager_run, self) == 0) self->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Unlock, and have another thread take what still waits, a new one if none idles.  One is woken at a time, and wakes the
 * next if it cannot take all: whoever serves spends little on it, and what comes until then is taken with the rest. */
static void gkv_pager_pass_on(gkv_page_threads *self) {
    int wakes = 0;
    if (self->waiting.first != NULL && !self->one_comes && !self->ends) {
        if (self->idle_count > 0) self->one_comes = wakes = 1;
        else gkv_pager_grow(self);
    }
    pthread_mutex_unlock(&self->lock);
    if (wakes) pthread_cond_signal(&self->wanted);
}

/* Wait until there are reads to do; how many, 0: it ends. */
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

/* The asker is told once the read is there: who wakes may run before this thread goes on, and looks once.  It is told
 * without the lock, which it takes then, and before the read is counted: until that it is not gone. */
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

/* Hand over what was asked for. */
static void gkv_pager_submit(gkv_pager *self) {
    if (self->asked_count == 0) return;
    self->asked_count = 0;
    pthread_mutex_lock(&self->threads->lock);
    gkv_page_line_move(&self->threads->waiting, &self->asked);
    gkv_pager_pass_on(self->threads);
}

/* Have a read done, soon after `gkv_pager_submit` at the latest.  -1: there is no thread to do it. */
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

/* A read that is done, or NULL. */
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

/* Wait for the reads that threads have begun; what waited is done, as failed. */
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

/* 0 or an errno. */
static int gkv_page_threads_begin(gkv_page_threads *self) {
    int error;
    memset(self, 0, sizeof *self);
    error = pthread_mutex_init(&self->lock, NULL);
    if (error == 0) error = pthread_cond_init(&self->wanted, NULL);
    return error != 0 ? error : pthread_cond_init(&self->came_back, NULL);
}

/* Wait for their end.  Requires: all who asked have ended. */
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
