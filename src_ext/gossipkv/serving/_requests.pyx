"""Requests: what the bytes of a connection ask, and what becomes of it.  No sockets, no clock, no Trio.

Bytes and the time in, bytes and hand-offs out; who is connected stands in `_connections.pyx`.

What becomes of a frame::

    not whole, or no room for an answer ──> held in the connection's input, looked at again later
    no frame, no message ─────────────────> refused, and the connection ends (HTTP and RESP: told what speaks here)
    plain get ──> gathered with others ──┐
    plain get_many, ping ────────────────┼─────────────────────────────────────────────> answered
    a get_many that is much work ────────┼──> waits for its turn, is read in slices ───> answered
    plain scan ──────────────────────────┴──> a slice at once, further ones by turns ──> answered
    anything else ──> handed off ──> the backlog, the connections in turn ──> Python ──> answered, now or later

The invariants:

* A message is looked at only after the scanner has bounded all of it.
* Each request is answered once, or its connection ends; one that is not answered at once has its id in flight.
* What Python may be asked in one step is bounded in number and bytes.
* Between two looks at sockets the work for requests that have come is bounded (`Connections.work`), whatever they are;
  beyond it each connection has a little, and what is more is held, the connections in turn.

The rounds of `_serving.pyx` drive it, over sockets or a simulation's streams; `_driver.pyx` takes it step by step, for
tests.

Thread rule: one thread owns a core.  The loop drops the GIL while it is inside, so nothing here touches a Python
object in a `nogil` function but the published table, which only that thread replaces, between steps.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.wire._latency cimport LatencyHistogram, histogram_record
from gossipkv.serving._backlog cimport ASKED, Request, request_bytes
from gossipkv.serving._batches cimport (
    KEY_WORK, Reading, begin_reading, count_reading, end_reading, plan_reading, read_keys, refuse_reading,
)
from gossipkv.serving._connections cimport OPEN, Connection, Connections, check, has_room
from gossipkv.serving._counters cimport (
    BAD_REQUESTS, BYTES_RECEIVED, CLOSED_BAD_FRAME, CLOSED_BAD_MESSAGE, CLOSED_MEMORY, CLOSED_UNASKED_RESPONSE,
    CLOSED_UNAUTHORIZED, COLD_READS, DUPLICATE_IDS, GET_MANYS, GETS, HANDED_OFF, KEYS_READ, NOTIFICATIONS_IGNORED,
    OVERLOADED, PAUSED_FOR_HAND_OFFS, PAUSED_FOR_OUTPUT, PINGS, REPLIES, REPLIES_DROPPED, REPLIES_TOO_LARGE,
    counters_by_name, frame_fault,
)
from gossipkv.serving._id_set cimport ids_contain
from gossipkv.serving._published cimport (
    ANSWERED, COLD, DAMAGED, ELSEWHERE, HAND_OFF, OUT_OF_MEMORY, REFUSED_SIZE, TAKEN_OVER,
    UNDER_WAY, Lookup, PublishedTable, count_refused,
)
from gossipkv.serving._refusals cimport (
    refuse_answer, refuse_bounds, refuse_elements, refuse_id, refuse_load, refuse_message, refuse_protocol, refuse_size,
)
from gossipkv.serving._read_options cimport ReadOptions
from gossipkv.serving._relays cimport Relay
from gossipkv.serving._scan_page cimport BYTES_PER_WORK
from gossipkv.serving._scans cimport (
    BATCH_SLICE_WORK, REQUEST_WORK, Job, Scanner, release_unread, scans_ask, scans_counters, scans_done, scans_drop,
    scans_fetch, scans_have_begun, scans_have_turn, scans_park, scans_read_cold, scans_run, scans_turn,
    scans_yield,
)
from gossipkv.wire._buffer cimport Buffer, buffer_reserve, buffer_size
from gossipkv.wire._frames cimport (
    FRAME_COMPLETE, FRAME_DEPTH, FRAME_PARTIAL, FRAME_TOO_LARGE, frame_begin, frame_scan,
)
from gossipkv.wire._message cimport (
    BAD_REQUEST, ENVELOPE_BYTES, HEAD_BYTES, IS_NOTIFICATION, IS_REQUEST, IS_RESPONSE, Blob, Cursor, Envelope, blob_is,
    put, put_answer, put_bytes, put_response, put_text, read_envelope, take_array, take_response, take_str,
    unsigned_size,
)

cdef enum:
    # Answers of one connection in one go; then they are sent, and others have their turn.
    BURST_BYTES = 256 * 1024
    # Hand-offs of one step, and bytes of their parameters: what Python answers before the loop looks at sockets again.
    HAND_OFFS_PER_STEP = 1024
    HAND_OFF_BYTES_PER_STEP = 4 * 1024 * 1024
    # Work that is done at once before sockets are looked at again, in units of some 50 ns: 400 µs.
    WORK_AT_ONCE = 8000
    # What is received of a connection once it is done.
    LEAST_INBOX_BYTES = 8192
    # What a connection has of it in any case: a few requests, so that those who ask for little never wait for a turn.
    LEAST_TURN_WORK = 64
    # A batch of more is read in slices if there is not time for all of it at once.
    SMALL_BATCH_WORK = 1000
    # Received bytes and looked through, in a unit of work.
    RECEIVED_BYTES_PER_WORK = 128
    # Elements of a request that Python decodes: 1 ms of decoding, and no method takes more but `get_many`.
    HAND_OFF_ELEMENTS = 1024
    # Parameters of requests that wait for their turn; beyond, further ones are refused.
    MAX_WAITING_BYTES = 16 * 1024 * 1024
    # Parameters of requests whose peers do not read; beyond, a connection is closed rather than parked.
    MAX_PARKED_BYTES = 16 * 1024 * 1024

# What runs for each message stands outside the class: there the compiler puts it into its caller.


cdef inline bint may_process(Core core, const Connection* connection) noexcept nogil:
    """Whether there is room for the consequences of one more message, now."""
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
    """`ANSWERED`: this is a plain get, to be answered with others, and its bucket is on its way; or `begin_get`'s."""
    cdef Gathered* entry = &core.gathered.entries[core.gathered.count]
    cdef int outcome
    if not blob_is(&request.method, b"get", 3):
        return HAND_OFF
    outcome = core.published.begin_get(request.params, &core.read_limits, &entry.lookup)
    if outcome == ANSWERED:
        entry.message = message
        entry.request = request[0]
        core.gathered.count += 1
    return outcome


