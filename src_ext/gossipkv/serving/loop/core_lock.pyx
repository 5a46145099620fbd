"""The core lock: it alternates a serving loop between its own thread and Trio.

Each serving loop after the first has a thread. The lock guards the whole loop: core, connections, published table and
twins of files. The thread takes the lock when it wakes and releases it before it sleeps. Trio, which publishes, asks
and answers, gets the lock at the end of a step, and before the thread if both wait: mutexes are unfair, and a thread
that releases and retakes one usually wins. So no step takes a lock. A change to all loops at once, as of published
tables, holds all their core locks.

A holder may leave work behind, so releasing the lock wakes a sleeping thread.
"""

cimport cython
from libc.stdint cimport uint64_t

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int fd, uint64_t value)

cdef extern from *:
    """
    #define gkv_lock_load(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
    #define gkv_lock_store(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
    """
    int load_int "gkv_lock_load"(const int* source) noexcept nogil
    void store_int "gkv_lock_store"(int* target, int value) noexcept nogil
    unsigned long load_thread "gkv_lock_load"(const unsigned long* source) noexcept nogil
    void store_thread "gkv_lock_store"(unsigned long* target, unsigned long value) noexcept nogil


@cython.final
@cython.no_gc
cdef class CoreLock:
    """The core lock of a serving loop with its own thread; `with lock:` acquires it, reentrantly."""

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.given, NULL)
        self.waker = -1

    def __dealloc__(self):
        pthread_cond_destroy(&self.given)
        pthread_mutex_destroy(&self.mutex)

    def __enter__(self):
        if self.is_mine():
            self.depth += 1
            return self
        with nogil:
            pthread_mutex_lock(&self.mutex)
            store_int(&self.wanted, self.wanted + 1)  # The loop's own thread reads the number without the mutex.
            while self.taken:
                pthread_cond_wait(&self.given, &self.mutex)
            store_int(&self.wanted, self.wanted - 1)
            self.taken = True
            store_thread(&self.holder, pthread_self())
            pthread_mutex_unlock(&self.mutex)
        return self

    def __exit__(self, *_):
        cdef bint asleep
        if self.depth > 0:
            self.depth -= 1
            return
        pthread_mutex_lock(&self.mutex)
        store_thread(&self.holder, 0)
        self.taken = False
        asleep = self.asleep
        pthread_cond_broadcast(&self.given)
        pthread_mutex_unlock(&self.mutex)
        if asleep and self.waker >= 0:
            eventfd_write(self.waker, 1)

    cdef void take(self) noexcept nogil:
        """Acquire the lock for the loop's own thread, after all other waiting threads."""
        pthread_mutex_lock(&self.mutex)
        while self.taken or self.wanted > 0:
            pthread_cond_wait(&self.given, &self.mutex)
        self.taken = True
        self.asleep = False
        pthread_mutex_unlock(&self.mutex)

    cdef void give(self, bint asleep) noexcept nogil:
        """Release the lock; with `asleep` the next holder must wake this thread."""
        pthread_mutex_lock(&self.mutex)
        self.taken = False
        self.asleep = asleep
        if self.wanted > 0:
            pthread_cond_broadcast(&self.given)
        pthread_mutex_unlock(&self.mutex)

    cdef bint is_wanted(self) noexcept nogil:
        """True if other threads wait, as far as is visible without the mutex."""
        return load_int(&self.wanted) > 0

    cdef bint is_mine(self) noexcept nogil:
        """True if this thread, which is not the loop's own, holds the lock."""
        return load_thread(&self.holder) == pthread_self()
