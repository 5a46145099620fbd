"""Pages of a table's scan, made without an object for each record.

    read_page   at a host: the records of its replicas, merged in key order, as `[key, record, ...]`
    join_pages  at the node that the client asked: such pages, merged in key order, as the client's `[key, value], ...`

A page merges one scan for each replica, whose records are a part of a space, or one host's page for each host: the next
records of all form a heap. A key is in one of them only. The serving loop makes pages of calm replicas with the same
functions (`serving/scan/table_pages.pyx`).

Requires: the files of the store are not compressed, since several scans read a file side by side.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gossipkv.storage._storage cimport Slice, compare_keys, word_of
from gossipkv.storage.engine._engine cimport (
    MAX_PASSED, SPACE_BYTES, STEP_RECORD, STEP_UNFINISHED, KeyBounds, MergedScan, ScanSources, View, scan_begin,
    scan_loss, scan_next, scan_peek,
)
from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Blob, Cursor, put, put_array, put_bin, take_array, take_bin

cdef enum:
    KIND_BYTES = SPACE_BYTES + 1    # Before each user's key in the store: its space, and the kind of a record.
    ROW_HEAD_BYTES = 11             # The heads of a record: of a pair, a key and a value.
    ROWS_HEAD_BYTES = 5

MAX_TOMBSTONES = <int>PAGE_TOMBSTONES
PAGE_BYTES = <int>MAX_PAGE_BYTES


# The merge --------------------------------------------------------------------------------------------------------


cdef int open_page(
    PageMerge* page, Py_ssize_t sources, bint reverse, Py_ssize_t limit, uint64_t now_ms
) noexcept nogil:
    """Begin a page of so many sources; -1 if out of memory. It must be closed in any case."""
    page.sources = <PageSource*>calloc(sources + 1, sizeof(PageSource))
    page.heap = <PageSource**>calloc(sources + 1, sizeof(PageSource*))
    page.scans = <MergedScan*>malloc((sources + 1) * sizeof(MergedScan))
    page.count = 0
    page.reverse, page.now_ms = reverse, now_ms
    # All scans together pass as many as one may, and each passes one, so that the next page begins behind this one.
    page.passed = MAX_PASSED - 1 - MAX_PASSED // max(sources, 1)
    page.failed = NULL
    page.limit, page.tombstones, page.bytes_left = limit, PAGE_TOMBSTONES, MAX_PAGE_BYTES
    return -1 if page.sources == NULL or page.heap == NULL or page.scans == NULL else 0


cdef void close_page(PageMerge* page) noexcept nogil:
    free(page.sources)
    free(page.heap)
    free(page.scans)


cdef int add_scan(
    PageMerge* page, Py_ssize_t number, const ScanSources* sources, const KeyBounds* bounds
) noexcept nogil:
    """Add the scan of a replica; return a negative `PageStep` if that fails. Lifetime: as of `scan_begin`."""
    cdef PageSource* source = &page.sources[number]
    source.scan = &page.scans[number]
    if scan_begin(source.scan, sources, bounds) < 0:
        page.failed = source
        return PAGE_DAMAGE
    source.scan.passed = page.passed
    return add_source(page, source)


cdef int add_source(PageMerge* page, PageSource* source) noexcept nogil:
    """Add a source that points before its first record; return a negative `PageStep` if that fails."""
    cdef Py_ssize_t at = page.count
    cdef int result = step_source(page, source)
    if result <= 0:
        return result
    while at > 0 and is_first(page, source, page.heap[(at - 1) // 2]):
        page.heap[at] = page.heap[(at - 1) // 2]
        at = (at - 1) // 2
    page.heap[at] = source
    page.count += 1
    return PAGE_RECORD


cdef int step_source(PageMerge* page, PageSource* source) noexcept nogil:
    """Point at the next record of a source; return `PAGE_RECORD`, `PAGE_ENDED`, or a negative `PageStep`."""
    cdef int result
    cdef Blob key, record
    if source.scan == NULL:
        if source.left == 0:
            return PAGE_ENDED
        if not take_bin(&source.rows, &key) or not take_bin(&source.rows, &record):
            return PAGE_MALFORMED
        source.left -= 1
        source.key, source.record = Slice(key.data, key.size), Slice(record.data, record.size)
    else:
        result = scan_next(source.scan, &source.key, &source.record)
        if result == STEP_UNFINISHED:
            source.record = Slice(NULL, 0)
            result = scan_peek(source.scan, &source.key)
        if result < 0:
            page.failed = source
            return PAGE_DAMAGE
        if result != STEP_RECORD:
            return PAGE_ENDED
        source.key = Slice(source.key.data + KIND_BYTES, source.key.size - KIND_BYTES)
    source.word = word_of(source.key.data, source.key.size, 0)
    if page.reverse:
        source.word = ~source.word
    return PAGE_RECORD


cdef inline bint is_first(const PageMerge* page, const PageSource* one, const PageSource* other) noexcept nogil:
    """True if a source's record comes before that of another one."""
    cdef int order
    if one.word != other.word:
        return one.word < other.word
    order = compare_keys(one.key.data, one.key.size, other.key.data, other.key.size)
    return order > 0 if page.reverse else order < 0


