"""One page of a scan: the partitions of a version merged in key order, and written as MessagePack.

A hash-partitioned version has neighbouring keys in different files, each in order. A page finds the range's start in
each file (opening), orders the first records (ordering), and then repeatedly takes the first of all and reads the next
one of its file (merging). It ends at the limit of records or bytes, or at the end of the range. Each stage can stop
after any file or record, so a page of any size is made in slices of bounded work.

The merge is a tournament tree with the losers in its inner nodes: the winner's next record needs one comparison per
level, where a heap needs two. A node holds the first eight bytes behind the shared prefix, which decide most
comparisons.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from gossipkv.storage._storage cimport (
    COMPRESSION_NONE, FAULT_COLD, WALK_ENDED, WALK_RECORD, SortedFile, compare_keys, is_whole, prefetch, read_record,
    seek, walk_begin, walk_next, walk_prefetch, word_of,
)
from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, put, put_array, put_bin

from gossipkv.errors import TooLarge

cdef enum:
    NOBODY = -1  # In a tree node: no head has arrived yet.
    NO_RECORD = -2  # A file without a further record loses every comparison.
    MIN_HEADS = 16
    WHOLE_PAGE = 1 << 30  # Work for a page of any size; it is compared only between two records.
    # Distances, in files, at which fields and then anchors are prefetched.
    FIELDS_AHEAD = 8
    ANCHORS_AHEAD = 4


cdef void page_begin(
    ScanPage* page, PyObject** files, Py_ssize_t file_count, const KeyRange* range,
    Py_ssize_t limit, Py_ssize_t max_bytes, Py_ssize_t max_value,
) noexcept nogil:
    """Begin a page. Requires: the memory of `page` is zero, or was used for a page before.

    Lifetime: the files (pinned) and the bytes of the range stay unchanged until the page is ready.
    """
    page.range = range[0]
    page.files = files
    page.file_count = file_count
    page.limit = limit
    page.max_bytes = max_bytes
    page.max_value = max_value
    page.stage = OPENING
    page.slice = 0
    page.at = 0
    page.head_count = 0
    page.shared = 0
    page.first_file = NULL
    page.damaged = NULL
    page.waits = True
    page.owes = False
    page.cold = NULL
    page.too_large = 0
    page.out.start = 0
    page.out.end = 0
    page.records = 0
    page.last_size = 0
    page.left = max_bytes
    page.more = False


cdef void page_release(ScanPage* page) noexcept nogil:
    free(page.heads)
    free(page.losers)
    page.heads = NULL
    page.losers = NULL
    page.head_room = 0
    buffer_release(&page.out)


cdef int page_run(ScanPage* page, int64_t* work) noexcept nogil:
    """Continue until the page ends or `work`, which is reduced, is used up. Return a `PageResult`.

    A page without `waits` may stop as `PAGE_COLD`, and continues at that place.
    """
    cdef int result = PAGE_UNFINISHED
    page.slice += 1
    while result == PAGE_UNFINISHED and work[0] > 0:
        if page.stage == OPENING:
            if page.at < page.file_count:
                result = open_file(page, page.files[page.at], work)
                page.at += result != PAGE_COLD
            else:
                result = begin_ordering(page)
        elif page.stage == ORDERING:
            if page.at < page.head_count:
                work[0] -= 1
                order_head(page, page.at)
                page.at += 1
                if page.damaged != NULL:
                    return PAGE_DAMAGED
            else:
                page.stage = MERGING
        else:
            result = merge_files(page, work)
    if result == PAGE_READY or result == PAGE_TOO_LARGE:
        return result if all_whole(page) else PAGE_DAMAGED
    return result


cdef bint all_whole(ScanPage* page) noexcept nogil:
    """True if all files were readable throughout this slice and those before, so the copied bytes are sound."""
    cdef Py_ssize_t i
    for i in range(page.file_count):
        if not is_whole(<SortedFile>page.files[i]):
            page.damaged = page.files[i]
            return False
    return True


# Opening ----------------------------------------------------------------------------------------------------------


cdef inline void look_ahead(ScanPage* page) noexcept nogil:
    """Prefetch for the searches in the next files: each search alone waits for half a dozen cache lines in turn."""
    cdef PyObject* ahead
    if page.at + FIELDS_AHEAD < page.file_count:
        ahead = page.files[page.at + FIELDS_AHEAD]
        prefetch(&(<SortedFile>ahead).base)
        prefetch(&(<SortedFile>ahead).anchor_words)
        prefetch(&(<SortedFile>ahead).common_prefix)
        prefetch(&(<SortedFile>ahead).checked_pages)
    if page.at + ANCHORS_AHEAD < page.file_count:
        ahead = page.files[page.at + ANCHORS_AHEAD]
        prefetch((<SortedFile>ahead).anchor_words + 4 * (<SortedFile>ahead).anchor_count)
        prefetch((<SortedFile>ahead).anchor_words + 4 * (<SortedFile>ahead).anchor_count + 64)
        prefetch((<SortedFile>ahead).checked_pages)


cdef int open_file(ScanPage* page, PyObject* file, int64_t* work) noexcept nogil:
    """Find the first record of the range in one file."""
    cdef uint64_t at = 0
    cdef uint64_t end = (<SortedFile>file).position_end
    cdef FileHead* head
    cdef int result
    work[0] -= OPEN_WORK
    if (<SortedFile>file).record_count == 0:
        return PAGE_UNFINISHED
    look_ahead(page)
    share(page, file)
    if seek_in(page, file, beginning(page), &end if page.range.reverse else &at) < 0:
        return why_stopped(page, file)
    if page.head_count == page.head_room and add_heads(page) < 0:
        return PAGE_NO_MEMORY
    head = &page.heads[page.head_count]
    head.file = file
    walk_begin(<SortedFile>file, &head.walk, at, end, page.range.reverse)
    result = next_record(page, head, work)
    if result == WALK_RECORD and not is_behind(page, head):
        page.head_count += 1
    return why_stopped(page, file) if result < 0 else PAGE_UNFINISHED


cdef inline int seek_in(ScanPage* page, PyObject* file, const Blob* key, uint64_t* position) noexcept nogil:
    """Check that the file's last byte can be read, as `is_whole` does, and `seek` the key unless `key` is NULL."""
    cdef int result = 0
    (<SortedFile>file).asks = (<SortedFile>file).paged and not page.waits
    if (<SortedFile>file).asks and not (<SortedFile>file).is_in_memory((<SortedFile>file).size - 1, 1):
        result = -1
    elif key != NULL:
        result = seek(<SortedFile>file, key.data, key.size, position)
    (<SortedFile>file).asks = False
    return result


