"""The connection core step by step, for tests: without a transport, and without the order of a round.

What the loop does in one turn of a connection is here a call each, so that a test may do them in any order; the core's
C functions are the same.  `take_output` with a limit is a peer that reads slowly, and one that is never called is a
peer that does not read.  Nodes, simulated ones too, have the loop (`loop/loop.pyx`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from gossipkv.serving.connection._addresses cimport address_number
from gossipkv.serving._serving cimport (
    BYTES_SENT, CHECKED, CLOSED_BY_PEER, CLOSED_MEMORY, NO_COLUMN, REPLIES_TOO_LARGE, SLICE_WORK, UNANSWERED,
    BacklogRequest, Connection, Connections, Core, CoreLock, begin_step, claim_answered, count_answered, deliver,
    expire_one, expire_relays, go_on_with_relays, has_time, method_of, params_of, pop_handle, receive_answers,
    receive_requests, refuse_answer, resume_requests, run_scans, scans_have_turn,
)
from gossipkv.serving._transport cimport LISTENER
from gossipkv.wire._buffer cimport buffer_append, buffer_size


@cython.final
cdef class Driver:
    """Connections of a core that are not sockets."""

    cdef Core core
    cdef Connections connections
    cdef uint64_t* counts  # those of `connections`

    def __cinit__(self, Core core not None):
        self.core = core
        self.connections = core.connections
        self.counts = self.connections.counts

    cdef list collect(self):
        """All that was handed off: `(handle, message id, method, parameters)`, the connections in turn.

        Of a read that no other node has answered the method is None, and the report stands for the parameters.
        """
        cdef list result = []
        cdef Connection* connection
        cdef BacklogRequest* request
        go_on_with_relays(self.core.driver)
        while not self.connections.backlog.is_empty():
            request = self.connections.backlog.pop()
            method = None if request.kind == UNANSWERED else method_of(request)
            result.append((request.handle, request.msgid, method, params_of(request)))
            free(request)
        while buffer_size(&self.connections.dirty) > 0:  # Whoever drives takes the output of all.
            connection = self.connections.find(pop_handle(&self.connections.dirty))
            if connection != NULL:
                connection.dirty = False
        begin_step(self.core)
        self.core.release_retired()
        self.raise_broken()
        return result

    cdef int raise_broken(self) except -1:
        """An invariant of the core that did not hold, as an AssertionError; the debug build alone looks."""
        if CHECKED and self.connections.broken_count > 0:
            raise AssertionError("; ".join(self.connections.take_broken()))
        return 0

    cdef void give(self, Connection* connection) noexcept:
        """Put its answers where `take_output` finds them."""
        if connection.replies != NULL:
            self.say(connection)
        self.connections.hold_output(connection, 0)
        if connection.replies != NULL:
            connection.replies.said = buffer_size(&connection.output)
        self.connections.sent(connection, 0)

    cdef void say(self, Connection* connection) noexcept:
        self.connections.http.now_s = self.connections.now_ms // 1000
        self.connections.say(connection)

    cdef Connection* live(self, uint64_t handle) except NULL:
        cdef Connection* connection = self.connections.find(handle)
        if connection == NULL:
            raise KeyError(f"no connection {handle:#x}")
        return connection

    def open(self, int64_t now_ms, bytes address not None=b"\0\0\0\0", int listener=LISTENER):
        """A new connection's handle, or None: there are as many as allowed; `address` has 4 or 16 bytes.

        `listener`: the number of the one that it came to, 0 for MessagePack-RPC, 1 for RESP, 2 for HTTP.
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
        """A connection to that peer, on which it is asked from now on; its handle."""
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
        """Bytes arrived; the hand-offs they led to.  Answers wait for `take_output`.

        Requires: `wants_input`, as a transport that is told to stop reading has nothing to feed.
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
            self.give(connection)
            count_answered(self.core, connection)
        return self.collect()

    def run(self, int64_t now_ms):
        """Look at held input that may go on, each connection's once, and do a slice of scans; the hand-offs."""
        cdef int64_t work = SLICE_WORK
        cdef Connection* connection
        cdef Py_ssize_t left = buffer_size(&self.connections.runnable) // <Py_ssize_t>sizeof(uint64_t)
        self.connections.set_time(now_ms * 1000000)
        while left > 0 and buffer_size(&self.connections.runnable) > 0 and has_time(self.core):
            left -= 1
            connection = self.connections.next_runnable()
            if connection != NULL:
                resume_requests(self.core, connection)
                self.give(connection)
                count_answered(self.core, connection)
        connection = run_scans(self.core, &work)
        while connection != NULL:
            self.give(connection)
            connection = run_scans(self.core, &work)
        return self.collect()

    @property
    def has_work(self):
        """Whether `run` has something to do."""
        return (
            not self.connections.backlog.is_empty()
            or buffer_size(&self.connections.dirty) > 0
            or buffer_size(&self.connections.runnable) > 0
            or scans_have_turn(&self.connections.scans)
        )

    def take_output(self, uint64_t handle, Py_ssize_t limit, int64_t now_ms):
        """What the peer reads now, at most `limit` bytes."""
        cdef Connection* connection = self.live(handle)
        cdef Py_ssize_t size
        self.connections.set_time(now_ms * 1000000)
        if connection.replies != NULL:
            self.say(connection)
        size = min(limit, buffer_size(&connection.output))
        if size <= 0:
            return b""
        result = PyBytes_FromStringAndSize(<const char*>connection.output.data + connection.output.start, size)
        self.counts[BYTES_SENT] += <uint64_t>size
        self.connections.sent(connection, size)
        self.raise_broken()
        return result

    def receive(self, uint64_t handle, bytes data not None, int64_t now_ms):
        """`feed` and then `take_output` of everything: answers and hand-offs."""
        hand_offs = self.feed(handle, data, now_ms)
        return self.take_output(handle, self.connections.group.max_held, now_ms), hand_offs

    def end_input(self, uint64_t handle):
        """The peer sends no more; what it has asked is still answered."""
        self.connections.finish(self.live(handle), CLOSED_BY_PEER)

    def user_of(self, uint64_t handle):
        """The number of the user that the connection is of now."""
        return self.live(handle).user

    def reply(self, uint64_t handle, uint32_t msgid, bytes frame not None, int64_t user=-1):
        """Answer a hand-off with a whole frame; False when nobody waits for it any more.

        The connection is that user's from then on, as a `ProvenResult` has it; -1: it stays whose it is.
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
        """Whether its peer has read enough for one more answer to what was handed off, as the loop would ask."""
        cdef Connection* connection = self.connections.find(handle)
        return bool(
            connection == NULL or connection.doomed or buffer_size(&connection.output) < self.connections.max_queued
        )

    def drop(self, uint64_t handle):
        """It takes too much memory."""
        self.connections.doom(self.live(handle), CLOSED_MEMORY)

    def close(self, uint64_t handle):
        """The connection is gone."""
        self.connections.release(self.live(handle))
        go_on_with_relays(self.core.driver)
        self.raise_broken()

    def wants_input(self, uint64_t handle):
        """Whether the transport should read."""
        return bool(self.connections.wants_read(self.live(handle)))

    def should_close(self, uint64_t handle):
        """Whether to end the connection: everything is answered and taken, or it is not worth keeping."""
        cdef Connection* connection = self.live(handle)
        return bool(connection.doomed or self.connections.is_finished(connection))

    def expire(self, int64_t now_ms):
        """Mark every connection whose time is up, so that `should_close` says so."""
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
        """Whether this is the debug build, which checks the invariants."""
        return bool(CHECKED)

    def break_invariant(self, uint64_t handle, str which):
        """Do what no code may, so that a test sees it noticed.  Requires: `checks`.

        Raises:
            AssertionError: it was noticed at once; else the next step raises it.
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
    """A pump's own thread, as the pump's turn knows it; `waker` is the eventfd that ends its sleep."""

    cdef CoreLock lock

    def __cinit__(self, CoreLock lock not None, int waker):
        self.lock = lock
        lock.waker = waker

    def take(self):
        """Wait for the turn, and for all others who do."""
        with nogil:
            self.lock.take()

    def give(self, bint asleep):
        """Give the turn back."""
        self.lock.give(asleep)

    @property
    def is_wanted(self):
        """True if another thread waits for the turn."""
        return self.lock.is_wanted()
