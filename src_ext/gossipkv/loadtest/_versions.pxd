# Which versions a server answered from.  The rules stand in _versions.pyx.
from libc.stdint cimport int32_t, uint8_t, uint64_t

cdef enum:
    VERSIONS = 64
    VERSION_BYTES = 255

cdef struct Version:
    uint64_t requests
    uint64_t wrong
    uint64_t untold
    Py_ssize_t size
    uint8_t name[VERSION_BYTES]

cdef class VersionTable:
    cdef Version versions[VERSIONS]
    cdef int32_t count
    cdef int32_t last
    cdef int32_t newest  # of all that were told; -1: none

    cdef int32_t find(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef bint is_older(self, int32_t one, int32_t other) noexcept nogil
    cdef int32_t note(self, const uint8_t* name, Py_ssize_t size, uint64_t wrong, uint64_t untold) noexcept nogil
