"""What has arrived: message after message of a connection's bytes, plain gets gathered, all else passed on.

* A message is looked at only after the scanner has bounded all of it.
* Plain gets are gathered, so that their cache misses overlap, and answered before anything else is.
* Between two looks at sockets the work for requests that have come is bounded (`Connections.work`), whatever they are;
  beyond it each connection has a little, and what is more is held, the connections in turn.

What runs for each get is in this one file: there the compiler puts it into its caller.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.serving._batches cimport KEY_WORK
from gossipkv.serving._connections cimport OPEN, Connection, check, has_room
from gossipkv.serving._core cimport GATHERED_MOST, LEAST_INBOX_BYTES, SMALL_BATCH_WORK, Core, Gathered
from gossipkv.serving._counters cimport (
    BYTES_RECEIVED, CLOSED_BAD_FRAME, GETS, KEYS_READ, PAUSED_FOR_HAND_OFFS, PAUSED_FOR_OUTPUT, frame_fault,
)
from gossipkv.serving._id_set cimport ids_contain
from gossipkv.serving._published cimport ANSWERED, COLD, DAMAGED, ELSEWHERE, HAND_OFF
from gossipkv.serving._refusals cimport refuse_bounds, refuse_size
from gossipkv.serving._requests cimport conclude, take_message, wait_elsewhere
from gossipkv.serving._scan_page cimport BYTES_PER_WORK
from gossipkv.serving._scans cimport REQUEST_WORK
from gossipkv.wire._buffer cimport Buffer, buffer_size
from gossipkv.wire._frames cimport FRAME_COMPLETE, FRAME_PARTIAL, FRAME_TOO_LARGE, frame_begin, frame_scan
from gossipkv.wire._message cimport BAD_REQUEST, IS_REQUEST, Envelope, blob_is, read_envelope

cdef enum:
    # Answers of one connection in one go; then they are sent, and others have their turn.
    BURST_BYTES = 256 * 1024
    # Hand-offs of one step, and bytes of their parameters: what Python answers before the loop looks at sockets again.
    HAND_OFFS_PER_STEP = 1024
    HAND_OFF_BYTES_PER_STEP = 4 * 1024 * 1024
    # What a connection has of it in any case: a few requests, so that those who ask for little never wait for a turn.
    LEAST_TURN_WORK = 64
    # Received bytes and looked through, in a unit of work.
    RECEIVED_BYTES_PER_WORK = 128


cdef inline bint may_process(Core core, const Connection* connection) noexcept nogil:
    """Whether there is room for the consequences of one more message, now."""
    return (
        not connection.broken
        and not connection.doomed
        and has_room(core.connections, connection)
        and buffer_size(core.out) < BURST_BYTES
        and core.hand_off_count < HAND_OFFS_PER_STEP
        and core.hand_off_bytes < HAND_OFF_BYTES_PER_STEP
        and (core.turn_work - core.gathered.count * REQUEST_WORK) * BYTES_PER_WORK > buffer_size(core.out)
    )


cdef inline int gather(Core core, const uint8_t* message, const Envelope* request) noexcept nogil:
    """Gather a plain get, to be answered with others, here or elsewhere; what is here is on its way; or `HAND_OFF`."""
    cdef Gathered* entry = &core.gathered.entries[core.gathered.count]
    cdef int outcome
    if not blob_is(&request.method, b"get", 3):
        return HAND_OFF
    outcome = core.published.begin_get(request.params, &core.read_limits, &entry.lookup)
    if outcome != HAND_OFF:
        entry.message = message
        entry.request = request[0]
        core.gathered.count += 1
    return outcome


cdef inline bint must_wait(Core core, const Envelope* request) noexcept nogil:
    """Whether that is a small batch for which too little is left of this turn: it has the next one."""
    return (
        core.turn_work - REQUEST_WORK < KEY_WORK * core.elements <= SMALL_BATCH_WORK
        and blob_is(&request.method, b"get_many", 8)
    )


cdef void receive_requests(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Take bytes that arrived.  Requires: `wants_read`, and `out` is empty.  Answers are in `out` afterwards."""
    cdef Py_ssize_t consumed
    cdef bint in_time = core.connections.work > 0
    check(
        core.connections, connection, connection.state == OPEN and not connection.held and not connection.doomed,
        b"who is held, or has ended, is not read",
    )
    core.counts[BYTES_RECEIVED] += <uint64_t>size
    core.connections.work -= size // RECEIVED_BYTES_PER_WORK
    connection.active_ms = core.connections.now_ms
    connection.received_ns = core.connections.now_ns
    if size >= LEAST_INBOX_BYTES and not in_time:
        if core.connections.hold_input(connection, data, size) == 0:
            connection.held = True  # Whoever sends much has its turn later; those behind it do not wait for that.
            core.connections.run_later(connection)
        return
    if buffer_size(&connection.input) > 0:
        if core.connections.hold_input(connection, data, size) == 0:
            resume_requests(core, connection)
        return
    consumed = consume(core, connection, data, size)
    if consumed < size and not connection.broken and not connection.doomed and core.connections.hold_input(
        connection, data + consumed, size - consumed
    ) < 0:
        return
    note_rest(core, connection, consumed)


