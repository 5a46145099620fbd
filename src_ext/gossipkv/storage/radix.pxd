# The stable sort of a build: items by a 64-bit word.

from libc.stdint cimport uint64_t


cdef struct Item:
    uint64_t word
    uint64_t place

cdef void radix_sort(Item* items, Item* spare, Py_ssize_t count, int first_byte) noexcept nogil
