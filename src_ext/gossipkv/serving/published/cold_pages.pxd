"""Pages that are not in memory, and the requests that wait for them; `cold_pages.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gossipkv.storage._storage cimport PageRead, PageThreads, Pager

cdef enum:
    # Pages that are read at the same time for one request.
    MAX_AT_ONCE = 32

cdef struct PageWait:  # the wait of a relay, or of a connection's scans
    ColdPage* first  # the pages it waits for
    uint32_t count
    uint32_t failures  # failed reads since the wait was last forgotten
    void* whose
    bint scans  # `whose` is a `Scanner`; else a `Relay`

cdef struct ColdPage:
    PageRead read  # first member, so that the pointers can be cast
    PyObject* file  # borrowed from the table
    PyObject* table  # holds its files until the page is read
    PageWait* wait  # NULL if no request waits any more
    ColdPage* next  # next page of the same wait, or next free one
    ColdPage* previous


cdef class ColdPages:
    cdef Pager pager
    cdef ColdPage* free
    cdef uint32_t count  # pages being read
    cdef uint64_t* counts
    cdef int64_t epoch_ns  # when pages found in memory must be checked again

    cdef int ask(self, PageWait* wait, PyObject* file, PyObject* table, uint64_t ahead) noexcept nogil
    cdef PageWait* take(self, int64_t now_ns) noexcept nogil
    cdef void come_back(self, ColdPage* page) noexcept nogil
    cdef void end(self) noexcept nogil


cdef void forget_wait(PageWait* wait) noexcept nogil
