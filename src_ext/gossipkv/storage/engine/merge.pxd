from libc.stdint cimport uint8_t, uint64_t

cdef extern from "<stdint.h>" nogil:
    const uint64_t NEVER_LEAVES "UINT64_MAX"

cdef enum:
    LEAVES_NOW = 0


cdef class MergeFilter:
    cdef uint64_t leaves_ms(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t size
    ) noexcept
