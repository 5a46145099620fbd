from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct GroupTotals:
    uint64_t records
    uint64_t size_bytes
    uint64_t hash_sum       # Sum of the hashes of all keys, modulo 2^64.
    int prefix_size         # -1: there is no key yet.
    uint8_t prefix[64]


cdef class RecordSorter(OrderedRecords):
    cdef uint64_t memory_bytes
    cdef uint32_t group_count
    cdef int group_bytes

    # Records in memory, end to end, and an item for each unless they were added in order.
    cdef readonly bint ordered        # All records so far were added in order, so there are no items.
    cdef uint8_t* arena
    cdef uint64_t used, capacity
    cdef uint64_t last                # Place of the record added last.
    cdef uint64_t next_place          # Place of the next record to read, while `ordered`.
    cdef Item* items
    cdef Py_ssize_t count, item_capacity
    cdef Py_ssize_t shared            # Length of the common prefix of all keys in memory.
    cdef Py_ssize_t next_item         # The next item to read, once they are sorted.
    cdef list kept                    # The long values of records in memory, which the arena points to,
    cdef uint64_t kept_bytes          # and their memory.

    cdef Runs runs
    cdef readonly uint64_t added
    cdef bint finished
    cdef GroupTotals* groups

    cdef int add_object(self, uint32_t group, bytes key, bytes value) except -1
    cdef int add_record(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1 nogil
    cdef uint8_t* make_room(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, Py_ssize_t value_size
    ) except NULL nogil
