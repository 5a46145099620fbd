from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    RECORD_HEADER_SIZE = 12


cdef struct RunEntry:
    uint32_t group
    uint32_t key_size
    uint32_t value_size
    const uint8_t* key
    const uint8_t* value


cdef inline void set_entry(RunEntry* entry, const uint8_t* at) noexcept nogil:
    """Set an entry to the record at `at`."""
    entry.group = load32(at)
    entry.key_size = load32(at + 4)
    entry.value_size = load32(at + 8)
    entry.key = at + RECORD_HEADER_SIZE
    entry.value = entry.key + entry.key_size


# The current record of a source in a merge; most comparisons need only the word, not the key.
cdef struct MergeHead:
    uint64_t word                     # First eight bytes of the key.
    const RunEntry* entry
    void* owner                       # The source, which `merging` keeps alive.
    uint32_t group
    int source


cdef class OrderedRecords:
    cdef RunEntry pending                # Read, but not yet drained; key NULL: there is none.

    cdef int next(self, RunEntry* entry) except -1 nogil
    cdef uint32_t write_run(self, Scratch scratch, bytearray places) except 0


cdef class Source:
    cdef RunEntry entry

    cdef bint advance(self) except -1 nogil
    cdef int refuse_order(self) except -1


cdef class OrderedSource(Source):
    cdef OrderedRecords records


cdef class RunReader(Source):
    cdef Scratch scratch
    cdef uint64_t offset, next_place  # `next_place`: next offset if the first part has no wanted records; then 0.
    cdef bytes places, part
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef uint32_t first_group, end_group
    cdef uint32_t largest_part        # The longest part of its run, or of a run merged into it.
    cdef int level
    cdef bint borrowed                # The reader of another lane closes the run.

    cdef int find_start(self) except -1
    cdef bint load(self) except -1


cdef class Merge(OrderedRecords):
    cdef list merging                 # Ordered from the oldest source to the newest.
    cdef MergeHead* heap
    cdef int heap_size
    cdef bint behind                  # The source at the top still stands at the record handed out last.
    cdef uint8_t* last_key
    cdef uint32_t last_size, last_group
    cdef bint has_last

    cdef int start_merge(self, list sources) except -1
    cdef int join(self, int number, Source source) except -1
    cdef void sift_down(self, int at) noexcept nogil
    cdef const RunEntry* settle(self) except? NULL nogil
    cdef int take(self) except -1 nogil


cdef class Runs(Merge):
    cdef object make_scratch
    cdef uint64_t memory_bytes
    cdef list readers                 # Ordered from the oldest run to the newest.
    cdef uint32_t largest_part

    cdef int put_aside(self, OrderedRecords records) except -1
    cdef bint crowded(self) except -1
    cdef int fan_in(self) noexcept
    cdef int collapse(self) except -1
    cdef RunReader write_reader(self, OrderedRecords records, int level)
    cdef uint64_t parts_bytes(self) except? 0
    cdef int replace(self, Py_ssize_t first, Py_ssize_t count, int level) except -1
