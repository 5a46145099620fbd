from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport Slice, bit, bucket_of, load32, prefetch

cdef enum:
    LEAF_RECORDS = 64
    RECORD_HEADER_BYTES = 6
    FILTER_LINE_BITS = 512          # One cache line.
    AHEAD_RECORDS = 4               # Prefetch distance of a cursor.

# A record in the arena; it never moves while the memtable exists:
#
#     offset size field
#     0      2    size of the key, including its space
#     2      4    size of the value, including its flag
#     6      k    key
#     6+k    v    flag: 1 value, 2 tombstone; then the value


cdef struct Leaf:
    int count
    int appended                    # Number of its last new records that came at its end.
    uint32_t depth                  # All keys that belong here have a common prefix of this length.
    Leaf* before
    Leaf* after
    uint64_t size_bytes             # Size of its records.
    uint64_t words[LEAF_RECORDS]    # Eight bytes of each key, from `depth` on.
    const uint8_t* records[LEAF_RECORDS]


cdef struct Chunk:
    uint8_t* data
    uint64_t size


cdef struct MemtableCursor:
    # A record, or none if `leaf` is NULL. Valid until the next put.
    Leaf* leaf
    int at


cdef struct Extent:
    # The records between two keys, in total.
    uint64_t size_bytes
    uint64_t records


cdef class Memtable:
    cdef Chunk* chunks
    cdef Py_ssize_t chunk_count, chunk_capacity
    cdef uint8_t* free_bytes        # Rest of the chunk that is being filled.
    cdef uint64_t free_size, chunk_bytes
    cdef uint64_t used
    cdef readonly uint64_t most_bytes
    cdef readonly uint64_t records
    cdef readonly uint64_t tombstones   # Counts all tombstones ever put, including replaced ones.
    cdef void* root
    cdef int levels                 # Levels of inner nodes above the leaves.
    cdef uint8_t* filter
    cdef uint64_t filter_lines

    cdef int put(
        self, uint8_t flag, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) noexcept nogil
    cdef int apply_operations(self, const uint8_t* at, Py_ssize_t size) noexcept nogil
    cdef int applied(self, int result) except -1
    cdef bint find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil
    cdef void seek(self, const uint8_t* key, Py_ssize_t size, bint reverse, MemtableCursor* cursor) noexcept nogil
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
    """Return the value, including its flag."""
    cdef Slice value
    cdef uint16_t size
    memcpy(&size, record, 2)
    value.data = record + RECORD_HEADER_BYTES + size
    value.size = <Py_ssize_t> load32(record + 2)
    return value


cdef inline void filter_prefetch(Memtable memtable, uint64_t hash) noexcept nogil:
    """Prefetch the filter line of a key: the first stage of a lookup. The hash is `hash64_of` with the seed 0."""
    prefetch(memtable.filter + bucket_of(hash, memtable.filter_lines) * (FILTER_LINE_BITS // 8))


cdef inline bint may_have(Memtable memtable, uint64_t hash) noexcept nogil:
    """Return False only if no key with this hash is here."""
    cdef const uint8_t* line = memtable.filter + bucket_of(hash, memtable.filter_lines) * (FILTER_LINE_BITS // 8)
    return (
        bit(line, hash & (FILTER_LINE_BITS - 1)) and bit(line, (hash >> 9) & (FILTER_LINE_BITS - 1))
        and bit(line, (hash >> 18) & (FILTER_LINE_BITS - 1))
    )


cdef inline const uint8_t* cursor_record(const MemtableCursor* cursor) noexcept nogil:
    """Return the cursor's record. Requires: the cursor is at a record."""
    return cursor.leaf.records[cursor.at]


cdef inline void fetch_ahead(const MemtableCursor* cursor, int steps) noexcept nogil:
    """Prefetch a record of some 100 bytes that is so many steps ahead, backwards if below 0."""
    cdef const Leaf* leaf = cursor.leaf
    cdef int at = cursor.at + steps
    if at < 0:
        leaf = leaf.before
        at += leaf.count if leaf != NULL else 0
    elif at >= leaf.count:
        at -= leaf.count
        leaf = leaf.after
    if leaf != NULL and 0 <= at < leaf.count:
        prefetch(leaf.records[at])
        prefetch(leaf.records[at] + 64)
        prefetch(leaf.records[at] + 128)


cdef inline void cursor_step(MemtableCursor* cursor, bint reverse) noexcept nogil:
    """Move to the next record, or the one before. Requires: the cursor is at a record."""
    if reverse:
        fetch_ahead(cursor, -1 - AHEAD_RECORDS)
        cursor.at -= 1
        if cursor.at < 0:
            cursor.leaf = cursor.leaf.before
            if cursor.leaf != NULL:
                cursor.at = cursor.leaf.count - 1
        return
    fetch_ahead(cursor, 1 + AHEAD_RECORDS)
    cursor.at += 1
    if cursor.at == cursor.leaf.count:
        cursor.leaf = cursor.leaf.after
        cursor.at = 0
