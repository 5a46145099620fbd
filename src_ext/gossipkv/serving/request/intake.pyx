"""Received bytes, split into messages: plain gets are gathered, all other messages are passed on.

* A message is processed only after the scanner has bounded all of it.
* Plain gets are gathered, so that their cache misses overlap, and answered before any other message.
* The work for received requests between two polls of the sockets is bounded (`Connections.work`). Beyond the bound each
  connection has a small allowance, and further input is held for the connection's next turn.

Each dialect has its own loop: MessagePack-RPC here, RESP in `resp/intake.pyx`, HTTP in `http/intake.pyx`.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.serving._transport cimport HTTP_LISTENER
from gossipkv.wire._buffer cimport Buffer, buffer_size
from gossipkv.wire._wire cimport (
    BAD_REQUEST, FRAME_COMPLETE, FRAME_PARTIAL, FRAME_TOO_LARGE, IS_REQUEST, Blob, Envelope, blob_is, frame_begin,
    frame_scan, read_envelope,
)

cdef enum:
    # Each connection may always do this much work: a few requests, so small clients never wait for a turn.
    MIN_TURN_WORK = 64
    # Receiving and scanning this many bytes costs one unit of work.
    RECEIVED_BYTES_PER_WORK = 128
    # A TLS stream, and no dialect, begins with a handshake record and the major version, which has never changed.
    HANDSHAKE = 0x16
    HANDSHAKE_VERSION = 3


cdef void receive_requests(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process bytes that arrived. Requires: `wants_read`, and `out` is empty. Answers are in `out` afterwards."""
    cdef Py_ssize_t consumed
    cdef bint in_time = core.connections.work > 0
    check(
        core.connections, connection, connection.state == OPEN and not connection.held and not connection.doomed,
        b"a connection that is held or has ended is not read",
    )
    core.counts[BYTES_RECEIVED] += <uint64_t>size
    core.connections.work -= size // RECEIVED_BYTES_PER_WORK
    connection.active_ms = core.connections.now_ms
    connection.received_ns = core.connections.now_ns
    if size >= MIN_INBOX_BYTES and not in_time:
        if core.connections.hold_input(connection, data, size) == 0:
            # A client that sends much has its turn later, so the next connections need not wait.
            connection.held = True
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
    """Process the kept input. Answers are in `out` afterwards."""
    cdef Buffer* kept = &connection.input
    cdef Py_ssize_t consumed = consume(core, connection, kept.data + kept.start, buffer_size(kept))
    core.connections.drop_input(connection, buffer_size(kept) if connection.broken else consumed)
    note_rest(core, connection, consumed)


cdef Py_ssize_t consume(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Take a turn: process message after message. Return how many bytes they had."""
    cdef Py_ssize_t at
    cdef int64_t work = max(core.connections.work, <int64_t>MIN_TURN_WORK)
    check(core.connections, connection, buffer_size(core.out) == 0, b"`out` is empty when a turn begins")
    check(core.connections, connection, core.gathered.count == 0, b"no get is left behind by a turn")
    check(core.connections, connection, core.fresh_answers == 0, b"answers are counted in the turn that gave them")
    core.turn_work = work
    read_as(core.published, connection.user)
    connection.held = False
    if connection.in_flight.count == 0:
        connection.max_in_flight = core.connections.max_in_flight
    if connection.listener == HTTP_LISTENER:
        # A TLS handshake is a strange request on this listener, and the gateway refuses it.
        at = take_plain(core, connection, data, size)
    elif data[0] == HANDSHAKE and size > 1 and data[1] == HANDSHAKE_VERSION and not connection.spoken:
        refuse_handshake(core, connection)
        at = size
    elif connection.replies == NULL:
        at = take_messages(core, connection, data, size)
    else:
        at = take_commands(core, connection, data, size)
    core.connections.work -= work - core.turn_work + buffer_size(core.out) // BYTES_PER_WORK
    return at


cdef Py_ssize_t take_messages(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process messages of MessagePack-RPC. Return how many bytes they had.

    Plain gets are gathered, so that their cache misses overlap, and answered or passed on before any other message.
    Gets without room for their answers count as not yet processed.
    """
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    cdef int outcome
    cdef int result
    cdef int kind
    cdef Envelope envelope
    while at < size:
        if not may_process(core, connection):
            connection.held = not connection.broken
            break
        result = frame_scan(&connection.scan, data + at, size - at, limits_of(core, connection))
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
                if core.gathered.count == MAX_GATHERED and not answer_gathered(core, connection, data, &at):
                    break
                continue
        if core.gathered.count > 0:  # The gathered gets come first, and may leave no room for this message.
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
        if kind == IS_REQUEST and (
            must_wait(core, &envelope) or (is_of_user(&envelope.method) and awaits_others(connection))
        ):
            connection.held = True
            break
        take_message(core, connection, kind, data + at, &envelope)
        connection.spoken = True
        at += length
    answer_gathered(core, connection, data, &at)
    return at


cdef inline bint is_of_user(const Blob* method) noexcept nogil:
    """True if the answer to that method may change the user of the connection."""
    return blob_is(method, b"auth", 4) or blob_is(method, b"hello", 5)


cdef void note_rest(Core core, Connection* connection, Py_ssize_t consumed) noexcept nogil:
    """Record the state after `consume`: since when a frame is incomplete, and why the rest has to wait."""
    if connection.held or connection.broken or buffer_size(&connection.input) == 0:
        connection.partial_ms = 0
    elif consumed > 0 or connection.partial_ms == 0:
        connection.partial_ms = core.connections.now_ms
    if connection.held:
        if connection.in_flight.count >= connection.max_in_flight:
            core.counts[PAUSED_FOR_HAND_OFFS] += 1
        elif buffer_size(&connection.output) + buffer_size(core.out) >= core.connections.max_queued:
            core.counts[PAUSED_FOR_OUTPUT] += 1


cdef void refuse_frame(
    Core core, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
) noexcept nogil:
    """End a stream without a recognizable message boundary; answer under the id if the frame shows one."""
    cdef Envelope envelope
    cdef int kind = read_envelope(data, min(size, connection.scan.position), &envelope)
    connection.broken = True
    core.connections.finish(connection, CLOSED_BAD_FRAME)
    core.counts[frame_fault(result)] += 1
    if kind != IS_REQUEST and kind != BAD_REQUEST:
        return
    if result == FRAME_TOO_LARGE:
        refuse_size(core.out, envelope.msgid, limits_of(core, connection).max_size)
    else:
        refuse_bounds(core.out, envelope.msgid)


cdef void refuse_handshake(Core core, Connection* connection) noexcept nogil:
    """End a connection that sends a TLS handshake where TLS is not served."""
    connection.broken = True
    core.connections.drop_replies(connection)  # The alert is sent as it is, in no dialect.
    core.connections.finish(connection, CLOSED_BAD_MESSAGE)
    if refuse_tls(core.out) < 0:
        core.connections.doom(connection, CLOSED_MEMORY)
