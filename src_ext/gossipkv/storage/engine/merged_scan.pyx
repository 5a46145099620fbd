"""A scan over memtables and runs as one: in key order, the newest record of each key, without deleted keys.

Every source has a head, its next record, and the heads are sorted: by key, then by age. The first head is the newest of
its key; the next heads with the same key were replaced, and are skipped. A head that advances moves back in the order
as far as needed, mostly not at all, since most records are in the one large run. (A tournament, as in `scan_page.pyx`,
compares once per level, wherever the records are.)

A head leaves the order at the end of the bounds. So all heads in it have one space, and the eight bytes behind the
space decide most comparisons. The end of the bounds is not searched for. A single source is not compared at all.

Rules for editors:

* A head's record of a compressed file is valid until the file is read again, so a record that was handed out is left
  only in the next step.
* During a scan nothing is put into a memtable, and no file is closed; the holder of the scan ensures that.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from gossipkv.storage._storage cimport (
    WALK_ENDED, Record, SortedFile, compare_keys, is_whole, seek, walk_begin, walk_next, walk_prefetch, word_of,
)


cdef Py_ssize_t file_of(const RunFiles* run, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Return the file of a run that has the key, if any has; -1: the key is below them all."""
    cdef Py_ssize_t low = 0, high = run.count, middle
    while low < high:
        middle = (low + high) // 2
        if compare_keys(run.first_keys[middle].data, run.first_keys[middle].size, key, size) <= 0:
            low = middle + 1
        else:
            high = middle
    return low - 1


# Bounds -----------------------------------------------------------------------------------------------------------


cdef inline bint is_within(const MergedScan* scan, const Slice* key) noexcept nogil:
    """Return True if the scan's key is still within its bounds."""
    cdef const Slice* bound = &scan.bounds.start
    if key.size < SPACE_BYTES or memcmp(key.data, bound.data, SPACE_BYTES) != 0:
        return False    # Every bound begins with the scanned space.
    if scan.bounds.reverse:
        return bound.size == SPACE_BYTES or compare_keys(key.data, key.size, bound.data, bound.size) >= 0
    bound = &scan.bounds.end
    return bound.size <= SPACE_BYTES or compare_keys(key.data, key.size, bound.data, bound.size) < 0


cdef inline uint64_t rank(const MergedScan* scan, const Slice* key) noexcept nogil:
    """Return a number that is lower for a key that comes first, or equal if the keys begin alike."""
    cdef uint64_t word = word_of(key.data, key.size, SPACE_BYTES)
    return ~word if scan.bounds.reverse else word


# Heads ------------------------------------------------------------------------------------------------------------


cdef inline int head_next(MergedScan* scan, SourceHead* head) noexcept nogil:
    """Take the source's next record; returns 1, 0 if it has none within the bounds, -1 if damaged."""
    cdef Record record
    cdef uint64_t position
    cdef const uint8_t* found
    cdef int result
    if head.run == NULL:
        if head.cursor.leaf == NULL:
            return 0
        found = cursor_record(&head.cursor)
        head.key = record_key(found)
        head.value = record_value(found)
        cursor_step(&head.cursor, scan.bounds.reverse)
    else:
        result = walk_next(<SortedFile> head.run.files[head.at], &head.walk, &record, &position)
        while result == WALK_ENDED:
            if not next_file(scan, head):
                return 0
            result = walk_next(<SortedFile> head.run.files[head.at], &head.walk, &record, &position)
        if result < 0:
            scan.damaged = head.run.files[head.at]
            return -1
        walk_prefetch(<SortedFile> head.run.files[head.at], &head.walk)
        head.key = record.key
        head.value = record.value
    if not is_within(scan, &head.key):
        return 0
    head.word = rank(scan, &head.key)
    return 1


