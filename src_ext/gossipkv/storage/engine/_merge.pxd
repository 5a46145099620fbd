from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.storage._runs cimport Entry, Merge, Source
from gossipkv.storage._scan cimport Walk
from gossipkv.storage._sorted_file cimport SortedFile


cdef class FilesSource(Source):
    cdef object open_file
    cdef list paths
    cdef bytes start
    cdef Py_ssize_t next_path
    cdef SortedFile file              # The one that is read; None between two.
    cdef Walk walk
    cdef uint64_t forgotten           # Bytes of its map that were let go.

    cdef int open_next(self) except -1
    cdef int close_file(self) except -1
    cdef int refuse(self, str reason) except -1


cdef class StoreMerge(Merge):
    cdef frozenset spaces
    cdef bint drops_tombstones
    cdef uint32_t space               # The last one that was looked up.
    cdef bint has_space, is_live
    cdef readonly uint64_t records, tombstones
    cdef uint8_t* written_key
    cdef uint32_t written_size

    cdef bint stays(self, const Entry* entry) except -1
    cdef const Entry* look(self, bytes bound) except? NULL
