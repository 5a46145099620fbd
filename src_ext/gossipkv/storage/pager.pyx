"""The pager: a wrapper of `pager.h`, and reads of simulated missing pages.

Simulated reads complete after some calls of `take`, as a disk's do after some time, and sometimes fail. Both are drawn
from the seed, so simulations are reproducible.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset


import os

cdef enum:
    EVENTS_TOLD = 1


@cython.final
cdef class PageThreads:
    """Threads that read pages for several pagers, started on demand."""

    def __cinit__(self):
        cdef int error = page_threads_begin(&self.threads)
        if error != 0:
            raise OSError(error, os.strerror(error))

    def __dealloc__(self):
        page_threads_end(&self.threads)


@cython.final
@cython.no_gc  # It is part of no cycle, and ends before its threads.
cdef class Pager:
    """Reads pages in these threads; `seed` is for simulated missing pages."""

    def __cinit__(self, PageThreads threads not None, uint64_t seed=0):
        self.threads = threads
        pager_begin(&self.asker, &threads.threads)
        memset(&self.pretended, 0, sizeof(PageLine))
        self.drawn = 2 * seed + 1

    def __dealloc__(self):
        if self.threads is not None:
            self.end()

    cdef void tell(self, int descriptor) noexcept nogil:
        """Write to this eventfd whenever a read is done and none was before."""
        self.asker.told = descriptor

    cdef int ask(self, PageRead* read, MappedFile file) noexcept nogil:
        """Request the page at which the file's last lookup stopped, with the next `submit`; -1: nothing can read it.

        Requires: the lookup stopped with `FAULT_COLD`, `read.ahead` is set, and the file is unchanged until `take`.
        """
        read.descriptor = file.descriptor
        read.base = file.base
        read.first = file.fault_offset
        read.size = file.fault_size
        if self.ended:
            return -1
        if file.pretended == NULL:
            return pager_ask(&self.asker, read)
        line_put(&self.pretended, read)
        if self.asker.told >= 0:
            eventfd_write(self.asker.told, EVENTS_TOLD)
        return 0

    cdef void submit(self) noexcept nogil:
        """Hand over the requests made so far; required before sleeping."""
        pager_submit(&self.asker)

    cdef PageRead* take(self) noexcept nogil:
        """Return a completed read, with `failed` set; NULL: there is none."""
        cdef PageRead* read
        if self.pretended.first != NULL:
            self.drawn = self.drawn * 6364136223846793005ULL + 1442695040888963407ULL
            if self.drawn >> 63 == 0:
                read = line_take(&self.pretended)
                read.failed = self.drawn >> 60 & 7 == 0
                return read
            if self.asker.told >= 0:
                eventfd_write(self.asker.told, EVENTS_TOLD)
        return pager_take(&self.asker)

    cdef bint is_pretending(self) noexcept nogil:
        """Return True if `take` must be called again, though no eventfd will signal."""
        return self.pretended.first != NULL

    cdef void end(self) noexcept nogil:
        """Wait for the reads under way; then all reads are returned, and no more may be requested."""
        cdef PageRead* read
        if self.ended:
            return
        self.ended = True
        pager_end(&self.asker)
        read = line_take(&self.pretended)
        while read != NULL:
            line_put(&self.asker.taken, read)
            read = line_take(&self.pretended)
