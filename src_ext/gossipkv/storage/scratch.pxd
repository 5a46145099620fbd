from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class Scratch:
    cdef readonly str path
    cdef object files
    cdef int descriptor
    cdef readonly uint64_t end

    cdef int write_part(self, const uint8_t* data, uint32_t size) except -1 nogil
    cdef int write_at(self, uint64_t offset, const uint8_t* data, uint32_t size) except -1
    cdef bytes read_part(self, uint64_t* cursor)


cdef class Spool:
    cdef object make_scratch
    cdef Scratch scratch
    cdef uint8_t* buffer
    cdef uint32_t used, capacity, limit
    cdef readonly uint64_t size

    cdef int append(self, const uint8_t* data, uint32_t size) except -1 nogil
    cdef int spill(self) except -1
    cdef int rewind(self, uint64_t* cursor) except -1
    cdef bytes next_part(self, uint64_t* cursor)
