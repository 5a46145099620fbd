"""Plain gets that came together, answered together: so their cache misses overlap.

The loop of a dialect (`intake.pyx`, `resp_intake.pyx`) gathers them as it reads them, and has all answered
(`requests.pyx`) before it takes anything else.  One that is elsewhere is gathered as well, and passed on when it is
its turn: those for which there is no room are as if they had not been looked at.

What runs for each request is written here: so the compiler puts it into these loops.
"""

from libc.stdint cimport uint8_t

from gossipkv.wire._buffer cimport buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Envelope, blob_is

cdef enum:
    # Of what is gathered, as parameters: 32 gets with keys of 1 KiB, and what their dialect says beside that.
    WORDS_BYTES = 65536
    # Answers of one connection in one go; then they are sent, and others have their turn.
    BURST_BYTES = 256 * 1024
    # Hand-offs of one step, and bytes of their parameters: what Python answers before the loop looks at sockets again.
    HAND_OFFS_PER_STEP = 1024
    HAND_OFF_BYTES_PER_STEP = 4 * 1024 * 1024


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


cdef inline bint find_room(Core core, Connection* connection, Py_ssize_t size) noexcept nogil:
    """Whether there is room for so many words; if not, the gathered come first, or there is no memory."""
    if core.gathered.count == 0:
        core.words.end = 0
        if buffer_reserve(&core.words, max(size, <Py_ssize_t>WORDS_BYTES)) < 0:
            core.connections.doom(connection, CLOSED_MEMORY)
            return False
        return True
    return core.words.capacity - core.words.end >= size


cdef inline bint must_wait(Core core, const Envelope* request) noexcept nogil:
    """Whether that is a small batch for which too little is left of this turn: it has the next one."""
    return (
        core.turn_work - REQUEST_WORK < KEY_WORK * core.elements <= SMALL_BATCH_WORK
        and blob_is(&request.method, b"get_many", 8)
    )
