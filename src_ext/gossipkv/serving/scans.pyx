"""Scans: read from the request, made in slices, the connections in turn; and whose turn it is to read a batch.

A scan that is plain is answered without Python: its options are what `docs/users/wire.md` says, database and version
are known, every partition is here, and no record is damaged.  Whatever is not, is handed off as it came, also when that
shows amid the scan: `gossipkv.serving.reads` is the one place that knows the errors, and it decides anew.

The life of a scan::

    asked ── ends in its first slice ──────────────────────────> answered at once
      └────> waiting ── a place is free ──> running, in slices ──> answered, or handed off

* A slice is bounded in work, not in time, so that a run can be repeated.  What a get waits for is
  what is done at once for requests that have just come (`Connections.work`), and one slice of what is running.
* A connection has one scan running; the others wait behind it.  Connections whose scans run take turns, a slice each.
* What is running holds memory, so only some are; other connections wait in the order in which they asked, and one
  that has more to ask goes behind them.
* A scan is begun when its peer reads; once begun it goes on to its end, so nobody keeps a place by not reading.
* A scan that needs pages that are not in memory leaves the line until they are there, and keeps its place among those
  that run.
* A scan reads from the table that was served when it began, and holds it (`PublishedTable.readers`).
* A batch that is much work waits in the same lines (`forwarded_batch.pyx` reads it), and holds its parameters until
  then.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.storage._storage cimport crc32c_of
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, Envelope, put, put_answer, put_bin, put_bin_head, put_bytes, put_number,
)

cdef enum:
    # Keys and values of one answer: a scan reads ahead by pages, and more would be held for each scan that runs.
    PAGE_BYTES = 1024 * 1024
    # What an answer has beside the records.
    PAGE_ENVELOPE_BYTES = 1024
    # Scans that run at the same time: each holds a page and 200 bytes for each partition.
    RUNNING_SCANS = 32
    # What is read with a cold page, at first; it doubles up to the most.  Most scans are short.
    MIN_AHEAD = 16 * 1024
    MAX_AHEAD = 256 * 1024
    # Stops for cold pages without a record in between; then it waits for the disk where it stands.
    MAX_SCAN_STOPS = 64
    # A job that has ended keeps this much for the next one.
    SPARE_PAGE_BYTES = 4 * 1024 * 1024

# One scan ---------------------------------------------------------------------------------------------------------


cdef Job* new_job(Scans* scans) noexcept nogil:
    cdef Job* job = scans.spare
    scans.spare = NULL
    return job if job != NULL else <Job*>calloc(1, sizeof(Job))


cdef void note_size(Scans* scans, Scanner* scanner, Job* job) noexcept nogil:
    """Count what the job holds now."""
    cdef Py_ssize_t size = (
        <Py_ssize_t>sizeof(Job)
        + job.params.capacity
        + job.bounds.capacity
        + job.page.out.end
        + job.page.head_count * <Py_ssize_t>(sizeof(Head) + sizeof(Entry))
    )
    scans.held_bytes += size - job.held
    scanner.held_bytes += size - job.held
    job.held = size


cdef void end_job(Scans* scans, Job* job) noexcept nogil:
    """It holds nothing any more; its memory may be the next one's."""
    cdef Py_ssize_t capacity = job.params.capacity + job.bounds.capacity + job.page.out.capacity
    capacity += job.page.head_room * <Py_ssize_t>(sizeof(Head) + sizeof(Entry))
    if job.begun:
        let_go(<PublishedTable>job.table)
        job.begun = False
    scans.held_bytes -= job.held
    job.held = 0
    if scans.spare == NULL and job.batch == NULL and capacity <= SPARE_PAGE_BYTES:
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


cdef void begin_job(Scans* scans, Job* job, PublishedTable table) noexcept nogil:
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
        min(<Py_ssize_t>PAGE_BYTES, (scans.limits.max_frame - PAGE_ENVELOPE_BYTES) // 2),
        scans.limits.max_value,
    )
    job.page.waits = False
    job.stops = 0
    job.ahead = MIN_AHEAD


