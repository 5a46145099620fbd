"""Connections: who is connected, what each of them holds, how long each may take, and who has to go.

A connection is a slot with a generation.  Its handle, `generation << 32 | slot`, names both: a slot is used again with
the next generation, so what comes late for a connection that is gone (a reply, an event) finds nobody and is dropped.
A slot stays where it is in memory, and is never given back: there are as many as there were connections at once.

The life of a connection::

    OPEN ── end of input, drain, broken stream ──> FINISHING ── all answered and sent ──> LINGERING ──┐
     │                                               │   └── the same, and the peer's end was here ───┤
     └── reset, a time-out, memory ──────────────────┴────────────────────────────────────────────────┴──> free

LINGERING ends with the peer's end, or after a moment.

An idle connection holds its slot and nothing else.  What it can hold beside that:

* input: a frame that has not arrived whole, or messages that something else must give way for (`held`);
* output: answers that the peer has not taken yet;
* ids in flight: of requests that were handed off or are scans under way, and are not answered yet;
* requests in the backlog, and scans.

The invariants:

* A connection is never read while it is `held`: while its answers wait for the peer beyond `max_queued`, its
  hand-offs are `max_in_flight`, or the step has no room for another hand-off.  What had arrived by then stays in
  `input`, so a connection holds at most one frame and one receive of input.
* Each request is done as the user of its connection at that place in the stream: whatever may change the user (`auth`,
  `hello`; AUTH, HELLO and RESET of RESP) is taken when nothing before it is in flight, and nothing behind it is looked
  at until it is answered.
* Nor are its hand-offs answered then (`Core.next_request`), so its output is `max_queued` and one answer at most.
* An id is in `in_flight` until its request is answered, and is answered at most once; `in_flight_count` is how many
  there are of all connections.
* `held_bytes` is the sum of all inputs and outputs; with what scans hold and what waits in the backlog it stays within
  `share`, which grows while no other pump needs it (`crew.pyx`).  Over that, whoever holds most here is closed.

The debug build checks them where they are made and where they are relied upon (`check`).  One that does not hold is a
defect of ours: it ends the connection that it was seen at and never the node, and whoever drives the core is told.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from gossipkv.serving._transport cimport HTTP_LISTENER, LISTENER
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_drop, buffer_init, buffer_release, buffer_size
from gossipkv.wire._wire cimport frame_begin

cdef enum:
    # `out` goes back to the allocator when one large answer has blown it up.
    SPARE_OUT_BYTES = 4 * 1024 * 1024


cdef inline bint may_become(State state, State other) noexcept nogil:
    """Whether the life of a connection goes on like that: to the next state, or from anywhere to its end."""
    return other != state and (other == FREE or <int>other == <int>state + 1)


@cython.final
cdef class Connections:
    """The connections of a node."""

    def __cinit__(
        self,
        *,
        int max_in_flight,
        Py_ssize_t max_queued,
        Crew crew not None,
        int pump,
        int64_t frame_timeout_ms,
        int64_t output_timeout_ms,
        int64_t idle_timeout_ms,
    ):
        self.max_in_flight = max_in_flight
        self.max_queued = max_queued
        self.crew = crew
        self.share = crew.block
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
            if self.slots[i].owing != NULL:
                owing_release(self.slots[i].owing)
            free(self.slots[i])
        scans_release(&self.scans)
        free(self.slots)
        free(self.free_slots)
        relays_release(&self.relays)
        buffer_release(&self.out)
        buffer_release(&self.said)
        http_forget(&self.http)
        buffer_release(&self.lost)
        buffer_release(&self.runnable)
        buffer_release(&self.handshakes)
        buffer_release(&self.dirty)

    # Lives ------------------------------------------------------------------------------------------------------

    cdef int admit(self, uint64_t address) noexcept nogil:
        """The pump that is to serve somebody who comes; negative: there are as many as allowed, or from there."""
        cdef int pump = self.crew.admit(address)
        if pump < 0:
            self.counts[CONNECTIONS_REFUSED_BY_ADDRESS if pump == TOO_MANY_OF_ADDRESS else CONNECTIONS_REFUSED] += 1
        if pump == TOO_MANY_CONNECTIONS:
            make_way(self, NULL)
        return pump

    cdef Connection* begin(self, int fd, uint64_t address, uint64_t listener) noexcept nogil:
        """A new connection, which the crew has admitted here; NULL without memory: it is counted no more then."""
        cdef Connection* connection = NULL
        cdef Owing* owing = NULL
        if listener != LISTENER:
            owing = http_begin(&self.http) if listener == HTTP_LISTENER else resp_begin()
        if listener == LISTENER or owing != NULL:
            connection = self.enter(fd)
        if connection == NULL:
            if owing != NULL:
                owing_release(owing)
            self.counts[CONNECTIONS_REFUSED] += 1
            self.crew.leave(self.pump, address)
            return NULL
        connection.address = address
        connection.listener = listener
        connection.owing = owing
        self.counts[CONNECTIONS_ACCEPTED] += 1
        if is_short(self.crew):
            make_way(self, connection)
        return connection

    cdef Connection* begin_peer(self, int fd, int column) noexcept nogil:
        """A connection to another node, or NULL without memory; the limits are for those who come."""
        cdef Connection* connection = self.enter(fd)
        if connection != NULL:
            connection.peer = True
            connection.column = column
            self.peer_count += 1
        return connection

    cdef Connection* begin_gateway(self, int fd) noexcept nogil:
        """The connection of this node's gateway, or NULL without memory."""
        cdef Connection* connection = self.enter(fd)
        if connection != NULL:
            connection.gateway = True
            connection.user = PROVEN
        return connection

    cdef Connection* enter(self, int fd) noexcept nogil:
        """A connection in a free slot, or NULL without memory for more of them."""
        cdef Connection* connection
        cdef uint64_t handle
        if self.free_count == 0 and self.grow() < 0:
            return NULL
        self.free_count -= 1
        connection = self.slots[self.free_slots[self.free_count]]
        handle = connection.handle + (<uint64_t>1 << 32)  # One that nobody has had.
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
        """One more slot, which is free."""
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
        """The connection of that handle, or NULL when it is gone."""
        cdef uint32_t slot = <uint32_t>handle
        if slot >= self.slot_count or self.slots[slot].handle != handle or self.slots[slot].state == FREE:
            return NULL
        return self.slots[slot]

    cdef void release(self, Connection* connection) noexcept nogil:
        """Forget a connection; its handle finds nobody from now on."""
        self.counts[connection.reason] += 1
        self.held_bytes -= buffer_size(&connection.input) + buffer_size(&connection.output)
        self.in_flight_count -= connection.in_flight.count
        count_in_flight(self.crew, -connection.in_flight.count)
        if connection.peer:
            self.peer_count -= 1
            if connection.column != NO_COLUMN:
                push_handle(&self.lost, <uint64_t>connection.column << 32 | <uint64_t>connection.reason)
        elif not connection.gateway:
            self.crew.leave(self.pump, connection.address)
        buffer_release(&connection.input)
        buffer_release(&connection.output)
        ids_release(&connection.in_flight)
        self.backlog.forget_queue(connection.handle)
        scans_drop(&self.scans, &connection.scanner)
        relays_drop(&self.relays, &connection.relays)
        self.drop_owing(connection)
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

    cdef void become(self, Connection* connection, State state) noexcept nogil:
        """Enter the next state of its life."""
        check(
            self, connection, may_become(connection.state, state),
            b"a connection goes from open over finishing to lingering, and from each of them to its end",
        )
        connection.state = state

    cdef void finish(self, Connection* connection, int reason) noexcept nogil:
        """Read no more: answer what has arrived, then end.  A peer that has ended answers nothing: it goes at once."""
        if connection.peer:
            self.doom(connection, reason)
        elif connection.state == OPEN:
            self.become(connection, FINISHING)
            connection.reason = reason

    cdef void linger(self, Connection* connection) noexcept nogil:
        """Wait for the peer's end, for a while: ours was sent.  Requires: `is_finished`."""
        check(
            self, connection,
            connection.in_flight.count == 0 and buffer_size(&connection.output) == 0 and not connection.held,
            b"a connection ends when all is answered and sent",
        )
        self.become(connection, LINGERING)
        connection.active_ms = self.now_ms

    cdef void doom(self, Connection* connection, int reason) noexcept nogil:
        """Close at the next occasion, whatever waits."""
        if not connection.doomed:
            connection.doomed = True
            connection.reason = reason

    cdef bint wants_read(self, const Connection* connection) noexcept nogil:
        """Whether to receive more: nothing that has arrived waits, and there is room for an answer."""
        return (
            connection.state == OPEN
            and not connection.held
            and connection.shaking == 0
            and not connection.doomed
            and (has_room(self, connection) or connection.peer)
        )

    cdef bint is_finished(self, const Connection* connection) noexcept nogil:
        """Whether no more comes, and all that came is answered and sent."""
        return (
            connection.state == FINISHING
            and not connection.held
            and connection.in_flight.count == 0
            and buffer_size(&connection.output) == 0
        )

    cdef bint may_detach(self, const Connection* connection) noexcept nogil:
        """Whether all that was asked before the strange request is answered and sent.  Requires: there is one."""
        return not connection.doomed and owed_count(connection.owing) == 0 and buffer_size(&connection.output) == 0

    cdef void run_later(self, Connection* connection) noexcept nogil:
        """Have the held input looked at in the next step."""
        if not connection.runnable:
            connection.runnable = push_handle(&self.runnable, connection.handle)

    cdef Connection* next_runnable(self) noexcept nogil:
        """The next connection whose held input may go on; NULL after the last."""
        cdef Connection* connection
        while buffer_size(&self.runnable) > 0:
            connection = self.find(pop_handle(&self.runnable))
            if connection != NULL:
                connection.runnable = False
                if connection.held and not connection.doomed:
                    return connection
        return NULL

    cdef void flush_later(self, Connection* connection) noexcept nogil:
        """Have the next flush send its replies, or close it."""
        if not connection.dirty:
            connection.dirty = push_handle(&self.dirty, connection.handle)

    # Ids in flight ----------------------------------------------------------------------------------------------

    cdef bint add_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil:
        """Note that the request with this id is answered later; False without memory: the connection is closed then.

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
        count_in_flight(self.crew, 1)
        if CHECKED:
            self.check_sums(connection)
        return True

    cdef bint remove_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil:
        """Note that the request with this id is answered now; False when none is in flight."""
        if not ids_remove(&connection.in_flight, msgid):
            return False
        self.in_flight_count -= 1
        count_in_flight(self.crew, -<uint32_t>1)
        if CHECKED:
            self.check_sums(connection)
        return True

    # Memory -----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t room(self) noexcept nogil:
        """How much more may be held for all connections, of what this pump has."""
        cdef Py_ssize_t requests = self.backlog.size_bytes + self.backlog.parked_bytes
        return self.share - self.held_bytes - self.scans.held_bytes - self.relays.held_bytes - requests

    cdef Py_ssize_t held_by(self, const Connection* connection) noexcept nogil:
        """Bytes of its input, its output, its scans, and what waits in the backlog."""
        return (
            buffer_size(&connection.input)
            + buffer_size(&connection.output)
            + connection.scanner.held_bytes
            + connection.relays.held_bytes
            + self.backlog.bytes_of(connection.handle)
        )

    cdef Connection* largest_holder(self) noexcept nogil:
        """The first of those that hold most; NULL without connections."""
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

    cdef bint make_room(self, const Connection* asking, Py_ssize_t size) noexcept nogil:
        """Whether a connection may hold so much more.

        Whoever holds more than it would then hold has to go first, so that few who hold much do not drive out many
        who hold little.  Each such look at all connections frees what the largest of them holds.
        """
        cdef Connection* largest
        while not may_hold(self, size):
            largest = self.largest_holder()
            if largest == NULL or largest == asking:
                return False
            if self.held_by(largest) <= self.held_by(asking) + size:
                return False
            self.held_bytes -= buffer_size(&largest.input) + buffer_size(&largest.output)
            buffer_release(&largest.input)
            buffer_release(&largest.output)
            self.backlog.forget_queue(largest.handle)
            scans_drop(&self.scans, &largest.scanner)
            relays_drop(&self.relays, &largest.relays)
            self.drop_owing(largest)
            if CHECKED:
                self.check_sums(largest)
            self.doom(largest, CLOSED_MEMORY)
            self.flush_later(largest)
        return True

    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Keep what cannot be looked at yet, or close the connection: -1."""
        if not self.make_room(connection, size) or buffer_append(&connection.input, data, size) < 0:
            self.doom(connection, CLOSED_MEMORY)
            return -1
        self.held_bytes += size
        if CHECKED:
            self.check_sums(connection)
        return 0

    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Forget the first `size` bytes of the input, which have been looked at."""
        if size > 0:
            self.held_bytes -= size
            buffer_drop(&connection.input, size)
            if CHECKED:
                self.check_sums(connection)

    cdef Buffer take_input(self, Connection* connection) noexcept nogil:
        """What is kept of the input, which the connection has no more: for whoever may make room meanwhile."""
        cdef Buffer kept = connection.input
        self.held_bytes -= buffer_size(&kept)
        buffer_init(&connection.input)
        if CHECKED:
            self.check_sums(connection)
        return kept

    cdef void put_input_back(self, Connection* connection, Buffer* kept) noexcept nogil:
        """Keep what is left of it, unless the connection ends."""
        if connection.doomed:
            buffer_release(kept)
            return
        connection.input = kept[0]
        self.held_bytes += buffer_size(kept)
        if CHECKED:
            self.check_sums(connection)

    cdef void note_output(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Count so many bytes that were put into the output, and have the next flush send them."""
        self.held_bytes += size
        if connection.blocked_ms == 0:
            connection.blocked_ms = self.now_ms
        self.flush_later(connection)
        if CHECKED:
            self.check_sums(connection)

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
        if self.out.capacity > SPARE_OUT_BYTES:
            buffer_release(&self.out)
            buffer_release(&self.said)
        self.out.start = 0
        self.out.end = 0
        if CHECKED:
            self.check_sums(connection)

    cdef void say(self, Connection* connection) noexcept nogil:
        """Say as it speaks, and in order, what answers it: what was put behind the output, then what is in `out`.

        What waits for earlier answers counts as held by its relays.  Requires: it is owed them in order.
        """
        cdef Owing* owing = connection.owing
        cdef Buffer* output = &connection.output
        cdef Buffer out = self.out
        cdef Py_ssize_t size = buffer_size(output) - owing.said
        cdef bint done = True
        if size > 0 and not connection.doomed:
            done = say_answers(owing, output.data + output.start + owing.said, size, &self.said) == 0
            output.end -= size
            done = done and buffer_append(output, self.said.data, self.said.end) == 0
            self.held_bytes += buffer_size(output) - owing.said - size
            self.said.end = 0
        owing.said = buffer_size(output)
        if buffer_size(&out) > 0 and not connection.doomed:
            done = done and say_answers(owing, out.data + out.start, buffer_size(&out), &self.said) == 0
            self.out = self.said
            self.said = out
            self.said.start = self.said.end = 0
        if not done:
            self.doom(connection, CLOSED_MEMORY)
        if owing.said == 0:
            connection.blocked_ms = 0
        note_owed(self, connection, owing_bytes(owing))

    cdef void drop_owing(self, Connection* connection) noexcept nogil:
        """It is told nothing more."""
        if connection.owing != NULL:
            note_owed(self, connection, 0)
            owing_release(connection.owing)
            connection.owing = NULL

    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil:
        """Forget the first `size` bytes of the output, which the peer took; held input may go on."""
        self.held_bytes -= size
        if size > 0:
            buffer_drop(&connection.output, size)
            if connection.owing != NULL:
                connection.owing.said -= size
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
        """End every scan and batch, while there still is the table that it reads from."""
        cdef uint32_t i
        for i in range(self.slot_count):
            scans_drop(&self.scans, &self.slots[i].scanner)
            relays_drop(&self.relays, &self.slots[i].relays)

    # Invariants, in the debug build ------------------------------------------------------------------------------

    cdef void check_sums(self, Connection* connection) noexcept nogil:
        """Compare the sums of all connections with the connections, of which only this one has changed."""
        cdef Py_ssize_t held = buffer_size(&connection.input) + buffer_size(&connection.output)
        self.seen_bytes += held - connection.seen_bytes
        self.seen_in_flight += connection.in_flight.count - connection.seen_in_flight
        connection.seen_bytes = held
        connection.seen_in_flight = connection.in_flight.count
        if self.seen_bytes != self.held_bytes:
            self.seen_bytes = self.held_bytes  # Told once.
            self.note_broken(connection, b"`held_bytes` is the sum of all inputs and outputs")
        if self.seen_in_flight != self.in_flight_count:
            self.seen_in_flight = self.in_flight_count
            self.note_broken(connection, b"`in_flight_count` is how many ids are in flight")

    cdef void check_relays(self, Connection* connection) noexcept nogil:
        """Compare what is counted of relays and attempts with what there is, where a connection has left none."""
        check(
            self, connection, connection.attempts.count == 0 and connection.attempts.abandoned == 0,
            b"a connection's attempts are those in its list",
        )
        check(
            self, connection,
            connection.relays.held_bytes == 0 and (self.relays.count > 0 or self.relays.held_bytes == 0),
            b"what relays hold is counted where they are",
        )
        check(
            self, connection, self.relays.attempt_count == 0 or self.peer_count > 0,
            b"an attempt is on a connection to a peer",
        )

    cdef void note_broken(self, Connection* connection, const char* invariant) noexcept nogil:
        """Keep it for `take_broken`, and end the connection."""
        if self.broken_count < MAX_BROKEN:
            self.broken[self.broken_count].invariant = invariant
            self.broken[self.broken_count].handle = connection.handle if connection != NULL else 0
            self.broken_count += 1
        if connection != NULL:
            self.doom(connection, CLOSED_CUT)
            self.flush_later(connection)

    cdef list take_broken(self):
        """The invariants that did not hold since the last time, each with the handle of the connection."""
        cdef list taken = []
        cdef int i
        for i in range(self.broken_count):
            taken.append(f"{self.broken[i].invariant.decode()} (connection {self.broken[i].handle:#x})")
        self.broken_count = 0
        return taken
