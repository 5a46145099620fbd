from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    STRETCH_WORDS = PAGE_SIZE // 8 // 64    # Records are multiples of 8 bytes; a bit for each place in a stretch.
    AHEAD_LINES = 2                         # Most records end within these lines.

cdef enum WalkResult:
    WALK_DAMAGED = -1
    WALK_ENDED = 0
    WALK_RECORD = 1

cdef struct Walk:
    # The remaining records lie between these two positions.
    uint64_t at
    uint64_t end
    bint reverse
    # Used for a paged file: the end of the last read-ahead, and the size of the next.
    uint64_t ahead
    uint64_t ahead_size
    # Backwards: the starts of the remaining records in one stretch between anchors.
    int last_word           # Higher words are zero; -1: all are.
    uint64_t stretch        # Position of the first bit.
    uint64_t anchor         # Later anchors are done.
    uint64_t[STRETCH_WORDS] starts


cdef int seek(RecordReader file, const uint8_t* key, Py_ssize_t size, uint64_t* position) noexcept nogil
cdef void walk_begin(RecordReader file, Walk* walk, uint64_t at, uint64_t end, bint reverse) noexcept nogil
cdef int walk_back(RecordReader file, Walk* walk, Record* record, uint64_t* position) noexcept nogil
cdef void walk_ahead(RecordReader file, Walk* walk) noexcept nogil


cdef inline int walk_next(RecordReader file, Walk* walk, Record* record, uint64_t* position) noexcept nogil:
    """Read the next record and its position, unless the walk has ended or meets damage."""
    if walk.at >= walk.end:
        return WALK_ENDED
    if file.paged:
        walk_ahead(file, walk)
    if walk.reverse:
        return walk_back(file, walk, record, position)
    position[0] = walk.at
    if read_record(file, walk.at, record) < 0:
        return WALK_DAMAGED
    walk.at = record.next
    return WALK_RECORD


cdef inline void walk_prefetch(RecordReader file, const Walk* walk) noexcept nogil:
    """Prefetch the next record; backwards, the lines before the current one."""
    cdef const uint8_t* at
    cdef int line
    if file.compression != COMPRESSION_NONE:
        return
    # Backwards, the previous record is at most a few lines away, since most records are short.
    at = file.base + HEADER_SIZE + (walk.end - AHEAD_LINES * 64 if walk.reverse else walk.at)
    for line in range(AHEAD_LINES):
        prefetch(at + line * 64)


cdef inline Py_ssize_t write_prefix_end(const uint8_t* prefix, Py_ssize_t size, uint8_t* end) noexcept nogil:
    """Write the least key above all that begin with `prefix`; returns its size, 0 if there is none.

    It increments the last byte that is not ff, and drops the bytes after. Requires: `end` has room for `size` bytes.
    """
    while size > 0 and prefix[size - 1] == 0xFF:
        size -= 1
    if size > 0:
        memcpy(end, prefix, <size_t> size)
        end[size - 1] += 1
    return size


cdef class FileScan:
    cdef RecordReader file
    cdef Walk walk
    cdef int64_t left

    cpdef close(self)
    cdef int fail(self) except -1


cdef FileScan open_scan(RecordReader file, uint64_t at, uint64_t end, bint reverse, int64_t limit)
