"""Reads that other nodes answer: whom to ask, when to ask another one, what to believe, when to give up.

A plain read of a partition that is not here becomes a relay (`_relays.pyx`)::

    read ──> an owner is asked ── a value or a miss ──────────────────────────────> relayed, byte for byte
               │  ^      ├─ it refuses, is lost, answers nonsense ──> the next owner, at once
               │  │      └─ a stage passes in silence ──────────────> the next owner as well
               │  └── a pause ── begins anew, by the table as it is then <── all were asked
               └────────────── the time is over ──> handed to Python with a report

* Who is asked is who holds the partition of that very identity, in the order of `gossipkv.placement.candidates`.
* The first value or miss is the answer; what comes later is dropped.  Who has not answered yet is not asked again.
* A peer is believed only what it was asked: the id, on that connection, and the shape of the answer, its version too.
  Whoever sends anything else loses its connection, and whatever waits on it goes on at once.
* What goes to a peer gathers in its output and leaves once a round, however many reads it is.
* While an answer is arriving, the read has all of its own time: a large value may take longer than a stage.
* A batch reads what is here, in slices if that is much (`_batches.pyx`, `_scans.pyx`), and then asks for the rest.
* The keys of a batch that one owner is asked for are one request, a part; a part that fails is divided anew.
* In a new round a read is planned again: a version may have been switched, or its partition may be here by now.
* A record that is here but damaged is asked for as if it were not; Python hears of it, and sees what is the matter.
* A record that is here but not in memory waits for the disk in the same way: its read is a relay until the page is
  there.

Nothing here touches a Python object: a peer that dies under ten thousand reads costs no call.  Python tells who holds
what, dials, and writes the errors.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.wire._latency cimport LatencyHistogram, histogram_record

from gossipkv.serving._backlog cimport ASKED, UNANSWERED, Request, request_bytes
from gossipkv.serving._batches cimport (
    MISSING_VALUE, Place, Reading, begin_reading, count_reading, end_reading, pass_over, plan_reading, read_cold,
    read_keys, refuse_reading,
)
from gossipkv.serving._cold_pages cimport ColdPages, Wait
from gossipkv.serving._connections cimport Connection, Connections, check
from gossipkv.serving._counters cimport (
    BYTES_RECEIVED, CLOSED_BAD_ANSWER, CLOSED_BAD_FRAME, CLOSED_BAD_MESSAGE, CLOSED_MEMORY, CLOSED_UNASKED_RESPONSE,
    COLD_READS, COLD_REFUSED,
    FORWARDED, FORWARD_ANSWERS, FORWARD_ANSWERS_LATE, FORWARD_ATTEMPTS, FORWARD_CORRUPT, FORWARD_FAILED,
    FORWARD_NOT_READY, FORWARD_NOT_SERVED, FORWARD_OVERLOADED, FORWARD_QUEUE_FULL, FORWARD_REFUSED, FORWARD_ROUNDS,
    FORWARD_SILENCES, FORWARD_UNCONNECTED, FORWARD_UNKNOWN_VERSION, GET_MANYS, GETS, KEYS_READ, REPLIES,
    REPLIES_TOO_LARGE, frame_fault,
)
from gossipkv.serving._published cimport (
    ANSWERED, COLD, DAMAGED, HAND_OFF, OUT_OF_MEMORY, REFUSED_SIZE, UNDER_WAY, DatabaseRow, Lookup, PublishedTable,
    ReadCounts, VersionRow, count_forwarded, count_refused, explanation_bytes, may_go_elsewhere, put_explanation,
    refuse_too_large,
)
from gossipkv.serving._read_options cimport IDENTITY_BYTES, ReadOptions, take_options
from gossipkv.serving._refusals cimport refuse_disk
from gossipkv.serving._relays cimport (
    ASKED_STILL, BATCH, MOST_TRIED, NEVER, PART, QUESTION, READ, SAID_CORRUPT, SAID_NONSENSE, SAID_NOT_READY,
    SAID_NOT_SERVED, SAID_OTHERWISE, SAID_OVERLOADED, SAID_UNKNOWN_VERSION, WAITING_READ, WAS_FULL, WAS_SILENT,
    WAS_UNCONNECTED, Asked, Attempt, Relay, RelayKind, Tried, attempt_begin, attempt_end, attempt_find, next_restless,
    place_count, places_of, pop_due, relay_begin, relay_end, relay_hold_table, relay_keep_spare,
    relay_let_table_go, relay_note, relay_note_size, relay_reply, relay_stir, relays_drop, set_due,
)
from gossipkv.serving._scans cimport Scanner, scans_go_on, scans_queue
from gossipkv.wire._buffer cimport (
    Buffer, buffer_append, buffer_drop, buffer_init, buffer_release, buffer_reserve, buffer_size,
)
from gossipkv.wire._frames cimport FRAME_COMPLETE, FRAME_PARTIAL, TRUE, FrameLimits, FrameState, frame_begin, frame_scan
from gossipkv.wire._message cimport (
    ENVELOPE_BYTES, HEAD_BYTES, Blob, Cursor, Envelope, blob_is, put, put_answer, put_array, put_bin, put_bytes,
    put_nil, put_request, put_response, put_str, put_text, put_unsigned, take_array, take_bin, take_blob, take_map,
    take_nil, take_response, take_str, unsigned_size,
)

cdef enum:
    # What a read that needs the disk waits for it at most, if its client does not say.
    DISK_NS = 10000000000
    # Failures to read pages, and lookups, after which a read waits where it stands: what is damaged shows then, and a
    # page that is thrown out again and again before it is used holds up one read and not all for ever.
    PATIENCE = 2
    MOST_LOOKUPS = 16
    # Between rounds, at first; it doubles, up to a stage.
    PAUSE_NS = 1000000
    # What a request to an owner has beside database and key.
    REQUEST_BYTES = 128
    # Keys of one request to an owner: they and its answer are bounded as others are.
    PART_BYTES = 65536
    # What a report has of a peer: its name, what became of asking it.
    OUTCOME_BYTES = 300

# What a report calls what became of asking a peer, in the order of `Tried`.
cdef const char* OUTCOMES[12]
OUTCOMES[:] = [
    b"asked", b"silent", b"lost", b"not connected", b"queue full", b"NOT_SERVED", b"NOT_READY", b"UNKNOWN_VERSION",
    b"CORRUPT", b"OVERLOADED", b"refused", b"nonsense",
]


cdef inline Tried meaning_of(const Blob* code) noexcept nogil:
    """What an error means for the read."""
    if blob_is(code, b"NOT_SERVED", 10):
        return SAID_NOT_SERVED
    if blob_is(code, b"NOT_READY", 9):
        return SAID_NOT_READY
    if blob_is(code, b"UNKNOWN_VERSION", 15):
        return SAID_UNKNOWN_VERSION
    if blob_is(code, b"CORRUPT", 7):
        return SAID_CORRUPT
    return SAID_OVERLOADED if blob_is(code, b"OVERLOADED", 10) else SAID_OTHERWISE


cdef inline int counter_of(Tried outcome) noexcept nogil:
    if outcome == SAID_NOT_SERVED:
        return FORWARD_NOT_SERVED
    if outcome == SAID_NOT_READY:
        return FORWARD_NOT_READY
    if outcome == SAID_UNKNOWN_VERSION:
        return FORWARD_UNKNOWN_VERSION
    if outcome == SAID_CORRUPT:
        return FORWARD_CORRUPT
    return FORWARD_OVERLOADED if outcome == SAID_OVERLOADED else FORWARD_REFUSED


cdef inline Relay* whole_of(const Relay* relay) noexcept nogil:
    """The batch of a part; else itself."""
    return relay.batch if relay.batch != NULL else <Relay*>relay


cdef inline Blob version_name(const Relay* relay) noexcept nogil:
    """The version that is asked for; of a part, its batch's."""
    cdef const Relay* whole = whole_of(relay)
    return Blob(whole.body.data + whole.params_size, whole.body.end - whole.params_size)


