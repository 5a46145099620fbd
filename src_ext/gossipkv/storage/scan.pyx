"""Key order: the position of a key, and walks over the records from there, forward and backward.

A `Walk` is a struct, for readers of many files at once without Python; its holder pins the file. `FileScan` is the same
walk for Python. Backwards, records are found from the preceding anchor, a stretch at a time.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset


cdef enum:
    WALK_LINES = 32
    STRETCH_RECORDS = PAGE_SIZE // 8  # Maximum, since the smallest record takes 8 bytes.
    # Read-ahead of a walk over a paged file: little at first, since most scans are short.
    MAX_AHEAD = 64 * PAGE_SIZE


cdef inline int anchor_position(RecordReader file, uint64_t anchor, uint64_t* position) noexcept nogil:
    """Find the position of an anchor's record."""
    cdef uint64_t offset = <uint64_t> (file.anchor_positions - file.base) + 4 * anchor
    if check_range(file, offset, 4) < 0:
        return -1
    position[0] = <uint64_t> load32(file.base + offset) * 8 - 8
    if position[0] >= file.position_end:
        return fault(file, FAULT_ANCHOR, offset)
    return 0


cdef int anchors_below(RecordReader file, const uint8_t* key, Py_ssize_t size, uint64_t* count) noexcept nogil:
    """Count the anchors with a key less than `key`, which shares the common prefix."""
    cdef uint64_t low = 0, high = file.anchor_count, middle, word = word_of(key, size, file.common_size), found
    cdef uint64_t words = <uint64_t> (file.anchor_words - file.base)
    cdef uint64_t position
    cdef bint less
    cdef Record record
    while low < high:
        middle = (low + high) // 2
        if check_range(file, words + 8 * middle, 8) < 0:
            return -1
        found = load64(file.anchor_words + 8 * middle)
        less = found < word
        if found == word:
            if anchor_position(file, middle, &position) < 0 or read_record(file, position, &record) < 0:
                return -1
            less = compare_keys(record.key.data, record.key.size, key, size) < 0
        if less:
            low = middle + 1
        else:
            high = middle
    count[0] = low
    return 0


cdef int seek(RecordReader file, const uint8_t* key, Py_ssize_t size, uint64_t* position) noexcept nogil:
    """Find the position of the first record with a key not less than `key`; the end's if there is none."""
    cdef int order
    cdef uint64_t below = 0, at
    cdef int line, records = 0
    cdef Record record
    order = memcmp(file.common_prefix, key, <size_t> min(file.common_size, size))
    if order > 0 or (order == 0 and size < file.common_size):
        position[0] = 0
        return 0
    if order < 0:
        position[0] = file.position_end
        return 0
    if anchors_below(file, key, size, &below) < 0:
        return -1
    if below == 0:
        position[0] = 0
        return 0
    if anchor_position(file, below - 1, &at) < 0:
        return -1
    if file.compression == COMPRESSION_NONE:
        # The walk passes half a page on average, and would wait for each line of it.
        for line in range(WALK_LINES):
            prefetch(file.base + HEADER_SIZE + at + line * 64)
    while at < file.position_end:
        if records > STRETCH_RECORDS:  # The next anchor's key is not less than `key`.
            return fault(file, FAULT_ANCHOR, <uint64_t> (file.anchor_positions - file.base) + 4 * (below - 1))
        if read_record(file, at, &record) < 0:
            return -1
        if compare_keys(record.key.data, record.key.size, key, size) >= 0:
            break
        at = record.next
        records += 1
    position[0] = min(at, file.position_end)
    return 0


cdef void walk_begin(RecordReader file, Walk* walk, uint64_t at, uint64_t end, bint reverse) noexcept nogil:
    """Begin a walk over the records from position `at` up to `end`, or back."""
    walk.at = at
    walk.end = end
    walk.reverse = reverse
    walk.ahead = end if reverse else at
    walk.ahead_size = PAGE_SIZE
    walk.last_word = -1
    walk.anchor = file.anchor_count


