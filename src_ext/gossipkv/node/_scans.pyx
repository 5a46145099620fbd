"""Scans: read from the request, made in slices, the connections in turn.

A scan that is plain is answered without Python: its options are what `docs/wire.md` says, database and version are
known, every partition is here, and no record is damaged.  Whatever is not, is handed off as it came, also when that
shows amid the scan: `gossipkv.node.reads` is the one place that knows the errors, and it decides anew.

The life of a scan::

    asked ── ends in its first slice ──────────────────────────> answered at once
      └────> waiting ── a place is free ──> running, in slices ──> answered, or handed off

* A slice is bounded in work, not in time, so that a run can be repeated.  What a get waits for beside scans is two
  slices at most: one of first slices, which requests that have just come share, and one of a scan that is running.
* A connection has one scan running; the others wait behind it.  Connections whose scans run take turns, a slice each.
* What is running holds memory, so only some are; other connections wait in the order in which they asked, and one
  that has more to ask goes behind them.
* A scan is begun when its peer reads; once begun it goes on to its end, so nobody keeps a place by not reading.
* A scan reads from the table that was served when it began, and holds it (`Published.readers`).
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from gossipkv.node._buffer cimport (
    Buffer,
    buffer_append,
    buffer_init,
    buffer_release,
    buffer_reserve,
    buffer_size,
)
from gossipkv.node._message cimport (
    HEAD_BYTES,
    Blob,
    Cursor,
    big_endian,
    blob_is,
    put,
    put_answer,
    put_bin,
    put_bin_head,
    put_bytes,
    put_number,
    take_array,
    take_blob,
    take_map,
    take_unsigned,
    write_too_large,
)
from gossipkv.node._published cimport (
    ANSWERED,
    HAND_OFF,
    OUT_OF_MEMORY,
    REFUSED_SIZE,
    Published,
    PublishedDatabase,
    PublishedVersion,
    ReadOptions,
    choose_version,
)
from gossipkv.node._scan_page cimport (
    OPENING,
    PAGE_NO_MEMORY,
    PAGE_READY,
    PAGE_UNFINISHED,
    Entry,
    Head,
    Page,
    Range,
    page_begin,
    page_close,
    page_release,
    page_run,
)
from gossipkv.storage._checksum cimport crc32c_of
from gossipkv.storage._format cimport compare_keys

cdef enum:
    # Keys and values of one answer: a scan reads ahead by pages, and more would be held for each scan that runs.
    PAGE_BYTES = 1024 * 1024
    # What an answer has beside the records.
    ENVELOPE_BYTES = 1024
    # Scans that run at the same time: each holds a page and 200 bytes for each partition.
    RUNNING_SCANS = 32
    # A job that has ended keeps this much for the next one.
    SPARE_BYTES = 4 * 1024 * 1024
    CHECKSUM_BYTES = 4
    MAX_NAME_BYTES = 255  # As in `gossipkv.node.arguments`.

cdef struct Asked:
    Blob start
    Blob end
    Blob prefix
    Blob cursor
    Blob version
    Blob min_version
    bint has_start
    bint has_end
    bint has_prefix
    bint has_cursor
    bint has_version
    bint has_min_version
    bint reverse
    uint64_t limit


# What is asked ----------------------------------------------------------------------------------------------------


cdef inline bint take_nil(Cursor* params) noexcept nogil:
    if params.at >= params.end or params.at[0] != 0xC0:
        return False
    params.at += 1
    return True


cdef inline bint take_blob_or_nil(Cursor* params, Blob* blob, bint* given) noexcept nogil:
    """An option that is nil counts as not given; of a name that stands there twice the later one counts."""
    given[0] = not take_nil(params)
    return not given[0] or take_blob(params, blob)


cdef inline bint take_flag_or_nil(Cursor* params, bint* flag) noexcept nogil:
    if params.at >= params.end or params.at[0] not in (0xC0, 0xC2, 0xC3):
        return False
    flag[0] = params.at[0] == 0xC3
    params.at += 1
    return True


cdef inline bint take_limit_or_nil(Cursor* params, uint64_t* limit) noexcept nogil:
    limit[0] = <uint64_t>-1
    return take_nil(params) or (take_unsigned(params, limit) and limit[0] > 0)


cdef bint take_option(Cursor* params, Asked* asked) noexcept nogil:
    """One option and its value, if they are plain."""
    cdef Blob name
    cdef uint64_t number
    if not take_blob(params, &name):
        return False
    if blob_is(&name, b"start", 5):
        return take_blob_or_nil(params, &asked.start, &asked.has_start)
    if blob_is(&name, b"end", 3):
        return take_blob_or_nil(params, &asked.end, &asked.has_end)
    if blob_is(&name, b"prefix", 6):
        return take_blob_or_nil(params, &asked.prefix, &asked.has_prefix)
    if blob_is(&name, b"cursor", 6):
        return take_blob_or_nil(params, &asked.cursor, &asked.has_cursor)
    if blob_is(&name, b"version", 7):
        return take_blob_or_nil(params, &asked.version, &asked.has_version)
    if blob_is(&name, b"min_version", 11):
        return take_blob_or_nil(params, &asked.min_version, &asked.has_min_version)
    if blob_is(&name, b"reverse", 7):
        return take_flag_or_nil(params, &asked.reverse)
    if blob_is(&name, b"limit", 5):
        return take_limit_or_nil(params, &asked.limit)
    # A local read takes no time worth the name, so any timeout is kept.
    return blob_is(&name, b"timeout_ms", 10) and (take_nil(params) or take_unsigned(params, &number))


cdef bint may_be_name(const Blob* text) noexcept nogil:
    """Whether Python would take it for a name, held or not."""
    cdef Py_ssize_t i
    if text.size > MAX_NAME_BYTES:
        return False
    for i in range(text.size):
        if text.data[i] >= 0x80:
            return False
    return True


cdef bint take_cursor(const Blob* cursor, Blob* version, Blob* last) noexcept nogil:
    """The parts of a cursor that `finish` has written."""
    cdef Cursor body = Cursor(cursor.data + CHECKSUM_BYTES, cursor.data + cursor.size)
    if cursor.size <= CHECKSUM_BYTES:
        return False
    if crc32c_of(body.at, cursor.size - CHECKSUM_BYTES, 0) != <uint32_t>big_endian(cursor.data, CHECKSUM_BYTES):
        return False
    if take_array(&body) != 2 or body.at >= body.end or 0xC4 <= body.at[0] <= 0xC6:
        return False  # The version is text.
    if not take_blob(&body, version) or body.at >= body.end or not 0xC4 <= body.at[0] <= 0xC6:
        return False  # The key is bytes.
    return take_blob(&body, last) and body.at == body.end


cdef inline int order(const Blob* one, const Blob* other) noexcept nogil:
    return compare_keys(one.data, one.size, other.data, other.size)


cdef inline void raise_start(Range* range, const Blob* key) noexcept nogil:
    if not range.has_start or order(&range.start, key) < 0:
        range.start = key[0]
        range.has_start = True


cdef inline void lower_end(Range* range, const Blob* key) noexcept nogil:
    if not range.has_end or order(key, &range.end) < 0:
        range.end = key[0]
        range.has_end = True


cdef int set_range(const Asked* asked, const Blob* last, Buffer* bounds, Range* range) noexcept nogil:
    """The keys that are left behind `last` (NULL: all) of those asked for; what is no key that came is in `bounds`."""
    cdef Blob made
    memset(range, 0, sizeof(Range))
    range.reverse = asked.reverse
    range.has_start = asked.has_start
    range.start = asked.start
    range.has_end = asked.has_end
    range.end = asked.end
    bounds.start = 0
    bounds.end = 0
    # All at once, since the blobs point into it.
    if buffer_reserve(bounds, (last.size + 1 if last != NULL else 0) + asked.prefix.size) < 0:
        return -1
    if last != NULL and asked.reverse:
        lower_end(range, last)
    elif last != NULL:
        made = Blob(bounds.data, last.size + 1)  # The least key above `last`.
        put_bytes(bounds, last.data, last.size)
        put(bounds, 0)
        raise_start(range, &made)
    if asked.has_prefix:
        raise_start(range, &asked.prefix)
        made = Blob(bounds.data + bounds.end, asked.prefix.size)
        while made.size > 0 and asked.prefix.data[made.size - 1] == 0xFF:
            made.size -= 1
        if made.size > 0:  # The least key above all that begin so.
            put_bytes(bounds, asked.prefix.data, made.size)
            bounds.data[bounds.end - 1] += 1
            lower_end(range, &made)
    return 0


cdef int make_plan(Published table, Cursor params, Py_ssize_t scan_limit, Buffer* bounds, Plan* plan) noexcept nogil:
    """Read `database, {options}`, and choose the version: `ANSWERED`, or why there is no plan."""
    cdef Py_ssize_t count = take_array(&params)
    cdef Py_ssize_t entries
    cdef PublishedDatabase* database
    cdef ReadOptions options
    cdef Asked asked
    cdef Blob last
    memset(&asked, 0, sizeof(Asked))
    asked.limit = <uint64_t>-1
    if count < 1 or count > 2 or not take_blob(&params, &plan.database):
        return HAND_OFF
    entries = take_map(&params) if count == 2 else 0
    if entries < 0:
        return HAND_OFF
    while entries > 0:
        entries -= 1
        if not take_option(&params, &asked):
            return HAND_OFF
    if asked.has_min_version and not may_be_name(&asked.min_version):
        return HAND_OFF
    options.has_version = asked.has_version
    options.version = asked.version
    options.has_min_version = asked.has_min_version
    options.min_version = asked.min_version
    if asked.has_cursor:
        if not take_cursor(&asked.cursor, &options.version, &last):
            return HAND_OFF
        if asked.has_version and order(&asked.version, &options.version) != 0:
            return HAND_OFF
        options.has_version = True
        options.has_min_version = False
    database = table.find_database(&plan.database)
    if database == NULL:
        return HAND_OFF
    plan.version = choose_version(database, &options)
    if plan.version == NULL or not plan.version.complete:
        return HAND_OFF
    plan.by_name = options.has_version
    plan.limit = <Py_ssize_t>min(asked.limit, <uint64_t>scan_limit)
    if set_range(&asked, &last if asked.has_cursor else NULL, bounds, &plan.range) < 0:
        return OUT_OF_MEMORY
    return ANSWERED


# One scan ---------------------------------------------------------------------------------------------------------


cdef Job* new_job(Scans* scans) noexcept nogil:
    cdef Job* job = scans.spare
    scans.spare = NULL
    return job if job != NULL else <Job*>calloc(1, sizeof(Job))


cdef void note_size(Scans* scans, Job* job) noexcept nogil:
    """Count what the job holds now."""
    cdef Py_ssize_t size = (
        job.params.end
        + job.bounds.end
        + job.page.out.end
        + job.page.head_count * <Py_ssize_t>(sizeof(Head) + sizeof(Entry))
    )
    scans.held_bytes += size - job.held
    job.held = size


cdef inline void let_go(Published table) noexcept nogil:
    table.readers -= 1


cdef void end_job(Scans* scans, Job* job) noexcept nogil:
    """It holds nothing any more; its memory may be the next one's."""
    cdef Py_ssize_t capacity = job.params.capacity + job.bounds.capacity + job.page.out.capacity
    capacity += job.page.head_room * <Py_ssize_t>(sizeof(Head) + sizeof(Entry))
    if job.begun:
        let_go(<Published>job.table)
        job.begun = False
    scans.held_bytes -= job.held
    job.held = 0
    if scans.spare == NULL and capacity <= SPARE_BYTES:
        job.params.start = 0
        job.params.end = 0
        scans.spare = job
    else:
        free_job(job)


