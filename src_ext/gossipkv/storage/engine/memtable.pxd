from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport Slice, bit, bucket_of, load32, prefetch

cdef enum:
    LEAF_RECORDS = 64
    RECORD_HEADER_BYTES = 6
    FILTER_LINE_BITS = 512          # A cache line.
    AHEAD_RECORDS = 4               # Before a cursor: their lines are asked for.

# A record in the arena, where it stays as long as the memtable:
#
#     offset size field
#     0      2    size of the key, its space included
#     2      4    size of the value, its flag included
#     6      k    key
#     6+k    v    flag: 1 value, 2 tombstone; then the value


cdef struct Leaf:
    int count
    int appended                    # How many of its last new records came at its end.
    uint32_t depth                  # All keys that belong here agree in so many leading bytes.
    Leaf* before
    Leaf* after
    uint64_t size_bytes             # Of its records.
    uint64_t words[LEAF_RECORDS]    # Eight bytes of each key, from `depth` on.
    const uint8_t* records[LEAF_RECORDS]


cdef struct Chunk:
    uint8_t* data
    uint64_t size


cdef struct Cursor:
    # A record, or none: `leaf` NULL.  Good until the next record is put.
    Leaf* leaf
    int at


cdef struct Extent:
    # What lies between two keys.
    uint64_t size_bytes
    uint64_t records


cdef class Memtable:
    cdef Chunk* chunks
    cdef Py_ssize_t chunk_count, chunk_capacity
    cdef uint8_t* free_bytes        # Of the chunk that is filled.
    cdef uint64_t free_size, chunk_bytes
    cdef uint64_t used
    cdef readonly uint64_t most_bytes
    cdef readonly uint64_t records
    cdef readonly uint64_t tombstones   # That were put, those among them that have been replaced since.
    cdef void* root
    cdef int levels                 # Of inner nodes above the leaves.
    cdef uint8_t* filter
    cdef uint64_t filter_lines

    cdef int put(
        self, uint8_t flag, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) noexcept nogil
    cdef int apply_operations(self, const uint8_t* at, Py_ssize_t size) noexcept nogil
    cdef int applied(self, int result) except -1
    cdef bint find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil
    cdef void seek(self, const uint8_t* key, Py_ssize_t size, bint reverse, Cursor* cursor) noexcept nogil
    cdef Extent extent_between(
        self, const uint8_t* start, Py_ssize_t start_size, const uint8_t* end, Py_ssize_t end_size
    ) noexcept nogil
    cdef Slice key_behind(self, const uint8_t* start, Py_ssize_t start_size, uint64_t size_bytes) noexcept nogil


cdef inline Slice record_key(const uint8_t* record) noexcept nogil:
    cdef Slice key
    cdef uint16_t size
    memcpy(&size, record, 2)
    key.data = record + RECORD_HEADER_BYTES
    key.size = size
    return key


cdef inline Slice record_value(const uint8_t* record) noexcept nogil:
    """The value with its flag."""
    cdef Slice value
    cdef uint16_t size
    memcpy(&size, record, 2)
    value.data = record + RECORD_HEADER_BYTES + size
    value.size = <Py_ssize_t> load32(record + 2)
    return value


cdef inline void filter_prefetch(Memtable memtable, uint64_t hash) noexcept nogil:
    """First stage of a lookup.  The hash is `hash64_of` with the seed 0."""
    prefetch(memtable.filter + bucket_of(hash, memtable.filter_lines) * (FILTER_LINE_BITS // 8))


cdef inline bint may_have(Memtable memtable, uint64_t hash) noexcept nogil:
    """Whether a key with this hash may be here; no is certain."""
    cdef const uint8_t* line = memtable.filter + bucket_of(hash, memtable.filter_lines) * (FILTER_LINE_BITS // 8)
    return (
        bit(line, hash & (FILTER_LINE_BITS - 1)) and bit(line, (hash >> 9) & (FILTER_LINE_BITS - 1))
        and bit(line, (hash >> 18) & (FILTER_LINE_BITS - 1))
    )


cdef inline const uint8_t* cursor_record(const Cursor* cursor) noexcept nogil:
    """Where the cursor stands.  Requires: it stands at a record."""
    return cursor.leaf.records[cursor.at]


cdef inline void cursor_step(Cursor* cursor, bint reverse) noexcept nogil:
    """Go to the next record, or the one before.  Requires: the cursor stands at a record."""
    if reverse:
        cursor.at -= 1
        if cursor.at < 0:
            cursor.leaf = cursor.leaf.before
            if cursor.leaf != NULL:
                cursor.at = cursor.leaf.count - 1
        elif cursor.at >= AHEAD_RECORDS:
            prefetch(cursor.leaf.records[cursor.at - AHEAD_RECORDS])
        return
    cursor.at += 1
    if cursor.at == cursor.leaf.count:
        cursor.leaf = cursor.leaf.after
        cursor.at = 0
    elif cursor.at + AHEAD_RECORDS < cursor.leaf.count:
        prefetch(cursor.leaf.records[cursor.at + AHEAD_RECORDS])
