"""Time-outs: overdue connections end, nearly all without a message, and unproven ones make way for new ones."""

from libc.stdint cimport int64_t

from gossipkv.serving._transport cimport HTTP_LISTENER
from gossipkv.wire._buffer cimport buffer_size

cdef enum:
    # How long a connection that has ended may wait for the peer's end: several round trips between continents.
    LINGER_MS = 1000
    # How long a client that sends no more waits for its next answer, unless it scans: it may be gone.
    LEAVE_MS = 500
    # How long a connection may be unproven when many are connected.
    PROOF_MS = 10000


cdef inline int time_is_up(const Connection* connection, const TimeLimits* limits, int64_t now_ms) noexcept nogil:
    """Return the counter of the reason why a connection must end now; 0 if its time is not up."""
    if connection.state == FREE or connection.doomed:
        return 0
    if connection.state == LINGERING:
        return connection.reason if now_ms - connection.active_ms > LINGER_MS else 0
    if connection.partial_ms > 0 and now_ms - connection.partial_ms > limits.frame_ms:
        return CLOSED_FRAME_TIMEOUT
    if connection.gateway:  # The gateway's connection cannot be made again, and ends with its process.
        return 0
    if (
        connection.state == FINISHING
        and connection.reason == CLOSED_BY_PEER
        and connection.in_flight.count > 0
        and connection.scanner.first == NULL
        and now_ms - connection.active_ms > LEAVE_MS
    ):
        return CLOSED_BY_PEER
    if connection.blocked_ms > 0 and now_ms - connection.blocked_ms > limits.output_ms:
        return CLOSED_OUTPUT_TIMEOUT
    if (
        limits.idle_ms > 0
        and not connection.peer
        and connection.in_flight.count == 0
        and connection.blocked_ms == 0
        and now_ms - connection.active_ms > limits.idle_ms
    ):
        return CLOSED_IDLE
    return 0


cdef void expire_one(Connections connections, Connection* connection) noexcept nogil:
    cdef int reason = time_is_up(connection, &connections.time_limits, connections.now_ms)
    if (
        reason == CLOSED_FRAME_TIMEOUT
        and connection.listener == HTTP_LISTENER
        and connection.shaking == 0
        and reply_count(connection.replies) == 0
    ):
        refuse_slow_request(connections, connection)
    elif reason == 0 and is_unproven(connections, connection) and is_crowded(connections.group) and (
        connections.now_ms - connection.begun_ms > PROOF_MS
    ):
        connections.doom(connection, CLOSED_UNPROVEN)
    elif reason > 0:
        connections.doom(connection, reason)


cdef void refuse_slow_request(Connections connections, Connection* connection) noexcept nogil:
    """Answer, in HTTP, that a request did not arrive whole in time, and end the connection after the answer."""
    cdef Py_ssize_t before = buffer_size(&connection.output)
    if write_too_slow(&connections.http, connections.time_limits.frame_ms, &connection.output) < 0:
        connections.doom(connection, CLOSED_MEMORY)
        return
    connection.replies.translated = buffer_size(&connection.output)
    connection.broken = True
    connection.partial_ms = 0
    connections.finish(connection, CLOSED_FRAME_TIMEOUT)
    connections.note_output(connection, buffer_size(&connection.output) - before)


cdef void make_way(Connections connections, const Connection* newcomer) noexcept nogil:
    """Close the older half (at most MAX_SENT_AWAY) of the unproven connections of the address that has most."""
    cdef uint64_t oldest[MAX_SENT_AWAY]
    cdef int64_t ages[MAX_SENT_AWAY]
    cdef Connection* connection
    cdef uint64_t busiest = 0
    cdef uint32_t most = 0
    cdef uint32_t count = 0
    cdef uint32_t of_address
    cdef uint32_t i
    cdef int at
    cdef int kept = 0
    if connections.now_ms - connections.in_vain_ms < LOOK_MS:
        return
    for i in range(connections.slot_count):
        connection = connections.slots[i]
        if connection == newcomer or not is_unproven(connections, connection):
            continue
        if count == 0 or connection.address != busiest:
            of_address = connections.group.count_of(connection.address)
            if count == 0 or of_address > most:
                most = of_address
                busiest = connection.address
                count = 0
                kept = 0
            elif connections.group.max_of_address > 0:
                continue
        count += 1
        if kept == MAX_SENT_AWAY and ages[kept - 1] <= connection.begun_ms:
            continue
        kept = min(kept + 1, <int>MAX_SENT_AWAY)
        at = kept - 1
        while at > 0 and ages[at - 1] > connection.begun_ms:
            ages[at] = ages[at - 1]
            oldest[at] = oldest[at - 1]
            at -= 1
        ages[at] = connection.begun_ms
        oldest[at] = connection.handle
    for at in range(min(kept, <int>(count + 1) // 2)):
        connection = connections.find(oldest[at])
        connections.doom(connection, CLOSED_UNPROVEN)
        connections.flush_later(connection)
    if count == 0:
        connections.in_vain_ms = connections.now_ms