cdef bint next_file(MergedScan* scan, SourceHead* head) noexcept nogil:
    """Move to the run's next file, in the scan's direction; returns False if there is none."""
    if scan.bounds.reverse:
        head.at -= 1
    else:
        head.at += 1
    if head.at < 0 or head.at >= head.run.count:
        head.at = max(<Py_ssize_t> 0, min(head.at, head.run.count - 1))     # Stay at the last file that was read.
        return False
    walk_begin(
        <SortedFile> head.run.files[head.at], &head.walk, 0, (<SortedFile> head.run.files[head.at]).position_end,
        scan.bounds.reverse,
    )
    return True


cdef int open_run(MergedScan* scan, SourceHead* head, const RunFiles* run, uint64_t hash) noexcept nogil:
    """Find the start of the scan in a run; -1 if damaged."""
    cdef const Slice* bound = &scan.bounds.end if scan.bounds.reverse else &scan.bounds.start
    cdef uint64_t at = 0, end
    cdef Record record
    cdef int found
    head.run = run
    head.at = run.count - 1 if scan.bounds.reverse and bound.size == 0 else max(
        <Py_ssize_t> 0, file_of(run, bound.data, bound.size)
    )
    head.first_at = head.at
    end = (<SortedFile> run.files[head.at]).position_end
    # The index finds an existing key at once; for absent keys the neighbours are searched.
    if bound.size > SPACE_BYTES:
        found = (<SortedFile> run.files[head.at]).locate(bound.data, bound.size, hash, &record, &at)
        if found == 0:
            found = seek(<SortedFile> run.files[head.at], bound.data, bound.size, &at)
    elif bound.size > 0:
        found = seek(<SortedFile> run.files[head.at], bound.data, bound.size, &at)
    else:
        found = 0
        at = end
    if found < 0:
        scan.damaged = run.files[head.at]
        return -1
    if scan.bounds.reverse:
        walk_begin(<SortedFile> run.files[head.at], &head.walk, 0, at, True)
    else:
        walk_begin(<SortedFile> run.files[head.at], &head.walk, at, end, False)
    return 0


cdef inline bint comes_after(const MergedScan* scan, const SourceHead* one, const SourceHead* other) noexcept nogil:
    """Return True if the first head comes behind the second: by key, then by age."""
    cdef int order
    if one.word != other.word:
        return one.word > other.word
    order = compare_keys(one.key.data, one.key.size, other.key.data, other.key.size)
    if order == 0:
        return one.age > other.age
    return (order < 0) == scan.bounds.reverse


cdef int advance(MergedScan* scan, int place) noexcept nogil:
    """Advance the head at a place of the order, and sort it in again; -1 if damaged."""
    cdef int moving = scan.order[place]
    cdef int result = head_next(scan, &scan.heads[moving])
    if result < 0:
        return -1
    if result == 0:
        scan.count -= 1
        while place < scan.count:
            scan.order[place] = scan.order[place + 1]
            place += 1
        return 0
    while place + 1 < scan.count and comes_after(scan, &scan.heads[moving], &scan.heads[scan.order[place + 1]]):
        scan.order[place] = scan.order[place + 1]
        place += 1
    scan.order[place] = moving
    return 0


cdef int add_head(MergedScan* scan, SourceHead* head) noexcept nogil:
    """Add a source, if it has a record within the bounds; -1 if damaged."""
    cdef int result = head_next(scan, head), place = scan.count
    if result <= 0:
        return result
    while place > 0 and comes_after(scan, &scan.heads[scan.order[place - 1]], head):
        scan.order[place] = scan.order[place - 1]
        place -= 1
    scan.order[place] = head.age
    scan.count += 1
    return 0


# The scan ---------------------------------------------------------------------------------------------------------


