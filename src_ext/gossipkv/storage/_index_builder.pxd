from libc.stdint cimport uint32_t, uint64_t

from gossipkv.storage._page_writer cimport PageWriter
from gossipkv.storage._radix cimport Item
from gossipkv.storage._scratch cimport Scratch


cdef class Run:
    cdef Scratch scratch
    cdef uint64_t offset
    cdef bytes part
    cdef Py_ssize_t at, count

    cdef bint advance(self) except -1


cdef class IndexBuilder:
    cdef object make_scratch
    cdef Item* items
    cdef Item* spare
    cdef Py_ssize_t used, capacity, limit
    cdef readonly uint64_t count
    cdef list runs

    cdef int add(self, uint64_t hash, uint32_t position) except -1
    cdef int grow(self) except -1
    cdef int sort(self) except -1
    cdef int spill(self) except -1
    cdef int gather(self, Run run, uint64_t last) except -1
    cdef int write(self, PageWriter out, uint64_t* home_count, uint64_t* bucket_count) except -1