cdef int keep_job(Scans* scans, Scanner* scanner, Job* job, PublishedTable table, const Cursor* params) noexcept nogil:
    """Copy the request: what it was read from is used again.  A plan that was made points into the copy then."""
    cdef Cursor copy
    if buffer_append(&job.params, params.at, params.end - params.at) < 0:
        return -1
    copy = Cursor(job.params.data, job.params.data + job.params.end)
    if make_plan(table, copy, &scans.limits, scans.scan_limit, &job.bounds, &job.plan) != ANSWERED:
        return -1
    job.page.range = job.plan.range
    note_size(scans, scanner, job)
    return 0


cdef int go_on(Scans* scans, Job* job, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil:
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
    if result == PAGE_COLD:
        return COLD
    if result == PAGE_NO_MEMORY:
        return OUT_OF_MEMORY
    if result != PAGE_READY:
        return HAND_OFF
    return finish(scans, job, table, out)


cdef int finish(Scans* scans, Job* job, PublishedTable table, Buffer* out) noexcept nogil:
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
    count_scan(table, job, buffer_size(&page.out) > scans.limits.max_frame)
    scans.answered += 1
    if buffer_size(&page.out) > scans.limits.max_frame:
        if refuse_answer(out, job.msgid, scans.limits.max_frame, buffer_size(&page.out)) < 0:
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
    cdef Py_ssize_t size = CURSOR_CHECKSUM_BYTES + 1 + version.size + head + page.last_size
    cdef Py_ssize_t body
    cdef uint32_t checksum
    put_bin_head(out, size)
    body = out.end + CURSOR_CHECKSUM_BYTES
    out.end = body
    put(out, 0x92)
    put_bytes(out, version.data, version.size)
    put_bin(out, out.data + page.last_key, page.last_size)
    checksum = crc32c_of(out.data + body, out.end - body, 0)
    out.end = body - CURSOR_CHECKSUM_BYTES
    put_number(out, checksum, CURSOR_CHECKSUM_BYTES)
    out.end = body - CURSOR_CHECKSUM_BYTES + size


cdef void count_scan(PublishedTable table, const Job* job, bint refused) noexcept nogil:
    """Count it where requests are counted now; the table that it read from may be served no longer."""
    cdef VersionRow* version = table.heir_of(job.plan.version)
    if version != NULL:
        count_request(version, job.plan.by_name)
        version.counts.errors += refused


# Turns ------------------------------------------------------------------------------------------------------------


cdef inline Line* line_of(Scans* scans, const Scanner* scanner) noexcept nogil:
    if scanner.place == RUNNING:
        return &scans.running
    return &scans.waiting if scanner.place == WAITING else NULL


cdef void move(Scans* scans, Scanner* scanner, ScannerPlace place) noexcept nogil:
    """Move it to the end of another line, or of the same, or out of all."""
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
    scans.fetching += place == FETCHING
    scans.fetching -= scanner.place == FETCHING
    scanner.place = place
    scanner.turn_work = 0
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
    cdef PublishedTable table
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


cdef inline bint has_place(const Scans* scans) noexcept nogil:
    """Whether one more may run."""
    return scans.running.count + scans.fetching < RUNNING_SCANS


cdef int scans_ask(
    Scans* scans, Scanner* scanner, PublishedTable table, const Envelope* request, int64_t received_ns, bint may_wait,
    int64_t* work, Buffer* out,
) noexcept nogil:
    """A request for a scan: an `Outcome`; `UNDER_WAY`: its connection waits for an answer.

    When it may not wait, it is handed off, and then refused.
    """
    cdef Job* job = new_job(scans)
    cdef int outcome
    cdef bint at_once = scanner.place == NOWHERE and has_place(scans) and work[0] > 0
    cdef int64_t slice = min(work[0], <int64_t>SLICE_WORK)
    if job == NULL:
        return OUT_OF_MEMORY
    job.msgid = request.msgid
    job.received_ns = received_ns
    outcome = make_plan(table, request.params, &scans.limits, scans.scan_limit, &job.bounds, &job.plan)
    if outcome == ANSWERED:
        outcome = UNDER_WAY
        if at_once:
            begin_job(scans, job, table)
            work[0] -= slice
            outcome = go_on(scans, job, table, &slice, out)
            work[0] += slice
        if outcome == COLD:  # It will stop there again, and wait, when it is its turn.
            outcome = UNDER_WAY
        if outcome == UNDER_WAY and not may_wait:
            outcome = HAND_OFF
        if outcome == UNDER_WAY and keep_job(scans, scanner, job, table, &request.params) < 0:
            outcome = OUT_OF_MEMORY
    if outcome != UNDER_WAY:
        end_job(scans, job)
        return outcome
    append_job(scans, scanner, job, RUNNING if at_once else WAITING)
    return UNDER_WAY


cdef void append_job(Scans* scans, Scanner* scanner, Job* job, ScannerPlace place) noexcept nogil:
    """Put it behind those of its connection; if there are none, the connection gets that place."""
    job.next = NULL
    if scanner.first == NULL:
        scanner.first = job
        move(scans, scanner, place)
    else:
        scanner.last.next = job
    scanner.last = job


cdef int scans_queue(Scans* scans, Scanner* scanner, Batch* batch) noexcept nogil:
    """Have a batch read when it is its turn; -1: no memory."""
    cdef Job* job = <Job*>calloc(1, sizeof(Job))
    if job == NULL:
        return -1
    job.batch = batch
    note_size(scans, scanner, job)
    append_job(scans, scanner, job, WAITING)
    return 0


cdef Scanner* scans_turn(Scans* scans) noexcept nogil:
    """The connection whose turn it is, or NULL: no scan is under way but those of peers that do not read."""
    while has_place(scans) and scans.waiting.first != NULL:
        move(scans, scans.waiting.first, RUNNING)
    return scans.running.first


cdef int scans_run(Scans* scans, Scanner* scanner, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil:
    """A slice of the connection's first scan: an `Outcome`, and then it is to be `done`; or `UNDER_WAY`."""
    cdef Job* job = scanner.first
    cdef Cursor params
    cdef int outcome
    work[0] -= REQUEST_WORK
    if not job.begun:
        params = Cursor(job.params.data, job.params.data + job.params.end)
        outcome = make_plan(table, params, &scans.limits, scans.scan_limit, &job.bounds, &job.plan)
        if outcome != ANSWERED:
            return outcome
        begin_job(scans, job, table)
    outcome = go_on(scans, job, table, work, out)
    if outcome == UNDER_WAY or outcome == COLD:
        note_size(scans, scanner, job)
        move(scans, scanner, RUNNING)
    return outcome


cdef void scans_read_cold(Scanner* scanner, ColdPages cold) noexcept nogil:
    """Have the pages read at which its scan has stopped, and will stop in the files that are searched next."""
    cdef Job* job = scanner.first
    cdef PyObject* file = job.page.cold
    cdef Py_ssize_t records = job.page.records + job.page.at
    cdef Py_ssize_t i
    job.stops = job.stops + 1 if job.stopped_at == records else 1
    job.stopped_at = records
    job.page.waits = job.stops >= MAX_SCAN_STOPS
    cold.ask(&scanner.wait, file, job.table, 0 if job.page.stage == OPENING else job.ahead)
    if job.page.stage == MERGING:
        job.ahead = min(<uint64_t>MAX_AHEAD, 2 * job.ahead)
    for i in range(1, <Py_ssize_t>MAX_AT_ONCE):
        file = page_look(&job.page, i)
        if file != NULL:
            cold.ask(&scanner.wait, file, job.table, 0)


cdef bint scans_fetch(Scans* scans, Scanner* scanner) noexcept nogil:
    """Have it wait for its pages, if there are any that are read: others have its turns."""
    if scanner.wait.count == 0:
        return False
    scanner.wait.scans = True
    scanner.wait.whose = scanner
    move(scans, scanner, FETCHING)
    return True


cdef void scans_go_on(Scans* scans, Scanner* scanner) noexcept nogil:
    """Have it go on, since its pages have come."""
    if scanner.place == FETCHING:
        move(scans, scanner, RUNNING)


cdef void scans_yield(Scans* scans, Scanner* scanner, int64_t work) noexcept nogil:
    """A batch's slice is over, in which so much was done; if its turn is as well, the others have theirs."""
    scanner.turn_work += work
    if scanner.turn_work >= BATCH_TURN_WORK:
        move(scans, scanner, RUNNING)


cdef void scans_done(Scans* scans, Scanner* scanner) noexcept nogil:
    """Forget the connection's first scan; when it has more, the next one waits for its turn."""
    cdef Job* job = scanner.first
    scanner.first = job.next
    scanner.held_bytes -= job.held
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
    forget_wait(&scanner.wait)
    while scanner.first != NULL:
        job = scanner.first
        scanner.first = job.next
        end_job(scans, job)
    scanner.held_bytes = 0
    move(scans, scanner, NOWHERE)