cdef void free_job(Job* job) noexcept nogil:
    buffer_release(&job.params)
    buffer_release(&job.bounds)
    page_release(&job.page)
    free(job)


cdef void begin_job(Scans* scans, Job* job, Published table) noexcept nogil:
    """Requires: there is a plan, made with that table."""
    job.begun = True
    job.table = <PyObject*>table
    table.readers += 1
    page_begin(
        &job.page,
        job.plan.version.files,
        job.plan.version.partitions,
        &job.plan.range,
        job.plan.limit,
        min(<Py_ssize_t>PAGE_BYTES, (scans.limits.max_frame - ENVELOPE_BYTES) // 2),
        scans.limits.max_value,
    )


cdef int keep_job(Scans* scans, Job* job, Published table, const Cursor* params) noexcept nogil:
    """Copy the request: what it was read from is used again.  A plan that was made points into the copy then."""
    cdef Cursor copy
    if buffer_append(&job.params, params.at, params.end - params.at) < 0:
        return -1
    copy = Cursor(job.params.data, job.params.data + job.params.end)
    if make_plan(table, copy, scans.scan_limit, &job.bounds, &job.plan) != ANSWERED:
        return -1
    job.page.range = job.plan.range
    note_size(scans, job)
    return 0


cdef int go_on(Scans* scans, Job* job, Published table, int64_t* work, Buffer* out) noexcept nogil:
    """A slice of a scan that has begun; its answer is in `out` when it ends."""
    cdef Py_ssize_t records = job.page.records
    cdef Py_ssize_t searched = job.page.at if job.page.stage == OPENING else job.page.file_count
    cdef int result = page_run(&job.page, work)
    scans.slices += 1
    scans.records += <uint64_t>(job.page.records - records)
    scans.searches += <uint64_t>(
        (job.page.at if job.page.stage == OPENING else job.page.file_count) - searched
    )
    if result == PAGE_UNFINISHED:
        return UNDER_WAY
    if result == PAGE_NO_MEMORY:
        return OUT_OF_MEMORY
    if result != PAGE_READY:
        return HAND_OFF
    return finish(scans, job, table, out)


cdef int finish(Scans* scans, Job* job, Published table, Buffer* out) noexcept nogil:
    """Write what stands around the records: `[1, id, nil, [records, cursor or nil, version]]`."""
    cdef Page* page = &job.page
    cdef const Blob* version = &job.plan.version.packed_name
    cdef uint8_t data[2 * HEAD_BYTES]
    cdef Buffer envelope
    cdef Buffer swapped
    cdef Py_ssize_t at
    if buffer_reserve(&page.out, 4 * HEAD_BYTES + page.last_size + 2 * version.size) < 0:
        return OUT_OF_MEMORY
    buffer_init(&envelope)
    envelope.data = data
    put_answer(&envelope, job.msgid)
    put(&envelope, 0x93)
    page_close(page, data, envelope.end)
    if page.more:
        write_cursor(page, version)
    else:
        put(&page.out, 0xC0)
    put_bytes(&page.out, version.data, version.size)
    count_answered(table, job)
    scans.answered += 1
    if buffer_size(&page.out) > scans.limits.max_frame:
        if write_too_large(out, job.msgid, scans.limits.max_frame, buffer_size(&page.out)) < 0:
            return OUT_OF_MEMORY
        return REFUSED_SIZE
    if buffer_size(out) == 0:
        swapped = out[0]
        out[0] = page.out
        page.out = swapped
        return ANSWERED
    at = page.out.start
    return ANSWERED if buffer_append(out, page.out.data + at, buffer_size(&page.out)) == 0 else OUT_OF_MEMORY


cdef void write_cursor(Page* page, const Blob* version) noexcept nogil:
    """`bin`: a checksum, then `[version, last key]` as MessagePack.  Requires: there is room.

    offset size field
    0      4    CRC-32C of what follows, big-endian
    4           array of 2: the version (str), the key of the last record (bin)
    """
    cdef Buffer* out = &page.out
    cdef Py_ssize_t head = 2 + (page.last_size > 0xFF) + 2 * (page.last_size > 0xFFFF)
    cdef Py_ssize_t size = CHECKSUM_BYTES + 1 + version.size + head + page.last_size
    cdef Py_ssize_t body
    cdef uint32_t checksum
    put_bin_head(out, size)
    body = out.end + CHECKSUM_BYTES
    out.end = body
    put(out, 0x92)
    put_bytes(out, version.data, version.size)
    put_bin(out, out.data + page.last_key, page.last_size)
    checksum = crc32c_of(out.data + body, out.end - body, 0)
    out.end = body - CHECKSUM_BYTES
    put_number(out, checksum, CHECKSUM_BYTES)
    out.end = body - CHECKSUM_BYTES + size


cdef void count_answered(Published table, const Job* job) noexcept nogil:
    """Count it where requests are counted now; the table that it read from may be served no longer."""
    cdef PublishedVersion* version = job.plan.version
    cdef PublishedDatabase* database
    cdef ReadOptions options
    if job.table != <PyObject*>table:
        database = table.find_database(&job.plan.database)
        options.has_version = True
        options.has_min_version = False
        options.version = version.name
        version = choose_version(database, &options) if database != NULL else NULL
    if version != NULL:
        version.requests += 1
        version.requests_by_name += job.plan.by_name


# Turns ------------------------------------------------------------------------------------------------------------


cdef inline Line* line_of(Scans* scans, const Scanner* scanner) noexcept nogil:
    if scanner.place == RUNNING:
        return &scans.running
    return &scans.waiting if scanner.place == WAITING else NULL


cdef void move(Scans* scans, Scanner* scanner, ScannerPlace place) noexcept nogil:
    """To the end of another line, or of the same, or out of all."""
    cdef Line* line = line_of(scans, scanner)
    if line != NULL:
        line.count -= 1
        if scanner.previous != NULL:
            scanner.previous.next = scanner.next
        else:
            line.first = scanner.next
        if scanner.next != NULL:
            scanner.next.previous = scanner.previous
        else:
            line.last = scanner.previous
    scanner.place = place
    scanner.next = NULL
    scanner.previous = NULL
    line = line_of(scans, scanner)
    if line != NULL:
        line.count += 1
        scanner.previous = line.last
        if line.last != NULL:
            line.last.next = scanner
        else:
            line.first = scanner
        line.last = scanner


cdef list release_unread(list tables):
    """Release those tables that no scan reads from; the others."""
    cdef Published table
    cdef list read = []
    for table in tables:
        if table.readers > 0:
            read.append(table)
        else:
            table.release()
    return read


cdef dict scans_counters(const Scans* scans):
    return {
        "scans": scans.answered,
        "scan_slices": scans.slices,
        "records_scanned": scans.records,
        "partitions_searched": scans.searches,
    }


cdef void scans_release(Scans* scans) noexcept nogil:
    """Give back what is kept for the next scan.  Requires: every scanner was dropped."""
    if scans.spare != NULL:
        free_job(scans.spare)
        scans.spare = NULL


cdef void scans_new_step(Scans* scans) noexcept nogil:
    """Requests that come from now on may share one slice again."""
    scans.at_once = SLICE_WORK


cdef int scans_ask(
    Scans* scans, Scanner* scanner, Published table, uint32_t msgid, int64_t received_ns, Cursor params, Buffer* out
) noexcept nogil:
    """A request for a scan: an `Outcome`, or `UNDER_WAY` and then its connection waits for an answer."""
    cdef Job* job = new_job(scans)
    cdef int outcome
    cdef bint at_once = scanner.place == NOWHERE and scans.running.count < RUNNING_SCANS and scans.at_once > 0
    if job == NULL:
        return OUT_OF_MEMORY
    job.msgid = msgid
    job.received_ns = received_ns
    scans.at_once -= REQUEST_WORK
    outcome = make_plan(table, params, scans.scan_limit, &job.bounds, &job.plan)
    if outcome == ANSWERED:
        outcome = UNDER_WAY
        if at_once:
            begin_job(scans, job, table)
            outcome = go_on(scans, job, table, &scans.at_once, out)
        if outcome == UNDER_WAY and keep_job(scans, job, table, &params) < 0:
            outcome = OUT_OF_MEMORY
    if outcome != UNDER_WAY:
        end_job(scans, job)
        return outcome
    job.next = NULL
    if scanner.first == NULL:
        scanner.first = job
        move(scans, scanner, RUNNING if at_once else WAITING)
    else:
        scanner.last.next = job
    scanner.last = job
    return UNDER_WAY


cdef Scanner* scans_turn(Scans* scans) noexcept nogil:
    """The connection whose turn it is, or NULL: no scan is under way but those of peers that do not read."""
    while scans.running.count < RUNNING_SCANS and scans.waiting.first != NULL:
        move(scans, scans.waiting.first, RUNNING)
    return scans.running.first


cdef int scans_run(Scans* scans, Scanner* scanner, Published table, int64_t* work, Buffer* out) noexcept nogil:
    """A slice of the connection's first scan: an `Outcome`, and then it is to be `done`; or `UNDER_WAY`."""
    cdef Job* job = scanner.first
    cdef Cursor params
    cdef int outcome
    work[0] -= REQUEST_WORK
    if not job.begun:
        params = Cursor(job.params.data, job.params.data + job.params.end)
        outcome = make_plan(table, params, scans.scan_limit, &job.bounds, &job.plan)
        if outcome != ANSWERED:
            return outcome
        begin_job(scans, job, table)
    outcome = go_on(scans, job, table, work, out)
    if outcome == UNDER_WAY:
        note_size(scans, job)
        move(scans, scanner, RUNNING)
    return outcome


cdef void scans_done(Scans* scans, Scanner* scanner) noexcept nogil:
    """Forget the connection's first scan; when it has more, the next one waits for its turn."""
    cdef Job* job = scanner.first
    scanner.first = job.next
    end_job(scans, job)
    move(scans, scanner, WAITING if scanner.first != NULL else NOWHERE)


cdef void scans_park(Scans* scans, Scanner* scanner) noexcept nogil:
    """The peer does not read: its next scan is not begun until it does."""
    move(scans, scanner, PARKED)


cdef void scans_unpark(Scans* scans, Scanner* scanner) noexcept nogil:
    """It reads again, and waits for its turn."""
    if scanner.place == PARKED:
        move(scans, scanner, WAITING)


cdef void scans_drop(Scans* scans, Scanner* scanner) noexcept nogil:
    """The connection is gone."""
    cdef Job* job
    while scanner.first != NULL:
        job = scanner.first
        scanner.first = job.next
        end_job(scans, job)
    move(scans, scanner, NOWHERE)