cdef inline const Blob* beginning(const ScanPage* page) noexcept nogil:
    """Return the key at which the range begins in the scan's direction; NULL for none."""
    if page.range.reverse:
        return &page.range.end if page.range.has_end else NULL
    return &page.range.start if page.range.has_start else NULL


cdef int why_stopped(ScanPage* page, PyObject* file) noexcept nogil:
    """Record and return the result for a read of that file that has just failed."""
    if (<SortedFile>file).fault_reason == FAULT_COLD:
        page.cold = file
        return PAGE_COLD
    page.damaged = file
    return PAGE_DAMAGED


cdef PyObject* page_look(ScanPage* page, Py_ssize_t ahead) noexcept nogil:
    """Return a later file if its search will stop at a missing page; else NULL."""
    cdef Py_ssize_t at = page.at + ahead
    cdef uint64_t unused
    if page.stage != OPENING or at >= page.file_count:
        return NULL
    if seek_in(page, page.files[at], beginning(page), &unused) == 0:
        return NULL
    return page.files[at] if (<SortedFile>page.files[at]).fault_reason == FAULT_COLD else NULL


cdef int add_heads(ScanPage* page) noexcept nogil:
    cdef Py_ssize_t room = min(max(<Py_ssize_t>MIN_HEADS, 4 * page.head_room), page.file_count)
    cdef FileHead* heads = <FileHead*>realloc(page.heads, room * sizeof(FileHead))
    if heads == NULL:
        return -1
    page.heads = heads
    page.head_room = room
    return 0


cdef inline void share(ScanPage* page, PyObject* file) noexcept nogil:
    """Reduce `shared` to the prefix that this file's keys share with the earlier files."""
    cdef Py_ssize_t i
    if page.first_file == NULL:
        page.first_file = file
        page.shared = (<SortedFile>file).common_size
        return
    page.shared = min(page.shared, (<SortedFile>file).common_size)
    if memcmp((<SortedFile>page.first_file).common_prefix, (<SortedFile>file).common_prefix, page.shared) != 0:
        for i in range(page.shared):
            if (<SortedFile>page.first_file).common_prefix[i] != (<SortedFile>file).common_prefix[i]:
                page.shared = i
                return


cdef inline int next_record(ScanPage* page, FileHead* head, int64_t* work) noexcept nogil:
    """Read the next record of a head's file. Return a `WalkResult`."""
    cdef int result
    (<SortedFile>head.file).asks = (<SortedFile>head.file).paged and not page.waits
    result = walk_next(<SortedFile>head.file, &head.walk, &head.record, &head.position)
    (<SortedFile>head.file).asks = False
    if result == WALK_RECORD:
        head.slice = page.slice
        walk_prefetch(<SortedFile>head.file, &head.walk)
        work[0] -= 1 + (head.record.key.size + head.record.value.size) // BYTES_PER_WORK
    return result