cdef void walk_ahead(RecordReader file, Walk* walk) noexcept nogil:
    """Start reading the next records from the disk, once half of the last read-ahead has been passed; does not wait."""
    cdef uint64_t from_, to
    if walk.reverse:
        if walk.end > walk.ahead + walk.ahead_size // 2:
            return
        to = walk.ahead
        walk.ahead_size = min(<uint64_t> MAX_AHEAD, 2 * walk.ahead_size)
        from_ = max(walk.at, to - min(to, walk.ahead_size))
        walk.ahead = from_
    else:
        if walk.at + walk.ahead_size // 2 < walk.ahead:
            return
        from_ = max(walk.at, walk.ahead)
        walk.ahead_size = min(<uint64_t> MAX_AHEAD, 2 * walk.ahead_size)
        to = min(walk.end, from_ + walk.ahead_size)
        walk.ahead = to
    if from_ < to:
        file.read_ahead(from_, to)


cdef int walk_back(RecordReader file, Walk* walk, Record* record, uint64_t* position) noexcept nogil:
    """Read the previous record, as `walk_next` does. Requires: the walk has not ended."""
    cdef int word, bit
    if walk.last_word < 0 and find_stretch(file, walk) < 0:
        return WALK_DAMAGED
    word = walk.last_word
    bit = highest_bit(walk.starts[word])
    position[0] = walk.stretch + 8 * (64 * <uint64_t> word + <uint64_t> bit)
    if read_record(file, position[0], record) < 0:
        return WALK_DAMAGED  # The record stays recorded, so a retry finds it when its page is in memory.
    walk.starts[word] ^= <uint64_t> 1 << bit
    while walk.last_word >= 0 and walk.starts[walk.last_word] == 0:
        walk.last_word -= 1
    walk.end = position[0]
    return WALK_RECORD


cdef int find_stretch(RecordReader file, Walk* walk) noexcept nogil:
    """Record the start of each record from the last anchor below `end` up to `end`; there is at least one."""
    cdef uint64_t at, low = 0, high = walk.anchor, middle, place
    cdef int last_word = -1
    cdef Record record
    while low < high:
        middle = (low + high) // 2
        if anchor_position(file, middle, &at) < 0:
            return -1
        if at < walk.end:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return fault(file, FAULT_ANCHOR, <uint64_t> (file.anchor_positions - file.base))
    if anchor_position(file, low - 1, &at) < 0:
        return -1
    walk.stretch = at - at % PAGE_SIZE
    memset(walk.starts, 0, sizeof(walk.starts))
    while at < walk.end:
        place = (at - walk.stretch) // 8
        if place >= PAGE_SIZE // 8:
            return fault(file, FAULT_ANCHOR, <uint64_t> (file.anchor_positions - file.base) + 4 * (low - 1))
        if read_record(file, at, &record) < 0:
            return -1
        walk.starts[place // 64] |= <uint64_t> 1 << place % 64
        last_word = <int> (place // 64)
        at = record.next
    walk.anchor = low - 1
    walk.last_word = last_word
    return 0


cdef FileScan open_scan(RecordReader file, uint64_t at, uint64_t end, bint reverse, int64_t limit):
    """Open a walk over the records from position `at` up to `end`, or back; `limit` -1: no limit."""
    cdef FileScan scan = FileScan.__new__(FileScan)
    walk_begin(file, &scan.walk, at, end, reverse)
    scan.left = limit
    scan.file = file
    file.pins += 1
    return scan


@cython.final
cdef class FileScan:
    """One ordered walk over a sorted file, which it pins until it ends or is closed."""

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """End the walk, and release the file."""
        if self.file is not None:
            assert self.file.pins > 0, f"{self.file.name}: a scan holds a pin of its own"
            self.file.pins -= 1
            self.file = None

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef uint64_t position, before = self.walk.end
        cdef object key = None, value = None, pair
        cdef int result = WALK_ENDED
        if self.file is None:
            raise StopIteration
        if self.left != 0:
            result = walk_next(self.file, &self.walk, &record, &position)
        if result == WALK_RECORD:
            key = PyBytes_FromStringAndSize(<const char*> record.key.data, record.key.size)
            value = PyBytes_FromStringAndSize(<const char*> record.value.data, record.value.size)
        if result < 0 or not is_whole(self.file):
            self.fail()
        if result == WALK_ENDED:
            self.close()
            raise StopIteration
        assert self.walk.end < before if self.walk.reverse else position < self.walk.at, "each step of a walk leads on"
        self.left -= self.left > 0
        pair = PyTuple_New(2)
        Py_INCREF(key)
        PyTuple_SET_ITEM(pair, 0, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(pair, 1, value)
        return pair

    cdef int fail(self) except -1:
        cdef object error = self.file.damage()
        self.close()
        raise error
