"""A slice of the scans whose turn it is, for whoever drives a core."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.latency._histogram cimport histogram_record
from gossipkv.node._connection cimport Core
from gossipkv.node._counters cimport CLOSED_MEMORY, REPLIES_TOO_LARGE
from gossipkv.node._id_set cimport ids_remove
from gossipkv.node._published cimport HAND_OFF, OUT_OF_MEMORY, REFUSED_SIZE
from gossipkv.node._scans cimport (
    UNDER_WAY, Job, Scanner, scans_done, scans_drop, scans_park, scans_run, scans_turn,
)
from gossipkv.node._state cimport Connection
from gossipkv.wire._buffer cimport buffer_size
from gossipkv.wire._message cimport Blob, Cursor, Envelope


cdef inline void end_scan(Core core, Connection* connection, int outcome) noexcept nogil:
    """The connection's first scan has ended: count it, or hand it off."""
    cdef Job* job = connection.scanner.first
    cdef Envelope request
    if ids_remove(&connection.in_flight, job.msgid):
        core.in_flight_count -= 1
    if outcome == HAND_OFF:
        request.msgid = job.msgid
        request.method = Blob(<const uint8_t*>b"scan", 4)
        request.params = Cursor(job.params.data, job.params.data + job.params.end)
        core.hand_off(connection, &request)
    else:
        histogram_record(&core.answered.histogram, <uint64_t>(core.now_ns - job.received_ns), 1)
    if outcome == OUT_OF_MEMORY:
        core.doom(connection, CLOSED_MEMORY)
    elif outcome == REFUSED_SIZE:
        core.counts[REPLIES_TOO_LARGE] += 1
    connection.active_ms = core.now_ms
    scans_done(&core.scans, &connection.scanner)


cdef inline Connection* take_turn(Core core, int64_t* work) noexcept nogil:
    """Go on with scans until the work is done or one has ended: its connection then, or NULL.

    Requires: `out` is empty.  The answer is in `out` afterwards.
    """
    cdef Scanner* scanner
    cdef Connection* connection
    cdef int outcome
    while work[0] > 0:
        scanner = scans_turn(&core.scans)
        if scanner == NULL:
            return NULL
        connection = core.find(scanner.handle)
        if connection.doomed:
            scans_drop(&core.scans, scanner)
            return connection
        if not scanner.first.begun and buffer_size(&connection.output) >= core.max_queued:
            scans_park(&core.scans, scanner)
            continue
        outcome = scans_run(&core.scans, scanner, core.published, work, &core.out)
        if outcome == UNDER_WAY and core.make_room(connection, 0):
            continue
        end_scan(core, connection, outcome if outcome != UNDER_WAY else OUT_OF_MEMORY)
        return connection
    return NULL
