from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.storage._radix cimport Item
from gossipkv.storage._scratch cimport Scratch


cdef struct Entry:
    uint32_t group
    uint32_t key_size
    uint32_t value_size
    const uint8_t* key
    const uint8_t* value

cdef struct Prefix:
    uint8_t bytes[64]
    int size            # -1: no key yet.


cdef class RunReader:
    cdef Scratch scratch
    cdef uint64_t offset
    cdef bytes part
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef Entry entry
    cdef int level

    cdef bint advance(self) except -1


cdef class RecordSorter:
    cdef object make_scratch
    cdef uint64_t memory_bytes
    cdef uint32_t group_count
    cdef int group_bytes

    # What is in memory: records one behind the other, and an item for each.
    cdef uint8_t* arena
    cdef uint64_t used, capacity
    cdef Item* items
    cdef Py_ssize_t count, item_capacity
    cdef Py_ssize_t shared            # All keys in memory agree in this many leading bytes.

    cdef list runs
    cdef readonly uint64_t added
    cdef bint finished
    cdef uint64_t hash_sum
    cdef uint64_t* duplicates
    cdef Prefix* prefixes
    cdef uint32_t largest_part

    # The merge: from memory, or from the runs through a heap of run numbers.
    cdef Py_ssize_t next_item
    cdef list readers
    cdef int* heap
    cdef int heap_size
    cdef bint pending
    cdef uint8_t* last_key
    cdef uint32_t last_size, last_group
    cdef bint has_last
    cdef Entry pending_entry          # Read, but not yet drained; key NULL: none.

    cdef int add_record(
        self, uint32_t group, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) except -1
    cdef int refuse(self, uint32_t group, Py_ssize_t key_size, Py_ssize_t value_size) except -1
    cdef int grow(self, uint64_t size) except -1
    cdef void note_shared(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef int note_prefix(self, uint32_t group, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef uint64_t word(self, uint64_t place, int level) noexcept nogil
    cdef int compare(self, uint64_t a, uint64_t b) noexcept nogil
    cdef void sort_range(self, Item* items, Item* spare, Py_ssize_t count, int level) noexcept nogil
    cdef void sort_few(self, Item* items, Py_ssize_t count) noexcept nogil
    cdef int sort(self) except -1
    cdef void release_memory(self) noexcept
    cdef int spill(self) except -1
    cdef int fan_in(self)
    cdef int collapse(self) except -1
    cdef int merge_newest(self, Py_ssize_t count, int level) except -1
    cdef int write_run(self, Scratch scratch) except -1
    cdef int start_merge(self, list readers) except -1
    cdef bint next_from_memory(self, Entry* entry) noexcept nogil
    cdef int next_from_runs(self, Entry* entry) except -1
    cdef int next(self, Entry* entry) except -1
    cdef void sift_down(self, int at)
    cdef bint before(self, int a, int b)
