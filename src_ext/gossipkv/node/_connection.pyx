"""The connection core: bytes and the time in, bytes and hand-offs out.  No sockets, no clock, no Trio.

A connection is a slot with a generation; its handle names both (`_slots.pxd`), so what comes late for a connection that
is gone (a reply, an event) finds nobody and is dropped.  An idle connection holds its slot and nothing else: a
half-sent frame and unsent answers each get a buffer when there are any.

The life of a connection::

    OPEN ── end of input, drain, or a broken stream ──> FINISHING ── all answered and sent ──> LINGERING ──> free
      └────────────── reset, a time-out, memory ──────────────────────────────────────────────────────────> free

The invariants:

* A message is looked at only after the scanner has bounded all of it.
* A connection is never read while it is `held`: while its answers wait for the peer beyond `max_queued`, its
  hand-offs are `max_in_flight`, or the step has no room for another hand-off.  What had arrived by then stays in
  `input`, so a connection holds at most one frame and one receive of input.
* Nor are its hand-offs answered then (`_answering.pxd`), so its output is `max_queued` and one answer at most.
* Each request that was handed off is in `in_flight` until it is answered, and is answered at most once.
* `held_bytes` is the sum of all inputs and outputs; with what waits in the backlog it stays within `max_held`.
  Over that, whoever holds most is closed.

Two drive it, through the same C functions: `_serving.pyx` from epoll, `_driver.pyx` from Python by hand, for tests
and simulations.

Thread rule: one thread owns a core.  The loop drops the GIL while it is inside, so nothing here touches a Python
object in a `nogil` function but the published table, which only that thread replaces, between steps.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from gossipkv.latency._histogram cimport LatencyHistogram, histogram_record
from gossipkv.node._addresses cimport addresses_add, addresses_count, addresses_remove
from gossipkv.node._backlog cimport ASKED, Backlog, Request, request_bytes
from gossipkv.node._counters cimport (
    BAD_REQUESTS, BYTES_RECEIVED, CLOSED_BAD_FRAME, CLOSED_BAD_MESSAGE, CLOSED_BY_PEER, CLOSED_MEMORY,
    CLOSED_UNASKED_RESPONSE, CONNECTIONS_ACCEPTED, CONNECTIONS_REFUSED, CONNECTIONS_REFUSED_BY_ADDRESS, DUPLICATE_IDS,
    GET_MANYS, HANDED_OFF, KEYS_READ, NOTIFICATIONS_IGNORED, OVERLOADED, PAUSED_FOR_HAND_OFFS, PAUSED_FOR_OUTPUT,
    REPLIES_TOO_LARGE, counters_by_name, frame_fault,
)
from gossipkv.node._holdings cimport held_by, largest_holder
from gossipkv.node._id_set cimport ids_add, ids_contain, ids_release
from gossipkv.node._local cimport GATHERED_MOST, Gathered, answer_ping, end_get, gather_get, prefetch_gathered
from gossipkv.node._published cimport ANSWERED, HAND_OFF, OUT_OF_MEMORY, REFUSED_SIZE, PublishedTable
from gossipkv.node._refusals cimport (
    refuse_bounds, refuse_elements, refuse_id, refuse_load, refuse_message, refuse_size,
)
from gossipkv.node._scans cimport (
    UNDER_WAY, release_unread, scans_ask, scans_counters, scans_drop, scans_new_step, scans_release, scans_unpark,
)
from gossipkv.node._slots cimport slots_find, slots_give_back, slots_grow, slots_take
from gossipkv.node._state cimport FINISHING, OPEN, Connection, time_is_up
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_drop, buffer_release, buffer_size
from gossipkv.wire._frames cimport (
    FRAME_COMPLETE, FRAME_DEPTH, FRAME_PARTIAL, FRAME_TOO_LARGE, frame_begin, frame_scan,
)
from gossipkv.wire._message cimport (
    BAD_REQUEST, IS_NOTIFICATION, IS_REQUEST, IS_RESPONSE, Envelope, blob_is, read_envelope,
)

cdef enum:
    # Answers of one connection in one go; then they are sent, and others have their turn.
    BURST_BYTES = 256 * 1024
    # Hand-offs of one step, and bytes of their parameters: what Python answers before the loop looks at sockets again.
    HAND_OFFS_PER_STEP = 1024
    HAND_OFF_BYTES_PER_STEP = 4 * 1024 * 1024
    # Keys that one connection reads in one go: about half a millisecond.
    KEYS_PER_TURN = 4096
    # Elements of a request that Python decodes: 1 ms of decoding, and no method takes more but `get_many`.
    HAND_OFF_ELEMENTS = 1024
    # Parameters of requests that wait for their turn; beyond, further ones are refused.
    MAX_WAITING_BYTES = 16 * 1024 * 1024
    # `out` goes back to the allocator when one large answer has blown it up.
    SPARE_BYTES = 4 * 1024 * 1024


@cython.final
@cython.no_gc_clear  # Scans that are under way hold their table until the end.
cdef class Core:
    """All connections of a node, and what they ask."""

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
    ):
        if min(max_frame, max_depth, max_elements, max_key, max_value, max_queued, max_held) < 1 or min(
            max_in_flight, max_in_flight_total, max_connections, scan_limit
        ) < 1:
            raise ValueError("every limit of a core must be positive")
        if max_depth > FRAME_DEPTH:
            raise ValueError(f"the scanner has room for {FRAME_DEPTH} levels, not {max_depth}")
        self.thread = <long>PyThread_get_thread_ident()
        self.published = PublishedTable(())
        self.retired = []
        self.frame_limits.max_size = max_frame
        self.frame_limits.max_depth = max_depth
        self.frame_limits.max_elements = max_elements
        self.read_limits.max_frame = max_frame
        self.read_limits.max_key = max_key
        self.read_limits.max_value = max_value
        self.scans.limits = self.read_limits
        self.scans.scan_limit = scan_limit
        self.begin_step()
        self.max_in_flight = max_in_flight
        self.max_in_flight_total = max_in_flight_total
        self.max_queued = max_queued
        self.max_held = max_held
        self.max_connections = max_connections
        self.max_connections_per_address = max_connections_per_address
        self.time_limits.frame_ms = frame_timeout_ms
        self.time_limits.output_ms = output_timeout_ms
        self.time_limits.idle_ms = idle_timeout_ms
        self.backlog = Backlog()
        self.answered = LatencyHistogram()
        self.handed_off = LatencyHistogram()

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.slots.count):
            scans_drop(&self.scans, &self.slots.at[i].scanner)
            buffer_release(&self.slots.at[i].input)
            buffer_release(&self.slots.at[i].output)
            ids_release(&self.slots.at[i].in_flight)
            free(self.slots.at[i])
        scans_release(&self.scans)
        free(self.slots.at)
        free(self.slots.free)
        free(self.addresses.entries)
        buffer_release(&self.out)
        buffer_release(&self.runnable)
        buffer_release(&self.dirty)

    # Connections ------------------------------------------------------------------------------------------------

    cdef void count(self, int counter, uint64_t amount) noexcept nogil:
        self.counts[counter] += amount

    cdef Connection* begin(self, int fd, uint64_t address) noexcept nogil:
        """A new connection, or NULL: there are as many as allowed, in all or of that address, or no memory."""
        cdef Connection* connection
        cdef uint32_t limit = self.max_connections_per_address
        if limit > 0 and addresses_count(&self.addresses, address) >= limit:
            self.counts[CONNECTIONS_REFUSED_BY_ADDRESS] += 1
            return NULL
        if (
            self.connection_count >= self.max_connections
            or (self.slots.free_count == 0 and slots_grow(&self.slots) < 0)
            or (limit > 0 and addresses_add(&self.addresses, address) < 0)
        ):
            self.counts[CONNECTIONS_REFUSED] += 1
            return NULL
        connection = slots_take(&self.slots)
        connection.fd = fd
        connection.address = address
        connection.state = OPEN
        connection.reason = CLOSED_BY_PEER
        connection.active_ms = self.now_ms
        frame_begin(&connection.scan)
        self.connection_count += 1
        self.counts[CONNECTIONS_ACCEPTED] += 1
        return connection

    cdef Connection* find(self, uint64_t handle) noexcept nogil:
        """The connection of that handle, or NULL when it is gone."""
        return slots_find(&self.slots, handle)

    cdef void release(self, Connection* connection) noexcept nogil:
        """Forget a connection; its handle finds nobody from now on."""
        self.counts[connection.reason] += 1
        self.held_bytes -= buffer_size(&connection.input) + buffer_size(&connection.output)
        self.in_flight_count -= connection.in_flight.count
        if self.max_connections_per_address > 0:
            addresses_remove(&self.addresses, connection.address)
        buffer_release(&connection.input)
        buffer_release(&connection.output)
        ids_release(&connection.in_flight)
        self.backlog.forget_queue(connection.handle)
        scans_drop(&self.scans, &connection.scanner)
        self.connection_count -= 1
        slots_give_back(&self.slots, connection)

    cdef void finish(self, Connection* connection, int reason) noexcept nogil:
        """Read no more: answer what has arrived, then end."""
        if connection.state == OPEN:
            connection.state = FINISHING
            connection.reason = reason

    cdef void doom(self, Connection* connection, int reason) noexcept nogil:
        """Close at the next occasion, whatever waits."""
        if not connection.doomed:
            connection.doomed = True
            connection.reason = reason

    cdef bint has_room(self, const Connection* connection) noexcept nogil:
        """Whether the connection's own limits allow one more message."""
        return (
            connection.in_flight.count < self.max_in_flight
            and buffer_size(&connection.output) + buffer_size(&self.out) < self.max_queued
        )

    cdef bint may_process(self, const Connection* connection) noexcept nogil:
        """Whether there is room for the consequences of one more message, now."""
        return (
            not connection.broken
            and not connection.doomed
            and self.has_room(connection)
            and buffer_size(&self.out) < BURST_BYTES
            and self.hand_off_count < HAND_OFFS_PER_STEP
            and self.hand_off_bytes < HAND_OFF_BYTES_PER_STEP
            and self.counts[KEYS_READ] < self.turn_ends_at_key
        )

    cdef bint wants_read(self, const Connection* connection) noexcept nogil:
        return (
            connection.state == OPEN and not connection.held and not connection.doomed and self.has_room(connection)
        )

    cdef bint is_finished(self, const Connection* connection) noexcept nogil:
        return (
            connection.state == FINISHING
            and not connection.held
            and connection.in_flight.count == 0
            and buffer_size(&connection.output) == 0
        )

    cdef void run_later(self, Connection* connection) noexcept nogil:
        """Have the held input looked at in the next step."""
        if not connection.runnable:
            connection.runnable = push_handle(&self.runnable, connection.handle)

    cdef void flush_later(self, Connection* connection) noexcept nogil:
        """Have the next flush send its replies, or close it."""
        if not connection.dirty:
            connection.dirty = push_handle(&self.dirty, connection.handle)

    cdef Py_ssize_t room(self) noexcept nogil:
        """How much more may be held for all connections."""
        cdef Py_ssize_t requests = self.backlog.size_bytes + self.backlog.parked_bytes
        return self.max_held - self.held_bytes - self.scans.held_bytes - requests

    cdef bint make_room(self, const Connection* asking, Py_ssize_t size) noexcept nogil:
        """Whether a connection may hold so much more.

        Whoever holds more than it would then hold has to go first, so that few who hold much do not drive out many
        who hold little.  Each such look at all connections frees what the largest of them holds.
        """
        cdef Connection* largest
        while size > self.room():
            largest = largest_holder(&self.slots, self.backlog)
            if largest == NULL or largest == asking:
                return False
            if held_by(largest, self.backlog) <= held_by(asking, self.backlog) + size:
                return False
            self.held_bytes -= buffer_size(&largest.input) + buffer_size(&largest.output)
            buffer_release(&largest.input)
            buffer_release(&largest.output)
            self.backlog.forget_queue(largest.handle)
            scans_drop(&self.scans, &largest.scanner)
            self.doom(largest, CLOSED_MEMORY)
            self.flush_later(largest)
        return True

    # Input ------------------------------------------------------------------------------------------------------

    cdef void receive_bytes(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Bytes arrived.  Requires: `wants_read`, and `out` is empty.  Answers are in `out` afterwards."""
        cdef Py_ssize_t consumed
        self.counts[BYTES_RECEIVED] += <uint64_t>size
        connection.active_ms = self.now_ms
        connection.received_ns = self.now_ns
        if buffer_size(&connection.input) > 0:
            if self.hold_input(connection, data, size) == 0:
                self.resume(connection)
            return
        consumed = self.consume(connection, data, size)
        if consumed < size and not connection.broken and not connection.doomed and self.hold_input(
            connection, data + consumed, size - consumed
        ) < 0:
            return
        self.settle(connection, consumed)

    cdef void resume(self, Connection* connection) noexcept nogil:
        """Look at the input that is kept.  Answers are in `out` afterwards."""
        cdef Buffer* kept = &connection.input
        cdef Py_ssize_t consumed = self.consume(connection, kept.data + kept.start, buffer_size(kept))
        self.drop_input(connection, buffer_size(kept) if connection.broken else consumed)
        self.settle(connection, consumed)

    cdef Py_ssize_t consume(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Take message after message; how many bytes they were.

        Plain gets are gathered, so that their cache misses overlap, and answered before anything else is.  Those for
        whose answers there is no room are as if they had not been looked at.
        """
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t length
        cdef int result
        cdef int kind
        cdef Envelope envelope
        self.turn_ends_at_key = self.counts[KEYS_READ] + KEYS_PER_TURN
        connection.held = False
        while at < size:
            if not self.may_process(connection):
                connection.held = not connection.broken
                break
            result = frame_scan(&connection.scan, data + at, size - at, &self.frame_limits)
            if result == FRAME_COMPLETE:
                length = connection.scan.position
                self.elements = connection.scan.elements
                kind = read_envelope(data + at, length, &envelope)
                if (
                    kind == IS_REQUEST
                    and not ids_contain(&connection.in_flight, envelope.msgid)
                    and gather_get(&self.gathered, self.published, &self.read_limits, data + at, &envelope)
                ):
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
            self.take_message(connection, kind, &envelope)
            at += length
        self.answer_gathered(connection, data, &at)
        return at

    cdef bint answer_gathered(self, Connection* connection, const uint8_t* data, Py_ssize_t* at) noexcept nogil:
        """Answer the gets that were gathered; False when there is room for some only: `at` is then where to go on."""
        cdef Gathered* entry
        cdef int count = self.gathered.count
        cdef int i
        self.gathered.count = 0
        self.elements = 0  # Those of the message behind them do not count.
        prefetch_gathered(&self.gathered, self.published, count)
        for i in range(count):
            entry = &self.gathered.entries[i]
            if i > 0 and not self.may_process(connection):
                at[0] = entry.message - data
                frame_begin(&connection.scan)
                connection.held = True
                return False
            self.conclude(
                connection,
                &entry.request,
                end_get(entry, self.published, &self.read_limits, &self.out, self.counts),
            )
        return True

    cdef void settle(self, Connection* connection, Py_ssize_t consumed) noexcept nogil:
        """After `consume`: since when a frame is half-sent, and whether the rest may be looked at soon."""
        if connection.held or connection.broken or buffer_size(&connection.input) == 0:
            connection.partial_ms = 0
        elif consumed > 0 or connection.partial_ms == 0:
            connection.partial_ms = self.now_ms
        if connection.held:
            if connection.in_flight.count >= self.max_in_flight:
                self.counts[PAUSED_FOR_HAND_OFFS] += 1
            elif buffer_size(&connection.output) + buffer_size(&self.out) >= self.max_queued:
                self.counts[PAUSED_FOR_OUTPUT] += 1

    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        if not self.make_room(connection, size) or buffer_append(&connection.input, data, size) < 0:
            self.doom(connection, CLOSED_MEMORY)
            return -1
        self.held_bytes += size
        return 0

    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        if size > 0:
            self.held_bytes -= size
            buffer_drop(&connection.input, size)

    cdef void refuse_frame(
        self, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
    ) noexcept nogil:
        """The stream has no boundary left: answer under the id if the frame shows one, and end."""
        cdef Envelope envelope
        cdef int kind = read_envelope(data, min(size, connection.scan.position), &envelope)
        connection.broken = True
        self.finish(connection, CLOSED_BAD_FRAME)
        self.counts[frame_fault(result)] += 1
        if kind != IS_REQUEST and kind != BAD_REQUEST:
            return
        if result == FRAME_TOO_LARGE:
            refuse_size(&self.out, envelope.msgid, self.frame_limits.max_size)
        else:
            refuse_bounds(&self.out, envelope.msgid)

    cdef void take_message(self, Connection* connection, int kind, const Envelope* envelope) noexcept nogil:
        """One whole frame."""
        if kind == IS_REQUEST:
            self.take_request(connection, envelope)
        elif kind == IS_NOTIFICATION:
            self.counts[NOTIFICATIONS_IGNORED] += 1
        elif kind == BAD_REQUEST:
            self.counts[BAD_REQUESTS] += 1
            self.fresh_answers += 1
            if refuse_message(&self.out, envelope.msgid) < 0:
                self.doom(connection, CLOSED_MEMORY)
        else:
            connection.broken = True
            self.finish(connection, CLOSED_UNASKED_RESPONSE if kind == IS_RESPONSE else CLOSED_BAD_MESSAGE)

    cdef void take_request(self, Connection* connection, const Envelope* request) noexcept nogil:
        """Answer it here if it is plain, else hand it off."""
        cdef int outcome = HAND_OFF
        if ids_contain(&connection.in_flight, request.msgid):
            pass  # Refused below, as two gathered gets of one id are.
        elif blob_is(&request.method, b"get_many", 8):
            outcome = self.published.get_many(
                request.msgid, request.params, &self.read_limits, &self.out, &self.counts[KEYS_READ]
            )
            self.counts[GET_MANYS] += outcome > 0
        elif blob_is(&request.method, b"scan", 4):
            outcome = scans_ask(
                &self.scans, &connection.scanner, self.published, request, connection.received_ns,
                self.in_flight_count < self.max_in_flight_total, &self.out,
            )
        elif blob_is(&request.method, b"ping", 4):
            outcome = answer_ping(request, &self.out, self.counts)
        self.conclude(connection, request, outcome)

    cdef void conclude(self, Connection* connection, const Envelope* request, int outcome) noexcept nogil:
        """What is left to do for a request."""
        if outcome == HAND_OFF:
            outcome = self.may_hand_off(connection, request)
        self.fresh_answers += 0 < outcome < UNDER_WAY
        if outcome == HAND_OFF:
            self.hand_off(connection, request)
        elif outcome == REFUSED_SIZE:
            self.counts[REPLIES_TOO_LARGE] += 1
        elif outcome == UNDER_WAY and self.make_room(connection, 0) and ids_add(
            &connection.in_flight, request.msgid
        ) == 0:
            self.in_flight_count += 1
        elif outcome == OUT_OF_MEMORY or outcome == UNDER_WAY:
            self.doom(connection, CLOSED_MEMORY)

    cdef int may_hand_off(self, const Connection* connection, const Envelope* request) noexcept nogil:
        """`HAND_OFF` if Python may see it; if not, it is answered, and nobody else is held up by it."""
        cdef int told
        if ids_contain(&connection.in_flight, request.msgid):
            self.counts[DUPLICATE_IDS] += 1
            told = refuse_id(&self.out, request.msgid)
        elif self.elements > HAND_OFF_ELEMENTS and not blob_is(&request.method, b"get_many", 8):
            self.counts[BAD_REQUESTS] += 1
            told = refuse_elements(&self.out, request.msgid, HAND_OFF_ELEMENTS, self.elements)
        elif self.in_flight_count >= self.max_in_flight_total:
            self.counts[OVERLOADED] += 1
            told = refuse_load(&self.out, request.msgid, self.max_in_flight_total)
        elif self.backlog.size_bytes >= MAX_WAITING_BYTES:
            self.counts[OVERLOADED] += 1
            told = refuse_load(&self.out, request.msgid, MAX_WAITING_BYTES)
        else:
            return HAND_OFF
        return ANSWERED if told == 0 else OUT_OF_MEMORY

    cdef void hand_off(self, Connection* connection, const Envelope* request) noexcept nogil:
        """Copy what Python needs; the receive buffer is used again, and a frame that was held is dropped."""
        cdef Py_ssize_t size = request.params.end - request.params.at
        cdef Request* waiting = NULL
        if (
            self.make_room(connection, request.method.size + size - buffer_size(&connection.input))
            and ids_add(&connection.in_flight, request.msgid) == 0
        ):
            self.in_flight_count += 1
            waiting = self.backlog.put(
                connection.handle, request.msgid, ASKED, connection.received_ns, request.method.size, size
            )
        if waiting == NULL:
            self.doom(connection, CLOSED_MEMORY)
            return
        memcpy(request_bytes(waiting), request.method.data, request.method.size)
        memcpy(request_bytes(waiting) + request.method.size, request.params.at, size)
        self.hand_off_count += 1
        self.hand_off_bytes += request.method.size + size
        self.counts[HANDED_OFF] += 1

    # Output -----------------------------------------------------------------------------------------------------

    cdef void hold_output(self, Connection* connection, Py_ssize_t skip) noexcept nogil:
        """Keep the answers in `out`, but for the first `skip` bytes, until the peer takes them; `out` is empty then."""
        cdef Py_ssize_t size = buffer_size(&self.out) - skip
        if size > 0 and not connection.doomed:
            if not self.make_room(connection, size) or buffer_append(
                &connection.output, self.out.data + self.out.start + skip, size
            ) < 0:
                self.doom(connection, CLOSED_MEMORY)
            else:
                self.held_bytes += size
                if connection.blocked_ms == 0:
                    connection.blocked_ms = self.now_ms
        if self.out.capacity > SPARE_BYTES:
            buffer_release(&self.out)
        self.out.start = 0
        self.out.end = 0

    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """The peer took the first `size` bytes of the output; held input may go on."""
        self.held_bytes -= size
        if size > 0:
            buffer_drop(&connection.output, size)
            connection.blocked_ms = connection.active_ms = self.now_ms
        if buffer_size(&connection.output) == 0:
            connection.blocked_ms = 0
        if connection.held and self.has_room(connection):
            self.run_later(connection)
        if buffer_size(&connection.output) < self.max_queued:
            scans_unpark(&self.scans, &connection.scanner)
            if connection.shut:
                connection.shut = False
                self.backlog.resume_queue(connection.handle)

    # Time -------------------------------------------------------------------------------------------------------

    cdef void set_time(self, int64_t now_ns) noexcept nogil:
        self.now_ns = now_ns
        self.now_ms = now_ns // 1000000

    cdef void begin_step(self) noexcept nogil:
        self.hand_off_count = 0
        self.hand_off_bytes = 0
        scans_new_step(&self.scans)

    cdef void count_answered(self, const Connection* connection) noexcept nogil:
        """The answers that were in `out` have been given to the socket, now."""
        if self.fresh_answers > 0:
            histogram_record(
                &self.answered.histogram, <uint64_t>(self.now_ns - connection.received_ns), self.fresh_answers
            )
            self.fresh_answers = 0

    cdef void expire_one(self, Connection* connection) noexcept nogil:
        """Doom a connection whose time is up."""
        cdef int reason = time_is_up(connection, &self.time_limits, self.now_ms)
        if reason > 0:
            self.doom(connection, reason)

    cdef int check_thread(self) except -1:
        """A core belongs to the thread that made it: a second one would race with a step that has dropped the GIL."""
        if <long>PyThread_get_thread_ident() != self.thread:
            raise RuntimeError("a core belongs to the thread that made it")
        return 0

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
            self.retired = release_unread([*self.retired, older])

    def latency(self):
        """How long answers took, from the receive that brought the request until the answer was given to the socket."""
        return {"answered": self.answered.to_map(), "handed_off": self.handed_off.to_map()}

    def counters(self):
        """Every counter, by name, and how much there is of what comes and goes."""
        result = counters_by_name(self.counts)
        result["connections"] = self.connection_count
        result["in_flight"] = self.in_flight_count
        result["held_bytes"] = self.held_bytes + self.scans.held_bytes
        result |= scans_counters(&self.scans)
        result["waiting_bytes"] = self.backlog.size_bytes + self.backlog.parked_bytes
        return result
