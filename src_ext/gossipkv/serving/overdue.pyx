"""Whose time is up, and how each is told: nearly all by the end of the connection."""

from libc.stdint cimport int64_t

from gossipkv.serving._transport cimport HTTP_LISTENER
from gossipkv.wire._buffer cimport buffer_size

cdef enum:
    # How long a connection that has ended may wait for the peer's end: several round trips between continents.
    LINGER_MS = 1000


cdef inline int time_is_up(const Connection* connection, const TimeLimits* limits, int64_t now_ms) noexcept nogil:
    """The counter of the reason why a connection must end now; 0 when its time is not up."""
    if connection.state == FREE or connection.doomed:
        return 0
    if connection.state == LINGERING:
        return connection.reason if now_ms - connection.active_ms > LINGER_MS else 0
    if connection.partial_ms > 0 and now_ms - connection.partial_ms > limits.frame_ms:
        return CLOSED_FRAME_TIMEOUT
    if connection.gateway:  # It cannot come anew, and ends with its process.
        return 0
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
    """End a connection whose time is up."""
    cdef int reason = time_is_up(connection, &connections.time_limits, connections.now_ms)
    if (
        reason == CLOSED_FRAME_TIMEOUT
        and connection.listener == HTTP_LISTENER
        and connection.shaking == 0
        and owed_count(connection.owing) == 0
    ):
        refuse_slow_request(connections, connection)
    elif reason > 0:
        connections.doom(connection, reason)


cdef void refuse_slow_request(Connections connections, Connection* connection) noexcept nogil:
    """Tell, in HTTP, that a request did not come whole in time, and end behind that."""
    cdef Py_ssize_t before = buffer_size(&connection.output)
    if say_too_slow(&connections.http, connections.time_limits.frame_ms, &connection.output) < 0:
        connections.doom(connection, CLOSED_MEMORY)
        return
    connection.owing.said = buffer_size(&connection.output)
    connection.broken = True
    connection.partial_ms = 0
    connections.finish(connection, CLOSED_FRAME_TIMEOUT)
    connections.note_output(connection, buffer_size(&connection.output) - before)
