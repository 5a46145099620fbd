from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class SortedFileWriter:
    cdef object files
    cdef readonly str path
    cdef int descriptor
    cdef PageWriter out
    cdef IndexBuilder index
    cdef Spool checksums, anchor_words, anchor_positions, blocks
    cdef bytes common_prefix, metadata
    cdef Py_ssize_t metadata_size, common_size
    cdef uint64_t seed, count, key_bytes, value_bytes, position, last_stretch
    cdef int compression

    # Used for lz4: the current block, and a buffer for compressing.
    cdef uint8_t* block
    cdef uint8_t* packed
    cdef uint64_t block_used, block_capacity, packed_capacity, block_count

    cdef bytes last_key         # Set in debug builds only.

    cdef int append(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1 nogil
    cdef uint64_t size_with(self, uint64_t more) noexcept nogil