cdef void resume_requests(Core core, Connection* connection) noexcept nogil:
    """Look at the input that is kept.  Answers are in `out` afterwards."""
    cdef Buffer* kept = &connection.input
    cdef Py_ssize_t consumed = consume(core, connection, kept.data + kept.start, buffer_size(kept))
    core.connections.drop_input(connection, buffer_size(kept) if connection.broken else consumed)
    note_rest(core, connection, consumed)


cdef Py_ssize_t consume(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Take message after message; how many bytes they were.

    Plain gets are gathered, so that their cache misses overlap, and answered, or passed on, before anything else is.
    Those for whose answers there is no room are as if they had not been looked at.
    """
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    cdef int outcome
    cdef int result
    cdef int kind
    cdef Envelope envelope
    cdef int64_t work = max(core.connections.work, <int64_t>LEAST_TURN_WORK)
    check(core.connections, connection, buffer_size(core.out) == 0, b"`out` is empty when a turn begins")
    check(core.connections, connection, core.gathered.count == 0, b"no get is left behind by a turn")
    check(core.connections, connection, core.fresh_answers == 0, b"answers are counted in the turn that gave them")
    core.turn_work = work
    connection.held = False
    while at < size:
        if not may_process(core, connection):
            connection.held = not connection.broken
            break
        result = frame_scan(&connection.scan, data + at, size - at, &core.frame_limits)
        if result == FRAME_COMPLETE:
            length = connection.scan.position
            core.elements = connection.scan.elements
            kind = read_envelope(data + at, length, &envelope)
            outcome = HAND_OFF
            if kind == IS_REQUEST and not ids_contain(&connection.in_flight, envelope.msgid):
                outcome = gather(core, data + at, &envelope)
            if outcome != HAND_OFF:
                frame_begin(&connection.scan)
                at += length
                if core.gathered.count == GATHERED_MOST and not answer_gathered(core, connection, data, &at):
                    break
                continue
        if core.gathered.count > 0:  # They come first, and may leave no room for this one.
            frame_begin(&connection.scan)
            if not answer_gathered(core, connection, data, &at):
                break
            continue
        if result == FRAME_PARTIAL:
            break
        if result != FRAME_COMPLETE:
            refuse_frame(core, connection, data + at, size - at, result)
            break
        frame_begin(&connection.scan)
        if kind == IS_REQUEST and must_wait(core, &envelope):
            connection.held = True
            break
        take_message(core, connection, kind, data + at, &envelope)
        connection.spoken = True
        at += length
    answer_gathered(core, connection, data, &at)
    core.connections.work -= work - core.turn_work + buffer_size(core.out) // BYTES_PER_WORK
    return at


cdef void note_rest(Core core, Connection* connection, Py_ssize_t consumed) noexcept nogil:
    """Note what `consume` has left: since when a frame is half-sent, and why the rest has to wait."""
    if connection.held or connection.broken or buffer_size(&connection.input) == 0:
        connection.partial_ms = 0
    elif consumed > 0 or connection.partial_ms == 0:
        connection.partial_ms = core.connections.now_ms
    if connection.held:
        if connection.in_flight.count >= core.connections.max_in_flight:
            core.counts[PAUSED_FOR_HAND_OFFS] += 1
        elif buffer_size(&connection.output) + buffer_size(core.out) >= core.connections.max_queued:
            core.counts[PAUSED_FOR_OUTPUT] += 1


cdef void refuse_frame(
    Core core, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
) noexcept nogil:
    """End a stream that has no boundary left, with an answer under the id if the frame shows one."""
    cdef Envelope envelope
    cdef int kind = read_envelope(data, min(size, connection.scan.position), &envelope)
    connection.broken = True
    core.connections.finish(connection, CLOSED_BAD_FRAME)
    core.counts[frame_fault(result)] += 1
    if kind != IS_REQUEST and kind != BAD_REQUEST:
        return
    if result == FRAME_TOO_LARGE:
        refuse_size(core.out, envelope.msgid, core.frame_limits.max_size)
    else:
        refuse_bounds(core.out, envelope.msgid)


cdef bint answer_gathered(Core core, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil:
    """Answer the gets that were gathered; False when there is room for some only: `at` is then where to go on."""
    cdef Gathered* entry
    cdef int count = core.gathered.count
    cdef int outcome
    cdef int i
    connection.spoken |= count > 0
    core.gathered.count = 0
    core.elements = 0  # Those of the message behind them do not count.
    # All records are fetched, then all values; the buckets were asked for when the gets were gathered.
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
            frame_begin(&connection.scan)
            connection.held = True
            return False
        core.turn_work -= REQUEST_WORK
        if entry.lookup.file == NULL:
            wait_elsewhere(core, connection, &entry.request, &entry.lookup, ELSEWHERE)
            continue
        outcome = core.published.end_get(
            &entry.lookup, entry.request.msgid, &core.read_limits, &core.asking.own_name, False, core.out
        )
        if outcome == DAMAGED or outcome == COLD:
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
