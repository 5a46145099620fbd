# Functions that other extensions may call without the GIL. hashing.pyx has the rules of each.
from libc.stdint cimport int32_t, uint32_t

# A partition function's code: its index in `gossipkv.keyspace.partitioner.FUNCTIONS`; only names are stored or sent.
cdef enum Function:
    SEQUINS = 0
    TEXT = 1
    STRING = 2
    SPARK = 3
    CASCADING = 4

cdef int32_t sequins_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil
cdef int32_t writable_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil

# Fills `hash` and returns -1; or returns the offset of the first byte that is not UTF-8, and leaves `hash` undefined.
cdef Py_ssize_t string_hash(const unsigned char* data, Py_ssize_t size, int32_t* hash) noexcept nogil

cdef uint32_t murmur3(const unsigned char* data, Py_ssize_t size, uint32_t seed) noexcept nogil

# Returns the partition, or -1: an unknown function, a count below 1, or no UTF-8 in the key of a function over text.
cdef Py_ssize_t partition_of(
    int function, const unsigned char* data, Py_ssize_t size, Py_ssize_t count
) noexcept nogil

# The same for a known hash of a function from SEQUINS to CASCADING except TEXT. The count is at least 1. For a key of
# ASCII alone these functions have equal hashes.
cdef Py_ssize_t partition_of_hash(int function, int32_t h, Py_ssize_t count) noexcept nogil

# Returns the other partition in which a file may hold the key, or the first one again; -1 if the count is below 1.
cdef Py_ssize_t sequins_alternate(const unsigned char* data, Py_ssize_t size, Py_ssize_t count) noexcept nogil
