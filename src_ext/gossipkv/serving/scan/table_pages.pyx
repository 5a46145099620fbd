"""Pages of tables, from calm replicas: each is made at once, within the gate of the store.

The page is that of `gossipkv.table.records.scan`, byte by byte. The following is handed to Python as it came, besides
what gets of tables hand over (`published/table_gets.pyx`): a page of many records or replicas, one for which
other nodes must be asked, one that goes on in the next range, and records of many origins.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset

from gossipkv.replication._replication cimport (
    MAX_ORIGINS, PAGE_ENDED, PAGE_FULL, PAGE_RECORD, CalmReplica, CalmTable, PageMerge, PageSource, RecordView,
    SeenWrite, SeenWrites, add_calm, add_scan, begin_seen, close_page, load_calm, load_state, next_of_page, note_dot,
    open_page, see_record, settle, take_of_page, take_token, token_size,
)
from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport (
    SPACE_BYTES, KeyBounds, ReadGate, View, enter_gate, leave_gate, scan_loss, write_space,
)
from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, put, put_answer, put_array, put_bin_head, put_bytes, take_array, take_bin,
)

cdef enum:
    # Limits of a page: it holds up the loop, and the thread that changes records, for about 0.2 ms.
    MAX_PAGE_RECORDS = 1024
    MAX_PAGE_SOURCES = 256
    SHORT_TOKEN_BYTES = 1024        # Longer ones are compacted: `LONG_BYTES` of `gossipkv.table.session.token`.
    MAX_TOKEN_WRITES = 2 * SHORT_TOKEN_BYTES // 16  # Entries of both tokens of a request.
    KEY_HEAD_BYTES = SPACE_BYTES + 1
    ROWS_HEAD_BYTES = 3             # Head of the array of records, which may be shorter.

cdef struct TablePage:
    PyObject* table                 # A `CalmTable`, borrowed from the published table.
    TableOptions options
    KeyRange range
    Blob passed                     # The token of the pages before; of size 0 for the first page.
    PyObject** rows                 # The `CalmReplica`s of the page,
    Py_ssize_t count
    PyObject* only                  # or the one of a range.
    Blob following                  # The bound at which the next range begins, in the scan's direction.
    bint goes_on                    # True if the scan goes on there.
    PageMerge merge
    Py_ssize_t limit
    Buffer made                     # Keys that the plan derived from the given ones.
    Buffer keys                     # Internal keys, the bounds of the replicas' scans.
    SeenWrites seen


cdef int plan_table_page(
    PublishedTable published, Cursor params, const ReadLimits* limits, Py_ssize_t scan_limit, TablePage* plan
) noexcept nogil:
    """Parse `table, {options}`. Return `ANSWERED` if it may be answered here, else `HAND_OFF`."""
    cdef Py_ssize_t count = take_array(&params)
    cdef DatabaseRow* database
    cdef ScanOptions asked
    cdef Cursor cursor
    cdef Blob name, bound
    memset(&asked, 0, sizeof(ScanOptions))
    asked.limit = <uint64_t>scan_limit
    if not 1 <= count <= 2 or not take_text(&params, &name):
        return HAND_OFF
    database = published.find_database(&name)
    if database == NULL or database.table == NULL or not may_be_read(published, database):
        return HAND_OFF
    if count == 2 and not take_scan_options(&params, &asked, &plan.options):
        return HAND_OFF
    plan.table = database.table
    plan.limit = <Py_ssize_t>min(asked.limit, <uint64_t>scan_limit)
    if asked.has_version or asked.has_min_version or plan.limit > MAX_PAGE_RECORDS:
        return HAND_OFF
    if max(asked.start.size, asked.end.size, asked.prefix.size) > limits.max_key:
        return HAND_OFF
    if set_range(&asked, NULL, &plan.made, &plan.range) < 0:
        return OUT_OF_MEMORY
    if asked.has_cursor:
        cursor = Cursor(asked.cursor.data, asked.cursor.data + asked.cursor.size)
        if take_array(&cursor) != 2 or not take_bin(&cursor, &bound) or not take_bin(&cursor, &plan.passed):
            return HAND_OFF
        if cursor.at != cursor.end or bound.size > limits.max_key + 1:
            return HAND_OFF
        if asked.reverse:
            lower_end(&plan.range, &bound)
        else:
            raise_start(&plan.range, &bound)
    if plan.range.has_end and compare_blobs(&plan.range.end, &plan.range.start) <= 0:
        return HAND_OFF
    return ANSWERED if max(plan.options.token.size, plan.passed.size) <= SHORT_TOKEN_BYTES else HAND_OFF


cdef int read_table_page(
    PublishedTable published, Cursor params, uint32_t msgid, const ReadLimits* limits, Py_ssize_t scan_limit, int loop,
    Py_ssize_t* count, Buffer* out
) noexcept nogil:
    """Answer a `scan` of a table with `[[[key, value], ...], cursor or nil, token]`, or return `HAND_OFF`.

    `count` is then the number of records.
    """
    cdef Py_ssize_t before = buffer_offset(out)
    cdef TablePage plan
    cdef PyObject* view
    cdef int outcome
    memset(&plan, 0, sizeof(TablePage))
    outcome = plan_table_page(published, params, limits, scan_limit, &plan)
    if outcome == ANSWERED:
        enter_gate(<ReadGate>published.gate, loop)
        view = view_of(published, loop)
        if view == NULL or not find_replicas(&plan) or not open_replicas(&plan, <View>view, limits.now_ms):
            outcome = HAND_OFF
        else:
            outcome = write_table_page(&plan, msgid, limits, out)
        leave_gate(<ReadGate>published.gate, loop)
    count[0] = plan.limit - plan.merge.limit
    close_page(&plan.merge)
    free(plan.seen.writes)
    buffer_release(&plan.keys)
    buffer_release(&plan.made)
    if outcome != ANSWERED:
        out.end = out.start + before
    return outcome


cdef bint find_replicas(TablePage* plan) noexcept nogil:
    """Find the calm replicas of the page; return False if Python must answer."""
    cdef PyObject* table = plan.table
    cdef Py_ssize_t i
    if load_calm(&(<CalmTable>table).config) == 0:
        return False
    if plan.options.config != 0 and plan.options.config != load_calm(&(<CalmTable>table).config):
        return False
    if (<CalmTable>table).shards > 0:
        plan.rows, plan.count = (<CalmTable>table).rows, (<CalmTable>table).row_count
        if not (<CalmTable>table).has_all or plan.count > MAX_PAGE_SOURCES:
            return False
    elif not find_range(plan):
        return False
    for i in range(plan.count):
        if not load_state(&(<CalmReplica>plan.rows[i]).state):
            return False
    return True


cdef bint find_range(TablePage* plan) noexcept nogil:
    """Find the calm range in which the scan begins, and reduce the page to it; return False if there is none."""
    cdef KeyRange* range = &plan.range
    cdef Blob first, end
    plan.only = (
        (<CalmTable>plan.table).last_below(range.end.data, range.end.size) if range.reverse
        else (<CalmTable>plan.table).find(range.start.data, range.start.size)
    )
    if plan.only == NULL:
        return False
    plan.rows, plan.count = &plan.only, 1
    first = Blob((<CalmReplica>plan.only).low.data, (<CalmReplica>plan.only).low.size)
    end = Blob((<CalmReplica>plan.only).high.data, (<CalmReplica>plan.only).high.size)
    plan.following = first if range.reverse else end
    plan.goes_on = (
        compare_blobs(&range.start, &first) < 0 if range.reverse
        else end.data != NULL and (not range.has_end or compare_blobs(&end, &range.end) < 0)
    )
    if range.reverse and end.data != NULL and (not range.has_end or compare_blobs(&end, &range.end) < 0):
        return False  # The next range is not here.
    raise_start(range, &first)
    if end.data != NULL:
        lower_end(range, &end)
    return True


cdef bint open_replicas(TablePage* plan, View view, uint64_t now_ms) noexcept nogil:
    """Begin the scans of all replicas; return False if Python must answer."""
    cdef KeyBounds bounds
    cdef uint32_t space
    cdef Py_ssize_t i
    plan.seen.writes = <SeenWrite*>malloc((plan.count * MAX_ORIGINS + MAX_TOKEN_WRITES) * sizeof(SeenWrite))
    if plan.seen.writes == NULL:
        return False
    if open_page(&plan.merge, plan.count, plan.range.reverse, plan.limit, now_ms) < 0:
        return False
    begin_seen(&plan.seen, plan.seen.writes, plan.count * MAX_ORIGINS + MAX_TOKEN_WRITES)
    if buffer_reserve(&plan.keys, plan.count * (plan.range.start.size + plan.range.end.size + 2 * KEY_HEAD_BYTES)) < 0:
        return False
    bounds.reverse = plan.range.reverse
    for i in range(plan.count):
        space = (<CalmReplica>plan.rows[i]).space
        bounds.start = put_bound(&plan.keys, space, RECORD_BYTE, &plan.range.start)
        bounds.end = put_bound(&plan.keys, space, RECORD_BYTE + (not plan.range.has_end), &plan.range.end)
        if add_scan(&plan.merge, i, &view.sources, &bounds) < 0:
            return False
    return True


cdef Slice put_bound(Buffer* keys, uint32_t space, uint8_t kind, const Blob* key) noexcept nogil:
    """Write an internal key of that kind. Requires: there is room."""
    cdef Py_ssize_t before = keys.end
    write_space(keys.data + before, space)
    keys.data[before + SPACE_BYTES] = kind
    keys.end += KEY_HEAD_BYTES
    put_bytes(keys, key.data, key.size)
    return Slice(keys.data + before, keys.end - before)


cdef int write_table_page(TablePage* plan, uint32_t msgid, const ReadLimits* limits, Buffer* out) noexcept nogil:
    """Write the answer, or return the reason for none."""
    cdef Py_ssize_t before = buffer_offset(out)
    cdef Py_ssize_t rows, size, i
    cdef Blob bound = Blob(NULL, 0)
    cdef int result
    if buffer_reserve(out, 3 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(out, msgid)
    put(out, 0x93)
    rows = buffer_offset(out)
    out.end += ROWS_HEAD_BYTES  # Written when the number of records is known.
    result = take_rows(plan, out)
    if result == PAGE_FULL:
        bound = Blob(plan.merge.heap[0].key.data, plan.merge.heap[0].key.size)
    elif result != PAGE_ENDED or (plan.goes_on and plan.merge.limit > 0):
        return HAND_OFF
    elif plan.goes_on:
        bound = plan.following
    head_rows(out, rows, plan.limit - plan.merge.limit)
    if not see_page(plan):
        return HAND_OFF
    size = token_size(&plan.seen)
    if buffer_reserve(out, bound.size + 2 * size + 5 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    if bound.data == NULL:
        put(out, 0xC0)
    else:
        put_cursor(plan, &bound, result == PAGE_FULL and plan.range.reverse, size, out)
    put_token(<CalmTable>plan.table, &plan.seen, out)
    if buffer_offset(out) - before > limits.max_frame:
        return HAND_OFF
    for i in range(plan.count):
        if scan_loss(plan.merge.sources[i].scan) != NULL:
            return HAND_OFF
    for i in range(plan.count):
        add_calm(&(<CalmReplica>plan.rows[i]).requests, 1)
    return ANSWERED


cdef int take_rows(TablePage* plan, Buffer* out) noexcept nogil:
    """Append the records of the page; return the `PageStep` at which it ends, `PAGE_RECORD` if Python must answer."""
    cdef RecordView record
    cdef int result = next_of_page(&plan.merge, &record)
    while result == PAGE_RECORD:
        if record.dependencies_size > 0 or not note_dot(plan.merge.heap[0]):
            break
        result = take_of_page(&plan.merge, &record, True, out)
        if result == PAGE_RECORD:
            result = next_of_page(&plan.merge, &record)
    return result


cdef void head_rows(Buffer* out, Py_ssize_t rows, Py_ssize_t count) noexcept nogil:
    """Write the head of the array that begins at that offset, in as few bytes as it takes."""
    cdef Py_ssize_t size = buffer_offset(out) - rows - ROWS_HEAD_BYTES
    out.end = out.start + rows
    put_array(out, count)
    if buffer_offset(out) - rows < ROWS_HEAD_BYTES:
        memmove(out.data + out.end, out.data + out.start + rows + ROWS_HEAD_BYTES, size)
    out.end += size


cdef bint see_page(TablePage* plan) noexcept nogil:
    """Gather what a session sees by the page, and its tokens; return False if Python must answer."""
    cdef PyObject* table = plan.table
    cdef SeenWrites* seen = &plan.seen
    cdef const PageSource* source
    cdef Py_ssize_t i
    cdef int at
    for i in range(plan.count):
        source = &plan.merge.sources[i]
        seen.config = max(seen.config, load_calm(&(<CalmReplica>plan.rows[i]).taken_config))
        for at in range(source.origins):
            if not see_record(<CalmTable>table, <CalmReplica>plan.rows[i], source.dots[at], seen):
                return False
    if not take_tokens(plan, &plan.options.token) or not take_tokens(plan, &plan.passed):
        return False
    settle(seen)
    return True


cdef bint take_tokens(TablePage* plan, const Blob* token) noexcept nogil:
    return token.size == 0 or take_token(<CalmTable>plan.table, plan.only, token.data, token.size, &plan.seen)


cdef void put_cursor(
    const TablePage* plan, const Blob* bound, bint behind, Py_ssize_t token, Buffer* out
) noexcept nogil:
    """Write a cursor: `[bound, token]` as MessagePack. `behind`: the bound is just above that key."""
    cdef uint8_t data[2 * HEAD_BYTES]
    cdef Buffer heads
    cdef Py_ssize_t size
    buffer_init(&heads)
    heads.data = data
    put_bin_head(&heads, bound.size + behind)
    size = 1 + heads.end + bound.size + behind
    heads.end = 0
    put_bin_head(&heads, token)
    put_bin_head(out, size + heads.end + token)
    put(out, 0x92)
    put_bin_head(out, bound.size + behind)
    put_bytes(out, bound.data, bound.size)
    if behind:
        put(out, 0)
    put_token(<CalmTable>plan.table, &plan.seen, out)
