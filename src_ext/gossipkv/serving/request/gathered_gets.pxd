"""Plain gets that arrived together are answered together, so that their cache misses overlap.

The loop of a dialect (`intake.pyx`, `resp/intake.pyx`) gathers gets while it parses, and lets all be answered
(`requests.pyx`) before any other message. A get of another node's data is gathered too, and forwarded in its turn. Gets
without room for their answers count as not yet parsed. These functions are here so that the compiler inlines them.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc

from gossipkv.wire._buffer cimport buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Envelope, blob_is

cdef enum:
    # Room for the gathered gets as parameters: 32 gets with keys of 1 KiB, and the words of their dialect.
    WORDS_BYTES = 65536
    # Answers of one connection before they are sent and the next connection has its turn.
    BURST_BYTES = 256 * 1024
    # Hand-offs of one step, and bytes of their parameters: Python answers these before sockets are polled again.
    HAND_OFFS_PER_STEP = 1024
    HAND_OFF_BYTES_PER_STEP = 4 * 1024 * 1024


cdef inline bint may_process(Core core, const Connection* connection) noexcept nogil:
    """True if there is room for the consequences of one more message now."""
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
    """Gather a plain get for a common answer, local or forwarded, and prefetch local data. Else return `HAND_OFF`."""
    cdef GatheredGet* entry = &core.gathered.entries[core.gathered.count]
    cdef int outcome
    if not blob_is(&request.method, b"get", 3):
        return HAND_OFF
    outcome = core.published.begin_get(request.params, &core.read_limits, &entry.lookup)
    if outcome == HAND_OFF and core.published.gate is not None:
        outcome = gather_table_get(core, request, &entry.lookup)
    if outcome != HAND_OFF:
        entry.message = message
        entry.request = request[0]
        core.gathered.count += 1
    return outcome


cdef inline int gather_table_get(Core core, const Envelope* request, Lookup* lookup) noexcept nogil:
    """Gather a get of a table that a calm replica may answer."""
    cdef int outcome
    if not make_table_room(core):
        return HAND_OFF
    outcome = begin_table_get(
        core.published, request.params, &core.read_limits, &core.gathered.tables[core.gathered.count]
    )
    if outcome == ANSWERED:
        core.gathered.table_count += 1
        lookup.file = NULL
        lookup.version = NULL
    return outcome


cdef inline bint make_table_room(Core core) noexcept nogil:
    """Make room for lookups in tables. Return False if out of memory."""
    if core.gathered.tables == NULL:
        core.gathered.tables = <TableGet*>calloc(MAX_GATHERED, sizeof(TableGet))
    return core.gathered.tables != NULL


cdef inline bint find_room(Core core, Connection* connection, Py_ssize_t size) noexcept nogil:
    """True if there is room for `size` bytes of words; if not, answer the gathered gets first, or memory is short."""
    if core.gathered.count == 0:
        core.words.end = 0
        if buffer_reserve(&core.words, max(size, <Py_ssize_t>WORDS_BYTES)) < 0:
            core.connections.doom(connection, CLOSED_MEMORY)
            return False
        return True
    return core.words.capacity - core.words.end >= size


cdef inline bint must_wait(Core core, const Envelope* request) noexcept nogil:
    """True of a small batch for which too little of this turn is left: it has the next turn."""
    return (
        core.turn_work - REQUEST_WORK < KEY_WORK * core.elements <= SMALL_BATCH_WORK
        and blob_is(&request.method, b"get_many", 8)
    )
