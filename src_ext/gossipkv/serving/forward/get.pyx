"""Gets that another node answers, for a partition that is not here, or a record that is damaged here.

* The first value or miss of an owner is relayed unchanged, under the client's own id.
* Each new round plans the get again: a version may have been switched, or its partition may have arrived here.
* A damaged local record is requested as if it were missing; Python is told, and examines the damage.
* A local record that is not in memory waits for the disk (`published/cold_gets.pyx`), and may be forwarded in the end.
"""

from libc.string cimport memcmp, memset

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    ENVELOPE_BYTES, Blob, Cursor, Envelope, blob_is, put_answer, put_array, put_bytes, put_nil, put_response,
    take_array, take_bin, take_blob, take_nil, take_str, unsigned_size,
)


cdef int begin_forwarded_get(
    RelayDriver driver, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil:
    """Ask an owner, or wait until one is known. After `UNDER_WAY` the request's id is in flight.

    Return `HAND_OFF` if the record is here but damaged, and no other node may or can be asked.
    """
    cdef Get* get
    if lookup.file != NULL and not may_divert(driver, request.params, lookup):
        return HAND_OFF
    get = keep_get(driver, client, request)
    if get == NULL:
        return OUT_OF_MEMORY
    if set_version(driver, &get.head, lookup) < 0:
        relay_end(driver.relays, &get.head)
        return OUT_OF_MEMORY
    go_elsewhere(driver, &get.head, lookup)
    return UNDER_WAY


cdef int begin_cold_get(
    RelayDriver driver, Connection* client, const Envelope* request, const Lookup* lookup
) noexcept nogil:
    """Read the page that the lookup missed. After `UNDER_WAY` the request's id is in flight."""
    cdef Get* get = keep_get(driver, client, request)
    if get == NULL:
        return OUT_OF_MEMORY
    driver.counts[COLD_READS] += 1
    wait_for_page(driver, get, lookup.file)
    return UNDER_WAY


cdef inline int keep_params(Relay* relay, const Cursor* params) noexcept nogil:
    """Copy the parameters, since their buffer is reused."""
    cdef Cursor ahead = params[0]
    cdef Blob unused
    if buffer_append(&relay.body, params.at, params.end - params.at) < 0:
        return -1
    relay.params_size = params.end - params.at
    take_array(&ahead)
    relay.subject_at = ahead.at - params.at
    take_blob(&ahead, &unused)
    take_blob(&ahead, &unused)
    relay.subject_size = ahead.at - params.at - relay.subject_at
    return 0


cdef Get* keep_get(RelayDriver driver, Connection* client, const Envelope* request) noexcept nogil:
    """Create the relay of a get that is not answered at once, with its parameters; NULL if out of memory."""
    cdef Cursor params = request.params
    cdef ReadOptions options
    cdef Relay* relay = relay_begin(driver.relays, READ, &client.relays)
    if relay == NULL:
        return NULL
    if keep_params(relay, &params) < 0:
        relay_end(driver.relays, relay)
        return NULL
    relay_note_size(driver.relays, relay)
    take_array(&params)
    params.at += relay.subject_size
    take_options(&params, 2 + (params.at < params.end), False, &options)
    relay.client = client.handle
    relay.msgid = request.msgid
    relay.begun_ns = client.received_ns
    set_limits(relay, &options)
    (<Get*>relay).explain = options.explain
    return <Get*>relay


cdef void go_elsewhere(RelayDriver driver, Relay* relay, const Lookup* lookup) noexcept nogil:
    """Ask an owner instead of reading here."""
    relay.kind = READ
    limit_asking(driver, relay)
    if not relay.forwarded:  # The get may have waited for the disk since it was first forwarded.
        relay.forwarded = True
        driver.counts[FORWARDED] += 1
        count_forwarded(lookup.version, lookup.by_name)
    if lookup.file != NULL:
        note_damage(driver, relay, NULL, 0)
    ask_next(driver, relay)


cdef bint may_divert(RelayDriver driver, Cursor params, const Lookup* lookup) noexcept nogil:
    """True if other nodes may and can be asked for a record that is damaged here."""
    cdef ReadOptions options
    cdef Blob unused
    cdef const VersionRow* version = driver.published.plan(&params, &unused, &options, False)
    return may_go_elsewhere(version, &options) and driver.peers.is_held(version.identity, lookup.partition)


cdef void look_up_again(RelayDriver driver, Relay* relay) noexcept nogil:
    """Repeat the lookup in the present table, since a needed page was read."""
    cdef Cursor params = Cursor(relay.body.data, relay.body.data + relay.params_size)
    cdef Lookup lookup
    cdef int outcome
    read_for(driver, relay)
    outcome = driver.published.begin_get(params, &driver.read_limits, &lookup)
    relay.rounds += 1
    if outcome == ANSWERED and answer_here(driver, relay, &lookup):
        return
    if outcome == HAND_OFF or set_version(driver, relay, &lookup) < 0:
        hand_back(driver, relay)
        return
    go_elsewhere(driver, relay, &lookup)  # The partition is elsewhere by now, or damaged here.


cdef void go_on_with_get(RelayDriver driver, Relay* relay) noexcept nogil:
    if driver.connections.now_ns >= relay.whole_ns:  # Give up, unless another owner may still answer.
        set_due(driver.relays, relay, driver.connections.now_ns)
    elif not relay.resting:
        ask_next(driver, relay)


cdef void begin_get_round(RelayDriver driver, Relay* relay) noexcept nogil:
    """Plan the get again, by the present table and holders, and ask all owners again except those still silent."""
    cdef Cursor params = Cursor(relay.body.data, relay.body.data + relay.params_size)
    cdef Lookup lookup
    cdef int outcome
    outcome = driver.published.begin_get(params, &driver.read_limits, &lookup)
    relay.rounds += 1
    relay.tried_count = 0
    driver.counts[FORWARD_ROUNDS] += 1
    if outcome == ANSWERED and answer_here(driver, relay, &lookup):
        return
    if outcome == HAND_OFF:
        hand_back(driver, relay)
    elif set_version(driver, relay, &lookup) == 0:
        relay_stir(driver.relays, relay)
    else:
        hand_back(driver, relay)


cdef bint answer_here(RelayDriver driver, Relay* relay, Lookup* lookup) noexcept nogil:
    """Answer a read of a local partition. Return False if other nodes must be asked. Requires: `out` is empty."""
    cdef Buffer* out = &driver.connections.out
    cdef Connection* connection
    cdef int outcome
    driver.published.fetch_record(lookup)
    outcome = driver.published.end_get(
        lookup, relay.msgid, &driver.read_limits, &driver.own_name, is_patient(<Get*>relay), out
    )
    if outcome == COLD:
        wait_for_page(driver, <Get*>relay, lookup.file)
        return True
    if outcome == DAMAGED and driver.peers.is_held(lookup.version.identity, lookup.partition):
        return False
    if outcome == HAND_OFF or outcome == DAMAGED:
        hand_back(driver, relay)
        return True
    connection = claim_client(driver, relay)
    if outcome == OUT_OF_MEMORY:
        driver.connections.doom(connection, CLOSED_MEMORY)
    elif relay.forwarded:
        lookup.version.database.counts.asked_again += 1
    else:
        driver.counts[GETS] += 1
        driver.counts[KEYS_READ] += 1
    relay_end(driver.relays, relay)
    driver.connections.hold_output(connection, 0)
    driver.connections.flush_later(connection)
    driver.connections.sent(connection, 0)
    return True


cdef void pass_answer(
    RelayDriver driver, Relay* relay, const Cursor* answer, bint refused, int column
) noexcept nogil:
    """Send the client the owner's answer, under the client's id."""
    cdef Connection* connection = claim_client(driver, relay)
    cdef const Blob* node = &driver.peers.routes.peers[column].name
    cdef bint explained = not refused and (<Get*>relay).explain
    cdef Py_ssize_t frame_size = answer.end - answer.at + ENVELOPE_BYTES + unsigned_size(relay.msgid)
    cdef Buffer* out = &connection.output
    cdef Py_ssize_t before
    if explained:
        frame_size += explanation_bytes(node)
    count_answer(driver, relay, answer[0], refused)
    if not driver.connections.make_room(connection, frame_size) or buffer_reserve(out, frame_size) < 0:
        driver.connections.doom(connection, CLOSED_MEMORY)
    elif not connection.doomed:
        before = buffer_size(out)
        if explained:
            put_explained(driver, out, relay, answer[0], node)
        else:
            put_response(out, relay.msgid)
            if not refused:
                put_nil(out)
            put_bytes(out, answer.at, answer.end - answer.at)
            if refused:
                put_nil(out)
        driver.connections.note_output(connection, buffer_size(out) - before)
    relay_end(driver.relays, relay.whole)
    driver.connections.flush_later(connection)
    driver.connections.sent(connection, 0)


cdef void put_explained(
    RelayDriver driver, Buffer* out, const Relay* relay, Cursor result, const Blob* node
) noexcept nogil:
    """Write the owner's answer and its name, which the owner's answer lacks: only this node was asked to explain.

    Requires: `is_value`, and there is room.
    """
    cdef Py_ssize_t before = out.end
    put_answer(out, relay.msgid)
    take_array(&result)
    put_array(out, 3)
    put_bytes(out, result.at, result.end - result.at)
    put_explanation(out, node, 0)
    if out.end - before > driver.read_limits.max_frame:
        out.end = before
        refuse_too_large(
            out, relay.msgid, b"the value does not fit into an answer", driver.read_limits.max_frame, -1
        )


cdef void count_answer(RelayDriver driver, const Relay* relay, Cursor result, bint refused) noexcept nogil:
    """Count the answer of an owner, `[value or nil, version]` or an error."""
    cdef DatabaseRow* database = database_of(driver, relay)
    if database != NULL and refused:
        database.counts.errors += 1
    elif database != NULL and take_array(&result) > 0:
        count_value(&database.counts, result)


cdef void take_value(RelayDriver driver, Relay* relay, Cursor result, int column) noexcept nogil:
    pass_answer(driver, relay, &result, False, column)


cdef void give_get_up(RelayDriver driver, Relay* relay) noexcept nogil:
    cdef Blob nothing = Blob(NULL, 0)
    report_unanswered(driver, relay, relay.partition, &nothing)


cdef void refuse_read(
    RelayDriver driver, Relay* relay, const Blob* code, const Cursor* error, int column
) noexcept nogil:
    """Ask the next owner, unless all owners would refuse in the same way."""
    cdef AttemptOutcome outcome = outcome_of(code)
    if blob_is(code, b"TOO_LARGE", 9):
        pass_answer(driver, relay, error, True, column)
        return
    driver.counts[counter_of(outcome)] += 1
    if outcome == SAID_OVERLOADED:
        driver.peers.routes.peers[column].slow = True
    elif outcome == SAID_NOT_SERVED:
        driver.peers.note_not_served(column, error)
    relay_note(relay, column, outcome)
    relay_stir(driver.relays, relay)


cdef inline AttemptOutcome outcome_of(const Blob* code) noexcept nogil:
    """Return the outcome that an error means for the read."""
    if blob_is(code, b"NOT_SERVED", 10):
        return SAID_NOT_SERVED
    if blob_is(code, b"NOT_READY", 9):
        return SAID_NOT_READY
    if blob_is(code, b"UNKNOWN_VERSION", 15):
        return SAID_UNKNOWN_VERSION
    if blob_is(code, b"CORRUPT", 7):
        return SAID_CORRUPT
    return SAID_OVERLOADED if blob_is(code, b"OVERLOADED", 10) else SAID_OTHERWISE


cdef inline int counter_of(AttemptOutcome outcome) noexcept nogil:
    if outcome == SAID_NOT_SERVED:
        return FORWARD_NOT_SERVED
    if outcome == SAID_NOT_READY:
        return FORWARD_NOT_READY
    if outcome == SAID_UNKNOWN_VERSION:
        return FORWARD_UNKNOWN_VERSION
    if outcome == SAID_CORRUPT:
        return FORWARD_CORRUPT
    return FORWARD_OVERLOADED if outcome == SAID_OVERLOADED else FORWARD_REFUSED


cdef bint is_value(const Relay* relay, Cursor result) noexcept nogil:
    """True if the result is `[value or nil, version]` with the requested version, and nothing else."""
    cdef Blob unused
    return (
        take_array(&result) == 2
        and (take_nil(&result) or take_bin(&result, &unused))
        and is_version_asked(relay, result)
    )


cdef bint is_version_asked(const Relay* relay, Cursor result) noexcept nogil:
    """True if the rest is the requested version, and nothing else."""
    cdef Blob asked = version_name(relay)
    cdef Blob version
    return (
        take_str(&result, &version)
        and result.at == result.end
        and version.size == asked.size
        and memcmp(version.data, asked.data, asked.size) == 0
    )

cdef WaitReason owner_reason() noexcept nogil:
    """Return the steps of a get for a partition on other nodes."""
    cdef WaitReason reason
    memset(&reason, 0, sizeof(WaitReason))
    reason.body.size = sizeof(Get)
    reason.body.release = release_get
    reason.method = b"get"
    reason.go_on = go_on_with_get
    reason.expire = expire_asked
    reason.heard = last_heard
    reason.is_awaited = is_asked
    reason.begin_round = begin_get_round
    reason.give_up = give_get_up
    reason.is_answer = is_value
    reason.take = take_value
    reason.refuse = refuse_read
    return reason


cdef WaitReason disk_reason() noexcept nogil:
    """Return the steps of a get that waits for a page; an owner asked before may still answer the get."""
    cdef WaitReason reason = owner_reason()
    reason.go_on = look_up_again
    reason.expire = refuse_slow
    return reason