cdef inline bint must_wait(Core core, const Envelope* request) noexcept nogil:
    """Whether that is a small batch for which too little is left of this turn: it has the next one."""
    return (
        core.turn_work - REQUEST_WORK < KEY_WORK * core.elements <= SMALL_BATCH_WORK
        and blob_is(&request.method, b"get_many", 8)
    )


cdef inline int answer_ping(Core core, const Envelope* request) noexcept nogil:
    """`pong`, when it is asked without parameters."""
    if request.params.at[0] != 0x90:
        return HAND_OFF
    if buffer_reserve(core.out, 3 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(core.out, request.msgid)
    put_text(core.out, b"pong")
    core.counts[PINGS] += 1
    return ANSWERED


cdef inline bint is_unauthorized(Cursor answer) noexcept nogil:
    """Whether that is the error of this code."""
    cdef uint32_t msgid
    cdef Blob code
    return (
        take_response(&answer, &msgid)
        and take_array(&answer) == 3
        and take_str(&answer, &code)
        and blob_is(&code, b"UNAUTHORIZED", 12)
    )


@cython.final
cdef class Refused:
    """What Python answers when it refuses: the error, `[code, message, details]`, as MessagePack."""

    def __cinit__(self, bytes error not None):
        self.error = error


@cython.final
cdef class Pending:
    """A request whose answer takes time: what it asked, and what Python gave instead of an answer."""

    def __cinit__(self, uint64_t handle, uint32_t msgid, int64_t received_ns, bytes method not None, waiting):
        self.handle = handle
        self.msgid = msgid
        self.received_ns = received_ns
        self.method = method
        self.waiting = waiting


@cython.final
@cython.no_gc_clear  # Scans and batches that are under way hold their table until the end.
cdef class Core:
    """The connections of a node, and what they ask."""

    def __cinit__(
        self,
        *,
        Py_ssize_t max_frame,
        int max_depth,
        Py_ssize_t max_elements,
        Py_ssize_t max_key,
        Py_ssize_t max_value,
        int max_in_flight,
        int max_in_flight_total,
        Py_ssize_t max_queued,
        Py_ssize_t max_held,
        int max_connections,
        int max_connections_per_address,
        int64_t frame_timeout_ms,
        int64_t output_timeout_ms,
        int64_t idle_timeout_ms,
        Py_ssize_t scan_limit,
        int64_t proxy_timeout_ms=100,
        int64_t proxy_stage_timeout_ms=25,
        uint64_t seed=0,
        str node not None="",
    ):
        if min(max_frame, max_depth, max_elements, max_key, max_value, max_queued, max_held) < 1 or min(
            max_in_flight, max_in_flight_total, max_connections, scan_limit
        ) < 1:
            raise ValueError("every limit of a core must be positive")
        if max_depth > FRAME_DEPTH:
            raise ValueError(f"the scanner has room for {FRAME_DEPTH} levels, not {max_depth}")
        self.thread = <long>PyThread_get_thread_ident()
        self.connections = Connections(
            max_in_flight=max_in_flight,
            max_queued=max_queued,
            max_held=max_held,
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            frame_timeout_ms=frame_timeout_ms,
            output_timeout_ms=output_timeout_ms,
            idle_timeout_ms=idle_timeout_ms,
        )
        self.out = &self.connections.out
        self.counts = self.connections.counts
        self.published = PublishedTable(())
        self.retired = []
        self.frame_limits.max_size = max_frame
        self.frame_limits.max_depth = max_depth
        self.frame_limits.max_elements = max_elements
        self.read_limits.max_frame = max_frame
        self.read_limits.max_key = max_key
        self.read_limits.max_value = max_value
        self.connections.scans.limits = self.read_limits
        self.connections.scans.scan_limit = scan_limit
        self.max_in_flight_total = max_in_flight_total
        self.forwarding = Forwarding(self.connections, node, proxy_timeout_ms, proxy_stage_timeout_ms, seed)
        self.forwarding.frame_limits = self.frame_limits
        self.forwarding.read_limits = self.read_limits
        self.answered = LatencyHistogram()
        self.cold = self.forwarding.cold
        self.handed_off = LatencyHistogram()
        self.forwarding.answered_here = self.answered
        self.begin_step()

    def __dealloc__(self):
        if self.cold is not None:
            self.cold.end()
        if self.connections is not None:
            self.connections.drop_readers()

    cdef int check_thread(self) except -1:
        """A core belongs to the thread that made it: a second one would race with a step that has dropped the GIL."""
        if <long>PyThread_get_thread_ident() != self.thread:
            raise RuntimeError("a core belongs to the thread that made it")
        return 0

    cdef void begin_step(self) noexcept nogil:
        """Let Python be asked anew."""
        self.hand_off_count = 0
        self.hand_off_bytes = 0
        self.allow_work()

    cdef void allow_work(self) noexcept nogil:
        """Let so much be done for those that are ready until sockets are looked at again."""
        self.connections.work = WORK_AT_ONCE

    cdef bint has_time(self) noexcept nogil:
        """Whether what is held may go on: there is time for a small batch at least."""
        return self.connections.work >= SMALL_BATCH_WORK

    cdef Py_ssize_t most_to_receive(self) noexcept nogil:
        """How much may be received from the next one: once the work is done, what somebody with little to ask sends."""
        return INBOX_BYTES if self.connections.work > 0 else LEAST_INBOX_BYTES

    cdef int release_retired(self) except -1:
        """Let go of the tables that are served no longer, but for those that a scan still reads from."""
        if self.retired:
            self.retired = release_unread(self.retired)
        return 0

    # What has arrived -------------------------------------------------------------------------------------------

    cdef void receive(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take bytes that arrived.  Requires: `wants_read`, and `out` is empty.  Answers are in `out` afterwards."""
        cdef Py_ssize_t consumed
        cdef bint in_time = self.connections.work > 0
        check(
            self.connections, connection, connection.state == OPEN and not connection.held and not connection.doomed,
            b"who is held, or has ended, is not read",
        )
        self.counts[BYTES_RECEIVED] += <uint64_t>size
        self.connections.work -= size // RECEIVED_BYTES_PER_WORK
        connection.active_ms = self.connections.now_ms
        connection.received_ns = self.connections.now_ns
        if size >= LEAST_INBOX_BYTES and not in_time:
            if self.connections.hold_input(connection, data, size) == 0:
                connection.held = True  # Whoever sends much has its turn later; those behind it do not wait for that.
                self.connections.run_later(connection)
            return
        if buffer_size(&connection.input) > 0:
            if self.connections.hold_input(connection, data, size) == 0:
                self.resume(connection)
            return
        consumed = self.consume(connection, data, size)
        if consumed < size and not connection.broken and not connection.doomed and self.connections.hold_input(
            connection, data + consumed, size - consumed
        ) < 0:
            return
        self.note_rest(connection, consumed)

    cdef void resume(self, Connection* connection) noexcept nogil:
        """Look at the input that is kept.  Answers are in `out` afterwards."""
        cdef Buffer* kept = &connection.input
        cdef Py_ssize_t consumed = self.consume(connection, kept.data + kept.start, buffer_size(kept))
        self.connections.drop_input(connection, buffer_size(kept) if connection.broken else consumed)
        self.note_rest(connection, consumed)

    cdef Py_ssize_t consume(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take message after message; how many bytes they were.

        Plain gets are gathered, so that their cache misses overlap, and answered before anything else is.  Those for
        whose answers there is no room are as if they had not been looked at.
        """
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length
        cdef int outcome
        cdef int result
        cdef int kind
        cdef Envelope envelope
        cdef int64_t work = max(self.connections.work, <int64_t>LEAST_TURN_WORK)
        check(self.connections, connection, buffer_size(self.out) == 0, b"`out` is empty when a turn begins")
        check(self.connections, connection, self.gathered.count == 0, b"no get is left behind by a turn")
        check(self.connections, connection, self.fresh_answers == 0, b"answers are counted in the turn that gave them")
        self.turn_work = work
        connection.held = False
        while at < size:
            if not may_process(self, connection):
                connection.held = not connection.broken
                break
            result = frame_scan(&connection.scan, data + at, size - at, &self.frame_limits)
            if result == FRAME_COMPLETE:
                length = connection.scan.position
                self.elements = connection.scan.elements
                kind = read_envelope(data + at, length, &envelope)
                outcome = HAND_OFF
                if kind == IS_REQUEST and not ids_contain(&connection.in_flight, envelope.msgid):
                    outcome = gather(self, data + at, &envelope)
                if outcome == ELSEWHERE:
                    self.forward(connection, &envelope, &self.gathered.entries[self.gathered.count].lookup, outcome)
                    connection.spoken = True
                if outcome != HAND_OFF:
                    frame_begin(&connection.scan)
                    at += length
                    if self.gathered.count == GATHERED_MOST and not self.answer_gathered(connection, data, &at):
                        break
                    continue
            if self.gathered.count > 0:  # They come first, and may leave no room for this one.
                frame_begin(&connection.scan)
                if not self.answer_gathered(connection, data, &at):
                    break
                continue
            if result == FRAME_PARTIAL:
                break
            if result != FRAME_COMPLETE:
                self.refuse_frame(connection, data + at, size - at, result)
                break
            frame_begin(&connection.scan)
            if kind == IS_REQUEST and must_wait(self, &envelope):
                connection.held = True
                break
            self.take_message(connection, kind, data + at, &envelope)
            connection.spoken = True
            at += length
        self.answer_gathered(connection, data, &at)
        self.connections.work -= work - self.turn_work + buffer_size(self.out) // BYTES_PER_WORK
        return at

    cdef void note_rest(self, Connection* connection, Py_ssize_t consumed) noexcept nogil:
        """Note what `consume` has left: since when a frame is half-sent, and why the rest has to wait."""
        if connection.held or connection.broken or buffer_size(&connection.input) == 0:
            connection.partial_ms = 0
        elif consumed > 0 or connection.partial_ms == 0:
            connection.partial_ms = self.connections.now_ms
        if connection.held:
            if connection.in_flight.count >= self.connections.max_in_flight:
                self.counts[PAUSED_FOR_HAND_OFFS] += 1
            elif buffer_size(&connection.output) + buffer_size(self.out) >= self.connections.max_queued:
                self.counts[PAUSED_FOR_OUTPUT] += 1

    cdef void refuse_frame(
        self, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
    ) noexcept nogil:
        """End a stream that has no boundary left, with an answer under the id if the frame shows one."""
        cdef Envelope envelope
        cdef int kind = read_envelope(data, min(size, connection.scan.position), &envelope)
        connection.broken = True
        self.connections.finish(connection, CLOSED_BAD_FRAME)
        self.counts[frame_fault(result)] += 1
        if kind != IS_REQUEST and kind != BAD_REQUEST:
            return
        if result == FRAME_TOO_LARGE:
            refuse_size(self.out, envelope.msgid, self.frame_limits.max_size)
        else:
            refuse_bounds(self.out, envelope.msgid)

    # What it asks -----------------------------------------------------------------------------------------------

    cdef bint answer_gathered(self, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil:
        """Answer the gets that were gathered; False when there is room for some only: `at` is then where to go on."""
        cdef Gathered* entry
        cdef int count = self.gathered.count
        cdef int outcome
        cdef int i
        connection.spoken |= count > 0
        self.gathered.count = 0
        self.elements = 0  # Those of the message behind them do not count.
        # All records are fetched, then all values; the buckets were asked for when the gets were gathered.
        for i in range(count):
            self.published.fetch_record(&self.gathered.entries[i].lookup)
        for i in range(count):
            self.published.fetch_value(&self.gathered.entries[i].lookup)
        for i in range(count):
            entry = &self.gathered.entries[i]
            if i > 0 and not may_process(self, connection):
                at[0] = entry.message - data
                frame_begin(&connection.scan)
                connection.held = True
                return False
            self.turn_work -= REQUEST_WORK
            outcome = self.published.end_get(
                &entry.lookup, entry.request.msgid, &self.read_limits, &self.forwarding.own_name, False, self.out
            )
            if outcome == DAMAGED or outcome == COLD:
                self.forward(connection, &entry.request, &entry.lookup, outcome)
                continue
            if outcome > 0:
                self.counts[GETS] += 1
                self.counts[KEYS_READ] += 1
            self.conclude(connection, &entry.request, outcome)
        return True

    cdef void take_message(
        self, Connection* connection, int kind, const uint8_t* message, const Envelope* envelope
    ) noexcept nogil:
        """Take one whole frame."""
        self.turn_work -= REQUEST_WORK
        if kind == IS_REQUEST:
            self.take_request(connection, envelope)
        elif kind == IS_NOTIFICATION:
            self.counts[NOTIFICATIONS_IGNORED] += 1
        elif kind == BAD_REQUEST:
            self.counts[BAD_REQUESTS] += 1
            self.fresh_answers += 1
            if refuse_message(self.out, envelope.msgid) < 0:
                self.connections.doom(connection, CLOSED_MEMORY)
        else:
            connection.broken = True
            self.connections.finish(connection, CLOSED_UNASKED_RESPONSE if kind == IS_RESPONSE else CLOSED_BAD_MESSAGE)
            if not connection.spoken and refuse_protocol(self.out, message[0]) < 0:
                self.connections.doom(connection, CLOSED_MEMORY)

    cdef void take_request(self, Connection* connection, const Envelope* request) noexcept nogil:
        """Answer it here if it is plain, else hand it off."""
        cdef int outcome = HAND_OFF
        cdef Py_ssize_t written = buffer_size(self.out) + buffer_size(&connection.output)
        cdef uint32_t in_flight = connection.in_flight.count
        if ids_contain(&connection.in_flight, request.msgid):
            pass  # Refused below, as two gathered gets of one id are.
        elif blob_is(&request.method, b"get_many", 8):
            outcome = self.take_batch(connection, request)
        elif blob_is(&request.method, b"scan", 4):
            outcome = scans_ask(
                &self.connections.scans, &connection.scanner, self.published, request, connection.received_ns,
                self.connections.in_flight_count < self.max_in_flight_total, &self.turn_work, self.out,
            )
        elif blob_is(&request.method, b"ping", 4):
            outcome = answer_ping(self, request)
        if outcome != TAKEN_OVER:
            self.conclude(connection, request, outcome)
        check(
            self.connections, connection,
            connection.doomed or (
                buffer_size(self.out) + buffer_size(&connection.output) > written
            ) != (connection.in_flight.count > in_flight),
            b"a request is answered at once or in flight, and not both",
        )

    cdef int take_batch(self, Connection* connection, const Envelope* request) noexcept nogil:
        """Answer a batch at once if that is little work and all of it is here."""
        cdef Py_ssize_t before = buffer_size(self.out)
        cdef int64_t work = KEY_WORK * self.elements
        cdef Reading reading
        cdef ReadOptions options
        cdef int outcome
        if work > SMALL_BATCH_WORK and (work > self.turn_work or scans_have_turn(&self.connections.scans)):
            return self.defer_batch(connection, request, False)
        outcome = plan_reading(self.published, request.params, &self.read_limits, &reading, &options)
        if outcome != ANSWERED:
            return outcome
        outcome = begin_reading(&reading, request.msgid, self.out)
        if outcome == ANSWERED:
            outcome = read_keys(&reading, &self.read_limits, self.out, NULL, &self.turn_work)
            self.counts[KEYS_READ] += <uint64_t>(reading.count - reading.left)
        if outcome == ANSWERED:
            outcome = end_reading(&reading, self.out)
        if outcome == ANSWERED:
            count_reading(reading.version, &reading)
            self.counts[GET_MANYS] += 1
            return ANSWERED
        self.out.end = self.out.start + before
        if outcome == REFUSED_SIZE:
            count_refused(reading.version, reading.by_name)
            self.counts[GET_MANYS] += 1
            return refuse_reading(&reading, request.msgid, &self.read_limits, self.out)
        if outcome == UNDER_WAY or outcome == COLD:
            return self.defer_batch(connection, request, False)
        if outcome == ELSEWHERE or outcome == DAMAGED:
            return self.defer_batch(connection, request, True) if reading.may_ask else HAND_OFF
        return outcome

    cdef int defer_batch(self, Connection* connection, const Envelope* request, bint at_once) noexcept nogil:
        """Read a batch in slices, the connections in turn, or at once if others are to be asked for some of it."""
        cdef Relay* batch
        cdef int outcome = UNDER_WAY
        if self.connections.in_flight_count >= self.max_in_flight_total:
            return HAND_OFF
        if not self.connections.add_in_flight(connection, request.msgid):
            return OUT_OF_MEMORY
        batch = self.forwarding.begin_batch(connection, request)
        if batch == NULL:
            return OUT_OF_MEMORY
        if at_once:
            outcome = self.forwarding.read_batch(batch, &self.turn_work, NULL)
        if outcome != UNDER_WAY and outcome != COLD:
            return TAKEN_OVER
        if self.forwarding.queue_batch(connection, batch) < 0 or not self.connections.make_room(connection, 0):
            return OUT_OF_MEMORY
        return TAKEN_OVER

    cdef void conclude(self, Connection* connection, const Envelope* request, int outcome) noexcept nogil:
        """Do what its outcome leaves to do for a request."""
        if outcome == HAND_OFF:
            outcome = self.may_hand_off(connection, request)
        self.fresh_answers += 0 < outcome < UNDER_WAY
        if outcome == HAND_OFF:
            self.hand_off(connection, request)
        elif outcome == REFUSED_SIZE:
            self.counts[REPLIES_TOO_LARGE] += 1
        elif outcome == UNDER_WAY and self.connections.make_room(connection, 0):
            self.connections.add_in_flight(connection, request.msgid)
        elif outcome == OUT_OF_MEMORY or outcome == UNDER_WAY:
            self.connections.doom(connection, CLOSED_MEMORY)

    cdef void forward(
        self, Connection* connection, const Envelope* request, const Lookup* lookup, int why
    ) noexcept nogil:
        """Have other nodes answer a get; or the disk, which has what is `COLD`.

        What is damaged here goes elsewhere if any is known to hold it.
        """
        cdef int outcome = self.may_hand_off(connection, request)
        if outcome != HAND_OFF:
            self.fresh_answers += outcome == ANSWERED
        elif self.connections.add_in_flight(connection, request.msgid):
            if why == COLD:
                outcome = self.forwarding.begin_cold(connection, request, lookup)
            else:
                outcome = self.forwarding.begin(connection, request, lookup)
            if outcome == HAND_OFF:
                self.connections.remove_in_flight(connection, request.msgid)
                self.hand_off(connection, request)
            elif outcome == UNDER_WAY and not self.connections.make_room(connection, 0):
                outcome = OUT_OF_MEMORY
        if outcome == OUT_OF_MEMORY:
            self.connections.doom(connection, CLOSED_MEMORY)

    cdef void count_answered(self, const Connection* connection) noexcept nogil:
        """Count the answers that were in `out`: the socket has been given them, now."""
        if self.fresh_answers > 0:
            histogram_record(
                &self.answered.histogram,
                <uint64_t>(self.connections.now_ns - connection.received_ns),
                self.fresh_answers,
            )
            self.fresh_answers = 0

    # What Python answers ----------------------------------------------------------------------------------------

    cdef int may_hand_off(self, const Connection* connection, const Envelope* request) noexcept nogil:
        """`HAND_OFF` if Python may see it; if not, it is answered, and nobody else is held up by it."""
        cdef int written
        if ids_contain(&connection.in_flight, request.msgid):
            self.counts[DUPLICATE_IDS] += 1
            written = refuse_id(self.out, request.msgid)
        elif self.elements > HAND_OFF_ELEMENTS and not blob_is(&request.method, b"get_many", 8):
            self.counts[BAD_REQUESTS] += 1
            written = refuse_elements(self.out, request.msgid, HAND_OFF_ELEMENTS, self.elements)
        elif self.connections.in_flight_count >= self.max_in_flight_total:
            self.counts[OVERLOADED] += 1
            written = refuse_load(self.out, request.msgid, self.max_in_flight_total)
        elif self.connections.backlog.size_bytes >= MAX_WAITING_BYTES:
            self.counts[OVERLOADED] += 1
            written = refuse_load(self.out, request.msgid, MAX_WAITING_BYTES)
        else:
            return HAND_OFF
        return ANSWERED if written == 0 else OUT_OF_MEMORY

    cdef void hand_off(self, Connection* connection, const Envelope* request) noexcept nogil:
        """Copy what Python needs; the receive buffer is used again, and a frame that was held is dropped."""
        cdef Py_ssize_t size = request.params.end - request.params.at
        cdef Request* waiting = NULL
        if (
            self.connections.make_room(connection, request.method.size + size - buffer_size(&connection.input))
            and self.connections.add_in_flight(connection, request.msgid)
        ):
            waiting = self.connections.backlog.put(
                connection.handle, request.msgid, ASKED, connection.received_ns, request.method.size, size
            )
        if waiting == NULL:
            self.connections.doom(connection, CLOSED_MEMORY)
            return
        memcpy(request_bytes(waiting), request.method.data, request.method.size)
        memcpy(request_bytes(waiting) + request.method.size, request.params.at, size)
        self.hand_off_count += 1
        self.hand_off_bytes += request.method.size + size
        self.counts[HANDED_OFF] += 1

    cdef Request* next_request(self) noexcept nogil:
        """The next request that may be answered, to be freed; NULL: none.  Those of a peer that does not read wait."""
        cdef Connection* connection
        cdef uint64_t handle
        while not self.connections.backlog.is_empty():
            handle = self.connections.backlog.next_turn()
            connection = self.connections.find(handle)
            if connection == NULL or connection.doomed:
                self.connections.backlog.forget_queue(handle)
            elif buffer_size(&connection.output) < self.connections.max_queued:
                return self.connections.backlog.pop()
            else:
                self.connections.backlog.park_queue(handle)
                connection.parked = True
                self.limit_parked(connection)
        return NULL

    cdef void limit_parked(self, Connection* connection) noexcept nogil:
        """Close a connection with the next flush when too much is parked, after more of it was."""
        if self.connections.backlog.parked_bytes > MAX_PARKED_BYTES:
            self.connections.backlog.forget_queue(connection.handle)
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)

    cdef Connection* claim(self, uint64_t handle, uint32_t msgid) noexcept nogil:
        """The connection that awaits this answer, from now on no more; NULL: none does."""
        cdef Connection* connection = self.connections.find(handle)
        if connection == NULL or not self.connections.remove_in_flight(connection, msgid):
            self.counts[REPLIES_DROPPED] += 1
            return NULL
        check(
            self.connections, connection, not ids_contain(&connection.in_flight, msgid),
            b"an id is in flight once, so its request is answered once",
        )
        self.counts[REPLIES] += 1
        connection.active_ms = self.connections.now_ms
        return connection

    cdef void deliver(self, Connection* connection) noexcept nogil:
        """Put the answer in `out` behind what waits; it is sent with all others of its connection.

        Whoever is told UNAUTHORIZED is told nothing more: it is a node of another cluster, and meant somebody else.
        """
        if is_unauthorized(Cursor(self.out.data + self.out.start, self.out.data + self.out.end)):
            self.connections.finish(connection, CLOSED_UNAUTHORIZED)
        self.connections.hold_output(connection, 0)
        self.connections.flush_later(connection)
        self.connections.sent(connection, 0)

    cdef bint respond(
        self, uint64_t handle, uint32_t msgid, const uint8_t* body, Py_ssize_t size, bint refused
    ) noexcept nogil:
        """Answer a hand-off with a result or an error, as MessagePack; False when nobody awaits it any more."""
        cdef Connection* connection = self.claim(handle, msgid)
        cdef Py_ssize_t frame_size = size + ENVELOPE_BYTES + unsigned_size(msgid)
        if connection == NULL:
            return False
        if frame_size > self.frame_limits.max_size:
            self.counts[REPLIES_TOO_LARGE] += 1
            if refuse_answer(self.out, msgid, self.frame_limits.max_size, frame_size) < 0:
                self.connections.doom(connection, CLOSED_MEMORY)
        elif buffer_reserve(self.out, frame_size) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
        else:
            put_response(self.out, msgid)
            if not refused:
                put(self.out, 0xC0)
            put_bytes(self.out, body, size)
            if refused:
                put(self.out, 0xC0)
        self.deliver(connection)
        check(
            self.connections, connection,
            buffer_size(&connection.output) < self.connections.max_queued + self.frame_limits.max_size,
            b"the output is `max_queued` and one answer at most",
        )
        return True

    # What is answered in slices ---------------------------------------------------------------------------------

    cdef Connection* run_scans(self, int64_t* work) noexcept nogil:
        """Go on with scans until the work is done or one has ended: its connection then, or NULL.

        Requires: `out` is empty.  The answer is in `out` afterwards.
        """
        cdef Scanner* scanner
        cdef Connection* connection
        cdef int outcome
        while work[0] > 0:
            scanner = scans_turn(&self.connections.scans)
            if scanner == NULL:
                return NULL
            connection = self.connections.find(scanner.handle)
            if connection.doomed:
                scans_drop(&self.connections.scans, scanner)
                return connection
            if not scans_have_begun(scanner) and buffer_size(&connection.output) >= self.connections.max_queued:
                scans_park(&self.connections.scans, scanner)
                continue
            if scanner.first.batch != NULL:
                if self.run_batch(scanner, work):
                    continue
                return connection
            outcome = scans_run(&self.connections.scans, scanner, self.published, work, self.out)
            if outcome == COLD:
                scans_read_cold(scanner, self.cold)
                self.fetch(scanner)
                outcome = UNDER_WAY
            if outcome == UNDER_WAY and self.connections.make_room(connection, 0):
                continue
            self.end_scan(connection, outcome if outcome != UNDER_WAY else OUT_OF_MEMORY)
            return connection
        return NULL

    cdef void fetch(self, Scanner* scanner) noexcept nogil:
        """Have it wait for the pages that are being read for it; if there are none, it tries again."""
        self.counts[COLD_READS] += 1
        if not scans_fetch(&self.connections.scans, scanner):
            scans_yield(&self.connections.scans, scanner, 1 << 30)

    cdef bint run_batch(self, Scanner* scanner, int64_t* work) noexcept nogil:
        """Go on with the connection's first batch, whose answer is in `out` when it ends; whether it is under way."""
        cdef Connection* connection = self.connections.find(scanner.handle)
        cdef int64_t slice = BATCH_SLICE_WORK
        cdef int outcome = self.forwarding.read_batch(scanner.first.batch, &slice, self.out)
        work[0] -= BATCH_SLICE_WORK - slice + REQUEST_WORK
        if outcome == COLD:
            self.forwarding.ask_disk(scanner.first.batch, &scanner.wait)
            self.fetch(scanner)
        elif outcome == UNDER_WAY:
            scans_yield(&self.connections.scans, scanner, BATCH_SLICE_WORK - slice)
        else:
            scans_done(&self.connections.scans, scanner)
            return False
        if not self.connections.make_room(connection, 0):
            self.connections.doom(connection, CLOSED_MEMORY)
        return not connection.doomed

    cdef void end_scan(self, Connection* connection, int outcome) noexcept nogil:
        """Count the connection's first scan, which has ended, or hand it off."""
        cdef Job* job = connection.scanner.first
        cdef Envelope request
        check(
            self.connections, connection, ids_contain(&connection.in_flight, job.msgid),
            b"the id of a scan under way is in flight",
        )
        self.connections.remove_in_flight(connection, job.msgid)
        if outcome == HAND_OFF:
            request.msgid = job.msgid
            request.method = Blob(<const uint8_t*>b"scan", 4)
            request.params = Cursor(job.params.data, job.params.data + job.params.end)
            self.hand_off(connection, &request)
        else:
            histogram_record(&self.answered.histogram, <uint64_t>(self.connections.now_ns - job.received_ns), 1)
        if outcome == OUT_OF_MEMORY:
            self.connections.doom(connection, CLOSED_MEMORY)
        elif outcome == REFUSED_SIZE:
            self.counts[REPLIES_TOO_LARGE] += 1
        connection.active_ms = self.connections.now_ms
        scans_done(&self.connections.scans, &connection.scanner)

    # The way in from Python -------------------------------------------------------------------------------------

    def publish(self, PublishedTable published not None):
        """Serve this table from the next message on; counting goes on.

        The older table's files are released when the last scan that reads from them has ended.
        """
        cdef PublishedTable older = self.published
        self.check_thread()
        if published is not older:
            published.inherit(older)
            self.published = published
            self.forwarding.published = published
            self.retired = release_unread([*self.retired, older])

    def set_peer(self, int column, str name not None, int state):
        """Know a member under that column, a small number, in that state: 0 ALIVE, 1 SUSPECT, 2 DEAD."""
        self.check_thread()
        self.forwarding.peers.routes.set_peer(column, name, state)

    def forget_peer(self, int column):
        """Know nothing of it, and end its connection: the column may be another's."""
        self.check_thread()
        self.forwarding.peers.forget_peer(column)

    def set_holder(self, bytes identity not None, Py_ssize_t partitions, int column, bytes bitmap not None):
        """Say which of so many partitions of that identity a peer holds: bit p of the bytes, the lowest first."""
        self.check_thread()
        self.forwarding.peers.routes.set_holder(identity, partitions, column, bitmap)

    def forget_route(self, bytes identity not None):
        """Know nobody who holds any of that identity: reads of it are handed off from now on."""
        self.check_thread()
        self.forwarding.peers.routes.forget_route(identity)

    def ask(self, int column, bytes method not None, bytes params not None, int64_t timeout_ms):
        """Ask a peer something, with the next round: the token of its answer, or 0 when it cannot be asked now."""
        self.check_thread()
        return self.forwarding.peers.ask(column, method, params, timeout_ms)

    def take_replies(self):
        """What was answered since the last time, or will not be: `(token, result or None, error or None)`."""
        return self.forwarding.peers.take_replies() if self.connections.relays.first_reply != NULL else []

    def take_peer_events(self):
        """What became of peers, and of reads that they take over, since the last time: `(column, event, what)`."""
        return self.forwarding.peers.take_peer_events() if self.forwarding.peers.has_events() else []

    def broken_invariants(self):
        """What did not hold since the last time, in words, with the connection; the debug build alone looks."""
        return self.connections.take_broken()

    def latency(self):
        """How long answers took, from the receive that brought the request until the answer was given to the socket."""
        return {
            "local": self.answered,
            "forwarded": self.forwarding.answered,
            "handed_off": self.handed_off,
        }

    def counters(self):
        """Every counter, by name, and how much there is of what comes and goes."""
        result = counters_by_name(self.counts)
        result["connections"] = self.connections.connection_count - self.connections.peer_count
        result["peers"] = self.connections.peer_count
        result["in_flight"] = self.connections.in_flight_count
        result["held_bytes"] = (
            self.connections.held_bytes + self.connections.scans.held_bytes + self.connections.relays.held_bytes
        )
        result |= scans_counters(&self.connections.scans)
        result["waiting_bytes"] = self.connections.backlog.size_bytes + self.connections.backlog.parked_bytes
        return result
