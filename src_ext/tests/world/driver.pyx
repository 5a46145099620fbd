"""The connection core step by step, for tests: without a transport, and without the order of a round.

Each step of a connection's turn in the loop is a method here, so a test can take the steps in any order, through the
same C functions of the core. A peer that reads slowly is a `take_output` with a limit; a peer that does not read is one
whose output is never taken. Nodes, simulated ones too, use the loop (`loop/loop.pyx`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from posix.unistd cimport usleep
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from gossipkv.serving.connection._addresses cimport address_number
from gossipkv.serving._serving cimport (
    BYTES_SENT, CHECKED, CLOSED_BY_PEER, CLOSED_MEMORY, NO_COLUMN, REPLIES_TOO_LARGE, SLICE_WORK, UNANSWERED,
    BacklogRequest, Connection, Connections, Core, CoreLock, begin_step, claim_answered, count_answered, deliver,
    expire_one, expire_records, expire_relays, go_on_with_relays, has_time, method_of, params_to_ask, pop_handle,
    receive_answers, receive_requests, refuse_answer, resume_requests, run_scans, scans_have_turn,
)
from gossipkv.serving._transport cimport LISTENER
from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport (
    SPACE_BYTES, ReadGate, StoreLookup, View, enter_gate, leave_gate, view_within,
)
from gossipkv.wire._buffer cimport buffer_append, buffer_size


@cython.final
cdef class Driver:
    """The connections of a core, without sockets."""

    cdef Core core
    cdef Connections connections
    cdef uint64_t* counts  # the counts of `connections`
    cdef readonly int64_t work  # the work of all steps, in units of `Connections.work`

    def __cinit__(self, Core core not None):
        self.core = core
        self.connections = core.connections
        self.counts = self.connections.counts

    cdef list collect(self):
        """Return the hand-offs as `(handle, message id, method, parameters)`, the connections in turn.

        For a read that no other node has answered, the method is None and the parameters are the report.
        """
        cdef list result = []
        cdef Connection* connection
        cdef BacklogRequest* request
        go_on_with_relays(self.core.driver)
        while not self.connections.backlog.is_empty():
            request = self.connections.backlog.pop()
            method = None if request.kind == UNANSWERED else method_of(request)
            result.append((request.handle, request.msgid, method, params_to_ask(self.core, request)))
            free(request)
        while buffer_size(&self.connections.dirty) > 0:  # The test takes the output of each connection itself.
            connection = self.connections.find(pop_handle(&self.connections.dirty))
            if connection != NULL:
                connection.dirty = False
        self.work -= self.connections.work
        begin_step(self.core)
        self.work += self.connections.work
        self.core.release_retired()
        self.raise_broken()
        return result

    cdef int raise_broken(self) except -1:
        """Raise AssertionError if an invariant of the core is broken; only the debug build checks them."""
        if CHECKED and self.connections.broken_count > 0:
            raise AssertionError("; ".join(self.connections.take_broken()))
        return 0

    cdef void hold_answers(self, Connection* connection) noexcept:
        """Keep the answers for `take_output`."""
        if connection.replies != NULL:
            self.translate_answers(connection)
        self.connections.hold_output(connection, 0)
        if connection.replies != NULL:
            connection.replies.translated = buffer_size(&connection.output)
        self.connections.sent(connection, 0)

    cdef void translate_answers(self, Connection* connection) noexcept:
        self.connections.http.now_s = self.connections.now_ms // 1000
        self.connections.translate_answers(connection)

    cdef Connection* live(self, uint64_t handle) except NULL:
        cdef Connection* connection = self.connections.find(handle)
        if connection == NULL:
            raise KeyError(f"no connection {handle:#x}")
        return connection

    def set_wall(self, uint64_t now_ms):
        """Let records of tables expire by that time of day, as the loop does."""
        expire_records(self.core, now_ms)

    def open(self, int64_t now_ms, bytes address not None=b"\0\0\0\0", int listener=LISTENER):
        """Return the handle of a new connection, or None at the limit of connections; `address` has 4 or 16 bytes.

        `listener` is 0 for MessagePack-RPC, 1 for RESP, 2 for HTTP.
        """
        cdef Connection* connection
        cdef uint64_t number
        self.connections.set_time(now_ms * 1000000)
        if len(address) not in {4, 16}:
            raise ValueError(f"an address has 4 or 16 bytes, not {len(address)}")
        number = address_number(<const uint8_t*>PyBytes_AS_STRING(address), <int>PyBytes_GET_SIZE(address))
        if self.connections.admit(number) < 0:
            return None
        connection = self.connections.begin(-1, number, listener)
        return None if connection == NULL else connection.handle

    def adopt(self, int column, int64_t now_ms):
        """Open a connection to the peer in that column, for requests to it; return the handle."""
        self.connections.set_time(now_ms * 1000000)
        cdef Connection* connection = self.connections.begin_peer(-1, column)
        if connection == NULL:
            raise MemoryError
        try:
            self.core.driver.peers.adopt(connection)
        except BaseException:
            connection.column = NO_COLUMN
            self.connections.release(connection)
            raise
        return connection.handle

    def feed(self, uint64_t handle, bytes data not None, int64_t now_ms):
        """Process received bytes and return the resulting hand-offs. Answers wait for `take_output`.

        Requires: `wants_input`; a transport does not read otherwise.
        """
        cdef Connection* connection = self.live(handle)
        if not self.connections.wants_read(connection):
            raise ValueError("the connection does not read now")
        self.connections.set_time(now_ms * 1000000)
        if data and connection.peer:
            receive_answers(
                self.core.driver, connection, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
            )
        elif data:
            receive_requests(self.core, connection, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self.hold_answers(connection)
            count_answered(self.core, connection)
        return self.collect()

    def run(self, int64_t now_ms):
        """Process held input, each connection once, and a slice of scans; return the hand-offs."""
        cdef int64_t work = SLICE_WORK
        cdef Connection* connection
        cdef Py_ssize_t left = buffer_size(&self.connections.runnable) // <Py_ssize_t>sizeof(uint64_t)
        self.connections.set_time(now_ms * 1000000)
        while left > 0 and buffer_size(&self.connections.runnable) > 0 and has_time(self.core):
            left -= 1
            connection = self.connections.next_runnable()
            if connection != NULL:
                resume_requests(self.core, connection)
                self.hold_answers(connection)
                count_answered(self.core, connection)
        connection = run_scans(self.core, &work)
        while connection != NULL:
            self.hold_answers(connection)
            connection = run_scans(self.core, &work)
        return self.collect()

    @property
    def has_work(self):
        """True if `run` has something to do."""
        return (
            not self.connections.backlog.is_empty()
            or buffer_size(&self.connections.dirty) > 0
            or buffer_size(&self.connections.runnable) > 0
            or scans_have_turn(&self.connections.scans)
        )

    def take_output(self, uint64_t handle, Py_ssize_t limit, int64_t now_ms):
        """Return the output that the peer reads now, at most `limit` bytes."""
        cdef Connection* connection = self.live(handle)
        cdef Py_ssize_t size
        self.connections.set_time(now_ms * 1000000)
        if connection.replies != NULL:
            self.translate_answers(connection)
        size = min(limit, buffer_size(&connection.output))
        if size <= 0:
            return b""
        result = PyBytes_FromStringAndSize(<const char*>connection.output.data + connection.output.start, size)
        self.counts[BYTES_SENT] += <uint64_t>size
        self.connections.sent(connection, size)
        self.raise_broken()
        return result

    def receive(self, uint64_t handle, bytes data not None, int64_t now_ms):
        """Call `feed`, then `take_output` without a limit; return answers and hand-offs."""
        hand_offs = self.feed(handle, data, now_ms)
        return self.take_output(handle, self.connections.group.max_held, now_ms), hand_offs

    def end_input(self, uint64_t handle):
        """End the peer's input; its received requests are still answered."""
        self.connections.finish(self.live(handle), CLOSED_BY_PEER)

    def user_of(self, uint64_t handle):
        """Return the number of the connection's user."""
        return self.live(handle).user

    def reply(self, uint64_t handle, uint32_t msgid, bytes frame not None, int64_t user=-1):
        """Answer a hand-off with a whole frame; return False if its connection is gone.

        The connection has that user from then on, as after a `ProvenResult`; -1 keeps its user.
        """
        self.core.check_thread()
        if user >= 0:
            self.live(handle).user = <uint32_t>user
        cdef Connection* connection = claim_answered(self.core, handle, msgid)
        if connection == NULL:
            return False
        cdef Py_ssize_t size = PyBytes_GET_SIZE(frame)
        if size > self.core.frame_limits.max_size:
            self.counts[REPLIES_TOO_LARGE] += 1
            refuse_answer(&self.connections.out, msgid, self.core.frame_limits.max_size, size)
        elif buffer_append(&self.connections.out, <const uint8_t*>PyBytes_AS_STRING(frame), size) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
        deliver(self.core, connection)
        self.raise_broken()
        return True

    def may_reply(self, uint64_t handle):
        """True if the peer has read enough for the loop to give the next answer to a hand-off."""
        cdef Connection* connection = self.connections.find(handle)
        return bool(
            connection == NULL or connection.doomed or buffer_size(&connection.output) < self.connections.max_queued
        )

    def drop(self, uint64_t handle):
        """Close the connection as one that holds too much memory."""
        self.connections.doom(self.live(handle), CLOSED_MEMORY)

    def close(self, uint64_t handle):
        """Release the connection, as after its end."""
        self.connections.release(self.live(handle))
        go_on_with_relays(self.core.driver)
        self.raise_broken()

    def wants_input(self, uint64_t handle):
        """True if the transport should read."""
        return bool(self.connections.wants_read(self.live(handle)))

    def should_close(self, uint64_t handle):
        """True if the connection must end: every answer was taken, or the core has given it up."""
        cdef Connection* connection = self.live(handle)
        return bool(connection.doomed or self.connections.is_finished(connection))

    def expire(self, int64_t now_ms):
        """Mark overdue connections, so that `should_close` becomes true for them."""
        cdef uint32_t i
        self.connections.set_time(now_ms * 1000000)
        self.connections.http.now_s = now_ms // 1000
        for i in range(self.connections.slot_count):
            expire_one(self.connections, self.connections.slots[i])
        expire_relays(self.core.driver)
        go_on_with_relays(self.core.driver)
        self.raise_broken()

    @property
    def checks(self):
        """True in the debug build, which checks the invariants."""
        return bool(CHECKED)

    def break_invariant(self, uint64_t handle, str which):
        """Break an invariant on purpose, so a test sees that it is noticed. Requires: `checks`.

        Raises:
            AssertionError: the violation was noticed at once; else the next step raises it.
        """
        cdef Connection* connection = self.live(handle)
        if not CHECKED:
            raise RuntimeError("only the debug build notices")
        if which == "held bytes":
            self.connections.held_bytes += 1
        elif which == "ids in flight":
            self.connections.in_flight_count += 1
        elif which == "two answers":
            self.connections.add_in_flight(connection, 1)
            self.connections.add_in_flight(connection, 1)
        elif which == "read while held":
            connection.held = True
            receive_requests(self.core, connection, <const uint8_t*>b"\xc0", 1)
        elif which == "state":
            self.connections.linger(connection)
        elif which == "attempts":
            connection.attempts.count += 1
        elif which == "relay bytes":
            connection.relays.held_bytes += 1
        elif which == "bytes of all relays":
            self.connections.relays.held_bytes += 1
        elif which == "attempt without a peer":
            self.connections.relays.attempt_count += 1
        elif which == "relay without an id":
            self.connections.remove_in_flight(connection, 1)
        elif which == "another peer":
            connection.column += 1
        elif which == "slots":
            self.connections.connection_count += 1
        else:
            raise ValueError(f"no such invariant: {which}")
        self.raise_broken()


