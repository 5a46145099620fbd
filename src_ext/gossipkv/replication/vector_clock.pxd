# Packed clocks for C, without the GIL.  What one is stands in vector_clock.pyx.
#
#     offset size field
#     0      8    assignment, big-endian; each above the one before
#     8      8    counter, big-endian
#
# and so on to the end, each entry in 16 bytes.  Sizes are in bytes.  Nothing here reads past the last whole entry, or
# checks an order: what comes from outside has passed `clock_fault`.

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from "gossipkv/storage/bits.h" nogil:
    uint64_t load_word "gkv_load64"(const void* at)     # In the machine's order: to see whether two are the same.
    uint64_t load_number "gkv_load64_big_endian"(const void* at)

cdef enum Order:
    EQUAL_CLOCKS = 0
    BEFORE_OTHER = 1                # The other is ahead somewhere,
    AFTER_OTHER = 2                 # this one is, and
    CONCURRENT_CLOCKS = 3           # both are: both bits.

cdef enum:
    NUMBER_BYTES = 8
    ENTRY_BYTES = 16


cdef inline void store_number(unsigned char* at, uint64_t number) noexcept nogil:
    """What `load_number` loads."""
    cdef uint64_t swapped = load_number(&number)
    memcpy(at, &swapped, NUMBER_BYTES)


# How one stands to the other; what a clock lacks counts as 0.
cdef Order clock_compare(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil

# Whether one has come at least as far as the other in every assignment.
cdef bint clock_covers(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil

# The greater counter of each assignment: fills `into`, which has room for both, and returns how much of it.
cdef Py_ssize_t clock_merge(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil

# The lesser counter of each assignment that both have: fills `into`, which has room for either, and returns how much.
cdef Py_ssize_t clock_least(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil

# The offset of the first entry whose assignment is not below this one: of its own, if it has one.
cdef Py_ssize_t clock_place(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil

# The counter of the assignment; 0 where it is absent.
cdef uint64_t clock_counter(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil

# The offset at which this is no packed clock, or -1 where it is one.
cdef Py_ssize_t clock_fault(const unsigned char* clock, Py_ssize_t size) noexcept nogil
