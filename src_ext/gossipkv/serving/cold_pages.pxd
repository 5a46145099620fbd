"""Pages that are not in memory, and who waits for them.  The idea stands in `cold_pages.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.storage._storage cimport PageRead, PageThreads, Pager

cdef enum:
    # Pages that one request has read at the same time.
    MAX_AT_ONCE = 32

cdef struct Wait:  # of a relay, or of a connection's scans
    ColdPage* first  # those that it waits for
    uint32_t count
    uint32_t failures  # of reads, since it last began to wait for nothing
    void* whose
    bint scans  # whose: a `Scanner`; else a `Relay`

cdef struct ColdPage:
    PageRead read  # first, so that one is the other
    PyObject* file  # borrowed from the table
    PyObject* table  # which holds its files until the page is there
    Wait* wait  # NULL: nobody waits any more
    ColdPage* next  # of the same wait; of the free ones
    ColdPage* previous


cdef class ColdPages:
    cdef Pager pager
    cdef ColdPage* free
    cdef uint32_t count  # being read
    cdef uint64_t* counts
    cdef int64_t epoch_ns  # when what was found in memory is to be looked at again

    cdef int ask(self, Wait* wait, PyObject* file, PyObject* table, uint64_t ahead) noexcept nogil
    cdef Wait* take(self, int64_t now_ns) noexcept nogil
    cdef void come_back(self, ColdPage* page) noexcept nogil
    cdef void end(self) noexcept nogil


cdef void forget_wait(Wait* wait) noexcept nogil
