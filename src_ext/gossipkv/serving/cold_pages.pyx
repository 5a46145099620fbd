"""Reads that wait for the disk: the pages that they need, and when all of them are there.

A lookup of the serving loop never waits for the disk.  Where a file is larger than memory it asks before it touches a
page, and stops at one that is missing (`FAULT_COLD`).  That page is read by a pager's thread; meanwhile the request
waits, as one does that another node answers, and everybody else is served.  When the page is there the request is
looked up anew, from its beginning, or from the key or the record at which it had stopped: it may stop again, at the
record after the index, at the page of checksums after that.

* Who waits may be gone by then: its pages come back to nobody.
* A table holds its files until all their pages have come back (`PublishedTable.readers`).
* A page that cannot be read counts as read.  Whoever needs it asks again, and after some failures reads it where it
  stands, and so finds the damage that it is.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.storage._storage cimport MappedFile, begin_epoch

cdef enum:
    # How long a page that was found in memory counts as being there.
    EPOCH_NS = 10000000


cdef inline void add_reader(PublishedTable table) noexcept nogil:
    table.readers += 1


cdef inline void let_go(PublishedTable table) noexcept nogil:
    table.readers -= 1


@cython.final
@cython.no_gc  # It is part of no cycle, and a core that is collected ends it.
cdef class ColdPages:
    """The pages that are being read."""

    def __cinit__(self, PageThreads threads not None, uint64_t seed):
        self.pager = Pager(threads, seed)

    def __dealloc__(self):
        cdef ColdPage* page
        self.end()
        while self.free != NULL:
            page = self.free
            self.free = page.next
            free(page)

    cdef int ask(self, Wait* wait, PyObject* file, PyObject* table, uint64_t ahead) noexcept nogil:
        """Have the page read at which that file's last lookup stopped; `ahead`: how much after it will be wanted soon.

        -1: it cannot be.  Requires: the file is one of the table's.
        """
        cdef ColdPage* page = self.free
        if page != NULL:
            self.free = page.next
        else:
            page = <ColdPage*>calloc(1, sizeof(ColdPage))
            if page == NULL:
                return -1
        page.read.ahead = ahead
        page.file = file
        page.table = table
        if self.pager.ask(&page.read, <MappedFile>file) < 0:
            page.next = self.free
            self.free = page
            return -1
        add_reader(<PublishedTable>table)
        self.count += 1
        self.counts[COLD_PAGES] += 1
        page.wait = wait
        page.previous = NULL
        page.next = wait.first
        if wait.first != NULL:
            wait.first.previous = page
        wait.first = page
        wait.count += 1
        return 0

    cdef Wait* take(self, int64_t now_ns) noexcept nogil:
        """Whoever has all pages that it waits for, from now on; NULL: nobody else has."""
        cdef ColdPage* page
        cdef Wait* wait
        if now_ns >= self.epoch_ns:
            self.epoch_ns = now_ns + EPOCH_NS
            begin_epoch(<uint64_t>(now_ns // EPOCH_NS))
        page = <ColdPage*>self.pager.take()
        while page != NULL:
            wait = page.wait
            (<MappedFile>page.file).note_read(page.read.first, page.read.size)
            self.come_back(page)
            if wait != NULL and wait.count == 0:
                return wait
            page = <ColdPage*>self.pager.take()
        return NULL

    cdef void come_back(self, ColdPage* page) noexcept nogil:
        cdef Wait* wait = page.wait
        let_go(<PublishedTable>page.table)
        self.count -= 1
        self.counts[COLD_PAGES_FAILED] += <uint64_t>page.read.failed
        if wait != NULL:
            wait.failures += <uint32_t>page.read.failed
            wait.count -= 1
            if page.previous != NULL:
                page.previous.next = page.next
            else:
                wait.first = page.next
            if page.next != NULL:
                page.next.previous = page.previous
        page.next = self.free
        self.free = page

    cdef void end(self) noexcept nogil:
        """Wait for the reads that were begun; nobody is told of any, and none begins from now on.

        Where the collector ends a core, its files may be gone already.
        """
        cdef ColdPage* page
        self.pager.end()
        page = <ColdPage*>self.pager.take()
        while page != NULL:
            self.come_back(page)
            page = <ColdPage*>self.pager.take()


cdef void forget_wait(Wait* wait) noexcept nogil:
    """It waits for nothing any more, and may be gone when its pages come back."""
    cdef ColdPage* page = wait.first
    while page != NULL:
        page.wait = NULL
        page = page.next
    wait.first = NULL
    wait.count = 0
    wait.failures = 0
