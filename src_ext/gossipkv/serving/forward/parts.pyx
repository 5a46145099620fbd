"""Parts of batches: the keys that one owner is asked for, in one request.

    batch ──> parts ──> an owner answers: its values find their places ──> the last one has the batch go on
               ^  │
               └──┘ it refuses, is lost or silent: its keys are divided anew among the next owners

A part that begins a new round restarts the whole batch if the version has changed, or if a key is local by then.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve
from gossipkv.wire._wire cimport Blob, Cursor, put_array, put_bytes, take_array, take_bin, take_nil

cdef enum:
    # Bytes of keys in one request to an owner, which bound the request and its answer.
    PART_BYTES = 65536
    # Keys in one request: it has fewer elements than the least `max_elements` of a node.
    PART_KEYS = 8192

cdef struct BatchPart:  # the keys of a batch that one owner is asked for
    Relay head
    int column  # the owner's column
    bint passed_on  # next owners were asked for its keys; its own owner may still answer


cdef inline GetMany* batch_of(const BatchPart* part) noexcept nogil:
    return <GetMany*>part.head.whole


cdef inline Py_ssize_t key_count(const BatchPart* part) noexcept nogil:
    return part.head.body.end // <Py_ssize_t>sizeof(uint32_t)


cdef inline RemoteKey* remote_key_of(const BatchPart* part, Py_ssize_t number) noexcept nogil:
    """Return the place of a part's key."""
    return &remote_keys_of(batch_of(part))[(<const uint32_t*>part.head.body.data)[number]]


cdef inline const RemoteKey* first_missing(const BatchPart* part) noexcept nogil:
    """Return the place of the part's first missing value; NULL for none."""
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        if remote_key_of(part, i).size == MISSING_VALUE:
            return remote_key_of(part, i)
    return NULL


cdef inline bint asks_for(const BatchPart* part, const RemoteKey* place) noexcept nogil:
    """True if the part has the key of that place."""
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        if remote_key_of(part, i) == place:
            return True
    return False


cdef inline bint add_key(BatchPart* part, uint32_t place) noexcept nogil:
    """Add a key to the part; False if out of memory."""
    part.head.keys_size += remote_keys_of(batch_of(part))[place].key_size
    return buffer_append(&part.head.body, <const uint8_t*>&place, sizeof(uint32_t)) == 0


cdef void put_keys(Buffer* out, const Relay* relay) noexcept nogil:
    """Write the part's keys as the client sent them."""
    cdef const BatchPart* part = <const BatchPart*>relay
    cdef const RemoteKey* place
    cdef Py_ssize_t i
    put_array(out, key_count(part))
    for i in range(key_count(part)):
        place = remote_key_of(part, i)
        put_bytes(out, batch_of(part).head.body.data + place.key_at, place.key_size)


cdef inline bint is_any_here(const BatchPart* part, const VersionRow* version) noexcept nogil:
    """True if the partition of any of its keys is now local, and not known as damaged."""
    cdef const RemoteKey* place
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        place = remote_key_of(part, i)
        if version.files[place.partition] != NULL and not place.damaged:
            return True
    return False


cdef inline void note_silent(BatchPart* part) noexcept nogil:
    """Mark owners that may still answer this part, or an earlier one with its keys, as asked."""
    cdef const RemoteKey* place = first_missing(part)
    cdef const BatchPart* other = <const BatchPart*>batch_of(part).parts.first
    while other != NULL:
        if other.head.attempts != NULL and (other == part or other.passed_on and asks_for(other, place)):
            relay_note(&part.head, other.head.attempts.column, WAS_SILENT)
        other = <const BatchPart*>other.head.next


cdef bint are_values(const Relay* relay, Cursor result) noexcept nogil:
    """True if the result is `[[value or nil, ...], version]`, with a value for each key of the part."""
    cdef Blob unused
    cdef Py_ssize_t left = key_count(<const BatchPart*>relay)
    if take_array(&result) != 2 or take_array(&result) != left:
        return False
    while left > 0:
        if not take_nil(&result) and not take_bin(&result, &unused):
            return False
        left -= 1
    return is_version_asked(relay, result)