cdef int scan_begin(MergedScan* scan, const ScanSources* sources, const KeyBounds* bounds) noexcept nogil:
    """Begin a scan; -1 if damaged. The memory of `scan` may have any content.

    Requires: both bounds are in one space, and `start` has at least the space's bytes. Lifetime: the pinned sources,
    and the bytes of the bounds, stay unchanged until the scan is over.
    """
    cdef const Slice* bound = &bounds.end if bounds.reverse else &bounds.start
    cdef uint64_t hashes[MAX_RUNS]
    cdef int i
    cdef Py_ssize_t at
    cdef SourceHead* head
    scan.bounds = bounds[0]
    scan.sources = sources
    scan.count = 0
    scan.passed = 0
    scan.used = False
    scan.damaged = NULL
    scan.bad_record = NULL
    if bound.size > SPACE_BYTES:
        for i in range(sources.run_count):
            at = max(<Py_ssize_t> 0, file_of(&sources.runs[i], bound.data, bound.size))
            hashes[i] = (<SortedFile> sources.runs[i].files[at]).prefetch_bucket(bound.data, bound.size)
    for i in range(sources.memtable_count):
        head = &scan.heads[i]
        head.age = i
        head.run = NULL
        (<Memtable> sources.memtables[i]).seek(
            bound.data if bound.size else NULL, bound.size, bounds.reverse, &head.cursor
        )
        add_head(scan, head)
    for i in range(sources.run_count):
        head = &scan.heads[sources.memtable_count + i]
        head.age = sources.memtable_count + i
        if open_run(scan, head, &sources.runs[i], hashes[i]) < 0 or add_head(scan, head) < 0:
            return -1
    return 0


cdef inline int leave_used(MergedScan* scan) noexcept nogil:
    """Advance behind the record that was handed out, and all that it replaced; -1 if damaged."""
    cdef SourceHead* first
    cdef SourceHead* second
    if not scan.used:
        return 0
    scan.used = False
    first = &scan.heads[scan.order[0]]
    while scan.count > 1:
        second = &scan.heads[scan.order[1]]
        if second.word != first.word or second.key.size != first.key.size or memcmp(
            second.key.data, first.key.data, <size_t> first.key.size
        ) != 0:
            break
        scan.passed += 1
        if advance(scan, 1) < 0:
            return -1
    return advance(scan, 0)


cdef int scan_next(MergedScan* scan, Slice* key, Slice* value) noexcept nogil:
    """Read the next record, its value without the flag; returns a `StepResult`. Valid until the next step."""
    cdef SourceHead* head
    while True:
        if leave_used(scan) < 0:
            return STEP_DAMAGED
        if scan.count == 0:
            return STEP_ENDED
        if scan.passed >= MAX_PASSED:
            return STEP_UNFINISHED
        head = &scan.heads[scan.order[0]]
        if head.value.size == 0 or not VALUE <= head.value.data[0] <= TOMBSTONE:
            scan.damaged = head.run.files[head.at] if head.run != NULL else NULL
            scan.bad_record = head.value.data
            return STEP_DAMAGED
        scan.used = True
        if head.value.data[0] == VALUE:
            key[0] = head.key
            value.data = head.value.data + 1
            value.size = head.value.size - 1
            return STEP_RECORD
        scan.passed += 1


cdef int scan_peek(MergedScan* scan, Slice* key) noexcept nogil:
    """Return the key from which the scan would continue: 1, 0 if there is none, -1 if damaged."""
    if leave_used(scan) < 0:
        return -1
    if scan.count == 0:
        return 0
    key[0] = scan.heads[scan.order[0]].key
    return 1


cdef PyObject* scan_loss(const MergedScan* scan) noexcept nogil:
    """Return the first file read by the scan that is no longer whole; NULL: the copied bytes are valid."""
    cdef const SourceHead* head
    cdef Py_ssize_t at, last
    cdef int i
    for i in range(scan.sources.memtable_count, scan.sources.memtable_count + scan.sources.run_count):
        head = &scan.heads[i]
        at = min(head.first_at, head.at)
        last = max(head.first_at, head.at)
        while at <= last:
            if not is_whole(<SortedFile> head.run.files[at]):
                return head.run.files[at]
            at += 1
    return NULL
