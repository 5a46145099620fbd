"""Gets that wait for the disk.  The idea stands in `cold_reads.pyx`."""

from cpython.object cimport PyObject


cdef enum:
    # What a read that needs the disk waits for it at most, if its client does not say.
    DISK_NS = 10000000000

cdef struct Get:  # of a client; of a key that others have, or that is not in memory
    Relay head
    bint explain  # who answers is told
    Wait wait  # for pages of what is here


cdef void wait_for_page(Asking asking, Get* get, PyObject* file) noexcept nogil
cdef bint is_patient(const Get* get) noexcept nogil
cdef void release_get(Relays* relays, Relay* relay) noexcept nogil
cdef void refuse_slow(Asking asking, Relay* relay) noexcept nogil
