"""Whose a pump is.  The idea stands in `turn.pyx`."""

from libc.stdint cimport uint64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    unsigned long pthread_self()
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef enum:
    CACHE_LINE_BYTES = 64  # Of a cache.


cdef class Turn:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t given
    cdef bint taken
    cdef int wanted  # By how many others than the pump's own thread.
    cdef unsigned long holder  # The thread whose turn it is; 0: nobody's, or the pump's own.
    cdef int depth  # How often whoever has it has taken it again.
    cdef int waker  # What ends the sleep of the pump's own thread; -1: nothing.
    cdef bint asleep  # It sleeps; so it was not its turn then.
    cdef char behind[CACHE_LINE_BYTES]  # Turns are made one after the other, and a line of two would go to and fro.

    cdef void take(self) noexcept nogil
    cdef void give(self, bint asleep) noexcept nogil
    cdef bint is_wanted(self) noexcept nogil
    cdef bint is_mine(self) noexcept nogil
