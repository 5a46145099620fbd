"""Connections: their states, the memory each holds, their time-outs, and the order of eviction.

A connection is a slot with a generation, named by its handle `generation << 32 | slot`. A reused slot has the next
generation, so a late reply or event for a former connection is dropped. Slots never move and are never freed::

    OPEN ── end of input, drain, broken stream ──> FINISHING ── all answered and sent ──> LINGERING ──┐
     │                                               │   └── the same, and the peer's end was here ───┤
     └── reset, a time-out, memory ──────────────────┴────────────────────────────────────────────────┴──> free

LINGERING ends with the peer's end, or after a moment. An idle connection holds only its slot.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from gossipkv.serving._transport cimport HTTP_LISTENER, LISTENER
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_drop, buffer_init, buffer_release, buffer_size
from gossipkv.wire._wire cimport frame_begin

cdef enum:
    # `out` is freed when one large answer has grown it beyond this size.
    SPARE_OUT_BYTES = 4 * 1024 * 1024


cdef inline bint may_become(ConnectionState state, ConnectionState other) noexcept nogil:
    """True for a legal transition: to the next state, or from any state to FREE."""
    return other != state and (other == FREE or <int>other == <int>state + 1)


@cython.final
cdef class Connections:
    """The connections of a serving loop, with these invariants.

    * A connection is not read while `held`: output beyond `max_queued`, `max_in_flight` hand-offs, or no room for a
      hand-off in this step. Its `input` is at most one frame and one receive; its output is `max_queued` and one
      answer.
    * Each request is served as the connection's user at that place in the stream. A request that may change the user
      (`auth`, `hello`; AUTH, HELLO, RESET of RESP) waits for all earlier requests, and later requests wait for its
      answer.
    * An id is in `in_flight` until its request is answered, once; `in_flight_count` sums them over all connections.
    * `held_bytes` sums all inputs and outputs. With scans and the backlog it stays within `share`, which grows while no
      other serving loop needs the memory (`loop/loop_group.pyx`). Beyond that, the connection that holds most is
      closed.

    The debug build checks the invariants (`check`). A violation ends the connection and is reported to the core's
    owner; the node goes on.
    """

    def __cinit__(
        self,
        *,
        int max_in_flight,
        Py_ssize_t max_queued,
        LoopGroup group not None,
        int pump,
        int64_t frame_timeout_ms,
        int64_t output_timeout_ms,
        int64_t idle_timeout_ms,
    ):
        self.max_in_flight = max_in_flight
        self.max_queued = max_queued
        self.group = group
        self.share = group.block
        self.pump = pump
        self.time_limits.frame_ms = frame_timeout_ms
        self.time_limits.output_ms = output_timeout_ms
        self.time_limits.idle_ms = idle_timeout_ms
        self.in_vain_ms = -LOOK_MS
        self.backlog = Backlog()

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.slot_count):
            buffer_release(&self.slots[i].input)
            buffer_release(&self.slots[i].output)
            ids_release(&self.slots[i].in_flight)
            if self.slots[i].replies != NULL:
                replies_release(self.slots[i].replies)
            free(self.slots[i])
        scans_release(&self.scans)
        free(self.slots)
        free(self.free_slots)
        relays_release(&self.relays)
        buffer_release(&self.out)
        buffer_release(&self.translated)
        http_forget(&self.http)
        buffer_release(&self.lost)
        buffer_release(&self.left)
        buffer_release(&self.runnable)
        buffer_release(&self.handshakes)
        buffer_release(&self.dirty)

    # States -----------------------------------------------------------------------------------------------------

    cdef int admit(self, uint64_t address) noexcept nogil:
        """Choose the serving loop for a new connection; negative if a limit (total or per address) is reached."""
        cdef int pump = self.group.admit(address)
        if pump < 0:
            self.counts[CONNECTIONS_REFUSED_BY_ADDRESS if pump == TOO_MANY_OF_ADDRESS else CONNECTIONS_REFUSED] += 1
        if pump == TOO_MANY_CONNECTIONS:
            make_way(self, NULL)
        return pump

    cdef Connection* begin(self, int fd, uint64_t address, uint64_t listener) noexcept nogil:
        """Return a new connection that the group has admitted here; NULL if out of memory, after uncounting it."""
        cdef Connection* connection = NULL
        cdef ReplyQueue* replies = NULL
        if listener != LISTENER:
            replies = http_begin(&self.http) if listener == HTTP_LISTENER else resp_begin(&self.http.table)
        if listener == LISTENER or replies != NULL:
            connection = self.enter(fd)
        if connection == NULL:
            if replies != NULL:
                replies_release(replies)
            self.counts[CONNECTIONS_REFUSED] += 1
            self.group.leave(self.pump, address)
            return NULL
        connection.address = address
        connection.listener = listener
        connection.replies = replies
        self.counts[CONNECTIONS_ACCEPTED] += 1
        if is_short(self.group):
            make_way(self, connection)
        return connection

    cdef Connection* begin_peer(self, int fd, int column) noexcept nogil:
        """Return a new connection to another node, or NULL if out of memory; the limits for clients do not apply."""
        cdef Connection* connection = self.enter(fd)
        if connection != NULL:
            connection.peer = True
            connection.column = column
            self.peer_count += 1
        return connection

    cdef Connection* begin_gateway(self, int fd) noexcept nogil:
        """Return the connection of this node's gateway, or NULL if out of memory."""
        cdef Connection* connection = self.enter(fd)
        if connection != NULL:
            connection.gateway = True
            connection.user = PROVEN
        return connection

    cdef Connection* enter(self, int fd) noexcept nogil:
        """Return a connection in a free slot, or NULL if out of memory."""
        cdef Connection* connection
        cdef uint64_t handle
        if self.free_count == 0 and self.grow() < 0:
            return NULL
        self.free_count -= 1
        connection = self.slots[self.free_slots[self.free_count]]
        # The next generation gives a handle that no earlier connection had.
        handle = connection.handle + (<uint64_t>1 << 32)
        memset(connection, 0, sizeof(Connection))
        connection.handle = handle
        connection.scanner.handle = handle
        connection.fd = fd
        self.become(connection, OPEN)
        connection.reason = CLOSED_BY_PEER
        connection.active_ms = connection.begun_ms = self.now_ms
        connection.max_in_flight = self.max_in_flight
        frame_begin(&connection.scan)
        self.connection_count += 1
        return connection

    cdef int grow(self) noexcept nogil:
        """Add one free slot."""
        cdef uint32_t count = self.slot_count + 1
        cdef Connection** slots = <Connection**>realloc(self.slots, count * sizeof(Connection*))
        cdef uint32_t* free_slots
        if slots == NULL:
            return -1
        self.slots = slots
        free_slots = <uint32_t*>realloc(self.free_slots, count * sizeof(uint32_t))
        if free_slots == NULL:
            return -1
        self.free_slots = free_slots
        slots[count - 1] = <Connection*>calloc(1, sizeof(Connection))
        if slots[count - 1] == NULL:
            return -1
        slots[count - 1].handle = count - 1
        self.slot_count = count
        self.free_slots[self.free_count] = count - 1
        self.free_count += 1
        return 0

    cdef Connection* find(self, uint64_t handle) noexcept nogil:
        """Return the connection with that handle, or NULL if it is gone."""
        cdef uint32_t slot = <uint32_t>handle
        if slot >= self.slot_count or self.slots[slot].handle != handle or self.slots[slot].state == FREE:
            return NULL
        return self.slots[slot]

    cdef void release(self, Connection* connection) noexcept nogil:
        """Forget a connection; `find` returns NULL for its handle from now on."""
        self.counts[connection.reason] += 1
        self.held_bytes -= buffer_size(&connection.input) + buffer_size(&connection.output)
        self.in_flight_count -= connection.in_flight.count
        count_in_flight(self.group, -connection.in_flight.count)
        if connection.peer:
            self.peer_count -= 1
            if connection.column != NO_COLUMN:
                push_handle(&self.lost, <uint64_t>connection.column << 32 | <uint64_t>connection.reason)
        elif not connection.gateway:
            self.group.leave(self.pump, connection.address)
            self.end_waits(connection)
        buffer_release(&connection.input)
        buffer_release(&connection.output)
        ids_release(&connection.in_flight)
        self.backlog.forget_queue(connection.handle)
        scans_drop(&self.scans, &connection.scanner)
        relays_drop(&self.relays, &connection.relays)
        self.drop_replies(connection)
        attempts_lose(&self.relays, &connection.attempts)
        self.connection_count -= 1
        if CHECKED:
            self.check_sums(connection)
            self.check_relays(connection)
        self.become(connection, FREE)
        self.free_slots[self.free_count] = <uint32_t>connection.handle
        self.free_count += 1
        check(
            self, connection, self.connection_count + self.free_count == self.slot_count,
            b"a slot is free or has a connection",
        )

    cdef void become(self, Connection* connection, ConnectionState state) noexcept nogil:
        check(
            self, connection, may_become(connection.state, state),
            b"a connection goes from open over finishing to lingering, and from each of them to its end",
        )
        connection.state = state

    cdef void finish(self, Connection* connection, int reason) noexcept nogil:
        """Read no more: answer what has arrived, then end. Doom a connection to a peer at once: no answers come."""
        if connection.peer:
            self.doom(connection, reason)
        elif connection.state == OPEN:
            self.become(connection, FINISHING)
            connection.reason = reason
            self.end_waits(connection)

    cdef void end_waits(self, Connection* connection) noexcept nogil:
        """Let Python end the waits of a connection's requests: of its polls alone, if it still gets answers."""
        if connection.in_flight.count > 0:
            push_handle(&self.left, connection.handle)

    cdef void linger(self, Connection* connection) noexcept nogil:
        """Wait a while for the peer's end after ours was sent. Requires: `is_finished`."""
        check(
            self, connection,
            connection.in_flight.count == 0 and buffer_size(&connection.output) == 0 and not connection.held,
            b"a connection ends when all is answered and sent",
        )
        self.become(connection, LINGERING)
        connection.active_ms = self.now_ms

    cdef void doom(self, Connection* connection, int reason) noexcept nogil:
        """Mark the connection to be closed at the next occasion, whatever is unsent."""
        if not connection.doomed:
            connection.doomed = True
            connection.reason = reason

    cdef bint wants_read(self, const Connection* connection) noexcept nogil:
        """True if the loop may receive more: no received input waits, and there is room for an answer."""
        return (
            connection.state == OPEN
            and not connection.held
            and connection.shaking == 0
            and not connection.doomed
            and (has_room(self, connection) or connection.peer)
        )

    cdef bint is_finished(self, const Connection* connection) noexcept nogil:
        """True if no more input comes, and every request is answered and every answer sent."""
        return (
            connection.state == FINISHING
            and not connection.held
            and connection.in_flight.count == 0
            and buffer_size(&connection.output) == 0
        )

    cdef bint may_detach(self, const Connection* connection) noexcept nogil:
        """True if all requests before the strange one are answered and sent. Requires: there is a strange one."""
        return not connection.doomed and reply_count(connection.replies) == 0 and buffer_size(&connection.output) == 0

    cdef void run_later(self, Connection* connection) noexcept nogil:
        """Process the held input in the next step."""
        if not connection.runnable:
            connection.runnable = push_handle(&self.runnable, connection.handle)

    cdef Connection* next_runnable(self) noexcept nogil:
        """Return the next connection with held input that may go on; NULL after the last."""
        cdef Connection* connection
        while buffer_size(&self.runnable) > 0:
            connection = self.find(pop_handle(&self.runnable))
            if connection != NULL:
                connection.runnable = False
                if connection.held and not connection.doomed:
                    return connection
        return NULL

    cdef void flush_later(self, Connection* connection) noexcept nogil:
        """Let the next flush send the connection's replies, or close it."""
        if not connection.dirty:
            connection.dirty = push_handle(&self.dirty, connection.handle)

    # Ids in flight ----------------------------------------------------------------------------------------------

    cdef bint add_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil:
        """Record the id of a request that is answered later. If out of memory, doom the connection and return False.

        Requires: the id is not in flight.
        """
        check(
            self, connection, not ids_contain(&connection.in_flight, msgid),
            b"an id is in flight once, so its request is answered once",
        )
        if ids_add(&connection.in_flight, msgid) < 0:
            self.doom(connection, CLOSED_MEMORY)
            return False
        self.in_flight_count += 1
        count_in_flight(self.group, 1)
        if CHECKED:
            self.check_sums(connection)
        return True

    cdef bint remove_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil:
        """Forget the id of a request that is answered now. Return False if the id is not in flight."""
        if not ids_remove(&connection.in_flight, msgid):
            return False
        self.in_flight_count -= 1
        count_in_flight(self.group, -<uint32_t>1)
        if CHECKED:
            self.check_sums(connection)
        return True

    # Memory -----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t room(self) noexcept nogil:
        """Return how many more bytes this loop's connections may hold."""
        cdef Py_ssize_t requests = self.backlog.size_bytes + self.backlog.parked_bytes
        return self.share - self.held_bytes - self.scans.held_bytes - self.relays.held_bytes - requests

    cdef Py_ssize_t held_by(self, const Connection* connection) noexcept nogil:
        """Return the bytes of the connection's input, output and scans, and of its requests in the backlog."""
        return (
            buffer_size(&connection.input)
            + buffer_size(&connection.output)
            + connection.scanner.held_bytes
            + connection.relays.held_bytes
            + self.backlog.bytes_of(connection.handle)
        )

    cdef Connection* largest_holder(self) noexcept nogil:
        """Return the first connection of those that hold most; NULL without connections."""
        cdef Connection* largest = NULL
        cdef Py_ssize_t most = -1
        cdef Py_ssize_t held
        cdef uint32_t i
        for i in range(self.slot_count):
            if self.slots[i].state != FREE:
                held = self.held_by(self.slots[i])
                if held > most:
                    most = held
                    largest = self.slots[i]
        return largest

    cdef bint make_room(self, const Connection* asker, Py_ssize_t size) noexcept nogil:
        """Make room for `size` bytes held by connection `asker`. Return True if it may hold them.

        A connection is closed first if it holds more than `asker` would then hold, so that a few large holders do not
        drive out many small ones. Each pass over all connections frees the memory of the largest one.
        """
        cdef Connection* largest
        while not may_hold(self, size):
            largest = self.largest_holder()
            if largest == NULL or largest == asker:
                return False
            if self.held_by(largest) <= self.held_by(asker) + size:
                return False
            self.held_bytes -= buffer_size(&largest.input) + buffer_size(&largest.output)
            buffer_release(&largest.input)
            buffer_release(&largest.output)
            self.backlog.forget_queue(largest.handle)
            scans_drop(&self.scans, &largest.scanner)
            relays_drop(&self.relays, &largest.relays)
            self.drop_replies(largest)
            if CHECKED:
                self.check_sums(largest)
            self.doom(largest, CLOSED_MEMORY)
            self.flush_later(largest)
        return True

    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Keep input that cannot be processed yet; if there is no room, close the connection and return -1."""
        if not self.make_room(connection, size) or buffer_append(&connection.input, data, size) < 0:
            self.doom(connection, CLOSED_MEMORY)
            return -1
        self.held_bytes += size
        if CHECKED:
            self.check_sums(connection)
        return 0

    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Forget the first `size` bytes of the input, which have been processed."""
        if size > 0:
            self.held_bytes -= size
            buffer_drop(&connection.input, size)
            if CHECKED:
                self.check_sums(connection)

    cdef Buffer take_input(self, Connection* connection) noexcept nogil:
        """Detach and return the kept input, so that making room cannot free it meanwhile."""
        cdef Buffer kept = connection.input
        self.held_bytes -= buffer_size(&kept)
        buffer_init(&connection.input)
        if CHECKED:
            self.check_sums(connection)
        return kept

    cdef void put_input_back(self, Connection* connection, Buffer* kept) noexcept nogil:
        """Keep the rest of the detached input, unless the connection ends."""
        if connection.doomed:
            buffer_release(kept)
            return
        connection.input = kept[0]
        self.held_bytes += buffer_size(kept)
        if CHECKED:
            self.check_sums(connection)

    cdef void note_output(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Count `size` bytes appended to the output, and let the next flush send them."""
        self.held_bytes += size
        if connection.blocked_ms == 0:
            connection.blocked_ms = self.now_ms
        self.flush_later(connection)
        if CHECKED:
            self.check_sums(connection)

    cdef void hold_output(self, Connection* connection, Py_ssize_t skip) noexcept nogil:
        """Keep the answers in `out` beyond the first `skip` bytes until the peer takes them, and empty `out`."""
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
        if self.out.capacity > SPARE_OUT_BYTES:
            buffer_release(&self.out)
            buffer_release(&self.translated)
        self.out.start = 0
        self.out.end = 0
        if CHECKED:
            self.check_sums(connection)

    cdef void translate_answers(self, Connection* connection) noexcept nogil:
        """Translate new answers into the dialect, in order: first those behind the output, then those in `out`.

        Answers that wait for earlier ones count as held by its relays. Requires: the connection has pending replies in
        order.
        """
        cdef ReplyQueue* replies = connection.replies
        cdef Buffer* output = &connection.output
        cdef Buffer out = self.out
        cdef Py_ssize_t size = buffer_size(output) - replies.translated
        cdef bint done = True
        if size > 0 and not connection.doomed:
            done = write_answers(replies, output.data + output.start + replies.translated, size, &self.translated) == 0
            output.end -= size
            done = done and buffer_append(output, self.translated.data, self.translated.end) == 0
            self.held_bytes += buffer_size(output) - replies.translated - size
            self.translated.end = 0
        replies.translated = buffer_size(output)
        if buffer_size(&out) > 0 and not connection.doomed:
            done = done and write_answers(replies, out.data + out.start, buffer_size(&out), &self.translated) == 0
            self.out = self.translated
            self.translated = out
            self.translated.start = self.translated.end = 0
        if not done:
            self.doom(connection, CLOSED_MEMORY)
        if replies.translated == 0:
            connection.blocked_ms = 0
        note_reply_bytes(self, connection, replies_bytes(replies))

    cdef void drop_replies(self, Connection* connection) noexcept nogil:
        if connection.replies != NULL:
            note_reply_bytes(self, connection, 0)
            replies_release(connection.replies)
            connection.replies = NULL

    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Forget the first `size` bytes of the output, which the peer took; held input may go on."""
        self.held_bytes -= size
        if size > 0:
            buffer_drop(&connection.output, size)
            if connection.replies != NULL:
                connection.replies.translated -= size
            connection.blocked_ms = connection.active_ms = self.now_ms
        if buffer_size(&connection.output) == 0:
            connection.blocked_ms = 0
        if CHECKED:
            self.check_sums(connection)
        if connection.held and not connection.strange and has_room(self, connection):
            self.run_later(connection)
        if buffer_size(&connection.output) < self.max_queued:
            scans_unpark(&self.scans, &connection.scanner)
            if connection.parked:
                connection.parked = False
                self.backlog.resume_queue(connection.handle)

    # Time -------------------------------------------------------------------------------------------------------

    cdef void set_time(self, int64_t now_ns) noexcept nogil:
        self.now_ns = now_ns
        self.now_ms = now_ns // 1000000

    # The end ----------------------------------------------------------------------------------------------------

    cdef void drop_readers(self) noexcept nogil:
        """End every scan and batch while the table that it reads from still exists."""
        cdef uint32_t i
        for i in range(self.slot_count):
            scans_drop(&self.scans, &self.slots[i].scanner)
            relays_drop(&self.relays, &self.slots[i].relays)

    # Invariants, in the debug build ------------------------------------------------------------------------------

    cdef void check_sums(self, Connection* connection) noexcept nogil:
        """Compare the sums over all connections with the connections, of which only this one has changed."""
        cdef Py_ssize_t held = buffer_size(&connection.input) + buffer_size(&connection.output)
        self.seen_bytes += held - connection.seen_bytes
        self.seen_in_flight += connection.in_flight.count - connection.seen_in_flight
        connection.seen_bytes = held
        connection.seen_in_flight = connection.in_flight.count
        if self.seen_bytes != self.held_bytes:
            self.seen_bytes = self.held_bytes  # Report the violation once.
            self.note_broken(connection, b"`held_bytes` is the sum of all inputs and outputs")
        if self.seen_in_flight != self.in_flight_count:
            self.seen_in_flight = self.in_flight_count
            self.note_broken(connection, b"`in_flight_count` is how many ids are in flight")

    cdef void check_relays(self, Connection* connection) noexcept nogil:
        """Compare the counts of relays and attempts with the lists, after a connection has released its own."""
        check(
            self, connection, connection.attempts.count == 0 and connection.attempts.abandoned == 0,
            b"a connection's attempts are those in its list",
        )
        check(
            self, connection,
            connection.relays.held_bytes == 0 and (self.relays.count > 0 or self.relays.held_bytes == 0),
            b"the bytes that relays hold are counted on their connections",
        )
        check(
            self, connection, self.relays.attempt_count == 0 or self.peer_count > 0,
            b"an attempt is on a connection to a peer",
        )

    cdef void note_broken(self, Connection* connection, const char* invariant) noexcept nogil:
        """Record a broken invariant for `take_broken`, and end the connection."""
        if self.broken_count < MAX_BROKEN:
            self.broken[self.broken_count].invariant = invariant
            self.broken[self.broken_count].handle = connection.handle if connection != NULL else 0
            self.broken_count += 1
        if connection != NULL:
            self.doom(connection, CLOSED_CUT)
            self.flush_later(connection)

    cdef list take_broken(self):
        """Return the invariants broken since the last call, each with the handle of its connection."""
        cdef list taken = []
        cdef int i
        for i in range(self.broken_count):
            taken.append(f"{self.broken[i].invariant.decode()} (connection {self.broken[i].handle:#x})")
        self.broken_count = 0
        return taken
