"""Plain gets that came together, answered together: so their cache misses overlap.

The loop of a dialect (`_intake.pyx`, `_resp_intake.pyx`) gathers them as it reads them, and has all answered before it
takes anything else.  One that is elsewhere is gathered as well, and passed on when it is its turn: those for which
there is no room are as if they had not been looked at.
"""

from libc.stdint cimport uint8_t

from gossipkv.serving._connections cimport Connection
from gossipkv.serving._core cimport Core, Gathered
from gossipkv.serving._counters cimport GETS, KEYS_READ
from gossipkv.serving._published cimport ANSWERED, COLD, DAMAGED, ELSEWHERE
from gossipkv.serving._requests cimport conclude, wait_elsewhere
from gossipkv.serving._scans cimport REQUEST_WORK
from gossipkv.wire._frames cimport frame_begin


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
