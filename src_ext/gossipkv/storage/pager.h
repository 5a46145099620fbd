/* Threads that read pages of mapped files into memory, so that whoever serves from them never waits for a disk.
 *
 * A read is handed over through one line and comes back through another, both under one lock, which nobody holds while
 * it waits for the disk.  When the line of those that are done was empty, `told` is written to: whoever serves has it
 * among its other descriptors.  The threads touch no Python object; a map stays as it is until its reads came back.
 *
 * The reading is `pread`: an error is an errno, where a touch of the map would be SIGBUS.  The map is populated after
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
#define GKV_PAGER_PAGE 4096

typedef struct gkv_page_read {
    struct gkv_page_read *next; /* In the line. */
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

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t asked;
    gkv_page_line waiting;
    gkv_page_line done;
    pthread_t threads[GKV_PAGER_THREADS];
    int thread_count;
    int idle_count;
    int waiting_count;
    int ends;
    int told; /* An eventfd, somebody else's; -1: nobody is told. */
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

static void gkv_page_read_do(gkv_page_read *read) {
    uint64_t at;
    char byte;
    if (read->ahead > read->size) gkv_read_ahead(read->descriptor, (off_t)read->first, (off_t)read->ahead);
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

static void *gkv_pager_run(void *argument) {
    gkv_pager *self = (gkv_pager *)argument;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        gkv_page_read *read;
        int was_empty;
        while (self->waiting.first == NULL && !self->ends) {
            self->idle_count++;
            pthread_cond_wait(&self->asked, &self->lock);
            self->idle_count--;
        }
        if (self->ends) break;
        read = gkv_page_line_take(&self->waiting);
        self->waiting_count--;
        pthread_mutex_unlock(&self->lock);
        gkv_page_read_do(read);
        pthread_mutex_lock(&self->lock);
        was_empty = self->done.first == NULL;
        gkv_page_line_put(&self->done, read);
        if (was_empty && self->told >= 0) eventfd_write(self->told, 1);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Another thread, if there may be one more.  Requires: the lock.  None can be made: those that there are do the work. */
static void gkv_pager_grow(gkv_pager *self) {
    sigset_t every, before;
    if (self->thread_count == GKV_PAGER_THREADS) return;
    /* Signals are for the threads that Python knows; a new thread has the mask of the one that makes it. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    if (pthread_create(&self->threads[self->thread_count], NULL, gkv_pager_run, self) == 0) self->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Have a read done.  -1: there is no thread to do it. */
static int gkv_pager_ask(gkv_pager *self, gkv_page_read *read) {
    int result = 0;
    pthread_mutex_lock(&self->lock);
    read->failed = 0;
    if (self->idle_count <= self->waiting_count) gkv_pager_grow(self);
    if (self->thread_count == 0) {
        result = -1;
    } else {
        gkv_page_line_put(&self->waiting, read);
        self->waiting_count++;
        pthread_cond_signal(&self->asked);
    }
    pthread_mutex_unlock(&self->lock);
    return result;
}

/* A read that is done, or NULL. */
static gkv_page_read *gkv_pager_take(gkv_pager *self) {
    gkv_page_read *read;
    if (__atomic_load_n(&self->done.first, __ATOMIC_RELAXED) == NULL) return NULL;
    pthread_mutex_lock(&self->lock);
    read = gkv_page_line_take(&self->done);
    pthread_mutex_unlock(&self->lock);
    return read;
}

/* 0 or an errno. */
static int gkv_pager_begin(gkv_pager *self) {
    int error;
    memset(self, 0, sizeof *self);
    self->told = -1;
    error = pthread_mutex_init(&self->lock, NULL);
    return error != 0 ? error : pthread_cond_init(&self->asked, NULL);
}

/* Wait for the threads' end, which comes when the read that each may have is done; what waited is done, as failed. */
static void gkv_pager_end(gkv_pager *self) {
    gkv_page_read *read;
    int i;
    pthread_mutex_lock(&self->lock);
    self->ends = 1;
    pthread_cond_broadcast(&self->asked);
    pthread_mutex_unlock(&self->lock);
    for (i = 0; i < self->thread_count; i++) pthread_join(self->threads[i], NULL);
    self->thread_count = 0;
    while ((read = gkv_page_line_take(&self->waiting)) != NULL) {
        read->failed = 1;
        gkv_page_line_put(&self->done, read);
    }
}

#endif
