"""Requests: the ways in which a whole frame is served.

Each request is answered once, or its connection ends. A request that is not answered at once has its id in flight::

    not whole, or no room for an answer ──> held in the connection's input, looked at again later
    no frame, no message ─────────────────> refused, and the connection ends (HTTP and RESP: told the protocol)
    plain get ──> gathered with others ──┐
    plain get_many, ping ────────────────┼─────────────────────────────────────────────> answered
    a get_many that is much work ────────┼──> waits for its turn, is read in slices ───> answered
    plain scan ──────────────────────────┴──> a slice at once, further ones by turns ──> answered
    a read of data elsewhere, or not in memory ───> waits (`peer/wait_reasons.pyx`) ──────────> answered
    any other ────> handed off ──> the backlog, the connections in turn ──> Python ──> answered, now or later
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.storage.engine._engine cimport ReadGate, StoreLookup, View, enter_gate, leave_gate
from gossipkv.wire._buffer cimport buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    BAD_REQUEST, HEAD_BYTES, IS_NOTIFICATION, IS_REQUEST, IS_RESPONSE, Blob, Cursor, Envelope, blob_is, frame_begin,
    histogram_record, put_answer, put_text,
)


cdef inline int answer_ping(Core core, const Envelope* request) noexcept nogil:
    """Answer `pong` if the request has no parameters."""
    if request.params.at[0] != 0x90:
        return HAND_OFF
    if buffer_reserve(core.out, 3 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(core.out, request.msgid)
    put_text(core.out, b"pong")
    core.counts[PINGS] += 1
    return ANSWERED


cdef bint answer_gathered(Core core, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil:
    """Answer the gathered gets. Return False if there is room for some only; `at` is then where to resume."""
    cdef bint is_done
    if core.gathered.table_count == 0:
        return answer_all(core, connection, data, at)
    core.gathered.table_count = 0
    enter_gate(<ReadGate>core.published.gate, core.connections.pump)
    fetch_from_tables(core)
    is_done = answer_all(core, connection, data, at)
    leave_gate(<ReadGate>core.published.gate, core.connections.pump)
    return is_done


cdef void fetch_from_tables(Core core) noexcept nogil:
    """Begin the lookups of all gathered gets of tables: all stages but the last."""
    cdef PyObject* view = view_of(core.published, core.connections.pump)
    cdef StoreLookup* lookups[MAX_GATHERED]
    cdef GatheredGet* entry
    cdef int i, count = 0
    for i in range(core.gathered.count):
        entry = &core.gathered.entries[i]
        if entry.lookup.file == NULL and entry.lookup.version == NULL:
            core.gathered.tables[i].replica = NULL
            if view != NULL and find_replica(&core.gathered.tables[i], <View>view):
                lookups[count] = &core.gathered.tables[i].pending.lookup
                count += 1
    if count > 0:
        (<View>view).fetch_all(lookups, count)


cdef inline int answer_from_table(Core core, const GatheredGet* entry, TableGet* get) noexcept nogil:
    """Answer a gathered get of a table, or return `HAND_OFF`."""
    cdef PyObject* view = view_of(core.published, core.connections.pump)
    if get.replica == NULL:
        return HAND_OFF
    return end_table_get(
        get, <View>view, entry.request.msgid, &core.read_limits, &core.driver.own_name, core.out
    )


cdef inline bint answer_all(Core core, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil:
    cdef GatheredGet* entry
    cdef int count = core.gathered.count
    cdef int outcome
    cdef int i
    connection.spoken |= count > 0
    core.gathered.count = 0
    core.elements = 0  # The elements of the message behind the gets do not count.
    # Fetch all records, then all values; the buckets were prefetched when the gets were gathered.
    for i in range(count):
        if core.gathered.entries[i].lookup.file != NULL:
            core.published.fetch_record(&core.gathered.entries[i].lookup)
    for i in range(count):
        if core.gathered.entries[i].lookup.file != NULL:
            core.published.fetch_value(&core.gathered.entries[i].lookup)
    for i in range(count):
        entry = &core.gathered.entries[i]
        if i > 0 and not may_process(core, connection):
            at[0] = entry.message - data
            # The remaining gets will be read again, so their pending replies are withdrawn.
            if connection.replies != NULL:
                withdraw_replies(connection.replies, entry.request.msgid)
            frame_begin(&connection.scan)
            connection.held = True
            return False
        core.turn_work -= REQUEST_WORK
        if entry.lookup.file != NULL:
            outcome = core.published.end_get(
                &entry.lookup, entry.request.msgid, &core.read_limits, &core.driver.own_name, False, core.out
            )
        elif entry.lookup.version == NULL:
            outcome = answer_from_table(core, entry, &core.gathered.tables[i])
        else:
            outcome = ELSEWHERE
        if outcome == ELSEWHERE or outcome == DAMAGED or outcome == COLD:
            wait_elsewhere(core, connection, &entry.request, &entry.lookup, outcome)
            continue
        if outcome > 0:
            core.counts[GETS] += 1
            core.counts[KEYS_READ] += 1
        if outcome == ANSWERED:
            core.fresh_answers += 1
        else:
            conclude(core, connection, &entry.request, outcome)
    return True


cdef void take_message(
    Core core, Connection* connection, int kind, const uint8_t* message, const Envelope* envelope
) noexcept nogil:
    core.turn_work -= REQUEST_WORK
    if kind == IS_REQUEST:
        take_request(core, connection, envelope)
    elif kind == IS_NOTIFICATION:
        core.counts[NOTIFICATIONS_IGNORED] += 1
    elif kind == BAD_REQUEST:
        core.counts[BAD_REQUESTS] += 1
        core.fresh_answers += 1
        if refuse_message(core.out, envelope.msgid) < 0:
            core.connections.doom(connection, CLOSED_MEMORY)
    else:
        connection.broken = True
        core.connections.finish(connection, CLOSED_UNASKED_RESPONSE if kind == IS_RESPONSE else CLOSED_BAD_MESSAGE)
        if not connection.spoken and refuse_protocol(core.out, message[0]) < 0:
            core.connections.doom(connection, CLOSED_MEMORY)


cdef void take_request(Core core, Connection* connection, const Envelope* request) noexcept nogil:
    """Answer a plain request here, or hand it off."""
    cdef int outcome = HAND_OFF
    cdef Py_ssize_t written = buffer_size(core.out) + buffer_size(&connection.output)
    cdef uint32_t in_flight = connection.in_flight.count
    if ids_contain(&connection.in_flight, request.msgid):
        pass  # The duplicate id is refused below, as for two gathered gets with one id.
    elif blob_is(&request.method, b"get_many", 8):
        outcome = take_batch(core, connection, request)
    elif blob_is(&request.method, b"scan", 4):
        outcome = scans_ask(
            &core.connections.scans, &connection.scanner, core.published, request, connection.received_ns,
            may_be_in_flight(core.connections.group), &core.turn_work, core.out,
        )
        if outcome == HAND_OFF and core.published.gate is not None:
            outcome = take_table_scan(core, request)
    elif blob_is(&request.method, b"ping", 4):
        outcome = answer_ping(core, request)
    if outcome != TAKEN_OVER:
        conclude(core, connection, request, outcome)
    check(
        core.connections, connection,
        connection.doomed or (
            buffer_size(core.out) + buffer_size(&connection.output) > written
        ) != (connection.in_flight.count > in_flight),
        b"a request is answered at once or in flight, and not both",
    )


cdef int take_batch(Core core, Connection* connection, const Envelope* request) noexcept nogil:
    """Answer a batch at once if it is little work and all of its data is here."""
    cdef Py_ssize_t before = buffer_size(core.out)
    cdef int64_t work = KEY_WORK * core.elements
    cdef BatchRead reading
    cdef ReadOptions options
    cdef int outcome
    if work > SMALL_BATCH_WORK and (work > core.turn_work or scans_have_turn(&core.connections.scans)):
        return defer_batch(core, connection, request, False)
    outcome = plan_reading(core.published, request.params, &core.read_limits, &reading, &options)
    if outcome == HAND_OFF and core.published.gate is not None:
        return take_table_batch(core, request)
    if outcome != ANSWERED:
        return outcome
    outcome = begin_reading(&reading, request.msgid, core.out)
    if outcome == ANSWERED:
        outcome = read_keys(&reading, &core.read_limits, core.out, NULL, &core.turn_work)
        core.counts[KEYS_READ] += <uint64_t>(reading.count - reading.left)
    if outcome == ANSWERED:
        outcome = end_reading(&reading, core.out)
    if outcome == ANSWERED:
        count_reading(reading.version, &reading)
        core.counts[GET_MANYS] += 1
        return ANSWERED
    core.out.end = core.out.start + before
    if outcome == REFUSED_SIZE:
        count_refused(reading.version, reading.by_name)
        core.counts[GET_MANYS] += 1
        return refuse_reading(&reading, request.msgid, &core.read_limits, core.out)
    if outcome == UNDER_WAY or outcome == COLD:
        return defer_batch(core, connection, request, False)
    if outcome == ELSEWHERE or outcome == DAMAGED:
        return defer_batch(core, connection, request, True) if reading.may_ask else HAND_OFF
    return outcome


cdef int take_table_batch(Core core, const Envelope* request) noexcept nogil:
    """Answer a small batch from calm replicas of a table, or return `HAND_OFF`."""
    cdef Py_ssize_t before = buffer_size(core.out)
    cdef Py_ssize_t count
    cdef int outcome
    if not make_table_room(core):
        return HAND_OFF
    outcome = read_table_keys(
        core.published, request.params, request.msgid, &core.read_limits, core.gathered.tables, core.connections.pump,
        &count, core.out,
    )
    if outcome == ANSWERED:
        core.turn_work -= KEY_WORK * count + (buffer_size(core.out) - before) // BYTES_PER_WORK
        core.counts[GET_MANYS] += 1
        core.counts[KEYS_READ] += <uint64_t>count
    return outcome


cdef int take_table_scan(Core core, const Envelope* request) noexcept nogil:
    """Answer with a page of calm replicas of a table, or return `HAND_OFF`."""
    cdef Scans* scans = &core.connections.scans
    cdef Py_ssize_t before = buffer_size(core.out)
    cdef Py_ssize_t count
    cdef int outcome = read_table_page(
        core.published, request.params, request.msgid, &core.read_limits, scans.scan_limit, core.connections.pump,
        &count, core.out,
    )
    if outcome == ANSWERED:
        core.turn_work -= count + (buffer_size(core.out) - before) // BYTES_PER_WORK
        scans.answered += 1
        scans.records += <uint64_t>count
    return outcome


cdef int defer_batch(Core core, Connection* connection, const Envelope* request, bint at_once) noexcept nogil:
    """Read a batch in slices, the connections in turn, or at once if other nodes must be asked for parts of it."""
    cdef GetMany* batch
    cdef int outcome = UNDER_WAY
    if not may_be_in_flight(core.connections.group):
        return HAND_OFF
    if not core.connections.add_in_flight(connection, request.msgid):
        return OUT_OF_MEMORY
    batch = begin_batch(core.driver, connection, request)
    if batch == NULL:
        return OUT_OF_MEMORY
    if at_once:
        outcome = read_batch(core.driver, batch, &core.turn_work, NULL)
    if outcome != UNDER_WAY and outcome != COLD:
        return TAKEN_OVER
    if queue_batch(core.driver, connection, batch) < 0 or not core.connections.make_room(connection, 0):
        return OUT_OF_MEMORY
    return TAKEN_OVER


cdef void conclude(Core core, Connection* connection, const Envelope* request, int outcome) noexcept nogil:
    """Complete a request according to its outcome."""
    if outcome == HAND_OFF:
        outcome = may_hand_off(core, connection, request)
    core.fresh_answers += 0 < outcome < UNDER_WAY
    if outcome == HAND_OFF:
        hand_off(core, connection, request)
    elif outcome == REFUSED_SIZE:
        core.counts[REPLIES_TOO_LARGE] += 1
    elif outcome == UNDER_WAY and core.connections.make_room(connection, 0):
        core.connections.add_in_flight(connection, request.msgid)
    elif outcome == OUT_OF_MEMORY or outcome == UNDER_WAY:
        core.connections.doom(connection, CLOSED_MEMORY)


cdef void wait_elsewhere(
    Core core, Connection* connection, const Envelope* request, const Lookup* lookup, int why
) noexcept nogil:
    """Let other nodes answer a get, or let the disk answer it if it is `COLD`.

    A get of damaged data goes to another node if any is known to hold the data.
    """
    cdef int outcome = may_hand_off(core, connection, request)
    if outcome != HAND_OFF:
        core.fresh_answers += outcome == ANSWERED
    elif core.connections.add_in_flight(connection, request.msgid):
        if why == COLD:
            outcome = begin_cold_get(core.driver, connection, request, lookup)
        else:
            outcome = begin_forwarded_get(core.driver, connection, request, lookup)
        if outcome == HAND_OFF:
            core.connections.remove_in_flight(connection, request.msgid)
            hand_off(core, connection, request)
        elif outcome == UNDER_WAY and not core.connections.make_room(connection, 0):
            outcome = OUT_OF_MEMORY
    if outcome == OUT_OF_MEMORY:
        core.connections.doom(connection, CLOSED_MEMORY)


cdef void count_answered(Core core, const Connection* connection) noexcept nogil:
    """Record the latency of the answers in `out`, which the socket has just been given."""
    if core.fresh_answers > 0:
        histogram_record(
            &core.answered.histogram,
            <uint64_t>(core.connections.now_ns - connection.received_ns),
            core.fresh_answers,
        )
        core.fresh_answers = 0


cdef Connection* run_scans(Core core, int64_t* work) noexcept nogil:
    """Run scans until the work budget is used or one scan has ended. Return the ended scan's connection, or NULL.

    Requires: `out` is empty. The answer is in `out` afterwards.
    """
    cdef Scanner* scanner
    cdef Connection* connection
    cdef int outcome
    while work[0] > 0:
        scanner = scans_turn(&core.connections.scans)
        if scanner == NULL:
            return NULL
        connection = core.connections.find(scanner.handle)
        if connection.doomed:
            scans_drop(&core.connections.scans, scanner)
            return connection
        if not scans_have_begun(scanner) and buffer_size(&connection.output) >= core.connections.max_queued:
            scans_park(&core.connections.scans, scanner)
            continue
        read_as(core.published, connection.user)
        if scanner.first.batch != NULL:
            if run_batch(core, scanner, work):
                continue
            return connection
        outcome = scans_run(&core.connections.scans, scanner, core.published, work, core.out)
        if outcome == COLD:
            scans_read_cold(scanner, core.cold)
            fetch_pages(core, scanner)
            outcome = UNDER_WAY
        if outcome == UNDER_WAY and core.connections.make_room(connection, 0):
            continue
        end_scan(core, connection, outcome if outcome != UNDER_WAY else OUT_OF_MEMORY)
        return connection
    return NULL


cdef void fetch_pages(Core core, Scanner* scanner) noexcept nogil:
    """Let the scan wait for the pages being read for it; without any it tries again."""
    core.counts[COLD_READS] += 1
    if not scans_fetch(&core.connections.scans, scanner):
        scans_yield(&core.connections.scans, scanner, 1 << 30)


cdef bint run_batch(Core core, Scanner* scanner, int64_t* work) noexcept nogil:
    """Continue the connection's first batch, which ends with its answer in `out`. Return True if still under way."""
    cdef Connection* connection = core.connections.find(scanner.handle)
    cdef int64_t slice = BATCH_SLICE_WORK
    cdef int outcome = read_batch(core.driver, scanner.first.batch, &slice, core.out)
    work[0] -= BATCH_SLICE_WORK - slice + REQUEST_WORK
    if outcome == COLD:
        ask_disk(core.driver, scanner.first.batch, &scanner.wait)
        fetch_pages(core, scanner)
    elif outcome == UNDER_WAY:
        scans_yield(&core.connections.scans, scanner, BATCH_SLICE_WORK - slice)
    else:
        scans_done(&core.connections.scans, scanner)
        return False
    if not core.connections.make_room(connection, 0):
        core.connections.doom(connection, CLOSED_MEMORY)
    return not connection.doomed


cdef void end_scan(Core core, Connection* connection, int outcome) noexcept nogil:
    """Count the connection's first scan, which has ended, or hand it off."""
    cdef ScanJob* job = connection.scanner.first
    cdef Envelope request
    check(
        core.connections, connection, ids_contain(&connection.in_flight, job.msgid),
        b"the id of a scan under way is in flight",
    )
    core.connections.remove_in_flight(connection, job.msgid)
    if outcome == HAND_OFF:
        request.msgid = job.msgid
        request.method = Blob(<const uint8_t*>b"scan", 4)
        request.params = Cursor(job.params.data, job.params.data + job.params.end)
        hand_off(core, connection, &request)
    else:
        histogram_record(&core.answered.histogram, <uint64_t>(core.connections.now_ns - job.received_ns), 1)
    if outcome == OUT_OF_MEMORY:
        core.connections.doom(connection, CLOSED_MEMORY)
    elif outcome == REFUSED_SIZE:
        core.counts[REPLIES_TOO_LARGE] += 1
    connection.active_ms = core.connections.now_ms
    scans_done(&core.connections.scans, &connection.scanner)
