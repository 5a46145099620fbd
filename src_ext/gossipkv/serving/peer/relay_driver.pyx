"""Forwarding: requests to other nodes for data that is not here, one owner after another.

A request that waits for other nodes is a relay (`relays.pyx`)::

    relay ──> an owner is asked ── the requested data ─────────────────────────────> answered
               │  ^      ├─ it refuses, is lost, answers nonsense ──> the next owner, at once
               │  │      └─ a stage passes in silence ──────────────> the next owner as well
               │  └── a pause ── begins anew, by the table of then <── all were asked
               └────────────── the time is over ──> handed to Python with a report

`WaitReason` tells for each kind of relay (`wait_reasons.pyx`) which request is sent, which result is an answer, and
where it goes. No function here touches a Python object, so a peer that dies under ten thousand reads costs no call.
Python provides owners and connections, and writes the errors.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, strlen

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, TRUE, Blob, Cursor, LatencyHistogram, histogram_record, put, put_array, put_bin, put_bytes, put_request,
    put_text, put_unsigned, take_response,
)

cdef enum:
    # Bytes of a request to an owner beside subject and keys.
    REQUEST_BYTES = 128
    # Time limit of other nodes for a read without a client's limit; a longer `proxy_timeout` wins.
    READ_TIMEOUT_NS = 1000000000


@cython.final
cdef class RelayDriver:
    """The shared state of waiting requests: other nodes, the disk, local data, limits, and the reasons to wait.

    * Owners of the partition of that very identity are asked, in the order of `gossipkv.placement.candidates`.
    * The first answer wins, and later ones are dropped. An owner that has not answered yet is not asked again.
    * Requests to a peer collect in its output and leave once a round.
    """

    def __cinit__(
        self, Connections connections not None, str name not None, int64_t whole_ms, int64_t stage_ms, uint64_t seed
    ):
        if not 1 <= stage_ms <= whole_ms:
            raise ValueError(f"a stage must last from 1 ms to the whole {whole_ms} ms, not {stage_ms} ms")
        self.connections = connections
        self.relays = &connections.relays
        self.counts = connections.counts
        self.peers = Peers(connections, seed)
        self.cold = ColdPages(connections.group.page_threads, seed)
        self.cold.counts = connections.counts
        self.published = PublishedTable(())
        self.whole_ns = whole_ms * 1000000
        self.stage_ns = stage_ms * 1000000
        self.answered = LatencyHistogram()
        self.name = name.encode()
        self.own_name = Blob(<const uint8_t*><const char*>self.name, len(self.name))


cdef void set_wait_reason(RelayDriver driver, RelayKind kind, WaitReason reason) noexcept nogil:
    """Register a reason to wait. Requires: no request waits."""
    driver.reasons[<int>kind] = reason
    set_relay_body(driver.relays, kind, reason.body)


# Requests of clients --------------------------------------------------------------------------------------------


cdef int set_version(RelayDriver driver, Relay* relay, const Lookup* lookup) noexcept nogil:
    """Let the relay ask for this version from now on."""
    relay.body.end = relay.params_size
    if buffer_append(&relay.body, lookup.version.name.data, lookup.version.name.size) < 0:
        return -1
    memcpy(relay.identity, lookup.version.identity, IDENTITY_BYTES)
    relay.partition = lookup.partition
    relay_note_size(driver.relays, relay)
    return 0


# Choice of owners ---------------------------------------------------------------------------------------------


cdef void limit_asking(RelayDriver driver, Relay* relay) noexcept nogil:
    """Set how long a relay may ask further owners, and its end unless its client has set one."""
    if relay.limit_ns == NEVER:
        relay.limit_ns = driver.connections.now_ns + max(<int64_t>READ_TIMEOUT_NS, driver.whole_ns)
    relay.whole_ns = min(driver.connections.now_ns + driver.whole_ns, relay.limit_ns)


cdef void ask_next(RelayDriver driver, Relay* relay) noexcept nogil:
    """Ask the next owner, or pause until the next round."""
    cdef int column = next_to_ask(driver, relay, relay.partition)
    while column >= 0:
        if send_request(driver, relay, column):
            return
        column = next_to_ask(driver, relay, relay.partition)
    rest_relay(driver, relay)


cdef int next_to_ask(RelayDriver driver, Relay* relay, Py_ssize_t partition) noexcept nogil:
    """Return the next owner with a connection and room in its output; -1 if none is left in this round."""
    cdef Connection* connection
    cdef int column
    while relay.tried_count < MAX_TRIED:
        column = driver.peers.next_owner(relay, partition)
        if column < 0:
            break
        connection = driver.peers.connection_of(column)
        if connection == NULL:
            driver.counts[FORWARD_UNCONNECTED] += 1
            relay_note(relay, column, WAS_UNCONNECTED)
            driver.peers.want(column)
        elif buffer_size(&connection.output) >= driver.connections.max_queued:
            note_full(driver, relay, column)
        else:
            return column
    return -1


cdef void note_full(RelayDriver driver, Relay* relay, int column) noexcept nogil:
    """Record that too much output waits for that owner."""
    driver.counts[FORWARD_QUEUE_FULL] += 1
    driver.peers.routes.peers[column].slow = True
    relay_note(relay, column, WAS_FULL)


cdef void rest_relay(RelayDriver driver, Relay* relay) noexcept nogil:
    """Start the next round after a pause that doubles."""
    relay.resting = True
    set_due(driver.relays, relay, min(driver.connections.now_ns + relay.pause_ns, relay.whole_ns))
    relay.pause_ns = min(2 * relay.pause_ns, driver.stage_ns)


cdef bint send_request(RelayDriver driver, Relay* relay, int column) noexcept nogil:
    """Add a request to that peer's output of this round. Return False if out of memory."""
    cdef const WaitReason* reason = reason_of(driver, relay)
    cdef Connection* connection = driver.peers.connection_of(column)
    cdef Attempt* attempt
    cdef Buffer* out = &connection.output
    cdef Py_ssize_t size = relay.whole.subject_size + relay.keys_size + REQUEST_BYTES
    cdef Py_ssize_t before
    if not may_hold(driver.connections, size) or buffer_reserve(out, size) < 0:
        note_full(driver, relay, column)
        return False
    attempt = attempt_begin(driver.relays, relay, &connection.attempts, connection.handle, <uint16_t>column)
    if attempt == NULL:
        relay_note(relay, column, WAS_FULL)
        return False
    attempt.hopeful = driver.peers.routes.peers[column].state < DEAD
    check(
        driver.connections, connection, connection.peer and connection.column == column,
        b"a read asks a peer on the connection to that peer",
    )
    before = out.end
    put_request(out, attempt.id)
    put_text(out, reason.method)
    put(out, 0x93)
    put_bytes(out, relay.whole.body.data + relay.whole.subject_at, relay.whole.subject_size)
    if reason.put_keys != NULL:
        reason.put_keys(out, relay)
    put(out, 0x83)
    put_text(out, b"forwarded")
    put(out, TRUE)
    put_text(out, b"identity")
    put_bin(out, relay.identity, IDENTITY_BYTES)
    put_text(out, b"max_frame")
    put_unsigned(out, <uint64_t>driver.read_limits.max_frame)
    driver.connections.note_output(connection, out.end - before)
    relay_note(relay, column, ASKED_STILL)
    set_due(driver.relays, relay, min(driver.connections.now_ns + driver.stage_ns, relay.whole_ns))
    driver.counts[FORWARD_ATTEMPTS] += 1
    return True


