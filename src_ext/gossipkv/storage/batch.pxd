from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    BATCH_RECORDS = 16384


cdef struct BatchRecord:
    const uint8_t* key
    const uint8_t* value
    uint32_t key_size
    uint32_t value_size
    uint64_t offset         # Place in the source, for messages.
    uint32_t group          # The sorted file of this record.


cdef class RecordBatch:
    cdef BatchRecord* records    # Capacity: BATCH_RECORDS.
    cdef readonly Py_ssize_t count
    cdef list owners

    cdef int hold(self, object owner) except -1
    cdef bint put(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size, uint64_t offset
    ) noexcept nogil