@cython.final
cdef class OwnThread:
    """The thread of a serving loop, as its core lock knows it; `waker` is the eventfd that ends its sleep."""

    cdef CoreLock lock

    def __cinit__(self, CoreLock lock not None, int waker):
        self.lock = lock
        lock.waker = waker

    def take(self):
        """Acquire the lock, after all other waiting threads."""
        with nogil:
            self.lock.take()

    def give(self, bint asleep):
        """Release the lock."""
        self.lock.give(asleep)

    @property
    def is_wanted(self):
        """True if another thread waits for the lock."""
        return self.lock.is_wanted()


@cython.final
cdef class GateReader:
    """A serving loop with a thread of its own, as a reader within the gate of a store."""

    cdef ReadGate gate
    cdef readonly bint has_entered
    cdef readonly bint leaves

    def __cinit__(self, ReadGate gate not None):
        self.gate = gate

    def stay(self, unsigned int stay_us):
        """Stay in the gate for so long."""
        with nogil:
            enter_gate(self.gate, 1)
        self.has_entered = True
        with nogil:
            usleep(stay_us)
        self.leaves = True
        leave_gate(self.gate, 1)

    def find(self, uint32_t space, bytes key not None, Py_ssize_t times, *, bint enters=True):
        """Look a key up so often; return how often it was there. Without `enters` the rule of the gate is broken."""
        cdef StoreLookup lookup
        cdef Slice value
        cdef PyObject* view
        cdef bytes internal = space.to_bytes(SPACE_BYTES, "big") + key
        cdef Py_ssize_t found = 0
        lookup.key = <const uint8_t*>PyBytes_AS_STRING(internal)
        lookup.size = PyBytes_GET_SIZE(internal)
        with nogil:
            for _ in range(times):
                if enters:
                    enter_gate(self.gate, 1)
                view = view_within(self.gate, 1)
                if view != NULL:
                    (<View>view).begin(&lookup)
                    (<View>view).fetch(&lookup)
                    found += (<View>view).find(&lookup, &value) > 0 and (<View>view).confirm(&lookup)
                if enters:
                    leave_gate(self.gate, 1)
        return found
