"""Reads that wait for the disk: the missing pages, and the requests that wait for them.

A lookup of the serving loop never waits for the disk. In a file larger than memory it checks each page first, and stops
at a missing one (`FAULT_COLD`). A pager thread reads the page while the loop serves other requests. Then the lookup
runs again from the start, or from the key or record of the stop, and may stop again: at the record after the index, or
at the page of checksums.

* A waiting request may end before its pages are read; the pages then wake no request.
* A table holds its files until all their pages have been read (`PublishedTable.readers`).
* An unreadable page counts as read. The lookup asks again, after some failures reads in place, and so finds the damage.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.storage._storage cimport MappedFile, begin_epoch

cdef enum:
    # How long a page that was found in memory counts as present.
    EPOCH_NS = 10000000


cdef inline void add_reader(PublishedTable table) noexcept nogil:
    table.readers += 1


cdef inline void let_go(PublishedTable table) noexcept nogil:
    table.readers -= 1


@cython.final
@cython.no_gc  # The object is part of no cycle, and the core that owns it ends it.
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

    cdef int ask(self, PageWait* wait, PyObject* file, PyObject* table, uint64_t ahead) noexcept nogil:
        """Read the page at which the file's last lookup stopped, and `ahead` bytes behind it.

        Return -1 if the page cannot be requested. Requires: the file is one of the table's.
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

    cdef PageWait* take(self, int64_t now_ns) noexcept nogil:
        """Return a wait that has no unread pages left; NULL if there is no further one."""
        cdef ColdPage* page
        cdef PageWait* wait
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
        cdef PageWait* wait = page.wait
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
        """Wait for the started reads without waking any request, and start no more.

        If the garbage collector ends a core, its files may be gone already.
        """
        cdef ColdPage* page
        self.pager.end()
        page = <ColdPage*>self.pager.take()
        while page != NULL:
            self.come_back(page)
            page = <ColdPage*>self.pager.take()


cdef void forget_wait(PageWait* wait) noexcept nogil:
    """Detach the wait from its pages, so its owner may end before they are read."""
    cdef ColdPage* page = wait.first
    while page != NULL:
        page.wait = NULL
        page = page.next
    wait.first = NULL
    wait.count = 0
    wait.failures = 0
