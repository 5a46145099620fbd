"""Whose a pump is: its own thread's while it serves, or Trio's, which publishes, asks and answers between two steps.

A pump beside the first has a thread, and all of it (core, connections, published table, twins of files) belongs to
whoever has its turn.  The thread takes it when it wakes and gives it back before it sleeps; whoever else wants it is
let in at the end of a step, and before the thread when both wait: mutexes are unfair, and who gives one back and takes
it again is first.  So there is no lock in a step, and an order for what both do; what is to change for all pumps at
once, as what is published, changes while all turns are one's own.

Who had the turn may have left work: the thread, if it sleeps, is woken for a look.
"""

cimport cython
from libc.stdint cimport uint64_t

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd_write(int fd, uint64_t value)

cdef extern from *:
    """
    #define gkv_turn_load(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
    #define gkv_turn_store(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
    """
    int load_int "gkv_turn_load"(const int* source) noexcept nogil
    void store_int "gkv_turn_store"(int* target, int value) noexcept nogil
    unsigned long load_thread "gkv_turn_load"(const unsigned long* source) noexcept nogil
    void store_thread "gkv_turn_store"(unsigned long* target, unsigned long value) noexcept nogil


@cython.final
@cython.no_gc
cdef class Turn:
    """The turn of a pump with a thread of its own; `with turn:` it is the caller's, who may have it already."""

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
            store_int(&self.wanted, self.wanted + 1)  # Others look at it without the mutex.
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
        """Wait for the turn, and for all others who do: for the pump's own thread."""
        pthread_mutex_lock(&self.mutex)
        while self.taken or self.wanted > 0:
            pthread_cond_wait(&self.given, &self.mutex)
        self.taken = True
        self.asleep = False
        pthread_mutex_unlock(&self.mutex)

    cdef void give(self, bint asleep) noexcept nogil:
        """Have the turn no more; `asleep`: whoever has it next is to wake this thread."""
        pthread_mutex_lock(&self.mutex)
        self.taken = False
        self.asleep = asleep
        if self.wanted > 0:
            pthread_cond_broadcast(&self.given)
        pthread_mutex_unlock(&self.mutex)

    cdef bint is_wanted(self) noexcept nogil:
        """Whether others wait, as far as is known without the mutex."""
        return load_int(&self.wanted) > 0

    cdef bint is_mine(self) noexcept nogil:
        """Whether this thread, which is not the pump's own, has the turn."""
        return load_thread(&self.holder) == pthread_self()
