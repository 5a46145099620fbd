"""Scans: parsed, read in slices, the connections in turn; and the turns of large batches.

A plain scan is answered without Python: options as in `docs/users/wire.md`, database and version known, every partition
local, no damaged record. Every other scan is handed off, even in mid-scan: only `gossipkv.serving.reads` knows the
errors::

    asked ── ends in its first slice ──────────────────────────> answered at once
      └────> waiting ── a place is free ──> running, in slices ──> answered, or handed off
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
    # Keys and values of one answer: a scan reads ahead by pages, and each running scan holds one.
    PAGE_BYTES = 1024 * 1024
    # Bytes of an answer beside the records.
    PAGE_ENVELOPE_BYTES = 1024
    # Scans that run at the same time: each holds a page and 200 bytes for each partition.
    RUNNING_SCANS = 32
    # Bytes read with a missing page; they double up to the maximum, since most scans are short.
    MIN_AHEAD = 16 * 1024
    MAX_AHEAD = 256 * 1024
    # After so many stops without a record in between, a scan waits for the disk in place.
    MAX_SCAN_STOPS = 64
    # An ended job keeps this much memory for the next one.
    SPARE_PAGE_BYTES = 4 * 1024 * 1024

# One scan ---------------------------------------------------------------------------------------------------------


cdef ScanJob* new_job(Scans* scans) noexcept nogil:
    cdef ScanJob* job = scans.spare
    scans.spare = NULL
    return job if job != NULL else <ScanJob*>calloc(1, sizeof(ScanJob))


cdef void note_size(Scans* scans, Scanner* scanner, ScanJob* job) noexcept nogil:
    """Count the bytes that the job holds now."""
    cdef Py_ssize_t size = (
        <Py_ssize_t>sizeof(ScanJob)
        + job.params.capacity
        + job.bounds.capacity
        + job.page.out.end
        + job.page.head_count * <Py_ssize_t>(sizeof(FileHead) + sizeof(TreeEntry))
    )
    scans.held_bytes += size - job.held
    scanner.held_bytes += size - job.held
    job.held = size


cdef void end_job(Scans* scans, ScanJob* job) noexcept nogil:
    """Release the job's data; its memory may serve the next job."""
    cdef Py_ssize_t capacity = job.params.capacity + job.bounds.capacity + job.page.out.capacity
    capacity += job.page.head_room * <Py_ssize_t>(sizeof(FileHead) + sizeof(TreeEntry))
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


cdef void free_job(ScanJob* job) noexcept nogil:
    buffer_release(&job.params)
    buffer_release(&job.bounds)
    page_release(&job.page)
    free(job)


cdef void begin_job(Scans* scans, ScanJob* job, PublishedTable table) noexcept nogil:
    """Start a scan. Requires: a plan, made with that table."""
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


cdef int keep_job(
    Scans* scans, Scanner* scanner, ScanJob* job, PublishedTable table, const Cursor* params
) noexcept nogil:
    """Copy the request, since its buffer is reused, and make the plan again, so that it points into the copy."""
    cdef Cursor copy
    if buffer_append(&job.params, params.at, params.end - params.at) < 0:
        return -1
    copy = Cursor(job.params.data, job.params.data + job.params.end)
    if make_plan(table, copy, &scans.limits, scans.scan_limit, &job.bounds, &job.plan) != ANSWERED:
        return -1
    job.page.range = job.plan.range
    note_size(scans, scanner, job)
    return 0