cdef int ask_for_rest(RelayDriver driver, GetMany* batch) noexcept nogil:
    """Ask for the keys that are elsewhere. Return `UNDER_WAY` or `OUT_OF_MEMORY`."""
    cdef BatchPart* part = begin_part(driver, &batch.head)
    cdef uint32_t i
    if part == NULL:
        return OUT_OF_MEMORY
    for i in range(remote_key_count(batch)):
        if not add_key(part, i):
            return OUT_OF_MEMORY
    return UNDER_WAY if divide(driver, part) == 0 else OUT_OF_MEMORY


cdef BatchPart* begin_part(RelayDriver driver, const Relay* before) noexcept nogil:
    """Create a part with the tried owners of the part `before`, or a batch's first part; NULL if out of memory."""
    cdef GetMany* batch = <GetMany*>before.whole
    cdef BatchPart* part = <BatchPart*>relay_begin(driver.relays, PART, &batch.parts)
    if part == NULL:
        return NULL
    part.head.whole = &batch.head
    part.head.client = batch.head.client
    part.head.msgid = batch.head.msgid
    memcpy(part.head.identity, batch.head.identity, IDENTITY_BYTES)
    part.head.begun_ns = batch.head.begun_ns
    part.head.limit_ns = batch.head.limit_ns
    part.head.whole_ns = batch.head.whole_ns
    part.head.pause_ns = before.pause_ns
    part.head.rounds = before.rounds
    part.head.tried_count = before.tried_count
    memcpy(part.head.tried, before.tried, before.tried_count * sizeof(AskedOwner))
    return part


cdef void pass_on(RelayDriver driver, Relay* relay) noexcept nogil:
    """Ask the next owners for the part's keys, since its owner has refused, is gone or silent."""
    cdef BatchPart* part = <BatchPart*>relay
    if part.passed_on:
        if part.head.attempts == NULL:
            relay_end(driver.relays, &part.head)
    elif driver.connections.now_ns >= part.head.whole_ns:
        set_due(driver.relays, relay, driver.connections.now_ns)
    elif divide(driver, part) < 0:
        fail_client(driver, part.head.client)


cdef int divide(RelayDriver driver, BatchPart* part) noexcept nogil:
    """Ask the next owner of each missing key, in as few new parts as possible; -1 if out of memory.

    The keys without a further owner form a part that pauses. The old part ends, unless its owner may still answer.
    """
    cdef BatchPart* before = <BatchPart*>batch_of(part).parts.first
    cdef BatchPart* group = NULL
    cdef BatchPart* ahead
    cdef BatchPart* resting = NULL
    cdef Py_ssize_t i
    cdef int column
    cdef int result = 0
    for i in range(key_count(part)):
        if remote_key_of(part, i).size != MISSING_VALUE:
            continue
        column = next_to_ask(driver, &part.head, remote_key_of(part, i).partition)
        group = <BatchPart*>driver.peers.routes.peers[column].gathering if column >= 0 else resting
        if group == NULL or group.head.keys_size >= PART_BYTES or key_count(group) == PART_KEYS:
            group = begin_part(driver, &part.head)
            if group == NULL:
                result = -1
                break
            group.column = column
            if column >= 0:
                driver.peers.routes.peers[column].gathering = &group.head
            else:
                resting = group
        if not add_key(group, (<const uint32_t*>part.head.body.data)[i]):
            result = -1
            break
    part.passed_on = True
    group = <BatchPart*>batch_of(part).parts.first
    while group != before:
        ahead = <BatchPart*>group.head.next
        if group.column >= 0:
            driver.peers.routes.peers[group.column].gathering = NULL
        if result == 0:
            relay_note_size(driver.relays, &group.head)
            if group.column < 0:
                rest_relay(driver, &group.head)
            elif not send_request(driver, &group.head, group.column):
                relay_stir(driver.relays, &group.head)
        group = ahead
    if part.head.attempts == NULL:
        relay_end(driver.relays, &part.head)
    else:
        batch_of(part).hedged = True
    return result


cdef void begin_part_round(RelayDriver driver, Relay* relay) noexcept nogil:
    """Ask the owners of a part's keys again, unless the whole batch must be planned again, being from one version."""
    cdef BatchPart* part = <BatchPart*>relay
    cdef GetMany* batch = batch_of(part)
    cdef Cursor params = Cursor(batch.head.body.data, batch.head.body.data + batch.head.params_size)
    cdef ReadOptions options
    cdef Blob unused
    cdef VersionRow* version = driver.published.plan(&params, &unused, &options, True)
    part.head.rounds += 1
    part.head.tried_count = 0
    driver.counts[FORWARD_ROUNDS] += 1
    if version == NULL:
        hand_back(driver, &batch.head)
    elif memcmp(version.identity, batch.head.identity, IDENTITY_BYTES) == 0 and not is_any_here(part, version):
        note_silent(part)
        relay_stir(driver.relays, &part.head)
    else:
        reason_of(driver, relay.whole).begin_round(driver, relay.whole)