cdef inline bint is_behind(ScanPage* page, const FileHead* head) noexcept nogil:
    """True if the head's record, and so all later ones in its file, lie behind the range."""
    cdef const Blob* bound
    if page.range.reverse:
        bound = &page.range.start
        return page.range.has_start and compare_keys(
            head.record.key.data, head.record.key.size, bound.data, bound.size
        ) < 0
    bound = &page.range.end
    return page.range.has_end and compare_keys(
        head.record.key.data, head.record.key.size, bound.data, bound.size
    ) >= 0


# Ordering ---------------------------------------------------------------------------------------------------------


cdef int begin_ordering(ScanPage* page) noexcept nogil:
    """Begin the ordering, since all files are open."""
    cdef TreeEntry* losers
    cdef Py_ssize_t i
    page.at = 0
    page.stage = ORDERING
    page.winner.head = NO_RECORD
    if buffer_reserve(&page.out, PAGE_HEAD_BYTES) < 0:
        return PAGE_NO_MEMORY
    page.out.end = PAGE_HEAD_BYTES  # The bytes are written when the number of records is known.
    if page.head_count == 0:
        return PAGE_UNFINISHED
    losers = <TreeEntry*>realloc(page.losers, page.head_count * sizeof(TreeEntry))
    if losers == NULL:
        return PAGE_NO_MEMORY
    page.losers = losers
    for i in range(page.head_count):
        losers[i].head = NOBODY
    return PAGE_UNFINISHED


cdef inline uint64_t rank(const ScanPage* page, const FileHead* head) noexcept nogil:
    """Return a number that orders keys as the scan does, equal for keys with equal first bytes."""
    cdef uint64_t word = word_of(head.record.key.data, head.record.key.size, page.shared)
    return ~word if page.range.reverse else word


cdef bint key_is_here(ScanPage* page, FileHead* head) noexcept nogil:
    """Read the head's record again if this slice has not. Return False if it is damaged.

    Between slices, other readers may evict a block of a compressed file from its cache. The files stay pinned.
    """
    if head.slice != page.slice and (<SortedFile>head.file).compression != COMPRESSION_NONE:
        if read_record(<SortedFile>head.file, head.position, &head.record) < 0:
            page.damaged = head.file
            return False
        head.slice = page.slice
    return True


