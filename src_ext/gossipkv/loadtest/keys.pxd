# The choice of keys; `keys.pyx` has the rules.
from libc.stdint cimport uint32_t, uint64_t


cdef extern from * nogil:
    """
    #define gkv_fetch(at) __builtin_prefetch(at)
    """
    void gkv_fetch(const void* at)

cdef enum:
    AHEAD = 32  # Keys drawn before they are written: twice the number drawn while memory delivers one record.


cdef inline uint64_t mixed(uint64_t* state) noexcept nogil:
    """Return the next number of splitmix64."""
    cdef uint64_t value
    state[0] += 0x9E3779B97F4A7C15ULL
    value = state[0]
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
    return value ^ (value >> 31)


cdef inline uint32_t below(uint64_t* state, uint64_t count) noexcept nogil:
    """Return a number from 0 to below `count`, which has at most 32 bits: the upper half, scaled."""
    return <uint32_t>(((mixed(state) >> 32) * count) >> 32)


cdef class KindChooser:
    cdef uint64_t random
    cdef uint64_t bounds[KINDS]
    cdef int only  # -1: several kinds.

    cdef int draw(self) noexcept nogil


cdef class KeysAhead:
    cdef object chooser
    cdef Dialect dialect
    cdef uint32_t ahead[AHEAD]
    cdef uint32_t at

    cdef uint32_t draw(self) noexcept nogil