# Next steps ---------------------------------------------------------------------------------------------------


cdef void go_on_with_relays(RelayDriver driver) noexcept nogil:
    """Continue relays after a page read, a refusal or a lost peer. Requires: `out` is empty."""
    cdef PageWait* wait = driver.cold.take(driver.connections.now_ns)
    cdef Relay* relay
    while wait != NULL:
        if wait.scans:
            scans_go_on(&driver.connections.scans, <Scanner*>wait.whose)
        else:
            relay_stir(driver.relays, <Relay*>wait.whose)
        wait = driver.cold.take(driver.connections.now_ns)
    relay = next_restless(driver.relays)
    while relay != NULL:
        reason_of(driver, relay).go_on(driver, relay)
        relay = next_restless(driver.relays)
    driver.cold.pager.submit()


cdef void expire_relays(RelayDriver driver) noexcept nogil:
    """Handle all expired deadlines before any new request, so all silent peers are known. Requires: `out` is empty."""
    cdef Relay* relay = pop_due(driver.relays, driver.connections.now_ns)
    while relay != NULL:
        reason_of(driver, relay).expire(driver, relay)
        relay = pop_due(driver.relays, driver.connections.now_ns)


cdef void expire_asked(RelayDriver driver, Relay* relay) noexcept nogil:
    """Handle the end of a stage, of a pause or of the time limit of a relay that asks other nodes.

    While an answer is arriving no other owner is asked, within the relay's time limit: a large value may take longer
    than a stage. An answer that stalls for a stage counts as silence, and the time for further owners counts from the
    last byte. After that time no other owner is asked, and those that were asked may answer until the limit.
    """
    cdef int64_t now_ns = driver.connections.now_ns
    cdef int64_t heard_ns = reason_of(driver, relay).heard(driver, relay)
    cdef const Attempt* attempt = relay.attempts
    if now_ns >= relay.limit_ns:
        reason_of(driver, relay).give_up(driver, relay)
    elif heard_ns > 0 and now_ns < heard_ns + driver.stage_ns:
        relay.whole.whole_ns = min(max(relay.whole.whole_ns, heard_ns + driver.whole_ns), relay.limit_ns)
        relay.whole_ns = relay.whole.whole_ns
        set_due(driver.relays, relay, min(heard_ns + driver.stage_ns, relay.limit_ns))
    elif now_ns >= relay.whole_ns and not reason_of(driver, relay).is_awaited(driver, relay):
        reason_of(driver, relay).give_up(driver, relay)
    elif now_ns >= relay.whole_ns:
        relay.resting = True
        set_due(driver.relays, relay, min(now_ns + driver.stage_ns, relay.limit_ns))
    elif relay.resting:
        relay.resting = False
        read_for(driver, relay.whole)
        reason_of(driver, relay).begin_round(driver, relay)
    else:
        while attempt != NULL:
            driver.peers.routes.peers[attempt.column].slow = True
            relay_note(relay, attempt.column, WAS_SILENT)
            attempt = attempt.next_of_relay
        driver.counts[FORWARD_SILENCES] += 1
        relay_stir(driver.relays, relay)