cdef int go_on(Scans* scans, ScanJob* job, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil:
    """Run a slice of a started scan; the answer is in `out` when the scan ends."""
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


cdef int finish(Scans* scans, ScanJob* job, PublishedTable table, Buffer* out) noexcept nogil:
    """Write the frame around the records: `[1, id, nil, [records, cursor or nil, version]]`."""
    cdef ScanPage* page = &job.page
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


cdef void write_cursor(ScanPage* page, const Blob* version) noexcept nogil:
    """Write the cursor as `bin`: a checksum, then `[version, last key]` as MessagePack. Requires: there is room.

        offset size field
        0      4    CRC-32C of the rest, big-endian
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


cdef void count_scan(PublishedTable table, const ScanJob* job, bint refused) noexcept nogil:
    """Count the scan in the current table; the table that it read from may no longer be served."""
    cdef VersionRow* version = table.heir_of(job.plan.version)
    if version != NULL:
        count_request(version, job.plan.by_name)
        version.counts.errors += refused


# Turns ------------------------------------------------------------------------------------------------------------


cdef inline ScannerQueue* queue_of(Scans* scans, const Scanner* scanner) noexcept nogil:
    if scanner.place == RUNNING:
        return &scans.running
    return &scans.waiting if scanner.place == WAITING else NULL


cdef void move(Scans* scans, Scanner* scanner, ScannerState place) noexcept nogil:
    """Move the scanner to the end of a line (also its own), or out of all lines."""
    cdef ScannerQueue* queue = queue_of(scans, scanner)
    if queue != NULL:
        queue.count -= 1
        if scanner.previous != NULL:
            scanner.previous.next = scanner.next
        else:
            queue.first = scanner.next
        if scanner.next != NULL:
            scanner.next.previous = scanner.previous
        else:
            queue.last = scanner.previous
    scans.fetching += place == FETCHING
    scans.fetching -= scanner.place == FETCHING
    scanner.place = place
    scanner.turn_work = 0
    scanner.next = NULL
    scanner.previous = NULL
    queue = queue_of(scans, scanner)
    if queue != NULL:
        queue.count += 1
        scanner.previous = queue.last
        if queue.last != NULL:
            queue.last.next = scanner
        else:
            queue.first = scanner
        queue.last = scanner


cdef list release_unread(list tables):
    """Release the tables that no scan reads from; return the others."""
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
    """Free the memory kept for the next scan. Requires: every scanner was dropped."""
    if scans.spare != NULL:
        free_job(scans.spare)
        scans.spare = NULL


cdef inline bint has_place(const Scans* scans) noexcept nogil:
    """True if one more scan may run."""
    return scans.running.count + scans.fetching < RUNNING_SCANS


cdef int scans_ask(
    Scans* scans, Scanner* scanner, PublishedTable table, const Envelope* request, int64_t received_ns, bint may_wait,
    int64_t* work, Buffer* out,
) noexcept nogil:
    """Take a request for a scan. Return an `Outcome`; after `UNDER_WAY` the connection waits for an answer.

    A request that may not wait is handed off, and refused there.
    """
    cdef ScanJob* job = new_job(scans)
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
        if outcome == COLD:  # The scan will stop at the same page in its turn, and wait then.
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


cdef void append_job(Scans* scans, Scanner* scanner, ScanJob* job, ScannerState place) noexcept nogil:
    """Append a job to its connection's list; the first job puts the connection into `place`."""
    job.next = NULL
    if scanner.first == NULL:
        scanner.first = job
        move(scans, scanner, place)
    else:
        scanner.last.next = job
    scanner.last = job


cdef int scans_queue(Scans* scans, Scanner* scanner, GetMany* batch) noexcept nogil:
    """Queue a batch for its turn; -1 if out of memory."""
    cdef ScanJob* job = <ScanJob*>calloc(1, sizeof(ScanJob))
    if job == NULL:
        return -1
    job.batch = batch
    note_size(scans, scanner, job)
    append_job(scans, scanner, job, WAITING)
    return 0


cdef Scanner* scans_turn(Scans* scans) noexcept nogil:
    """Return the connection in turn; NULL if no scan is waiting or running.

    * A slice is bounded in work, not time, so that a run can be repeated. A get waits for the budget of fresh requests
      (`Connections.work`) and for one slice.
    * A connection runs one scan at a time. Running connections take turns of one slice. Running scans hold memory, so
      their number is bounded; other connections wait in order, and go to the end after each scan.
    * A scan starts only while its peer reads, and then runs to its end, so no peer keeps a place by not reading.
    * A scan that needs missing pages leaves the line until they are read, and keeps its place among the running ones.
    * A scan holds the table that was served when it began (`PublishedTable.readers`).
    * A large batch waits in the same lines (`forward/batch.pyx` reads it), and holds its parameters meanwhile.
    """
    while has_place(scans) and scans.waiting.first != NULL:
        move(scans, scans.waiting.first, RUNNING)
    return scans.running.first


cdef int scans_run(Scans* scans, Scanner* scanner, PublishedTable table, int64_t* work, Buffer* out) noexcept nogil:
    """Run a slice of the connection's first scan. Return `UNDER_WAY`, `COLD`, or the final `Outcome`, before `done`."""
    cdef ScanJob* job = scanner.first
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
    """Read the page at which the scan has stopped, and the pages at which the next files' searches will stop."""
    cdef ScanJob* job = scanner.first
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
    """Wait for the pages being read, leaving the turns to other scans. Return False if there are none."""
    if scanner.wait.count == 0:
        return False
    scanner.wait.scans = True
    scanner.wait.whose = scanner
    move(scans, scanner, FETCHING)
    return True


cdef void scans_go_on(Scans* scans, Scanner* scanner) noexcept nogil:
    """Let the scan continue, since its pages have been read."""
    if scanner.place == FETCHING:
        move(scans, scanner, RUNNING)


cdef void scans_yield(Scans* scans, Scanner* scanner, int64_t work) noexcept nogil:
    """End a batch's slice of `work`; if its turn is over too, the next connection has its turn."""
    scanner.turn_work += work
    if scanner.turn_work >= BATCH_TURN_WORK:
        move(scans, scanner, RUNNING)


cdef void scans_done(Scans* scans, Scanner* scanner) noexcept nogil:
    """Remove the connection's first job; the next one, if any, waits for its turn."""
    cdef ScanJob* job = scanner.first
    scanner.first = job.next
    scanner.held_bytes -= job.held
    end_job(scans, job)
    move(scans, scanner, WAITING if scanner.first != NULL else NOWHERE)


cdef void scans_park(Scans* scans, Scanner* scanner) noexcept nogil:
    """Stop starting scans of a peer that does not read."""
    move(scans, scanner, PARKED)


cdef void scans_unpark(Scans* scans, Scanner* scanner) noexcept nogil:
    """Let the connection of a peer that reads again wait for its turn."""
    if scanner.place == PARKED:
        move(scans, scanner, WAITING)


cdef void scans_drop(Scans* scans, Scanner* scanner) noexcept nogil:
    """Drop all jobs of a connection that is gone."""
    cdef ScanJob* job
    forget_wait(&scanner.wait)
    while scanner.first != NULL:
        job = scanner.first
        scanner.first = job.next
        end_job(scans, job)
    scanner.held_bytes = 0
    move(scans, scanner, NOWHERE)
