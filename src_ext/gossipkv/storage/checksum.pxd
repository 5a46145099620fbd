from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef uint32_t crc32c_of(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil

# These compute checksums of any stretch of a buffer; the caller frees the result of `checksums`.
cdef uint32_t* checksums(const uint8_t* data, uint64_t size) noexcept nogil
cdef uint32_t checksum_between(
    const uint8_t* data, const uint32_t* stretches, uint64_t start, uint64_t end, uint32_t seed
) noexcept nogil