cdef bint is_asked(RelayDriver driver, const Relay* relay) noexcept nogil:
    """True if a peer may still answer the relay: it was asked while it was not known as dead."""
    cdef const Attempt* attempt = relay.attempts
    while attempt != NULL and not attempt.hopeful:
        attempt = attempt.next_of_relay
    return attempt != NULL


cdef int64_t last_heard(RelayDriver driver, const Relay* relay) noexcept nogil:
    """Return when bytes of an incomplete answer to the relay last arrived; 0 if no answer has begun."""
    cdef const Attempt* attempt = relay.attempts
    cdef Connection* connection
    cdef Cursor begun
    cdef uint32_t id
    cdef int64_t heard_ns = 0
    while attempt != NULL:
        connection = driver.connections.find(attempt.handle)
        begun = Cursor(connection.input.data + connection.input.start, connection.input.data + connection.input.end)
        if buffer_size(&connection.input) > 0 and take_response(&begun, &id) and id == attempt.id:
            heard_ns = max(heard_ns, connection.received_ns)
        attempt = attempt.next_of_relay
    return heard_ns


cdef void read_for(RelayDriver driver, const Relay* relay) noexcept nogil:
    """Let the next reads be made with the present rights of the relay's client."""
    read_as(driver.published, driver.connections.find(relay.client).user)


# The end ------------------------------------------------------------------------------------------------------


cdef Connection* claim_client(RelayDriver driver, const Relay* relay) noexcept nogil:
    """Return the connection that awaits the answer and stop awaiting. A relay ends with its client, so one exists."""
    cdef Connection* connection = driver.connections.find(relay.client)
    cdef bint awaited = driver.connections.remove_in_flight(connection, relay.msgid)
    cdef uint64_t taken_ns = <uint64_t>(driver.connections.now_ns - relay.begun_ns)
    check(driver.connections, connection, awaited, b"the id of a relay is in flight until it is answered")
    driver.counts[REPLIES] += relay.forwarded
    connection.active_ms = driver.connections.now_ms
    histogram_record(&driver.answered.histogram if relay.forwarded else &driver.answered_here.histogram, taken_ns, 1)
    return connection


cdef void note_damage(
    RelayDriver driver, const Relay* relay, const uint8_t* key, Py_ssize_t key_size
) noexcept nogil:
    """Keep for Python the unreadable record as `[database, key, version]`; `key` is for a subject without one.

    Only one record is kept per round: many reads may meet the same damage.
    """
    cdef Buffer* damaged = &driver.peers.damaged
    cdef Blob version = version_name(relay)
    cdef Py_ssize_t size = relay.subject_size + key_size + version.size + 2 * HEAD_BYTES
    if buffer_size(damaged) > 0 or buffer_reserve(damaged, size) < 0:
        return
    put_array(damaged, 3)
    put_bytes(damaged, relay.body.data + relay.subject_at, relay.subject_size)
    if key_size > 0:
        put_bytes(damaged, key, key_size)
    put_bin(damaged, version.data, version.size)


cdef void hand_back(RelayDriver driver, Relay* relay) noexcept nogil:
    """Let Python answer the request as if it had just arrived: the reply needs knowledge that only Python has."""
    cdef Connection* connection = driver.connections.find(relay.client)
    cdef DatabaseRow* database = database_of(driver, relay)
    cdef const char* method = reason_of(driver, relay).method
    cdef Py_ssize_t size = <Py_ssize_t>strlen(method)
    cdef BacklogRequest* waiting = driver.connections.backlog.put(
        relay.client, relay.msgid, ASKED, relay.begun_ns, size, relay.params_size
    )
    if waiting == NULL:
        driver.connections.doom(connection, CLOSED_MEMORY)
        driver.connections.flush_later(connection)
    else:
        memcpy(request_bytes(waiting), method, size)
        memcpy(request_bytes(waiting) + size, relay.body.data, relay.params_size)
        if database != NULL and relay.forwarded:
            database.counts.asked_again += 1
    relay_end(driver.relays, relay)


cdef void fail_client(RelayDriver driver, uint64_t handle) noexcept nogil:
    """Close a client's connection: there is no memory for its request."""
    cdef Connection* connection = driver.connections.find(handle)
    driver.connections.doom(connection, CLOSED_MEMORY)
    driver.connections.flush_later(connection)
