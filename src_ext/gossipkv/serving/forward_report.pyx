"""What is told of a read that no other node has answered: whom this node asked, and what became of it."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, put_array, put_bin, put_bytes, put_text, put_unsigned

cdef enum:
    # What a report has of a peer: its name, what became of asking it.
    OUTCOME_BYTES = 300

# What a report calls what became of asking a peer, in the order of `Tried`.
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


cdef void put_outcome(Asking asking, Buffer* out, int column, Tried outcome) noexcept nogil:
    cdef const Blob* name = &asking.peers.routes.peers[column].name
    put_array(out, 2)
    put_bin(out, name.data, name.size)
    put_text(out, OUTCOMES[<int>outcome])


cdef int write_report(
    Asking asking, const Relay* relay, Py_ssize_t partition, const Blob* key, Buffer* out
) noexcept nogil:
    """`[[database, key], version, partition, rounds, ms, [[peer, outcome], ...]]`, as MessagePack."""
    cdef const Relay* whole = relay.whole
    cdef Blob version = version_name(relay)
    cdef const Attempt* attempt = relay.attempts
    cdef uint32_t count = relay.tried_count
    cdef uint32_t i
    while attempt != NULL:  # Those who are silent since an earlier round.
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
    put_unsigned(out, <uint64_t>max(asking.connections.now_ns - relay.begun_ns, <int64_t>0) // 1000000)
    put_array(out, count)
    for i in range(relay.tried_count):
        put_outcome(asking, out, relay.tried[i].column, <Tried>relay.tried[i].outcome)
    attempt = relay.attempts
    while attempt != NULL:
        if not was_tried(relay, attempt.column):
            put_outcome(asking, out, attempt.column, WAS_SILENT)
        attempt = attempt.next_of_relay
    return 0


cdef void report_unanswered(Asking asking, Relay* relay, Py_ssize_t partition, const Blob* key) noexcept nogil:
    """Give a client's request up, and have Python say why nobody has answered; `key`: where the subject has none."""
    cdef Connection* connection = asking.connections.find(relay.client)
    cdef Request* waiting = NULL
    cdef Buffer report
    buffer_init(&report)
    asking.counts[FORWARD_FAILED] += 1
    if write_report(asking, relay, partition, key, &report) == 0:
        waiting = asking.connections.backlog.put(
            relay.client, relay.msgid, UNANSWERED, relay.begun_ns, 0, report.end
        )
    if waiting == NULL:
        asking.connections.doom(connection, CLOSED_MEMORY)
        asking.connections.flush_later(connection)
    else:
        memcpy(request_bytes(waiting), report.data, report.end)
    buffer_release(&report)
    relay_end(asking.relays, relay.whole)
