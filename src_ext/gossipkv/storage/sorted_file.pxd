from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class SortedFile(RecordReader):
    cdef int record_lines       # Cache lines of a record of mean size.

    cdef int find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil

    cdef int locate(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, Record* record, uint64_t* position
    ) noexcept nogil

    # Stages of a batch, in this order.
    cdef uint64_t prefetch_bucket(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef uint32_t prefetch_record(self, uint64_t hash) noexcept nogil
    cdef void prefetch_value(self, uint32_t place) noexcept nogil
    cdef int find_at(
        self, const uint8_t* key, Py_ssize_t size, uint64_t hash, uint32_t place, Slice* value
    ) noexcept nogil
