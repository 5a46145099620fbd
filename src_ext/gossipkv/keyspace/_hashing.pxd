# What other extensions may call without the GIL.  The rules of each function stand in _hashing.pyx.
from libc.stdint cimport int32_t, uint32_t

# A partition function's code: its place in `gossipkv.keyspace.partitioner.FUNCTIONS`.  What is stored or sent is the
# name, never the code.
cdef enum Function:
    SEQUINS = 0
    TEXT = 1
    STRING = 2
    SPARK = 3
    CASCADING = 4

cdef int32_t sequins_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil
cdef int32_t writable_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil

# Fills `hash` and returns -1; or returns the offset of the first byte that is not UTF-8, and `hash` means nothing.
cdef Py_ssize_t string_hash(const unsigned char* data, Py_ssize_t size, int32_t* hash) noexcept nogil

cdef uint32_t murmur3(const unsigned char* data, Py_ssize_t size, uint32_t seed) noexcept nogil

# The partition, or -1: no such function, a count below 1, or a key that is not UTF-8 where the function needs text.
cdef Py_ssize_t partition_of(
    int function, const unsigned char* data, Py_ssize_t size, Py_ssize_t count
) noexcept nogil

# The same for a hash that is known: that of a function from SEQUINS to CASCADING but TEXT.  The count is at least 1.
# For a key of ASCII alone the hash is the same for all of them.
cdef Py_ssize_t partition_of_hash(int function, int32_t h, Py_ssize_t count) noexcept nogil

# The other partition in which a file may hold the key, or the first one again; -1 when the count is below 1.
cdef Py_ssize_t sequins_alternate(const unsigned char* data, Py_ssize_t size, Py_ssize_t count) noexcept nogil
