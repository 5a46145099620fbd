"""Reports on reads that no other node has answered: the peers that were asked, and each outcome."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, put_array, put_bin, put_bytes, put_text, put_unsigned

cdef enum:
    # Room in a report for a peer: its name and the outcome.
    OUTCOME_BYTES = 300

# The names of outcomes in a report, in the order of `AttemptOutcome`.
cdef const char* OUTCOMES[12]
OUTCOMES[:] = [
    b"asked", b"silent", b"lost", b"not connected", b"queue full", b"NOT_SERVED", b"NOT_READY", b"UNKNOWN_VERSION",
    b"CORRUPT", b"OVERLOADED", b"refused", b"nonsense",
]


cdef inline bint was_tried(const Relay* relay, int column) noexcept nogil:
    cdef uint32_t i
    for i in range(relay.tried_count):
        if relay.tried[i].column == column:
            return True
    return False


cdef void put_outcome(RelayDriver driver, Buffer* out, int column, AttemptOutcome outcome) noexcept nogil:
    cdef const Blob* name = &driver.peers.routes.peers[column].name
    put_array(out, 2)
    put_bin(out, name.data, name.size)
    put_text(out, OUTCOMES[<int>outcome])


cdef int write_report(
    RelayDriver driver, const Relay* relay, Py_ssize_t partition, const Blob* key, Buffer* out
) noexcept nogil:
    """Write `[[database, key], version, partition, rounds, ms, [[peer, outcome], ...]]` as MessagePack."""
    cdef const Relay* whole = relay.whole
    cdef Blob version = version_name(relay)
    cdef const Attempt* attempt = relay.attempts
    cdef uint32_t count = relay.tried_count
    cdef uint32_t i
    while attempt != NULL:  # These peers have been silent since an earlier round.
        count += not was_tried(relay, attempt.column)
        attempt = attempt.next_of_relay
    if buffer_reserve(
        out, whole.subject_size + key.size + version.size + 10 * HEAD_BYTES + count * OUTCOME_BYTES
    ) < 0:
        return -1
    put_array(out, 6)
    put_array(out, 2)
    put_bytes(out, whole.body.data + whole.subject_at, whole.subject_size)
    if key.size > 0:
        put_bytes(out, key.data, key.size)
    put_bin(out, version.data, version.size)
    put_unsigned(out, <uint64_t>partition)
    put_unsigned(out, relay.rounds)
    put_unsigned(out, <uint64_t>max(driver.connections.now_ns - relay.begun_ns, <int64_t>0) // 1000000)
    put_array(out, count)
    for i in range(relay.tried_count):
        put_outcome(driver, out, relay.tried[i].column, <AttemptOutcome>relay.tried[i].outcome)
    attempt = relay.attempts
    while attempt != NULL:
        if not was_tried(relay, attempt.column):
            put_outcome(driver, out, attempt.column, WAS_SILENT)
        attempt = attempt.next_of_relay
    return 0


cdef void report_unanswered(RelayDriver driver, Relay* relay, Py_ssize_t partition, const Blob* key) noexcept nogil:
    """End a client's request and let Python report that no owner answered; `key` is for a subject without one."""
    cdef Connection* connection = driver.connections.find(relay.client)
    cdef BacklogRequest* waiting = NULL
    cdef Buffer report
    buffer_init(&report)
    driver.counts[FORWARD_FAILED] += 1
    if write_report(driver, relay, partition, key, &report) == 0:
        waiting = driver.connections.backlog.put(
            relay.client, relay.msgid, UNANSWERED, relay.begun_ns, 0, report.end
        )
    if waiting == NULL:
        driver.connections.doom(connection, CLOSED_MEMORY)
        driver.connections.flush_later(connection)
    else:
        memcpy(request_bytes(waiting), report.data, report.end)
    buffer_release(&report)
    relay_end(driver.relays, relay.whole)