cdef int advance_page(PageMerge* page) noexcept nogil:
    """Leave the first record of all; return a negative `PageStep` if that fails. Requires: there is a record."""
    cdef PageSource* moving = page.heap[0]
    cdef Py_ssize_t at = 0, child = 1
    cdef int result = step_source(page, moving)
    if result < 0:
        return result
    if result == PAGE_ENDED:
        page.count -= 1
        moving = page.heap[page.count]
    while child < page.count:
        if child + 1 < page.count and is_first(page, page.heap[child + 1], page.heap[child]):
            child += 1
        if not is_first(page, page.heap[child], moving):
            break
        page.heap[at] = page.heap[child]
        at = child
        child = 2 * at + 1
    page.heap[at] = moving
    return PAGE_RECORD


cdef int next_of_page(PageMerge* page, RecordView* record) noexcept nogil:
    """Look at the next record of all, that of the first source in the heap; return a `PageStep`."""
    if page.count == 0:
        return PAGE_ENDED
    if page.limit == 0 or page.tombstones == 0 or page.bytes_left < 0 or page.heap[0].record.data == NULL:
        return PAGE_FULL
    if parse_record(page.heap[0].record.data, page.heap[0].record.size, record) != SOUND:
        return PAGE_NO_RECORD
    expire_record(record, page.now_ms)
    return PAGE_RECORD


cdef int take_of_page(PageMerge* page, const RecordView* record, bint as_value, Buffer* rows) noexcept nogil:
    """Append a pair of the next record's key and value, or its key and itself, and go on; return a `PageStep`.

    A tombstone or an expired record is not appended, but counts.
    """
    cdef const PageSource* source = page.heap[0]
    page.bytes_left -= source.key.size + source.record.size
    if record.kind == KIND_DELETED:
        page.tombstones -= 1
        return advance_page(page)
    page.limit -= 1
    if buffer_reserve(rows, source.key.size + source.record.size + ROW_HEAD_BYTES) < 0:
        return PAGE_NO_ROOM
    if as_value:
        put(rows, 0x92)
        put_bin(rows, source.key.data, source.key.size)
        put_bin(rows, record.value, record.value_size)
    else:
        put_bin(rows, source.key.data, source.key.size)
        put_bin(rows, source.record.data, source.record.size)
    return advance_page(page)


cdef bint note_dot(PageSource* source) noexcept nogil:
    """Keep the dot of the source's record if it is the newest of its origin. Return False if there is no room."""
    cdef const uint8_t* dot = source.record.data + DOT_OFFSET
    cdef int at
    for at in range(source.origins):
        if memcmp(source.dots[at], dot, NUMBER_BYTES) == 0:
            if memcmp(source.dots[at], dot, ENTRY_BYTES) < 0:
                source.dots[at] = dot
            return True
    if source.origins == MAX_ORIGINS:
        return False
    source.dots[source.origins] = dot
    source.origins += 1
    return True


# From Python ------------------------------------------------------------------------------------------------------


cdef int gather_dots(PageSource* source, dict counters) except -1:
    """Move the newest dots of a source to those of all."""
    cdef uint64_t origin, counter
    cdef int at
    for at in range(source.origins):
        origin, counter = load_number(source.dots[at]), load_number(source.dots[at] + NUMBER_BYTES)
        counters[origin] = max(counter, <uint64_t>counters.get(origin, 0))
    source.origins = 0
    return 0


cdef object failure_of(const PageMerge* page, int result, View view):
    """Return the exception for a negative `PageStep`; `view`: None for pages of hosts."""
    cdef RecordView record
    cdef const Slice* data
    if result == PAGE_NO_ROOM:
        return MemoryError()
    if result == PAGE_DAMAGE:
        return view.damage(page.failed.scan.damaged, page.failed.scan.bad_record)
    if result == PAGE_MALFORMED:
        return ProtocolError("a page must have only keys and records")
    data = &page.heap[0].record
    return refusal(parse_record(data.data, data.size, &record), data.size)


cdef bytes bound_of(const PageMerge* page):
    """Return the bound before the next record. Requires: there is one."""
    cdef bytes key = (<const char*>page.heap[0].key.data)[:page.heap[0].key.size]
    return key + b"\0" if page.reverse else key


