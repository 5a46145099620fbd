"""The core lock of a serving loop; `core_lock.pyx` explains the design."""

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
    CACHE_LINE_BYTES = 64


cdef class CoreLock:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t given
    cdef bint taken
    cdef int wanted  # number of waiting threads, without the loop's own
    cdef unsigned long holder  # the thread that has the lock; 0 for none, or for the loop's own
    cdef int depth  # nested acquisitions by the holder
    cdef int waker  # eventfd that wakes the loop's own thread; -1 for none
    cdef bint asleep  # the loop's own thread sleeps, without the lock
    # Padding: locks are allocated one after the other, and two of them would contend for one cache line.
    cdef char behind[CACHE_LINE_BYTES]

    cdef void take(self) noexcept nogil
    cdef void give(self, bint asleep) noexcept nogil
    cdef bint is_wanted(self) noexcept nogil
    cdef bint is_mine(self) noexcept nogil
