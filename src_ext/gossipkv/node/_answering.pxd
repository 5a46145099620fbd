"""Which request Python answers next, and what becomes of its answer."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.node._backlog cimport Request
from gossipkv.node._connection cimport Core
from gossipkv.node._counters cimport CLOSED_MEMORY, REPLIES, REPLIES_DROPPED, REPLIES_TOO_LARGE
from gossipkv.node._id_set cimport ids_remove
from gossipkv.node._refusals cimport refuse_answer
from gossipkv.node._state cimport Connection
from gossipkv.wire._buffer cimport buffer_reserve, buffer_size
from gossipkv.wire._message cimport ENVELOPE_BYTES, put, put_bytes, put_response, unsigned_size

cdef enum:
    # Parameters of requests whose peers do not read; beyond, a connection is closed rather than parked.
    MAX_PARKED_BYTES = 16 * 1024 * 1024


cdef inline void park_request(Core core, Connection* connection) noexcept nogil:
    """After more was parked: the connection for which that is too much is closed with the next flush."""
    if core.backlog.parked_bytes > MAX_PARKED_BYTES:
        core.backlog.forget_queue(connection.handle)
        core.doom(connection, CLOSED_MEMORY)
        core.flush_later(connection)


cdef inline Request* next_request(Core core) noexcept nogil:
    """The next request that may be answered, to be freed; NULL: none.  Those of a peer that does not read wait."""
    cdef Connection* connection
    cdef uint64_t handle
    while not core.backlog.is_empty():
        handle = core.backlog.next_turn()
        connection = core.find(handle)
        if connection == NULL or connection.doomed:
            core.backlog.forget_queue(handle)
        elif buffer_size(&connection.output) < core.max_queued:
            return core.backlog.pop()
        else:
            core.backlog.park_queue(handle)
            connection.shut = True
            park_request(core, connection)
    return NULL


cdef inline Connection* claim(Core core, uint64_t handle, uint32_t msgid) noexcept nogil:
    """The connection that awaits this answer, from now on no more; NULL: none does."""
    cdef Connection* connection = core.find(handle)
    if connection == NULL or not ids_remove(&connection.in_flight, msgid):
        core.counts[REPLIES_DROPPED] += 1
        return NULL
    core.in_flight_count -= 1
    core.counts[REPLIES] += 1
    connection.active_ms = core.now_ms
    return connection


cdef inline void deliver(Core core, Connection* connection) noexcept nogil:
    """Put the answer in `out` behind what waits; it is sent with all others of its connection."""
    core.hold_output(connection, 0)
    core.flush_later(connection)
    core.sent(connection, 0)


cdef inline bint respond(
    Core core, uint64_t handle, uint32_t msgid, const uint8_t* body, Py_ssize_t size, bint refused
) noexcept nogil:
    """Answer a hand-off with a result or an error, as MessagePack; False when nobody awaits it any more."""
    cdef Connection* connection = claim(core, handle, msgid)
    cdef Py_ssize_t frame_size = size + ENVELOPE_BYTES + unsigned_size(msgid)
    if connection == NULL:
        return False
    if frame_size > core.frame_limits.max_size:
        core.counts[REPLIES_TOO_LARGE] += 1
        if refuse_answer(&core.out, msgid, core.frame_limits.max_size, frame_size) < 0:
            core.doom(connection, CLOSED_MEMORY)
    elif buffer_reserve(&core.out, frame_size) < 0:
        core.doom(connection, CLOSED_MEMORY)
    else:
        put_response(&core.out, msgid)
        if not refused:
            put(&core.out, 0xC0)
        put_bytes(&core.out, body, size)
        if refused:
            put(&core.out, 0xC0)
    deliver(core, connection)
    return True
