"""Gets that wait for the disk; `cold_gets.pyx` explains the design."""

from cpython.object cimport PyObject


cdef enum:
    # Longest wait for the disk of a read without a client's limit.
    DISK_NS = 10000000000

cdef struct Get:  # a client's get of a key that other nodes have, or that is not in memory
    Relay head
    bint explain  # the answer names the answering node
    PageWait wait  # the wait for pages of local files


cdef void wait_for_page(RelayDriver driver, Get* get, PyObject* file) noexcept nogil
cdef bint is_patient(const Get* get) noexcept nogil
cdef void release_get(Relays* relays, Relay* relay) noexcept nogil
cdef void refuse_slow(RelayDriver driver, Relay* relay) noexcept nogil
