"""Batches that are read in slices, or with keys that other nodes are asked for.

A batch first reads its local keys, in slices if they are much work (`published/batches.pyx`, `scan/scans.pyx`). Then it
asks for the rest in parts (`parts.pyx`). Its parts complete it with the last answer, or start it again.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, Cursor, Envelope, put_bytes, put_str, take_array, take_blob

cdef enum:
    # A finished batch leaves this much memory of values to the next one: fresh memory for each batch costs more than
    # reading its values.
    SPARE_VALUES_BYTES = 4 * 1024 * 1024


cdef inline void swap_buffers(Buffer* one, Buffer* other) noexcept nogil:
    cdef Buffer kept = one[0]
    one[0] = other[0]
    other[0] = kept


cdef inline Py_ssize_t expected_bytes(const BatchRead* reading) noexcept nogil:
    """Estimate the bytes of a batch's values from the version's mean value."""
    return min(reading.count * (reading.version.mean_value + HEAD_BYTES) + 4 * HEAD_BYTES, reading.max_frame)


cdef GetMany* begin_batch(RelayDriver driver, Connection* client, const Envelope* request) noexcept nogil:
    """Create a batch, with its id in flight; NULL if out of memory."""
    cdef GetMany* batch = <GetMany*>relay_begin(driver.relays, BATCH, &client.relays)
    if batch == NULL:
        return NULL
    batch.parts.above = batch.head.owner
    batch.head.client = client.handle
    batch.head.msgid = request.msgid
    batch.head.begun_ns = client.received_ns
    batch.head.subject_at = batch.head.subject_size = 0
    if buffer_append(&batch.head.body, request.params.at, request.params.end - request.params.at) < 0:
        relay_end(driver.relays, &batch.head)
        return NULL
    batch.head.params_size = batch.head.body.end
    relay_note_size(driver.relays, &batch.head)
    return batch


cdef int queue_batch(RelayDriver driver, Connection* client, GetMany* batch) noexcept nogil:
    """Queue the batch to be read from its beginning; until its turn it holds only its parameters."""
    forget_read(driver.relays, batch)
    relay_note_size(driver.relays, &batch.head)
    return scans_queue(&driver.connections.scans, &client.scanner, batch)


cdef void hold_table(GetMany* batch, PublishedTable table) noexcept nogil:
    """Read from that table; its files stay until `let_table_go`."""
    batch.table = <PyObject*>table
    table.readers += 1


cdef void let_table_go(GetMany* batch) noexcept nogil:
    """Release the table, at the end or before a pause."""
    if batch.table != NULL:
        let_go(<PublishedTable>batch.table)
        batch.table = NULL


cdef void keep_spare(Relays* relays, Buffer* values) noexcept nogil:
    """Keep a used buffer for the values of the next batch, or free it."""
    values.start = values.end = 0
    if relays.spare.capacity < values.capacity <= SPARE_VALUES_BYTES:
        buffer_release(&relays.spare)
        relays.spare = values[0]
        buffer_init(values)
    buffer_release(values)


cdef void forget_read(Relays* relays, GetMany* batch) noexcept nogil:
    let_table_go(batch)
    keep_spare(relays, &batch.values)
    buffer_release(&batch.places)


cdef void release_batch(Relays* relays, Relay* relay) noexcept nogil:
    relays_drop(relays, &(<GetMany*>relay).parts)
    forget_read(relays, <GetMany*>relay)


cdef Py_ssize_t more_of_batch(const Relay* relay) noexcept nogil:
    return (<const GetMany*>relay).values.end + (<const GetMany*>relay).places.end


cdef void ask_disk(RelayDriver driver, GetMany* batch, PageWait* wait) noexcept nogil:
    """Read the missing pages of the current and the next keys."""
    read_cold(&batch.reading, &driver.read_limits, driver.cold, wait, batch.table)


cdef int read_batch(RelayDriver driver, GetMany* batch, int64_t* work, Buffer* out) noexcept nogil:
    """Read local keys until the work budget is used. Return `UNDER_WAY` if the batch must continue.

    `COLD` means the same, after the pages of `ask_disk` were read. With any other outcome the reading has ended: the
    batch is answered, has failed, or other nodes are asked for the missing keys. The answer is in `out`, or, if `out`
    is NULL, in the connection's output.
    """
    cdef int outcome = read_on(driver, batch, work)
    batch.here_bytes = batch.values.end
    batch.missing = remote_key_count(batch)
    relay_note_size(driver.relays, &batch.head)
    if outcome == ANSWERED and batch.missing == 0:
        answer_batch(driver, batch, out)
    elif outcome == ANSWERED:
        count_asking(driver, batch)
        let_table_go(batch)
        if ask_for_rest(driver, batch) == OUT_OF_MEMORY:
            fail_client(driver, batch.head.client)
    elif outcome == REFUSED_SIZE:
        refuse_batch(driver, batch, out)
    elif outcome == OUT_OF_MEMORY:
        fail_client(driver, batch.head.client)
    elif outcome != UNDER_WAY and outcome != COLD:
        hand_back(driver, &batch.head)
    return outcome


cdef int open_batch(RelayDriver driver, GetMany* batch) noexcept nogil:
    """Choose the version for the whole batch, and hold its table."""
    cdef BatchRead* reading = &batch.reading
    cdef Cursor ahead = Cursor(batch.head.body.data, batch.head.body.data + batch.head.params_size)
    cdef ReadOptions options
    cdef Blob unused
    cdef Py_ssize_t keys_at
    cdef int outcome = plan_reading(driver.published, ahead, &driver.read_limits, reading, &options)
    if outcome != ANSWERED:
        return outcome
    set_limits(&batch.head, &options)
    take_array(&ahead)
    batch.head.subject_at = ahead.at - reading.params
    take_blob(&ahead, &unused)
    batch.head.subject_size = ahead.at - reading.params - batch.head.subject_at
    keys_at = reading.keys.at - reading.params
    memcpy(batch.head.identity, reading.version.identity, IDENTITY_BYTES)
    batch.head.body.end = batch.head.params_size
    if buffer_append(&batch.head.body, reading.version.name.data, reading.version.name.size) < 0:
        return OUT_OF_MEMORY
    reading.params = batch.head.body.data  # The append may have moved the buffer.
    reading.keys = Cursor(batch.head.body.data + keys_at, batch.head.body.data + batch.head.params_size)
    batch.values = driver.relays.spare
    buffer_init(&driver.relays.spare)
    if buffer_reserve(&batch.values, expected_bytes(reading)) < 0:
        return OUT_OF_MEMORY
    hold_table(batch, driver.published)
    return begin_reading(reading, batch.head.msgid, &batch.values)


cdef int read_on(RelayDriver driver, GetMany* batch, int64_t* work) noexcept nogil:
    """Continue the reading, and handle damaged keys."""
    cdef BatchRead* reading = &batch.reading
    cdef const RemoteKey* damaged
    cdef Py_ssize_t left
    cdef uint32_t places
    cdef int outcome = ANSWERED
    if batch.table == NULL:
        outcome = open_batch(driver, batch)
    while outcome == ANSWERED:
        left = reading.left
        places = remote_key_count(batch)
        outcome = read_keys(
            reading, &driver.read_limits, &batch.values, &batch.places if reading.may_ask else NULL, work
        )
        driver.counts[KEYS_READ] += <uint64_t>(left - reading.left) - (remote_key_count(batch) - places)
        if outcome != DAMAGED or not reading.may_ask or not driver.peers.is_held(
            batch.head.identity, reading.partition
        ):
            break
        outcome = pass_over(reading, &batch.values, &batch.places)
        if outcome == ANSWERED:
            damaged = &remote_keys_of(batch)[remote_key_count(batch) - 1]
            note_damage(driver, &batch.head, batch.head.body.data + damaged.key_at, damaged.key_size)
    return outcome


cdef void count_asking(RelayDriver driver, GetMany* batch) noexcept nogil:
    """Count the batch as forwarded, once, and set its time limits."""
    cdef VersionRow* version = driver.published.heir_of(batch.reading.version)
    if not batch.head.forwarded:
        batch.head.forwarded = True
        limit_asking(driver, &batch.head)
        driver.counts[FORWARDED] += 1
        if version != NULL:
            count_forwarded(version, batch.reading.by_name)


cdef void refuse_batch(RelayDriver driver, GetMany* batch, Buffer* out) noexcept nogil:
    cdef Buffer error
    buffer_init(&error)
    if refuse_reading(&batch.reading, batch.head.msgid, &driver.read_limits, &error) == OUT_OF_MEMORY:
        fail_client(driver, batch.head.client)
    else:
        driver.counts[REPLIES_TOO_LARGE] += 1
        count_read(driver, batch, True)
        give_answer(driver, batch, &error, out)


cdef void read_again(RelayDriver driver, Relay* relay) noexcept nogil:
    """Read the batch from its beginning: at once if the work budget allows, else in its turn."""
    cdef GetMany* batch = <GetMany*>relay
    cdef int outcome
    relays_drop(driver.relays, &batch.parts)
    forget_read(driver.relays, batch)
    batch.hedged = False
    outcome = read_batch(driver, batch, &driver.connections.work, NULL)
    if (outcome == UNDER_WAY or outcome == COLD) and (
        queue_batch(driver, driver.connections.find(batch.head.client), batch) < 0
    ):
        fail_client(driver, batch.head.client)


cdef void answer_batch(RelayDriver driver, GetMany* batch, Buffer* out) noexcept nogil:
    """Answer with the values in the order of the keys, or refuse them as too large.

    If all keys were local, `values` already is the answer.
    """
    cdef Buffer answer
    cdef bint refused
    cdef int outcome = ANSWERED
    buffer_init(&answer)
    if remote_key_count(batch) == 0:
        outcome = end_reading(&batch.reading, &batch.values)
        swap_buffers(&answer, &batch.values)
    elif batch.missing == 0:
        outcome = put_values(driver, batch, &answer)
    if outcome == OUT_OF_MEMORY:
        buffer_release(&answer)
        fail_client(driver, batch.head.client)
        return
    refused = batch.missing > 0 or answer.end > batch.reading.max_frame
    count_read(driver, batch, refused)
    if refused:
        answer.end = 0
        outcome = refuse_reading(&batch.reading, batch.head.msgid, &driver.read_limits, &answer)
    if outcome == OUT_OF_MEMORY:
        buffer_release(&answer)
        fail_client(driver, batch.head.client)
    else:
        give_answer(driver, batch, &answer, out)


cdef int put_values(RelayDriver driver, GetMany* batch, Buffer* out) noexcept nogil:
    """Merge the values of other nodes into their places among the local ones. Return `ANSWERED` or `OUT_OF_MEMORY`.

    Requires: no value is missing.
    """
    cdef Blob version = version_name(&batch.head)
    cdef const RemoteKey* place
    cdef Py_ssize_t at = 0
    cdef uint32_t i
    if buffer_reserve(out, batch.values.end + version.size + HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    for i in range(remote_key_count(batch)):
        place = &remote_keys_of(batch)[i]
        put_bytes(out, batch.values.data + at, place.slot - at)
        put_bytes(out, batch.values.data + place.at, place.size)
        at = place.slot
    put_bytes(out, batch.values.data + at, batch.here_bytes - at)
    put_str(out, version.data, version.size)
    return ANSWERED


cdef void give_answer(RelayDriver driver, GetMany* batch, Buffer* answer, Buffer* out) noexcept nogil:
    """Send the client the answer, which is copied only behind an earlier one."""
    cdef Connection* connection = claim_client(driver, &batch.head)
    cdef Py_ssize_t size = answer.end
    cdef Py_ssize_t before = buffer_size(&connection.output)
    cdef Buffer* into = out if out != NULL else &connection.output
    cdef bint fits
    relay_end(driver.relays, &batch.head)
    fits = not connection.doomed and (out != NULL or driver.connections.make_room(connection, size))
    if fits and buffer_size(into) == 0:
        swap_buffers(into, answer)
    elif not fits or buffer_append(into, answer.data, size) < 0:
        driver.connections.doom(connection, CLOSED_MEMORY)
    keep_spare(driver.relays, answer)
    if out == NULL:
        driver.connections.note_output(connection, buffer_size(&connection.output) - before)
        driver.connections.flush_later(connection)
        driver.connections.sent(connection, 0)


cdef void count_read(RelayDriver driver, const GetMany* batch, bint refused) noexcept nogil:
    """Count a batch and its hits in the present table, or count its refusal."""
    cdef VersionRow* version
    if batch.head.forwarded:
        count_values(driver, batch, refused)
        return
    driver.counts[GET_MANYS] += 1
    version = driver.published.heir_of(batch.reading.version)
    if version != NULL and refused:
        count_refused(version, batch.reading.by_name)
    elif version != NULL:
        count_reading(version, &batch.reading)


cdef void count_values(RelayDriver driver, const GetMany* batch, bint refused) noexcept nogil:
    """Count the local and forwarded values of a batch, or count its refusal."""
    cdef DatabaseRow* database = database_of(driver, &batch.head)
    cdef const BatchRead* reading = &batch.reading
    cdef const uint8_t* at
    cdef uint32_t i
    if database != NULL and refused:
        database.counts.errors += 1
    elif database != NULL:
        database.counts.hits += reading.hits
        database.counts.misses += <uint64_t>(reading.count - remote_key_count(batch)) - reading.hits
        database.counts.value_bytes += reading.value_bytes
        for i in range(remote_key_count(batch)):
            at = batch.values.data + remote_keys_of(batch)[i].at
            count_value(&database.counts, Cursor(at, at + remote_keys_of(batch)[i].size))


cdef void answer_with_parts(RelayDriver driver, Relay* relay) noexcept nogil:
    """Complete a batch after its last part, or once it is too large."""
    answer_batch(driver, <GetMany*>relay, NULL)


cdef WaitReason parts_reason() noexcept nogil:
    """Return the steps of a batch: it waits for its turn, and then for its parts, which have its deadline."""
    cdef WaitReason reason
    memset(&reason, 0, sizeof(WaitReason))
    reason.body.size = sizeof(GetMany)
    reason.body.more = more_of_batch
    reason.body.release = release_batch
    reason.method = b"get_many"
    reason.go_on = answer_with_parts
    reason.begin_round = read_again
    return reason