def read_page(View view not None, list parts not None, *, bint reverse, Py_ssize_t limit, uint64_t now_ms):
    """Return the first records within parts of spaces: an array of keys and records, the bound, and what is seen.

    `parts`: the number of a space, and the keys there from the first (inclusive) to the last (exclusive). The page ends
    at its limits. The bound is None if no record is left. Records that have expired at `now_ms` count as tombstones.
    Seen are the newest counter of each origin, and all dependencies; those of tombstones as well.

    Raises:
        Corrupt: a part of the page is damaged.
        ProtocolError: a value is no record.
    """
    cdef PageMerge page
    cdef KeyBounds bounds
    cdef RecordView record
    cdef Buffer rows, head
    cdef Py_ssize_t number
    cdef int result = PAGE_RECORD
    cdef dict counters = {}
    cdef set dependencies = set()
    cdef list held = []         # The bytes to which bounds point.
    cdef bytes low, high
    cdef uint8_t head_bytes[ROWS_HEAD_BYTES]
    cdef PyObject* lost
    view.ensure_open()
    buffer_init(&rows)
    buffer_init(&head)
    try:
        if open_page(&page, len(parts), reverse, limit, now_ms) < 0 or buffer_reserve(&rows, ROWS_HEAD_BYTES) < 0:
            raise MemoryError
        rows.end = ROWS_HEAD_BYTES      # Written when the number of records is known.
        for number, (space, start, end) in enumerate(parts):
            low, high = space.to_bytes(SPACE_BYTES, "big") + start, space.to_bytes(SPACE_BYTES, "big") + end
            held += low, high
            bounds.start = Slice(bytes_of(low), PyBytes_GET_SIZE(low))
            bounds.end = Slice(bytes_of(high), PyBytes_GET_SIZE(high))
            bounds.reverse = reverse
            result = add_scan(&page, number, &view.sources, &bounds)
            if result < 0:
                raise failure_of(&page, result, view)
        while True:
            result = next_of_page(&page, &record)
            if result != PAGE_RECORD:
                break
            if record.dependencies_size:
                dependencies.add((<const char*>record.dependencies)[:record.dependencies_size])
            if not note_dot(page.heap[0]):
                gather_dots(page.heap[0], counters)
                note_dot(page.heap[0])
            result = take_of_page(&page, &record, False, &rows)
            if result < 0:
                break
        if result < 0:
            raise failure_of(&page, result, view)
        for number in range(len(parts)):
            gather_dots(&page.sources[number], counters)
            lost = scan_loss(page.sources[number].scan)
            if lost != NULL:
                raise view.damage(lost, NULL)
        head.data = head_bytes
        put_array(&head, 2 * (limit - page.limit))
        rows.start = ROWS_HEAD_BYTES - head.end
        memcpy(rows.data + rows.start, head_bytes, head.end)
        return (
            (<const char*>rows.data + rows.start)[:buffer_size(&rows)],
            bound_of(&page) if result == PAGE_FULL else None, counters, dependencies,
        )
    finally:
        buffer_release(&rows)
        close_page(&page)


def join_pages(list pages not None, bytes bound, *, bint reverse, Py_ssize_t limit):
    """Merge pages up to a bound, if there is one; return the client's records, their count and size, and the bound.

    `pages`: arrays of keys and records. The page ends at its limits of records, keys and values, and then has another
    bound. The records are `[key, value]` each, without the head of an array.

    Raises:
        ProtocolError: a page is malformed, or has a tombstone.
    """
    cdef PageMerge page
    cdef PageSource* source
    cdef RecordView record
    cdef Buffer rows
    cdef bytes packed
    cdef Py_ssize_t number
    cdef int order, result = PAGE_RECORD
    buffer_init(&rows)
    try:
        if open_page(&page, len(pages), reverse, limit, 0) < 0:
            raise MemoryError
        for number, packed in enumerate(pages):
            source = &page.sources[number]
            source.rows = Cursor(bytes_of(packed), bytes_of(packed) + PyBytes_GET_SIZE(packed))
            source.left = take_array(&source.rows)
            result = PAGE_MALFORMED if source.left < 0 or source.left % 2 else PAGE_RECORD
            source.left //= 2
            if result > 0:
                result = add_source(&page, source)
            if result < 0:
                raise failure_of(&page, result, None)
        while True:
            if page.count and bound is not None:
                source = page.heap[0]
                order = compare_keys(source.key.data, source.key.size, bytes_of(bound), PyBytes_GET_SIZE(bound))
                if order < 0 if reverse else order >= 0:
                    break
            result = next_of_page(&page, &record)
            if result == PAGE_FULL:
                bound = bound_of(&page)
            if result != PAGE_RECORD:
                break
            if record.kind == KIND_DELETED:
                raise ProtocolError("a page must not have a tombstone")
            page.bytes_left += page.heap[0].record.size - record.value_size     # Values count here.
            result = take_of_page(&page, &record, True, &rows)
            if result < 0:
                break
        if result < 0:
            raise failure_of(&page, result, None)
        return (
            (<const char*>rows.data)[:rows.end] if rows.end else b"", limit - page.limit,
            MAX_PAGE_BYTES - page.bytes_left, bound,
        )
    finally:
        buffer_release(&rows)
        close_page(&page)
