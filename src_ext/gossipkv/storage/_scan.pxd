from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.storage._records cimport RecordReader


cdef int seek(RecordReader file, const uint8_t* key, Py_ssize_t size, uint64_t* position) noexcept nogil


cdef class Scan:
    cdef RecordReader file
    cdef uint64_t at, end
    cdef int64_t left
    cdef bint reverse
    # Backwards: the positions of the records of one stretch between anchors, and how many are still to come.
    cdef uint64_t* stretch
    cdef Py_ssize_t waiting
    cdef uint64_t anchor

    cpdef close(self)
    cdef int fail(self) except -1
    cdef int fill(self) noexcept


cdef Scan open_scan(RecordReader file, uint64_t at, uint64_t end, bint reverse, int64_t limit)