cdef int64_t last_heard_of_part(RelayDriver driver, const Relay* relay) noexcept nogil:
    """Return when a partial answer to the part, or to a part that it continues, last grew; 0 if none has begun."""
    cdef const BatchPart* part = <const BatchPart*>relay
    cdef const BatchPart* other
    cdef int64_t heard_ns = last_heard(driver, relay)
    other = <const BatchPart*>batch_of(part).parts.first if batch_of(part).hedged else NULL
    while other != NULL:
        if other.passed_on and asks_for(other, first_missing(part)):
            heard_ns = max(heard_ns, last_heard(driver, &other.head))
        other = <const BatchPart*>other.head.next
    return heard_ns


cdef bint is_part_awaited(RelayDriver driver, const Relay* relay) noexcept nogil:
    """True if a peer may still answer the part, or a part that it continues."""
    cdef const BatchPart* part = <const BatchPart*>relay
    cdef const BatchPart* other = <const BatchPart*>batch_of(part).parts.first
    while not is_asked(driver, relay) and other != NULL:
        if other.passed_on and is_asked(driver, &other.head) and asks_for(other, first_missing(part)):
            return True
        other = <const BatchPart*>other.head.next
    return is_asked(driver, relay)


cdef void give_part_up(RelayDriver driver, Relay* relay) noexcept nogil:
    """Give up the part's batch, with a report on its first missing key."""
    cdef const RemoteKey* place = first_missing(<const BatchPart*>relay)
    cdef Blob key = Blob(NULL, 0)
    if place != NULL:
        key = Blob(relay.whole.body.data + place.key_at, place.key_size)
    report_unanswered(driver, relay, place.partition if place != NULL else 0, &key)


cdef void take_values(RelayDriver driver, Relay* relay, Cursor result, int column) noexcept nogil:
    """Store the values of a part in their places; the last part completes the batch. Requires: `are_values`."""
    cdef BatchPart* part = <BatchPart*>relay
    cdef GetMany* batch = batch_of(part)
    cdef BatchPart* other
    cdef BatchPart* ahead
    cdef const uint8_t* begin
    cdef RemoteKey* place
    cdef Blob unused
    cdef Py_ssize_t i
    if buffer_reserve(&batch.values, result.end - result.at) < 0:
        fail_client(driver, batch.head.client)
        return
    take_array(&result)
    take_array(&result)
    for i in range(key_count(part)):
        begin = result.at
        if not take_nil(&result):
            take_bin(&result, &unused)
        place = remote_key_of(part, i)
        if place.size == MISSING_VALUE:
            place.at = batch.values.end
            place.size = result.at - begin
            put_bytes(&batch.values, begin, place.size)
            batch.missing -= 1
    relay_end(driver.relays, &part.head)
    relay_note_size(driver.relays, &batch.head)
    if batch.missing == 0 or batch.values.end > driver.read_limits.max_frame:
        reason_of(driver, &batch.head).go_on(driver, &batch.head)
        return
    other = <BatchPart*>batch.parts.first if batch.hedged else NULL
    while other != NULL:
        ahead = <BatchPart*>other.head.next
        if first_missing(other) == NULL:
            relay_end(driver.relays, &other.head)
        other = ahead


cdef WaitReason key_owner_reason() noexcept nogil:
    """Return the steps of a part."""
    cdef WaitReason reason
    memset(&reason, 0, sizeof(WaitReason))
    reason.body.size = sizeof(BatchPart)
    reason.method = b"get_many"
    reason.put_keys = put_keys
    reason.go_on = pass_on
    reason.expire = expire_asked
    reason.heard = last_heard_of_part
    reason.is_awaited = is_part_awaited
    reason.begin_round = begin_part_round
    reason.give_up = give_part_up
    reason.is_answer = are_values
    reason.take = take_values
    reason.refuse = refuse_read
    return reason