cdef inline Py_ssize_t key_count(const Relay* part) noexcept nogil:
    return part.body.end // <Py_ssize_t>sizeof(uint32_t)


cdef inline Place* place_of(const Relay* part, Py_ssize_t number) noexcept nogil:
    """The place of that key of a part."""
    return &places_of(part.batch)[(<const uint32_t*>part.body.data)[number]]


cdef inline const Place* first_missing(const Relay* part) noexcept nogil:
    """The place of its first key that is not there yet; NULL: none is missing."""
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        if place_of(part, i).size == MISSING_VALUE:
            return place_of(part, i)
    return NULL


cdef inline bint asks_for(const Relay* part, const Place* place) noexcept nogil:
    """Whether a part has that key."""
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        if place_of(part, i) == place:
            return True
    return False


@cython.final
cdef class Forwarding:
    """What this node asks of others."""

    def __cinit__(
        self, Connections connections not None, str name not None, int64_t whole_ms, int64_t stage_ms, uint64_t seed
    ):
        if not 1 <= stage_ms <= whole_ms:
            raise ValueError(f"a stage is 1 ms at least and the whole at most, not {stage_ms} of {whole_ms}")
        self.connections = connections
        self.relays = &connections.relays
        self.counts = connections.counts
        self.peers = Peers(connections, seed)
        self.cold = ColdPages(seed)
        self.cold.counts = connections.counts
        self.published = PublishedTable(())
        self.whole_ns = whole_ms * 1000000
        self.stage_ns = stage_ms * 1000000
        self.answered = LatencyHistogram()
        self.name = name.encode()
        self.own_name = Blob(<const uint8_t*><const char*>self.name, len(self.name))

    # A client's read --------------------------------------------------------------------------------------------

    cdef int begin(self, Connection* client, const Envelope* request, const Lookup* lookup) noexcept nogil:
        """Ask an owner, or wait until one is known: `UNDER_WAY`, and the id of the request is in flight then.

        `HAND_OFF`: it is here, but damaged, and nobody else is to be asked.
        """
        cdef Relay* relay
        if lookup.file != NULL and not self.may_divert(request.params, lookup):
            return HAND_OFF
        relay = self.begin_get(client, request, READ)
        if relay == NULL:
            return OUT_OF_MEMORY
        if self.set_version(relay, lookup) < 0:
            relay_end(self.relays, relay)
            return OUT_OF_MEMORY
        self.go_elsewhere(relay, lookup)
        return UNDER_WAY

    cdef int begin_cold(self, Connection* client, const Envelope* request, const Lookup* lookup) noexcept nogil:
        """Have the page read that the lookup has missed: `UNDER_WAY`, and the id of the request is in flight then."""
        cdef Relay* relay = self.begin_get(client, request, WAITING_READ)
        if relay == NULL:
            return OUT_OF_MEMORY
        relay.limit_ns = min(relay.limit_ns, self.connections.now_ns + DISK_NS)
        set_due(self.relays, relay, relay.limit_ns)
        self.counts[COLD_READS] += 1
        self.wait_for(relay, lookup.file)
        return UNDER_WAY

    cdef Relay* begin_get(self, Connection* client, const Envelope* request, RelayKind kind) noexcept nogil:
        """A get that is not answered at once, and what it asks for; NULL: no memory."""
        cdef Cursor params = request.params
        cdef ReadOptions options
        cdef Relay* relay = relay_begin(self.relays, kind, &client.relays)
        if relay == NULL:
            return NULL
        if self.remember(relay, &params) < 0:
            relay_end(self.relays, relay)
            return NULL
        relay_note_size(self.relays, relay)
        take_array(&params)
        params.at += relay.subject_size
        take_options(&params, 2 + (params.at < params.end), False, &options)
        relay.client = client.handle
        relay.msgid = request.msgid
        relay.explain = options.explain
        relay.begun_ns = client.received_ns
        self.set_limits(relay, &options)
        return relay

    cdef void go_elsewhere(self, Relay* relay, const Lookup* lookup) noexcept nogil:
        """Ask an owner in place of what is here."""
        relay.kind = READ
        relay.whole_ns = min(self.connections.now_ns + self.whole_ns, relay.limit_ns)
        if not relay.forwarded:  # It may have waited for the disk since.
            relay.forwarded = True
            self.counts[FORWARDED] += 1
            count_forwarded(lookup.version, lookup.by_name)
        if lookup.file != NULL:
            self.note_damage(relay, NULL)
        self.ask_next(relay)

    cdef void wait_for(self, Relay* relay, PyObject* file) noexcept nogil:
        """Have it go on when the page is there at which that file's last lookup stopped."""
        if self.cold.ask(&relay.wait, file, <PyObject*>self.published, 0) < 0:
            relay.wait.failures = PATIENCE
            relay_stir(self.relays, relay)

    cdef bint is_patient(self, const Relay* relay) noexcept nogil:
        """Whether it waits for the disk where it stands by now."""
        return relay.wait.failures >= PATIENCE or relay.rounds >= MOST_LOOKUPS

    cdef void look_up_again(self, Relay* relay) noexcept nogil:
        """Look it up anew, by what is served now, since a page that it needs has come."""
        cdef Cursor params = Cursor(relay.body.data, relay.body.data + relay.params_size)
        cdef Lookup lookup
        cdef int outcome = self.published.begin_get(params, &self.read_limits, &lookup)
        relay.rounds += 1
        if outcome == ANSWERED and self.answer_here(relay, &lookup):
            return
        if outcome == HAND_OFF or self.set_version(relay, &lookup) < 0:
            self.hand_back(relay)
            return
        self.go_elsewhere(relay, &lookup)  # It is there by now, or damaged here.

    cdef void refuse_slow(self, Relay* relay) noexcept nogil:
        """Say that the disk does not answer.  Requires: `out` is empty."""
        cdef Connection* connection = self.claim(relay)
        self.counts[COLD_REFUSED] += 1
        if refuse_disk(&self.connections.out, relay.msgid) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
        relay_end(self.relays, relay)
        self.connections.hold_output(connection, 0)
        self.connections.flush_later(connection)
        self.connections.sent(connection, 0)

    cdef bint may_divert(self, Cursor params, const Lookup* lookup) noexcept nogil:
        """Whether others may and can be asked for what is damaged here."""
        cdef ReadOptions options
        cdef Blob unused
        cdef const VersionRow* version = self.published.plan(&params, &unused, &options, False)
        return may_go_elsewhere(version, &options) and self.peers.is_held(version.identity, lookup.partition)

    cdef void note_damage(self, const Relay* relay, const Place* place) noexcept nogil:
        """Keep for Python which record could not be read, `[database, key, version]`; of a batch the key's place.

        It looks at one in each round: many reads may meet the same damage.
        """
        cdef Buffer* told = &self.peers.damaged
        cdef Blob version = version_name(relay)
        cdef Py_ssize_t key_size = place.key_size if place != NULL else 0
        cdef Py_ssize_t size = relay.subject_size + key_size + version.size + 2 * HEAD_BYTES
        if buffer_size(told) > 0 or buffer_reserve(told, size) < 0:
            return
        put_array(told, 3)
        put_bytes(told, relay.body.data + relay.subject_at, relay.subject_size)
        if place != NULL:
            put_bytes(told, relay.body.data + place.key_at, key_size)
        put_bin(told, version.data, version.size)

    cdef void set_limits(self, Relay* relay, const ReadOptions* options) noexcept nogil:
        """Have it end when the request's own time is over."""
        relay.limit_ns = NEVER
        if options.has_timeout:
            relay.limit_ns = relay.begun_ns + <int64_t>min(options.timeout_ms, <uint64_t>1 << 40) * 1000000
        relay.pause_ns = PAUSE_NS

    cdef int remember(self, Relay* relay, const Cursor* params) noexcept nogil:
        """Copy the parameters: what they were read from is used again."""
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

    cdef int set_version(self, Relay* relay, const Lookup* lookup) noexcept nogil:
        """Have it ask for this version from now on."""
        relay.body.end = relay.params_size
        if buffer_append(&relay.body, lookup.version.name.data, lookup.version.name.size) < 0:
            return -1
        memcpy(relay.identity, lookup.version.identity, IDENTITY_BYTES)
        relay.partition = lookup.partition
        relay_note_size(self.relays, relay)
        return 0

    cdef void go_on(self) noexcept nogil:
        """Have those go on whom somebody has refused or left.  Requires: `out` is empty."""
        cdef Wait* wait = self.cold.take(self.connections.now_ns)
        cdef Relay* relay
        while wait != NULL:
            if wait.scans:
                scans_go_on(&self.connections.scans, <Scanner*>wait.whose)
            else:
                relay_stir(self.relays, <Relay*>wait.whose)
            wait = self.cold.take(self.connections.now_ns)
        relay = next_restless(self.relays)
        while relay != NULL:
            if relay.kind == WAITING_READ:
                self.look_up_again(relay)
            elif relay.kind == QUESTION:
                relay_reply(self.relays, relay)
            elif relay.kind == PART:
                self.pass_on(relay)
            elif not relay.resting:
                self.ask_next(relay)
            relay = next_restless(self.relays)
        self.cold.pager.submit()

    cdef void ask_next(self, Relay* relay) noexcept nogil:
        """Ask the next owner, or have it rest until it begins anew."""
        cdef int column = self.next_to_ask(relay, relay.partition)
        while column >= 0:
            if self.send(relay, column):
                return
            column = self.next_to_ask(relay, relay.partition)
        self.rest(relay)

    cdef int next_to_ask(self, Relay* relay, Py_ssize_t partition) noexcept nogil:
        """The next owner that there is a connection to, and room in its output; -1: none is left in this round."""
        cdef Connection* connection
        cdef int column
        while relay.tried_count < MOST_TRIED:
            column = self.peers.next_owner(relay, partition)
            if column < 0:
                break
            connection = self.peers.connection_of(column)
            if connection == NULL:
                self.counts[FORWARD_UNCONNECTED] += 1
                relay_note(relay, column, WAS_UNCONNECTED)
                self.peers.want(column)
            elif buffer_size(&connection.output) >= self.connections.max_queued:
                self.note_full(relay, column)
            else:
                return column
        return -1

    cdef void note_full(self, Relay* relay, int column) noexcept nogil:
        """Note that too much waits to be sent to that owner."""
        self.counts[FORWARD_QUEUE_FULL] += 1
        self.peers.routes.peers[column].slow = True
        relay_note(relay, column, WAS_FULL)

    cdef void rest(self, Relay* relay) noexcept nogil:
        """Have it begin anew after a pause that doubles."""
        relay.resting = True
        set_due(self.relays, relay, min(self.connections.now_ns + relay.pause_ns, relay.whole_ns))
        relay.pause_ns = min(2 * relay.pause_ns, self.stage_ns)

    cdef bint send(self, Relay* relay, int column) noexcept nogil:
        """Ask that peer, with the others that are asked in this round; False when there is no memory for it."""
        cdef Connection* connection = self.peers.connection_of(column)
        cdef Attempt* attempt
        cdef Buffer* out = &connection.output
        cdef Py_ssize_t size = whole_of(relay).subject_size + relay.keys_size + REQUEST_BYTES
        cdef Py_ssize_t before
        if size > self.connections.room() or buffer_reserve(out, size) < 0:
            self.note_full(relay, column)
            return False
        attempt = attempt_begin(self.relays, relay, &connection.attempts, connection.handle, <uint16_t>column)
        if attempt == NULL:
            relay_note(relay, column, WAS_FULL)
            return False
        check(
            self.connections, connection, connection.peer and connection.column == column,
            b"a read asks a peer on the connection to that peer",
        )
        before = out.end
        put_request(out, attempt.id)
        put_text(out, b"get_many" if relay.kind == PART else b"get")
        put(out, 0x93)
        put_bytes(out, whole_of(relay).body.data + whole_of(relay).subject_at, whole_of(relay).subject_size)
        if relay.kind == PART:
            put_keys(out, relay)
        put(out, 0x83)
        put_text(out, b"forwarded")
        put(out, TRUE)
        put_text(out, b"identity")
        put_bin(out, relay.identity, IDENTITY_BYTES)
        put_text(out, b"max_frame")
        put_unsigned(out, <uint64_t>self.frame_limits.max_size)
        self.connections.note_output(connection, out.end - before)
        relay_note(relay, column, ASKED_STILL)
        set_due(self.relays, relay, min(self.connections.now_ns + self.stage_ns, relay.whole_ns))
        self.counts[FORWARD_ATTEMPTS] += 1
        return True

    cdef void begin_round(self, Relay* relay) noexcept nogil:
        """Plan it anew, by what is here and who holds what by now, and ask all again but those who are silent."""
        cdef Cursor params = Cursor(relay.body.data, relay.body.data + relay.params_size)
        cdef Lookup lookup
        cdef int outcome
        relay.resting = False
        if relay.kind == PART:
            self.begin_part_round(relay)
            return
        outcome = self.published.begin_get(params, &self.read_limits, &lookup)
        relay.rounds += 1
        relay.tried_count = 0
        self.counts[FORWARD_ROUNDS] += 1
        if outcome == ANSWERED and self.answer_here(relay, &lookup):
            return
        if outcome == HAND_OFF:
            self.hand_back(relay)
        elif self.set_version(relay, &lookup) == 0:
            relay_stir(self.relays, relay)
        else:
            self.hand_back(relay)

    # A client's batch --------------------------------------------------------------------------------------------

    cdef Relay* begin_batch(self, Connection* client, const Envelope* request) noexcept nogil:
        """A batch that is to be read, whose id is in flight; NULL: no memory."""
        cdef Relay* batch = relay_begin(self.relays, BATCH, &client.relays)
        if batch == NULL:
            return NULL
        batch.client = client.handle
        batch.msgid = request.msgid
        batch.begun_ns = client.received_ns
        batch.subject_at = batch.subject_size = 0
        if buffer_append(&batch.body, request.params.at, request.params.end - request.params.at) < 0:
            relay_end(self.relays, batch)
            return NULL
        batch.params_size = batch.body.end
        relay_note_size(self.relays, batch)
        return batch

    cdef int queue_batch(self, Connection* client, Relay* batch) noexcept nogil:
        """Have it read from its beginning when it is its turn; until then it holds its parameters only."""
        self.forget_read(batch)
        relay_note_size(self.relays, batch)
        return scans_queue(&self.connections.scans, &client.scanner, batch)

    cdef void forget_read(self, Relay* batch) noexcept nogil:
        relay_let_table_go(batch)
        relay_keep_spare(self.relays, &batch.values)
        buffer_release(&batch.places)

    cdef void ask_disk(self, Relay* batch, Wait* wait) noexcept nogil:
        """Have the pages read at which it has stopped, and those that its next keys need."""
        read_cold(&batch.reading, &self.read_limits, self.cold, wait, batch.table)

    cdef int read_batch(self, Relay* batch, int64_t* work, Buffer* out) noexcept nogil:
        """Read the keys that are here until the work is used up: `UNDER_WAY`, and it is to go on.

        `COLD`: the same, when it has what `ask_disk` asks for.

        With another outcome it has come to its end: it is answered, or fails, or others are asked for what is not
        here.  The answer is in `out`, or (NULL) in the output of the connection.
        """
        cdef int outcome = self.read_on(batch, work)
        batch.here_bytes = batch.values.end
        batch.missing = place_count(batch)
        relay_note_size(self.relays, batch)
        if outcome == ANSWERED and batch.missing == 0:
            self.answer_batch(batch, out)
        elif outcome == ANSWERED:
            self.count_asking(batch)
            relay_let_table_go(batch)
            if self.ask_for_rest(batch) == OUT_OF_MEMORY:
                self.fail(batch.client)
        elif outcome == REFUSED_SIZE:
            self.refuse_batch(batch, out)
        elif outcome == OUT_OF_MEMORY:
            self.fail(batch.client)
        elif outcome != UNDER_WAY and outcome != COLD:
            self.hand_back(batch)
        return outcome

    cdef int open_batch(self, Relay* batch) noexcept nogil:
        """Choose the version that it is read from to its end, and hold the table."""
        cdef Reading* reading = &batch.reading
        cdef Cursor ahead = Cursor(batch.body.data, batch.body.data + batch.params_size)
        cdef ReadOptions options
        cdef Blob unused
        cdef Py_ssize_t keys_at
        cdef int outcome = plan_reading(self.published, ahead, &self.read_limits, reading, &options)
        if outcome != ANSWERED:
            return outcome
        self.set_limits(batch, &options)
        take_array(&ahead)
        batch.subject_at = ahead.at - reading.params
        take_blob(&ahead, &unused)
        batch.subject_size = ahead.at - reading.params - batch.subject_at
        keys_at = reading.keys.at - reading.params
        memcpy(batch.identity, reading.version.identity, IDENTITY_BYTES)
        batch.body.end = batch.params_size
        if buffer_append(&batch.body, reading.version.name.data, reading.version.name.size) < 0:
            return OUT_OF_MEMORY
        reading.params = batch.body.data  # It may have moved.
        reading.keys = Cursor(batch.body.data + keys_at, batch.body.data + batch.params_size)
        batch.values = self.relays.spare
        buffer_init(&self.relays.spare)
        if buffer_reserve(&batch.values, expected_bytes(reading)) < 0:
            return OUT_OF_MEMORY
        relay_hold_table(batch, self.published)
        return begin_reading(reading, batch.msgid, &batch.values)

    cdef int read_on(self, Relay* batch, int64_t* work) noexcept nogil:
        """Read on where it stands, and say what becomes of a key that is not plain."""
        cdef Reading* reading = &batch.reading
        cdef Py_ssize_t left
        cdef uint32_t places
        cdef int outcome = ANSWERED
        if batch.table == NULL:
            outcome = self.open_batch(batch)
        while outcome == ANSWERED:
            left = reading.left
            places = place_count(batch)
            outcome = read_keys(
                reading, &self.read_limits, &batch.values, &batch.places if reading.may_ask else NULL, work
            )
            self.counts[KEYS_READ] += <uint64_t>(left - reading.left) - (place_count(batch) - places)
            if outcome != DAMAGED or not reading.may_ask or not self.peers.is_held(
                batch.identity, reading.partition
            ):
                break
            outcome = pass_over(reading, &batch.values, &batch.places)
            if outcome == ANSWERED:
                self.note_damage(batch, &places_of(batch)[place_count(batch) - 1])
        return outcome

    cdef void count_asking(self, Relay* batch) noexcept nogil:
        """Count it as one for which others are asked, once."""
        cdef VersionRow* version = self.published.heir_of(batch.reading.version)
        if not batch.forwarded:
            batch.forwarded = True
            batch.whole_ns = batch.limit_ns
            if batch.limit_ns == NEVER:
                batch.whole_ns = self.connections.now_ns + self.whole_ns
            self.counts[FORWARDED] += 1
            if version != NULL:
                count_forwarded(version, batch.reading.by_name)

    cdef void refuse_batch(self, Relay* batch, Buffer* out) noexcept nogil:
        """Say what of it is too large."""
        cdef Buffer error
        buffer_init(&error)
        if refuse_reading(&batch.reading, batch.msgid, &self.read_limits, &error) == OUT_OF_MEMORY:
            self.fail(batch.client)
        else:
            self.counts[REPLIES_TOO_LARGE] += 1
            self.count_read(batch, True)
            self.give(batch, &error, out)

    cdef void fail(self, uint64_t handle) noexcept nogil:
        """Close a client's connection: there is no memory for what it asks."""
        cdef Connection* connection = self.connections.find(handle)
        self.connections.doom(connection, CLOSED_MEMORY)
        self.connections.flush_later(connection)

    cdef int ask_for_rest(self, Relay* batch) noexcept nogil:
        """Ask for the keys that are elsewhere: `UNDER_WAY`, or `OUT_OF_MEMORY`."""
        cdef Relay* part = self.begin_part(batch)
        cdef uint32_t i
        if part == NULL:
            return OUT_OF_MEMORY
        for i in range(place_count(batch)):
            if not add_key(part, i):
                return OUT_OF_MEMORY
        return UNDER_WAY if self.divide(part) == 0 else OUT_OF_MEMORY

    cdef Relay* begin_part(self, Relay* before) noexcept nogil:
        """A new part, which has tried whom the one before it has, or a batch's first; NULL: no memory."""
        cdef Relay* batch = whole_of(before)
        cdef Relay* part = relay_begin(self.relays, PART, &batch.parts)
        if part == NULL:
            return NULL
        part.batch = batch
        part.client = batch.client
        part.msgid = batch.msgid
        memcpy(part.identity, batch.identity, IDENTITY_BYTES)
        part.begun_ns = batch.begun_ns
        part.limit_ns = batch.limit_ns
        part.whole_ns = batch.whole_ns
        part.pause_ns = before.pause_ns
        part.rounds = before.rounds
        part.tried_count = before.tried_count
        memcpy(part.tried, before.tried, before.tried_count * sizeof(Asked))
        return part

    cdef void pass_on(self, Relay* part) noexcept nogil:
        """Have others asked for its keys, since somebody has refused, is gone or silent."""
        if part.passed_on:
            if part.attempts == NULL:
                relay_end(self.relays, part)
        elif self.divide(part) < 0:
            self.fail(part.client)

    cdef int divide(self, Relay* part) noexcept nogil:
        """Ask the next owner of each of its keys that are missing, in as few new parts as that takes; -1: no memory.

        Of a part for which nobody is left the new one rests.  The old one ends, unless its owner may still answer.
        """
        cdef Relay* before = part.batch.parts.first
        cdef Relay* group = NULL
        cdef Relay* ahead
        cdef Relay* resting = NULL
        cdef Py_ssize_t i
        cdef int column
        cdef int result = 0
        for i in range(key_count(part)):
            if place_of(part, i).size != MISSING_VALUE:
                continue
            column = self.next_to_ask(part, place_of(part, i).partition)
            group = self.peers.routes.peers[column].gathering if column >= 0 else resting
            if group == NULL or group.keys_size >= PART_BYTES:
                group = self.begin_part(part)
                if group == NULL:
                    result = -1
                    break
                group.column = column
                if column >= 0:
                    self.peers.routes.peers[column].gathering = group
                else:
                    resting = group
            if not add_key(group, (<const uint32_t*>part.body.data)[i]):
                result = -1
                break
        part.passed_on = True
        group = part.batch.parts.first
        while group != before:
            ahead = group.next
            if group.column >= 0:
                self.peers.routes.peers[group.column].gathering = NULL
            if result == 0:
                relay_note_size(self.relays, group)
                if group.column < 0:
                    self.rest(group)
                elif not self.send(group, group.column):
                    relay_stir(self.relays, group)
            group = ahead
        if part.attempts == NULL:
            relay_end(self.relays, part)
        else:
            part.batch.hedged = True
        return result

    cdef void begin_part_round(self, Relay* part) noexcept nogil:
        """Ask all again for a part, unless the whole has to be planned anew: it is from one version."""
        cdef Relay* batch = part.batch
        cdef Cursor params = Cursor(batch.body.data, batch.body.data + batch.params_size)
        cdef ReadOptions options
        cdef Blob unused
        cdef VersionRow* version = self.published.plan(&params, &unused, &options, True)
        part.rounds += 1
        part.tried_count = 0
        self.counts[FORWARD_ROUNDS] += 1
        if version == NULL:
            self.hand_back(batch)
        elif memcmp(version.identity, batch.identity, IDENTITY_BYTES) == 0 and not is_any_here(part, version):
            note_silent(part)
            relay_stir(self.relays, part)
        else:
            relays_drop(self.relays, &batch.parts)
            self.forget_read(batch)
            batch.hedged = False
            self.read_again(batch)

    cdef void read_again(self, Relay* batch) noexcept nogil:
        """Read it from its beginning: at once if there is time for it, else when it is its turn."""
        cdef int outcome = self.read_batch(batch, &self.connections.work, NULL)
        if (outcome == UNDER_WAY or outcome == COLD) and (
            self.queue_batch(self.connections.find(batch.client), batch) < 0
        ):
            self.fail(batch.client)

    cdef void take_values(self, Relay* part, Cursor result) noexcept nogil:
        """Put the values of a part into their places; the last one completes the answer.  Requires: `are_values`."""
        cdef Relay* batch = part.batch
        cdef Relay* other
        cdef Relay* ahead
        cdef const uint8_t* begin
        cdef Place* place
        cdef Blob unused
        cdef Py_ssize_t i
        if buffer_reserve(&batch.values, result.end - result.at) < 0:
            self.fail(batch.client)
            return
        take_array(&result)
        take_array(&result)
        for i in range(key_count(part)):
            begin = result.at
            if not take_nil(&result):
                take_bin(&result, &unused)
            place = place_of(part, i)
            if place.size == MISSING_VALUE:
                place.at = batch.values.end
                place.size = result.at - begin
                put_bytes(&batch.values, begin, place.size)
                batch.missing -= 1
        relay_end(self.relays, part)
        relay_note_size(self.relays, batch)
        if batch.missing == 0 or batch.values.end > self.read_limits.max_frame:
            self.answer_batch(batch, NULL)
            return
        other = batch.parts.first if batch.hedged else NULL
        while other != NULL:
            ahead = other.next
            if first_missing(other) == NULL:
                relay_end(self.relays, other)
            other = ahead

    cdef void answer_batch(self, Relay* batch, Buffer* out) noexcept nogil:
        """Answer with the values in the order asked, or say that they are too much.

        When all were here they are the answer already.
        """
        cdef Buffer answer
        cdef bint refused
        cdef int outcome = ANSWERED
        buffer_init(&answer)
        if place_count(batch) == 0:
            outcome = end_reading(&batch.reading, &batch.values)
            swap_buffers(&answer, &batch.values)
        elif batch.missing == 0:
            outcome = self.put_values(batch, &answer)
        if outcome == OUT_OF_MEMORY:
            buffer_release(&answer)
            self.fail(batch.client)
            return
        refused = batch.missing > 0 or answer.end > batch.reading.max_frame
        self.count_read(batch, refused)
        if refused:
            answer.end = 0
            outcome = refuse_reading(&batch.reading, batch.msgid, &self.read_limits, &answer)
        if outcome == OUT_OF_MEMORY:
            buffer_release(&answer)
            self.fail(batch.client)
        else:
            self.give(batch, &answer, out)

    cdef int put_values(self, Relay* batch, Buffer* out) noexcept nogil:
        """Put the values of others into their places among those that were here: `ANSWERED`, or `OUT_OF_MEMORY`.

        Requires: none is missing.
        """
        cdef Blob version = version_name(batch)
        cdef const Place* place
        cdef Py_ssize_t at = 0
        cdef uint32_t i
        if buffer_reserve(out, batch.values.end + version.size + HEAD_BYTES) < 0:
            return OUT_OF_MEMORY
        for i in range(place_count(batch)):
            place = &places_of(batch)[i]
            put_bytes(out, batch.values.data + at, place.slot - at)
            put_bytes(out, batch.values.data + place.at, place.size)
            at = place.slot
        put_bytes(out, batch.values.data + at, batch.here_bytes - at)
        put_str(out, version.data, version.size)
        return ANSWERED

    cdef void give(self, Relay* batch, Buffer* answer, Buffer* out) noexcept nogil:
        """Give the client the answer, which is copied only behind another one."""
        cdef Connection* connection = self.claim(batch)
        cdef Py_ssize_t size = answer.end
        cdef Py_ssize_t before = buffer_size(&connection.output)
        cdef Buffer* into = out if out != NULL else &connection.output
        cdef bint fits
        relay_end(self.relays, batch)
        fits = not connection.doomed and (out != NULL or self.connections.make_room(connection, size))
        if fits and buffer_size(into) == 0:
            swap_buffers(into, answer)
        elif not fits or buffer_append(into, answer.data, size) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
        relay_keep_spare(self.relays, answer)
        if out == NULL:
            self.connections.note_output(connection, buffer_size(&connection.output) - before)
            self.connections.flush_later(connection)
            self.connections.sent(connection, 0)

    cdef bint answer_here(self, Relay* relay, Lookup* lookup) noexcept nogil:
        """Answer a read whose partition is here by now; False: others are to be asked.  Requires: `out` is empty."""
        cdef Buffer* out = &self.connections.out
        cdef Connection* connection
        cdef int outcome
        self.published.fetch_record(lookup)
        outcome = self.published.end_get(
            lookup, relay.msgid, &self.read_limits, &self.own_name, self.is_patient(relay), out
        )
        if outcome == COLD:
            if relay.kind == READ:
                relay.kind = WAITING_READ
                set_due(self.relays, relay, min(relay.limit_ns, self.connections.now_ns + DISK_NS))
            self.wait_for(relay, lookup.file)
            return True
        if outcome == DAMAGED and self.peers.is_held(lookup.version.identity, lookup.partition):
            return False
        if outcome == HAND_OFF or outcome == DAMAGED:
            self.hand_back(relay)
            return True
        connection = self.claim(relay)
        if outcome == OUT_OF_MEMORY:
            self.connections.doom(connection, CLOSED_MEMORY)
        elif relay.forwarded:
            lookup.version.database.counts.asked_again += 1
        else:
            self.counts[GETS] += 1
            self.counts[KEYS_READ] += 1
        relay_end(self.relays, relay)
        self.connections.hold_output(connection, 0)
        self.connections.flush_later(connection)
        self.connections.sent(connection, 0)
        return True

    cdef Connection* claim(self, const Relay* relay) noexcept nogil:
        """The connection that awaits the answer, from now on no more: a relay ends with its client's connection."""
        cdef Connection* connection = self.connections.find(relay.client)
        cdef bint awaited = self.connections.remove_in_flight(connection, relay.msgid)
        cdef uint64_t taken_ns = <uint64_t>(self.connections.now_ns - relay.begun_ns)
        check(self.connections, connection, awaited, b"the id of a relay is in flight until it is answered")
        self.counts[REPLIES] += relay.forwarded
        connection.active_ms = self.connections.now_ms
        histogram_record(&self.answered.histogram if relay.forwarded else &self.answered_here.histogram, taken_ns, 1)
        return connection

    cdef void answer(self, Relay* relay, const Cursor* said, bint refused, int column) noexcept nogil:
        """Give the client what the owner of that column has said, behind a head of its own."""
        cdef Connection* connection = self.claim(relay)
        cdef const Blob* node = &self.peers.routes.peers[column].name
        cdef bint explained = relay.explain and not refused
        cdef Py_ssize_t frame_size = said.end - said.at + ENVELOPE_BYTES + unsigned_size(relay.msgid)
        cdef Buffer* out = &connection.output
        cdef Py_ssize_t before
        if explained:
            frame_size += explanation_bytes(node)
        self.count_value(relay, said[0], refused)
        if not self.connections.make_room(connection, frame_size) or buffer_reserve(out, frame_size) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
        elif not connection.doomed:
            before = buffer_size(out)
            if explained:
                self.put_explained(out, relay, said[0], node)
            else:
                put_response(out, relay.msgid)
                if not refused:
                    put_nil(out)
                put_bytes(out, said.at, said.end - said.at)
                if refused:
                    put_nil(out)
            self.connections.note_output(connection, buffer_size(out) - before)
        relay_end(self.relays, whole_of(relay))
        self.connections.flush_later(connection)
        self.connections.sent(connection, 0)

    cdef void put_explained(self, Buffer* out, Relay* relay, Cursor result, const Blob* node) noexcept nogil:
        """The owner's answer, and that it is the owner's: what the owner does not say, since only this node is asked.

        Requires: `is_value`, and there is room.
        """
        cdef Py_ssize_t before = out.end
        put_answer(out, relay.msgid)
        take_array(&result)
        put_array(out, 3)
        put_bytes(out, result.at, result.end - result.at)
        put_explanation(out, node)
        if out.end - before > self.read_limits.max_frame:
            out.end = before
            refuse_too_large(
                out, relay.msgid, b"the value does not fit into an answer", self.read_limits.max_frame, -1
            )

    cdef DatabaseRow* database_of(self, const Relay* relay) noexcept nogil:
        """The database that a client's read is of; NULL: nothing of it is served any more."""
        cdef const Relay* whole = whole_of(relay)
        cdef const uint8_t* at = whole.body.data + whole.subject_at
        cdef Cursor subject = Cursor(at, at + whole.subject_size)
        cdef Blob name
        return self.published.find_database(&name) if take_blob(&subject, &name) else NULL

    cdef void count_value(self, const Relay* relay, Cursor result, bint refused) noexcept nogil:
        """Count the answer of an owner, `[value or nil, version]` or an error."""
        cdef DatabaseRow* database = self.database_of(relay)
        if database != NULL and refused:
            database.counts.errors += 1
        elif database != NULL and take_array(&result) > 0:
            count_one(&database.counts, result)

    cdef void count_read(self, const Relay* batch, bint refused) noexcept nogil:
        """Count a batch and what was found, where that is counted now, or that it is too much."""
        cdef VersionRow* version
        if batch.forwarded:
            self.count_values(batch, refused)
            return
        self.counts[GET_MANYS] += 1
        version = self.published.heir_of(batch.reading.version)
        if version != NULL and refused:
            count_refused(version, batch.reading.by_name)
        elif version != NULL:
            count_reading(version, &batch.reading)

    cdef void count_values(self, const Relay* batch, bint refused) noexcept nogil:
        """Count the values of a batch, from here and from owners, or that they are too much."""
        cdef DatabaseRow* database = self.database_of(batch)
        cdef const Reading* reading = &batch.reading
        cdef const uint8_t* at
        cdef uint32_t i
        if database != NULL and refused:
            database.counts.errors += 1
        elif database != NULL:
            database.counts.hits += reading.hits
            database.counts.misses += <uint64_t>(reading.count - place_count(batch)) - reading.hits
            database.counts.value_bytes += reading.value_bytes
            for i in range(place_count(batch)):
                at = batch.values.data + places_of(batch)[i].at
                count_one(&database.counts, Cursor(at, at + places_of(batch)[i].size))

    cdef void hand_back(self, Relay* relay) noexcept nogil:
        """Have Python answer it as if it had just come: something is to be said that only Python knows."""
        cdef Connection* connection = self.connections.find(relay.client)
        cdef DatabaseRow* database = self.database_of(relay)
        cdef Py_ssize_t size = 8 if relay.kind == BATCH else 3
        cdef Request* waiting = self.connections.backlog.put(
            relay.client, relay.msgid, ASKED, relay.begun_ns, size, relay.params_size
        )
        if waiting == NULL:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)
        else:
            memcpy(request_bytes(waiting), <const char*>b"get_many", size)
            memcpy(request_bytes(waiting) + size, relay.body.data, relay.params_size)
            if database != NULL and relay.forwarded:
                database.counts.asked_again += 1
        relay_end(self.relays, relay)

    cdef void give_up(self, Relay* relay) noexcept nogil:
        """Have Python say why nobody has answered."""
        cdef Connection* connection = self.connections.find(relay.client)
        cdef Request* waiting = NULL
        cdef Buffer report
        buffer_init(&report)
        self.counts[FORWARD_FAILED] += 1
        if self.write_report(relay, &report) == 0:
            waiting = self.connections.backlog.put(
                relay.client, relay.msgid, UNANSWERED, relay.begun_ns, 0, report.end
            )
        if waiting == NULL:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)
        else:
            memcpy(request_bytes(waiting), report.data, report.end)
        buffer_release(&report)
        relay_end(self.relays, whole_of(relay))

    cdef int write_report(self, const Relay* relay, Buffer* out) noexcept nogil:
        """`[[database, key], version, partition, rounds, ms, [[peer, outcome], ...]]`, as MessagePack."""
        cdef const Relay* whole = whole_of(relay)
        cdef const Place* place = first_missing(relay) if relay.kind == PART else NULL
        cdef Py_ssize_t partition = place.partition if place != NULL else relay.partition
        cdef Py_ssize_t key_size = place.key_size if place != NULL else 0
        cdef Blob version = version_name(relay)
        cdef const Attempt* attempt = relay.attempts
        cdef uint32_t count = relay.tried_count
        cdef uint32_t i
        while attempt != NULL:  # Those who are silent since an earlier round.
            count += not was_tried(relay, attempt.column)
            attempt = attempt.next_of_relay
        if buffer_reserve(
            out, whole.subject_size + key_size + version.size + 10 * HEAD_BYTES + count * OUTCOME_BYTES
        ) < 0:
            return -1
        put_array(out, 6)
        put_array(out, 2)
        put_bytes(out, whole.body.data + whole.subject_at, whole.subject_size)
        if place != NULL:
            put_bytes(out, whole.body.data + place.key_at, key_size)
        put_bin(out, version.data, version.size)
        put_unsigned(out, <uint64_t>partition)
        put_unsigned(out, relay.rounds)
        put_unsigned(out, <uint64_t>max(self.connections.now_ns - relay.begun_ns, <int64_t>0) // 1000000)
        put_array(out, count)
        for i in range(relay.tried_count):
            self.put_outcome(out, relay.tried[i].column, <Tried>relay.tried[i].outcome)
        attempt = relay.attempts
        while attempt != NULL:
            if not was_tried(relay, attempt.column):
                self.put_outcome(out, attempt.column, WAS_SILENT)
            attempt = attempt.next_of_relay
        return 0

    cdef void put_outcome(self, Buffer* out, int column, Tried outcome) noexcept nogil:
        cdef const Blob* name = &self.peers.routes.peers[column].name
        put_array(out, 2)
        put_bin(out, name.data, name.size)
        put_text(out, OUTCOMES[<int>outcome])

    # Time -------------------------------------------------------------------------------------------------------

    cdef void expire(self) noexcept nogil:
        """Do what is due, but for asking anew: first all is known of who is silent.  Requires: `out` is empty."""
        cdef Relay* relay = pop_due(self.relays, self.connections.now_ns)
        while relay != NULL:
            self.expire_one(relay)
            relay = pop_due(self.relays, self.connections.now_ns)

    cdef void expire_one(self, Relay* relay) noexcept nogil:
        cdef int64_t now_ns = self.connections.now_ns
        cdef const Attempt* attempt = relay.attempts
        if relay.kind == QUESTION:
            relay_reply(self.relays, relay)
        elif relay.kind == WAITING_READ:
            self.refuse_slow(relay)
        elif now_ns >= relay.limit_ns:
            self.give_up(relay)
        elif self.is_under_way(relay):
            set_due(self.relays, relay, min(now_ns + self.stage_ns, relay.limit_ns))
        elif now_ns >= relay.whole_ns:
            self.give_up(relay)
        elif relay.resting:
            self.begin_round(relay)
        else:
            while attempt != NULL:
                self.peers.routes.peers[attempt.column].slow = True
                relay_note(relay, attempt.column, WAS_SILENT)
                attempt = attempt.next_of_relay
            self.counts[FORWARD_SILENCES] += 1
            relay_stir(self.relays, relay)

    cdef bint is_under_way(self, const Relay* relay) noexcept nogil:
        """Whether the beginning of an answer has arrived; of a part, of one that it was passed on from as well."""
        cdef const Relay* other
        if self.has_begun(relay):
            return True
        other = relay.batch.parts.first if relay.kind == PART and relay.batch.hedged else NULL
        while other != NULL:
            if other.passed_on and asks_for(other, first_missing(relay)) and self.has_begun(other):
                return True
            other = other.next
        return False

    cdef bint has_begun(self, const Relay* relay) noexcept nogil:
        """Whether the beginning of an answer to that has arrived."""
        cdef const Attempt* attempt = relay.attempts
        cdef Connection* connection
        cdef Cursor begun
        cdef uint32_t id
        while attempt != NULL:
            connection = self.connections.find(attempt.handle)
            begun = Cursor(connection.input.data + connection.input.start, connection.input.data + connection.input.end)
            if buffer_size(&connection.input) > 0 and take_response(&begun, &id) and id == attempt.id:
                return True
            attempt = attempt.next_of_relay
        return False

    # What peers answer ------------------------------------------------------------------------------------------

    cdef void receive(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take bytes that arrived from a peer.

        What was kept is taken out of the connection while it is read: memory that an answer needs may cost a connection
        what it holds, and it may be this one.
        """
        cdef Buffer kept
        cdef Py_ssize_t consumed
        self.counts[BYTES_RECEIVED] += <uint64_t>size
        peer.active_ms = self.connections.now_ms
        peer.received_ns = self.connections.now_ns
        if buffer_size(&peer.input) == 0:
            consumed = self.consume(peer, data, size)
            if consumed < size and not peer.doomed:
                self.connections.hold_input(peer, data + consumed, size - consumed)
        elif self.connections.hold_input(peer, data, size) == 0:
            kept = self.connections.take_input(peer)
            consumed = self.consume(peer, kept.data + kept.start, buffer_size(&kept))
            buffer_drop(&kept, consumed)
            self.connections.put_input_back(peer, &kept)
        else:
            return
        if buffer_size(&peer.input) == 0:
            peer.partial_ms = 0
        elif consumed > 0 or peer.partial_ms == 0:
            peer.partial_ms = self.connections.now_ms

    cdef Py_ssize_t consume(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take answer after answer; how many bytes they were."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length
        cdef int result
        while at < size and not peer.doomed:
            result = frame_scan(&peer.scan, data + at, size - at, &self.frame_limits)
            if result == FRAME_PARTIAL:
                break
            if result != FRAME_COMPLETE:
                self.counts[frame_fault(result)] += 1
                self.connections.doom(peer, CLOSED_BAD_FRAME)
                break
            length = peer.scan.position
            frame_begin(&peer.scan)
            self.take_answer(peer, data + at, length)
            at += length
        return at

    cdef void take_answer(self, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take one whole frame, if it is the answer to what was asked on that connection."""
        cdef Cursor body = Cursor(data, data + size)
        cdef Cursor error
        cdef Attempt* attempt
        cdef Relay* relay
        cdef uint32_t id = 0
        cdef Blob code
        cdef bint refused
        if not take_response(&body, &id):
            self.connections.doom(peer, CLOSED_BAD_MESSAGE)
            return
        attempt = attempt_find(self.relays, id, peer.handle)
        if attempt == NULL:
            self.connections.doom(peer, CLOSED_UNASKED_RESPONSE)
            return
        self.counts[FORWARD_ANSWERS] += 1
        self.peers.routes.peers[attempt.column].slow = False
        refused = not take_nil(&body)
        if refused and not take_failure(body, &self.frame_limits, &code, &error):
            self.connections.doom(peer, CLOSED_BAD_ANSWER)
            return
        relay = attempt.relay
        if relay == NULL:
            self.counts[FORWARD_ANSWERS_LATE] += 1
            attempt_end(self.relays, attempt)
        elif relay.kind == QUESTION:
            attempt_end(self.relays, attempt)
            self.peers.keep_reply(relay, &error if refused else &body, refused)
        elif refused:
            attempt_end(self.relays, attempt)
            self.take_error(peer, relay, &code, &error)
        elif relay.kind == PART and are_values(relay, body):
            attempt_end(self.relays, attempt)
            self.take_values(relay, body)
        elif relay.kind == READ and is_value(relay, body):
            attempt_end(self.relays, attempt)
            self.answer(relay, &body, False, peer.column)
        else:
            relay_note(relay, attempt.column, SAID_NONSENSE)
            relay_stir(self.relays, relay)
            attempt_end(self.relays, attempt)
            self.connections.doom(peer, CLOSED_BAD_ANSWER)

    cdef void take_error(self, Connection* peer, Relay* relay, const Blob* code, const Cursor* error) noexcept nogil:
        """Have the next owner asked, unless all would say the same."""
        cdef Tried outcome = meaning_of(code)
        if blob_is(code, b"TOO_LARGE", 9):
            self.answer(relay, error, True, peer.column)
            return
        self.counts[counter_of(outcome)] += 1
        if outcome == SAID_OVERLOADED:
            self.peers.routes.peers[peer.column].slow = True
        elif outcome == SAID_NOT_SERVED:
            self.peers.note_not_served(peer.column, error)
        relay_note(relay, peer.column, outcome)
        relay_stir(self.relays, relay)


cdef inline void swap_buffers(Buffer* one, Buffer* other) noexcept nogil:
    cdef Buffer kept = one[0]
    one[0] = other[0]
    other[0] = kept


cdef inline Py_ssize_t expected_bytes(const Reading* reading) noexcept nogil:
    """What the values of a batch will take, if they are as long as others."""
    return min(reading.count * (reading.version.mean_value + HEAD_BYTES) + 4 * HEAD_BYTES, reading.max_frame)


cdef inline bint was_tried(const Relay* relay, int column) noexcept nogil:
    cdef uint32_t i
    for i in range(relay.tried_count):
        if relay.tried[i].column == column:
            return True
    return False


cdef bint take_failure(Cursor body, const FrameLimits* limits, Blob* code, Cursor* error) noexcept nogil:
    """`[code, message, details]`, and nil for the result."""
    cdef FrameState scan
    cdef Cursor inner
    cdef Blob message
    frame_begin(&scan)
    if frame_scan(&scan, body.at, body.end - body.at, limits) != FRAME_COMPLETE:
        return False
    error[0] = Cursor(body.at, body.at + scan.position)
    body.at = error.end
    if not take_nil(&body) or body.at != body.end:
        return False
    inner = error[0]
    return (
        take_array(&inner) == 3
        and take_str(&inner, code)
        and take_str(&inner, &message)
        and take_map(&inner) >= 0
    )


cdef inline void count_one(ReadCounts* counts, Cursor value) noexcept nogil:
    """Count a key by its value, or nil."""
    cdef Blob found
    if take_bin(&value, &found):
        counts.hits += 1
        counts.value_bytes += <uint64_t>found.size
    else:
        counts.misses += 1


cdef inline bint add_key(Relay* part, uint32_t place) noexcept nogil:
    """Have a part ask for that key as well; False without memory."""
    part.keys_size += places_of(part.batch)[place].key_size
    return buffer_append(&part.body, <const uint8_t*>&place, sizeof(uint32_t)) == 0


cdef inline void put_keys(Buffer* out, const Relay* part) noexcept nogil:
    """The keys that it asks for, as they came."""
    cdef const Place* place
    cdef Py_ssize_t i
    put_array(out, key_count(part))
    for i in range(key_count(part)):
        place = place_of(part, i)
        put_bytes(out, part.batch.body.data + place.key_at, place.key_size)


cdef inline bint is_any_here(const Relay* part, const VersionRow* version) noexcept nogil:
    """Whether the partition of any of its keys is on this node by now, and was not read in vain."""
    cdef const Place* place
    cdef Py_ssize_t i
    for i in range(key_count(part)):
        place = place_of(part, i)
        if version.files[place.partition] != NULL and not place.damaged:
            return True
    return False


cdef inline void note_silent(Relay* part) noexcept nogil:
    """Have it not ask those who may still answer a part that it was passed on from."""
    cdef const Place* place = first_missing(part)
    cdef const Relay* other = part.batch.parts.first
    while other != NULL:
        if other.passed_on and other.attempts != NULL and asks_for(other, place):
            relay_note(part, other.attempts.column, WAS_SILENT)
        other = other.next


cdef bint is_value(const Relay* relay, Cursor result) noexcept nogil:
    """Whether that is `[value or nil, version]`, of the version that was asked for, and nothing behind it."""
    cdef Blob unused
    return (
        take_array(&result) == 2
        and (take_nil(&result) or take_bin(&result, &unused))
        and is_version_asked(relay, result)
    )


cdef bint are_values(const Relay* part, Cursor result) noexcept nogil:
    """Whether that is `[[value or nil, ...], version]`, one for each key of the part."""
    cdef Blob unused
    cdef Py_ssize_t left = key_count(part)
    if take_array(&result) != 2 or take_array(&result) != left:
        return False
    while left > 0:
        if not take_nil(&result) and not take_bin(&result, &unused):
            return False
        left -= 1
    return is_version_asked(part, result)


cdef inline bint is_version_asked(const Relay* relay, Cursor result) noexcept nogil:
    """Whether what follows is the version that was asked for, and nothing else."""
    cdef Blob asked = version_name(relay)
    cdef Blob version
    return (
        take_str(&result, &version)
        and result.at == result.end
        and version.size == asked.size
        and memcmp(version.data, asked.data, asked.size) == 0
    )
