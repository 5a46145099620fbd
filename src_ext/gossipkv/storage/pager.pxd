"""Reads of pages that are not in memory, beside the serving thread; `pager.h` explains the design."""

from libc.stdint cimport uint64_t


cdef extern from "gossipkv/storage/pager.h" nogil:
    ctypedef struct PageRead "gkv_page_read":
        int descriptor
        const unsigned char* base
        uint64_t first
        uint64_t size
        uint64_t ahead
        int failed

    ctypedef struct PageLine "gkv_page_line":
        PageRead* first

    ctypedef struct Threads "gkv_page_threads":
        pass

    ctypedef struct Asker "gkv_pager":
        int told
        PageLine taken

    void line_put "gkv_page_line_put"(PageLine* line, PageRead* read)
    PageRead* line_take "gkv_page_line_take"(PageLine* line)
    int page_threads_begin "gkv_page_threads_begin"(Threads* threads)
    void page_threads_end "gkv_page_threads_end"(Threads* threads)
    void pager_begin "gkv_pager_begin"(Asker* asker, Threads* threads)
    int pager_ask "gkv_pager_ask"(Asker* asker, PageRead* read)
    void pager_submit "gkv_pager_submit"(Asker* asker)
    PageRead* pager_take "gkv_pager_take"(Asker* asker)
    void pager_end "gkv_pager_end"(Asker* asker)
    int eventfd_write(int descriptor, uint64_t value)


cdef class PageThreads:
    cdef Threads threads


cdef class Pager:
    cdef PageThreads threads
    cdef Asker asker
    cdef PageLine pretended  # reads of files with simulated missing pages
    cdef uint64_t drawn
    cdef bint ended

    cdef void tell(self, int descriptor) noexcept nogil
    cdef int ask(self, PageRead* read, MappedFile file) noexcept nogil
    cdef void submit(self) noexcept nogil
    cdef PageRead* take(self) noexcept nogil
    cdef bint is_pretending(self) noexcept nogil
    cdef void end(self) noexcept nogil
