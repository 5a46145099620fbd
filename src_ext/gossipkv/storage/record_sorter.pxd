from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Group:
    uint64_t records
    uint64_t size_bytes
    uint64_t hash_sum       # Of the hashes of all keys, modulo 2^64.
    int prefix_size         # -1: no key yet.
    uint8_t prefix[64]


cdef class RecordSorter(OrderedRecords):
    cdef uint64_t memory_bytes
    cdef uint32_t group_count
    cdef int group_bytes

    # What is in memory: records one behind the other, and an item for each unless they are in order as they lie.
    cdef readonly bint ordered        # All that was added so far came in order: there are no items.
    cdef uint8_t* arena
    cdef uint64_t used, capacity
    cdef uint64_t last                # Where the record that was added last lies.
    cdef uint64_t next_place          # Where the next one to be read lies, while they are in order.
    cdef Item* items
    cdef Py_ssize_t count, item_capacity
    cdef Py_ssize_t shared            # All keys in memory agree in this many leading bytes.
    cdef Py_ssize_t next_item         # The next one to be read, once they are sorted.

    cdef Runs runs
    cdef readonly uint64_t added
    cdef bint finished
    cdef Group* groups

    cdef int add_record(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1 nogil
    cdef uint8_t* make_room(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, Py_ssize_t value_size
    ) except NULL nogil
