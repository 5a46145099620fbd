from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class PageWriter:
    cdef object files, on_write
    cdef int descriptor
    cdef uint8_t* buffer
    cdef uint32_t used
    cdef uint64_t flushed, nudged
    cdef Spool checksums
    cdef bint paged

    cdef uint64_t position(self) noexcept nogil
    cdef uint8_t* room(self, uint64_t size) except NULL nogil
    cdef int append(self, const uint8_t* data, uint64_t size) except -1 nogil
    cdef int pad(self, uint32_t alignment) except -1 nogil
    cdef int append_spool(self, Spool spool) except -1
    cdef int flush(self) except -1
    cdef int write(self, uint32_t size) except -1 nogil
    cdef int hand_over(self, uint32_t size) except -1
    cdef int end_pages(self) except -1
