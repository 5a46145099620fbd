"""The records of a store for serving loops; `gate.pyx` explains the design."""

from cpython.object cimport PyObject

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_rwlock_t:
        pass
    int pthread_rwlock_rdlock(pthread_rwlock_t* lock)
    int pthread_rwlock_wrlock(pthread_rwlock_t* lock)
    int pthread_rwlock_trywrlock(pthread_rwlock_t* lock)
    int pthread_rwlock_unlock(pthread_rwlock_t* lock)
    int pthread_rwlock_destroy(pthread_rwlock_t* lock)


cdef class ReadGate:
    cdef pthread_rwlock_t lock
    cdef list guards            # They guard the twins of the loops after the first.
    cdef list views             # One for each loop, the first one's first; empty while nothing is shown.
    cdef PyObject** shown       # The same views; NULL while nothing is shown.
    cdef int loops

    cdef int begin_change(self) except -1
    cdef int set_views(self, list views) except -1
    cdef int apply_slices(self, Memtable memtable, Batch batch) except -1


cdef inline void enter_gate(ReadGate gate, int loop) noexcept nogil:
    """Begin to read as that loop. The first loop has the thread that changes records, so it needs no lock."""
    if loop > 0:
        pthread_rwlock_rdlock(&gate.lock)


cdef inline void leave_gate(ReadGate gate, int loop) noexcept nogil:
    if loop > 0:
        pthread_rwlock_unlock(&gate.lock)


cdef inline PyObject* view_within(ReadGate gate, int loop) noexcept nogil:
    """Return that loop's `View`; NULL while nothing is shown. Valid within the gate."""
    return gate.shown[loop] if loop < gate.loops else NULL


cdef inline void end_change(ReadGate gate) noexcept nogil:
    pthread_rwlock_unlock(&gate.lock)
