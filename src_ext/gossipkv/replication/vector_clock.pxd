# Packed clocks, for C code without the GIL; `vector_clock.pyx` explains the design.
#
#     offset size field
#     0      8    assignment, big-endian; each above the one before
#     8      8    counter, big-endian
#
# Entries of 16 bytes follow each other to the end. Sizes are in bytes. The functions never read past the last whole
# entry, and do not check the order: received bytes have passed `clock_fault`.

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from "gossipkv/storage/bits.h" nogil:
    uint64_t load_word "gkv_load64"(const void* at)  # in the machine's order, for tests of equality only
    uint64_t load_number "gkv_load64_big_endian"(const void* at)

cdef enum Order:
    EQUAL_CLOCKS = 0
    BEFORE_OTHER = 1  # the other clock is ahead somewhere
    AFTER_OTHER = 2  # this clock is ahead somewhere
    CONCURRENT_CLOCKS = 3  # each is ahead somewhere: both bits

cdef enum:
    NUMBER_BYTES = 8
    ENTRY_BYTES = 16


cdef inline void store_number(unsigned char* at, uint64_t number) noexcept nogil:
    """Store a number in the form that `load_number` loads."""
    cdef uint64_t swapped = load_number(&number)
    memcpy(at, &swapped, NUMBER_BYTES)


# Return the order of two clocks; an absent assignment counts as 0.
cdef Order clock_compare(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil

# True if `one` is at least as far as `other` in every assignment.
cdef bint clock_covers(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size
) noexcept nogil

# Write the greater counter of each assignment to `into`, which has room for both clocks; return the written size.
cdef Py_ssize_t clock_merge(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil

# Write the lesser counter of each common assignment to `into`, which has room for either; return the written size.
cdef Py_ssize_t clock_least(
    const unsigned char* one, Py_ssize_t one_size, const unsigned char* other, Py_ssize_t other_size,
    unsigned char* into,
) noexcept nogil

# Return the offset of the first entry not below this assignment: its own entry if present.
cdef Py_ssize_t clock_place(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil

# Return the counter of the assignment; 0 if absent.
cdef uint64_t clock_counter(const unsigned char* clock, Py_ssize_t size, uint64_t assignment) noexcept nogil

# Return the offset of the first violation of the format; -1 for a packed clock.
cdef Py_ssize_t clock_fault(const unsigned char* clock, Py_ssize_t size) noexcept nogil