cdef bint keys_before(ScanPage* page, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
    """Compare two heads with equal words."""
    cdef FileHead* first
    cdef FileHead* second
    cdef int order
    if one == NO_RECORD or other == NO_RECORD:
        return one != NO_RECORD
    first = &page.heads[one]
    second = &page.heads[other]
    if not key_is_here(page, first) or not key_is_here(page, second):
        return False  # The page ends with `damaged`.
    order = compare_keys(first.record.key.data, first.record.key.size, second.record.key.data, second.record.key.size)
    if order == 0:
        return one < other  # Equal keys cannot occur, since the key determines the partition.
    return order > 0 if page.range.reverse else order < 0


cdef inline bint before(ScanPage* page, const TreeEntry* one, const TreeEntry* other) noexcept nogil:
    """True if the record of `one` comes before that of `other`."""
    if one.word != other.word:
        return one.word < other.word
    return keys_before(page, one.head, other.head)


cdef void order_head(ScanPage* page, Py_ssize_t at) noexcept nogil:
    """Insert one head: it rises to the first node without an entry."""
    cdef TreeEntry rising
    cdef TreeEntry loser
    cdef Py_ssize_t node = (page.head_count + at) // 2
    if not key_is_here(page, &page.heads[at]):
        return
    rising.word = rank(page, &page.heads[at])
    rising.head = at
    while node > 0:
        loser = page.losers[node]
        if loser.head == NOBODY:
            page.losers[node] = rising
            return
        if before(page, &loser, &rising):
            page.losers[node] = rising
            rising = loser
        node //= 2
    page.winner = rising


cdef inline int replace_winner(ScanPage* page, int64_t* work) noexcept nogil:
    """Read the winner's next record and let it rise. Return a `PageResult`."""
    cdef Py_ssize_t at = page.winner.head
    cdef FileHead* head = &page.heads[at]
    cdef TreeEntry rising
    cdef TreeEntry loser
    cdef Py_ssize_t node = (page.head_count + at) // 2
    cdef int result = next_record(page, head, work)
    if result < 0:
        return why_stopped(page, head.file)
    if result == WALK_ENDED:
        rising.word = <uint64_t>-1
        rising.head = NO_RECORD
    else:
        rising.word = rank(page, head)
        rising.head = at
    while node > 0:
        loser = page.losers[node]
        if before(page, &loser, &rising):
            page.losers[node] = rising
            rising = loser
        node //= 2
    page.winner = rising
    return PAGE_DAMAGED if page.damaged != NULL else PAGE_UNFINISHED


# Merging ----------------------------------------------------------------------------------------------------------


cdef int merge_files(ScanPage* page, int64_t* work) noexcept nogil:
    cdef FileHead* head
    cdef Py_ssize_t size
    cdef int result
    while work[0] > 0:
        if page.owes:
            result = replace_winner(page, work)
            if result != PAGE_UNFINISHED:
                return result
            page.owes = False
        if page.winner.head == NO_RECORD:
            return PAGE_READY
        head = &page.heads[page.winner.head]
        if not key_is_here(page, head):
            return PAGE_DAMAGED
        if is_behind(page, head):
            return PAGE_READY
        size = head.record.key.size + head.record.value.size
        if page.records == page.limit or (page.records > 0 and size > page.left):
            page.more = True
            return PAGE_READY
        if head.record.value.size > page.max_value:
            if page.records > 0:
                page.more = True
                return PAGE_READY
            page.too_large = head.record.value.size
            return PAGE_TOO_LARGE
        if buffer_reserve(&page.out, size + 3 * HEAD_BYTES) < 0:
            return PAGE_NO_MEMORY
        page.left -= size
        page.records += 1
        put(&page.out, 0x92)
        put_bin(&page.out, head.record.key.data, head.record.key.size)
        page.last_size = head.record.key.size
        page.last_key = page.out.end - page.last_size
        put_bin(&page.out, head.record.value.data, head.record.value.size)
        page.owes = True
    return PAGE_UNFINISHED


cdef void page_close(ScanPage* page, const uint8_t* envelope, Py_ssize_t size) noexcept nogil:
    """Write the page's head: `envelope`, and the number of records. Requires: the page is ready."""
    cdef uint8_t data[ARRAY_HEAD_BYTES]
    cdef Buffer head
    buffer_init(&head)
    head.data = data
    put_array(&head, page.records)
    page.out.start = PAGE_HEAD_BYTES - size - head.end
    if size > 0:
        memcpy(page.out.data + page.out.start, envelope, size)
    memcpy(page.out.data + page.out.start + size, data, head.end)


# From Python ------------------------------------------------------------------------------------------------------


cdef bint hold_bound(object text, Blob* blob):
    """Point `blob` at `text`. Return False for None."""
    if text is None:
        return False
    blob.data = <const uint8_t*><const char*>text
    blob.size = len(text)
    return True


def page(
    files,
    bytes start,
    bytes end,
    bint reverse,
    Py_ssize_t limit,
    Py_ssize_t max_bytes,
    Py_ssize_t max_value,
    int64_t slice_work=WHOLE_PAGE,
):
    """Return a whole page: the array of `[key, value]` as MessagePack, and its last key if there are more records.

    `files` are those of all partitions. The keys are from `start` (inclusive) to `end` (exclusive). A page made in
    slices is identical.

    Raises:
        Corrupt: a file is damaged where the scan went.
        TooLarge: the first value is longer than `max_value`.
    """
    cdef ScanPage made
    cdef KeyRange range
    cdef tuple held = tuple(files)
    cdef SortedFile file
    cdef PyObject** pointers
    cdef Py_ssize_t i
    cdef int result = PAGE_UNFINISHED
    cdef int64_t work
    memset(&made, 0, sizeof(ScanPage))
    memset(&range, 0, sizeof(KeyRange))
    range.has_start = hold_bound(start, &range.start)
    range.has_end = hold_bound(end, &range.end)
    range.reverse = reverse
    pointers = <PyObject**>calloc(len(held) + 1, sizeof(PyObject*))
    if pointers == NULL:
        raise MemoryError
    try:
        for i, file in enumerate(held):
            file.ensure_open()
            pointers[i] = <PyObject*>file
        page_begin(&made, pointers, len(held), &range, limit, max_bytes, max_value)
        while result == PAGE_UNFINISHED:
            work = slice_work
            result = page_run(&made, &work)
        if result == PAGE_DAMAGED:
            raise (<SortedFile>made.damaged).damage()
        if result == PAGE_TOO_LARGE:
            raise TooLarge("the value is longer than the node may send", {"limit": max_value, "size": made.too_large})
        if result < 0:
            raise MemoryError
        page_close(&made, NULL, 0)
        last = made.out.data + made.last_key
        return (
            PyBytes_FromStringAndSize(<const char*>made.out.data + made.out.start, buffer_size(&made.out)),
            PyBytes_FromStringAndSize(<const char*>last, made.last_size) if made.more else None,
        )
    finally:
        page_release(&made)
        free(pointers)
