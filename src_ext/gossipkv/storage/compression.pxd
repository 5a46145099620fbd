from libc.stdint cimport uint8_t

cdef int lz4_bound(int size) noexcept nogil
cdef int lz4_compress(const uint8_t* source, int size, uint8_t* target, int capacity) noexcept nogil
cdef int lz4_decompress(const uint8_t* source, int size, uint8_t* target, int wanted, int capacity) noexcept nogil
