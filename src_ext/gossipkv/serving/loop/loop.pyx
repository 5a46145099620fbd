"""The serving loop around the connection core: accept, receive, answer, hand off, send and close, in that order.

One Trio task waits until the loop's descriptor is readable and calls `round`. A round drops the GIL, serves ready
connections, takes the GIL to let Python answer handed-off requests, and sends those answers with one send per
connection. A round repeats these steps until nothing is ready or its time is over, since a return to Trio costs many
epoll calls. The GIL is taken only for Python's answers and at the end: a computing thread may keep it for long.

Where possible the loop *rests*: it sleeps in place of Trio (`rest`, `watch_others`), so a request costs a sleep, a
receive and a send, and no GIL. Each further serving loop has its own thread (`serve_alone`) and a core lock
(`core_lock.pyx`). The transport provides sockets and clock (`transport/interface.pyx`), so a simulated node runs in the
same order. Where time stands still, only the budgets in numbers hold. Each latency is counted after the send (the
core's answers per connection, Python's per round), so latencies are rather too long than too short.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.wire._wire cimport histogram_record
from gossipkv.serving._transport cimport (
    BROKEN, ENDED, EXHAUSTED, GONE, HTTP_LISTENER, LISTENERS, OTHERS, READABLE, TIMER, WRITABLE, Event, Transport,
)
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve, buffer_size

cdef enum:
    EVENTS = 256  # Fetch at most so many ready connections at once.
    # Ready connections get at least this time in each step, whatever held input took: some thirty gets.
    MIN_NS = 250000
    ACCEPTS_PER_STEP = 64  # The bound leaves time for present connections when a flood of clients arrives.
    DRAIN_READS = 16  # Receives per connection when draining: 1 MiB, more than socket buffers usually hold.
    DRAIN_NS = 50000000  # The receives of all connections share this time: a second signal must not wait for long.
    QUIET_MS = 1000  # A connection silent for this long has nothing on its way that a close could destroy.
    BUSY = 0  # Events have arrived since the last idle moment.
    POLLED = -1  # No event is ready, and a busy poll has already counted the gap; also the initial state.
    # Time-outs of connections are exact to this interval. A look at 10,000 connections takes about 1 ms.
    SWEEP_NS = 500000000
    # Deadlines within this interval are handled at once.
    MIN_WAIT_NS = 1000000
    MILLISECOND_NS = 1000000
    MAX_REST_S = 3600


cdef struct DetachedConnection:
    int fd
    uint64_t handle
    uint32_t user
    uint64_t address
    Py_ssize_t size  # size of the received bytes, which follow


@cython.final
cdef class Loop:
    """The serving loop over the connections of a core and of a transport."""

    cdef readonly Core core
    cdef Connections connections
    cdef uint64_t* counts  # the counts of `connections`
    cdef Transport transport
    cdef int64_t armed_ns  # when the timer goes off; NEVER if disarmed
    cdef int64_t sweep_ns  # when the next sweep checks the connections for time-outs
    cdef bint draining
    cdef bint accepting  # False while no descriptors are left
    cdef bint closed
    cdef uint8_t* inbox
    cdef Event events[EVENTS]
    cdef int event_count
    cdef int event_at
    cdef int64_t deadline_ns  # the end of this round
    cdef int64_t serve_ns  # how long Trio's tasks may be kept waiting
    cdef int64_t rest_until_ns  # Trio has nothing to do before this time
    cdef bint sleeps_for_others
    cdef bint others_wait  # Trio has something to do, so this round ends
    cdef bint is_due  # the timer has gone off
    cdef PollCredit poll
    cdef CoreLock lock  # the core's lock
    cdef bint alone  # the loop has its own thread; Python answers while holding the core lock
    cdef bint stopping  # the thread of `serve_alone` must end
    cdef object user_named  # function from the name in a certificate to a user number
    cdef uint64_t answering  # the connection that is being answered; 0 for none
    cdef int64_t idle_ns  # when the current idle gap began; or BUSY, or LOOKED_OUT
    cdef bytes method  # method of the latest request that Python answered
    cdef object writer  # begins gathered writes; None until `gather`
    cdef object wake_round  # starts a round after answers to gathered writes
    cdef dict gathered  # by replica: the `GatheredWrites` that Python is still to begin
    cdef Py_ssize_t gathered_bytes
    cdef dict rights  # of users to write to tables, as asked for in this step
    cdef bint leaves_writes  # Python begins a write after this round: those behind it are not gathered
    cdef Buffer detached  # a `DetachedConnection` and its bytes for each connection that left the loop
    cdef Buffer given  # arrival times of the requests that this round answers

    def __cinit__(self, Core core not None, Transport transport not None):
        self.core = core
        self.connections = core.connections
        self.counts = self.connections.counts
        self.transport = transport
        self.inbox = <uint8_t*>malloc(INBOX_BYTES)
        if self.inbox == NULL:
            raise MemoryError
        self.accepting = True
        self.gathered = {}
        self.tell_time()
        self.armed_ns = NEVER
        self.sweep_ns = self.connections.now_ns + SWEEP_NS
        self.arm()
        self.idle_ns = POLLED
        core.cold.pager.tell(transport.waker_fd())
        core.connections.group.entries[core.connections.pump].waker = transport.waker_fd()
        self.lock = core.lock
        self.alone = core.lock is not None
        if self.alone:
            self.lock.waker = transport.waker_fd()
            transport.be_alone()

    def __dealloc__(self):
        # The loop closes its connections in `close`, not here: the core may be gone already.
        free(self.inbox)
        buffer_release(&self.given)
        buffer_release(&self.detached)

    # From Python ------------------------------------------------------------------------------------------------

    def fileno(self):
        """Return the descriptor that is readable when a step has something to do."""
        return self.transport.fileno()

    @property
    def has_work(self):
        """True if a step has something to do although the descriptor may not be readable."""
        return not self.alone and (
            self.event_at < self.event_count
            or buffer_size(&self.connections.dirty) > 0
            or self.connections.relays.first_restless != NULL
            or self.has_held_work()
            or self.core.cold.pager.is_pretending()
            or self.transport.has_events()
        )

    @property
    def due_s(self):
        """Seconds until a round has something to do without input; None if the descriptor becomes readable then."""
        return self.transport.due_s()

    @property
    def connection_count(self):
        """The number of connections, without those to other nodes, with detached ones that still need this loop."""
        return self.connections.connection_count - self.connections.peer_count + self.transport.left_count()

    def adopt(self, int column, connection):
        """Take over this connection to a peer for requests, on which nothing beyond `hello` was read.

        `connection` is the detached form of the environment's streams. A closed loop closes the connection. Raises:
        KeyError if the peer is unknown; the caller keeps the connection then.
        """
        cdef Connection* adopted
        cdef int fd
        self.core.check_thread()
        self.core.driver.peers.routes.peer(column)
        fd = self.transport.admit(connection)
        if self.closed:
            self.transport.close(fd, True)
            return
        self.tell_time()
        adopted = self.connections.begin_peer(fd, column)
        self.watch_made(fd, adopted)
        self.core.driver.peers.adopt(adopted)

    def serve_gateway(self, int fd):
        """Take over this end of a socket pair and serve this node's own gateway on it.

        The gateway speaks MessagePack-RPC in the clear. Its connection is not counted and never times out.
        """
        self.core.check_thread()
        self.tell_time()
        self.watch_made(fd, self.connections.begin_gateway(fd))

    cdef int watch_made(self, int fd, Connection* connection) except -1:
        """Watch a connection that was made elsewhere; NULL means out of memory. Close the connection before raising."""
        if connection == NULL:
            self.transport.close(fd, True)
            raise MemoryError
        connection.interest = READABLE
        if self.transport.begin(fd, connection.handle) < 0:
            connection.column = NO_COLUMN
            self.connections.release(connection)
            self.transport.close(fd, True)
            raise OSError("a connection cannot be watched")
        return 0

    def use_tls(self, tls, user_named):
        """Use `tls` on new connections to the listeners that it names; present connections go on as before.

        `user_named` maps the name in a client's certificate to a user number, 0 for no user. Raises: ValueError if the
        transport has no TLS.
        """
        self.core.check_thread()
        self.user_named = user_named
        self.transport.use_tls(tls)

    @property
    def proven(self):
        """The uuid (16 bytes) or the names proved by the node that is being answered; None if nothing was proved."""
        cdef Connection* connection
        if self.answering == 0:
            return None
        connection = self.connections.find(self.answering)
        return None if connection == NULL else self.transport.proven(connection.fd)

    def watch_others(self, int fd):
        """Prepare `rest`: Trio has something to do when `fd` is readable. Return True if this loop can sleep for Trio.

        From then on `fileno` returns another descriptor, which Trio can watch although Trio's own descriptor is watched
        here.
        """
        self.sleeps_for_others = self.transport.watch_others(fd)
        return self.sleeps_for_others

    def rest(self, double idle_s, int64_t serve_us):
        """Serve requests that need no Python, in place of a Trio that would sleep for `idle_s` seconds.

        The rest ends after `idle_s`, when the descriptor watched for Trio is readable, or when Python has something to
        do here. In the last case a bell makes this loop's descriptor readable, so a round follows. An `idle_s` of 0
        allows `serve_us` microseconds.
        """
        self.core.check_thread()
        if self.closed:
            return
        self.begin_round(serve_us)
        self.rest_until_ns = self.connections.now_ns + <int64_t>(1e9 * min(max(idle_s, 0.0), <double>MAX_REST_S))
        if not self.wants_python():
            with nogil:
                self.serve(False)
            self.core.release_retired()
        if self.wants_python():
            self.transport.ring()

    def round(self, answer, int64_t serve_us, int64_t answer_us):
        """Serve ready connections, answer handed-off requests and send the answers, until nothing is ready.

        `answer(method, parameters, caller)` returns the result as MessagePack, a `Refusal` or a `ProvenResult`. Every
        other object is returned here in a `PendingRequest`, for `complete`. For a read that no other node has answered,
        the method is None and `parameters` is the report (`Forwarding.write_report`). A round takes at most `serve_us`,
        `answer_us` and the time of one request.
        """
        cdef list pending = []
        cdef bint answered = False
        self.core.check_thread()
        self.leaves_writes = False
        self.transport.hush()
        if self.alone:  # Only the loop's own thread polls for events.
            self.tell_time()
            self.answer_some(answer, 1000 * answer_us, pending)
            self.end_step()
            if not self.connections.backlog.is_empty():
                self.transport.ring()
        else:
            self.begin_round(serve_us)
            while True:
                with nogil:
                    answered = self.serve(answered)
                if not answered:
                    break
                self.answer_some(answer, 1000 * answer_us, pending)
        self.core.release_retired()
        self.transport.raise_failure()
        return pending

    def serve_alone(self, int64_t serve_us):
        """Serve requests that need no Python until `stop`, in the thread of a serving loop other than the first."""
        assert self.alone
        with nogil:
            self.lock.take()
            while not self.stopping:
                self.begin_round(serve_us)
                self.rest_until_ns = self.connections.now_ns + <int64_t>MAX_REST_S * 1000000000
                self.welcome_arrivals()
                self.serve_ready()
                self.serve_scans()
                serve_handshakes(self)
                self.flush_dirty()
                self.arm()
            self.lock.give(False)

    def stop(self):
        """Make the thread in `serve_alone` end soon."""
        self.core.check_thread()
        self.stopping = True

    def complete(self, PendingRequest pending not None, answer):
        """Answer a pending request in the next round, with MessagePack, a `Refusal` or a `ProvenResult`."""
        cdef Connection* connection = self.connections.find(pending.handle)
        cdef bytes body = body_of(answer)
        self.core.check_thread()
        if connection != NULL and not connection.doomed:
            self.apply_effect(connection, answer)
        answer_pending(
            self.core, pending.handle, pending.msgid, pending.received_ns,
            REFUSAL if isinstance(answer, Refusal) else RESULT, <const uint8_t*><const char*>body, len(body),
        )

    def gather(self, writer, wake):
        """Gather plain writes from now on.

        `writer.begin_writes(gathered, may_wait=...)` gets a list of `GatheredWrites`. If it may wait and returns False,
        they are gathered further, until `begin_writes`. Those that it does not begin are answered by Python one by one.
        `writer.may_write(user, table)` returns True if the user may write. `wake()` starts a round.
        """
        self.writer, self.wake_round = writer, wake

    def begin_writes(self, answer):
        """Begin the gathered writes now; `answer` and the result are as for `round`."""
        cdef list pending = []
        self.core.check_thread()
        self.begin_gathered(answer, pending, False)
        return pending

    def refuse(self, PendingRequest pending not None, Refusal error not None):
        """Refuse a pending request because too many are pending."""
        self.counts[OVERLOADED] += 1
        self.complete(pending, error)

    def end_those_of(self, uint32_t user):
        """Take no more requests of that user's connections; each ends once all received requests are answered."""
        cdef Connection* connection
        cdef uint32_t i
        self.core.check_thread()
        for i in range(self.connections.slot_count):
            connection = self.connections.slots[i]
            if connection.state == OPEN and not connection.peer and connection.user == user:
                self.connections.finish(connection, CLOSED_UNAUTHORIZED)
                self.connections.flush_later(connection)

    def take_detached(self):
        """Return the connections that the caller now owns, as (descriptor, caller, received bytes)."""
        cdef list taken = []
        cdef DetachedConnection head
        cdef const char* at
        while buffer_size(&self.detached) > 0:
            at = <const char*>self.detached.data + self.detached.start
            memcpy(&head, at, sizeof(DetachedConnection))
            self.detached.start += sizeof(DetachedConnection) + head.size
            caller = Caller(head.handle, self.connections.pump, head.user, head.address)
            taken.append((head.fd, caller, at[sizeof(DetachedConnection):sizeof(DetachedConnection) + head.size]))
        buffer_release(&self.detached)
        return taken

    def take_left(self):
        """Return the handles of connections that have begun to end with requests in flight, and True if they are gone.
        """
        cdef list taken = []
        cdef uint64_t handle
        while buffer_size(&self.connections.left) > 0:
            handle = pop_handle(&self.connections.left)
            taken.append((handle, self.connections.find(handle) == NULL))
        return taken

    def end_relay(self, uint64_t handle, uint32_t msgid, Refusal error not None):
        """Refuse a client's request that waits for other nodes or for the disk, and wait no more; else do nothing."""
        cdef Connection* connection = self.connections.find(handle)
        cdef Relay* relay = connection.relays.first if connection != NULL else NULL
        self.core.check_thread()
        while relay != NULL and relay.msgid != msgid:
            relay = relay.next
        if relay != NULL:
            answer_pending(
                self.core, handle, msgid, relay.begun_ns, REFUSAL,
                <const uint8_t*><const char*>error.error, len(error.error),
            )
            relay_end(&self.connections.relays, relay)

    def wake(self):
        """Make the descriptor readable: there is `has_work` although no peer may send anything."""
        self.core.check_thread()
        self.transport.wake()

    def expire(self):
        """Close overdue connections and resume accepting, as the timer does each half second."""
        with nogil:
            self.expire_all()
        self.core.release_retired()
        self.transport.raise_failure()

    def drain(self):
        """Take no further connections and requests; a connection ends once its received requests are answered."""
        if not self.draining:
            self.draining = self.connections.http.draining = True
            self.transport.stop_listening()
            with nogil:
                self.drain_all()
            self.transport.raise_failure()

    def close(self):
        """Close every connection at once."""
        if not self.closed:
            self.closed = self.draining = True
            self.gathered = {}
            self.close_all(CLOSED_CUT)
            for fd, *_ in self.take_detached():
                self.transport.close(fd, True)
            self.core.cold.end()
            self.turn_away_arrivals()
            self.transport.shut()
            self.core.release_retired()
            self.transport.raise_failure()

    # Rounds -----------------------------------------------------------------------------------------------------

    cdef void tell_time(self) noexcept nogil:
        self.connections.set_time(self.transport.now_ns())
        expire_records(self.core, <uint64_t>self.transport.wall_ms())

    cdef void begin_round(self, int64_t serve_us) noexcept nogil:
        self.tell_time()
        self.serve_ns = 1000 * serve_us
        self.deadline_ns = self.connections.now_ns + self.serve_ns
        self.rest_until_ns = 0
        self.others_wait = False

    cdef bint serve(self, bint answered) noexcept nogil:
        """Serve all that needs no Python; `answered` if Python just did. Return True if Python must answer next."""
        cdef bint goes_on = not answered or self.end_step()
        while goes_on:
            self.serve_ready()
            self.serve_scans()
            serve_handshakes(self)
            go_on_with_relays(self.core.driver)
            if not self.connections.backlog.is_empty():
                return True
            goes_on = self.end_step()
        return False

    cdef bint end_step(self) noexcept nogil:
        """Send the pending answers. Return True if another step follows."""
        self.flush_dirty()
        self.arm()
        return self.may_rest() or (
            (
                self.core.hand_off_count > 0
                or scans_have_turn(&self.connections.scans)
                or buffer_size(&self.connections.handshakes) > 0
            )
            and self.connections.now_ns < self.deadline_ns
        )

    cdef void serve_ready(self) noexcept nogil:
        """Serve held input in half of the time, each connection once; then events to the end, or for MIN_NS.

        Neither kind of work keeps the other waiting, whatever a turn costs. Events left over stay in `events` and are
        not fetched again. Sockets are polled in each call, and again when no event is left and Python has nothing to
        answer.
        """
        cdef Py_ssize_t left = buffer_size(&self.connections.runnable) // <Py_ssize_t>sizeof(uint64_t)
        cdef int64_t until_ns = self.connections.now_ns + (self.deadline_ns - self.connections.now_ns) // 2
        begin_step(self.core)
        while (
            left > 0
            and buffer_size(&self.connections.runnable) > 0
            and has_time(self.core)
            and self.connections.now_ns < until_ns
        ):
            left -= 1
            self.serve_held(self.connections.next_runnable())
        until_ns = self.connections.now_ns + MIN_NS
        if self.event_at == self.event_count and not self.fetch():
            return
        while True:
            until_ns = max(until_ns, self.deadline_ns)
            while self.event_at < self.event_count:
                if self.event_at + 1 < self.event_count:
                    fetch_connection(self.connections, self.events[self.event_at + 1].handle)
                self.serve_event(&self.events[self.event_at])
                self.event_at += 1
                if self.connections.now_ns >= until_ns:
                    return
            if self.core.hand_off_count > 0 or not self.fetch():
                return

    cdef void serve_held(self, Connection* connection) noexcept nogil:
        """Give one turn to a connection with held input; NULL for none."""
        if connection != NULL:
            resume_requests(self.core, connection)
            self.transmit(connection)
            self.tell_time()
            count_answered(self.core, connection)
            self.settle(connection)

    cdef void serve_scans(self) noexcept nogil:
        """Run one slice of scans: a get that arrives meanwhile waits for no more than one slice."""
        cdef int64_t work = SLICE_WORK
        cdef Connection* connection = run_scans(self.core, &work)
        while connection != NULL:
            self.transmit(connection)
            self.settle(connection)
            connection = run_scans(self.core, &work)
        self.tell_time()

    cdef bint has_held_work(self) noexcept nogil:
        """True if there is something to do although no socket is ready."""
        return (
            scans_have_turn(&self.connections.scans)
            or buffer_size(&self.connections.runnable) > 0
            or buffer_size(&self.connections.handshakes) > 0
            or (not self.alone and not self.connections.backlog.is_empty())
        )

    cdef bint wants_python(self) noexcept nogil:
        """True if a round, or its caller, has something to do."""
        return (
            not self.connections.backlog.is_empty()
            or self.connections.relays.first_reply != NULL
            or self.core.driver.peers.has_events()
            or buffer_size(&self.detached) > 0
            or buffer_size(&self.connections.left) > 0
            or self.connections.broken_count > 0
            or (
                self.draining
                and self.connections.connection_count == self.connections.peer_count
                and self.transport.left_count() == 0
            )
        )

    cdef bint may_rest(self) noexcept nogil:
        """True if neither this loop nor Python has anything to do before the next event."""
        return (
            self.connections.now_ns < self.rest_until_ns
            and not self.others_wait
            and (self.alone or not self.wants_python())
            and not self.has_held_work()
            and buffer_size(&self.connections.dirty) == 0
            and self.connections.relays.first_restless == NULL
        )

    cdef bint fetch(self) noexcept nogil:
        """Poll for events, busy-poll if that pays, and rest if `may_rest`. Return True if any event came."""
        cdef bint rests
        if self.is_due:  # Only now: an event beside the timer's may be the one that a deadline waits for.
            self.is_due = False
            self.expire_due()
        self.flush_dirty()  # Peers may need these answers before they send the next event.
        self.arm()
        self.event_at = 0
        self.event_count = 0
        if self.alone:
            self.yield_lock()
        give_back(self.connections)
        if self.others_wait or self.stopping:  # Trio's descriptor stays among the events until the round has ended.
            return False
        rests = self.may_rest()
        if self.transport.polls or not rests:
            self.event_count = self.transport.fetch(self.events, EVENTS, 0)
        if self.event_count == 0 and self.idle_ns == BUSY and not self.has_held_work():
            self.idle_ns = self.connections.now_ns
            if (
                self.transport.polls
                and (rests or not self.sleeps_for_others)
                and poll_pays(&self.poll)
                and self.connections.now_ns < self.deadline_ns
            ):
                self.busy_poll()
        if self.event_count == 0 and rests:
            self.sleep()
        allow_work(self.core)
        self.tell_time()
        if self.event_count == 1 and self.events[0].handle == OTHERS:  # The event is Trio's, not ours.
            self.event_count = 0
            self.others_wait = True
        if self.event_count == 0:
            return False
        if rests:  # Trio had nothing to do until now.
            self.deadline_ns = self.connections.now_ns + self.serve_ns
        if self.idle_ns > 0:
            poll_slept(&self.poll, self.connections.now_ns - self.idle_ns)
        self.idle_ns = BUSY
        return True

    cdef void sleep(self) noexcept nogil:
        """Rest until an event comes. A thread of its own releases the core lock meanwhile."""
        cdef int wait_ms = self.rest_ms()  # Another thread may set the time once the core lock is released.
        if self.alone:
            self.lock.give(True)
        self.event_count = self.transport.fetch(self.events, EVENTS, wait_ms)
        if self.alone:
            self.lock.take()
            self.welcome_arrivals()

    cdef void yield_lock(self) noexcept nogil:
        """Wake Python if it has something to do here, and let waiting threads take the core lock."""
        if self.wants_python():
            self.transport.ring()
        if self.lock.is_wanted():
            self.lock.give(False)
            self.lock.take()

    cdef int rest_ms(self) noexcept nogil:
        """Return how long to rest, rounded up as Trio does, so a deadline is not polled for twice."""
        return <int>((self.rest_until_ns - self.connections.now_ns + MILLISECOND_NS - 1) // MILLISECOND_NS)

    cdef void busy_poll(self) noexcept nogil:
        """Busy-poll for a moment, or until the round ends."""
        cdef int64_t until_ns = min(self.connections.now_ns + POLL_NS, self.deadline_ns)
        self.counts[BUSY_POLLS] += 1
        while self.event_count == 0 and self.connections.now_ns < until_ns:
            self.event_count = self.transport.fetch(self.events, EVENTS, 0)
            self.tell_time()
        self.idle_ns = POLLED
        if self.event_count > 0:
            self.counts[BUSY_POLL_HITS] += 1
            poll_hit(&self.poll)
        else:
            poll_missed(&self.poll)

    cdef void answer_some(self, answer, int64_t budget_ns, list pending):
        """Answer one request of each connection in turn, until the time is over."""
        cdef int64_t deadline_ns = self.transport.now_ns() + budget_ns
        cdef BacklogRequest* request = next_request(self.core)
        self.rights = {}
        while request != NULL:
            if not self.gather_one(answer, request, pending):
                try:
                    self.answer_one(answer, request, pending)
                finally:
                    free(request)
            request = next_request(self.core) if self.transport.now_ns() < deadline_ns else NULL
        self.begin_gathered(answer, pending, True)

    cdef bint gather_one(self, answer, BacklogRequest* request, list pending) except -1:
        """Gather a plain write, and take over its request; return False for any other request."""
        if self.writer is None or not is_write(request):
            return False
        if self.gathered_bytes >= MAX_GATHERED_BYTES:
            self.begin_gathered(answer, pending, False)
        if not self.leaves_writes and gather_write(
            self.core, request, self.gathered, self.rights, self.writer, self.wake_round
        ):
            self.gathered_bytes += request.size
            return True
        self.begin_gathered(answer, pending, False)  # Writes begin in the order in which they came.
        return False

    cdef int begin_gathered(self, answer, list pending, bint may_wait) except -1:
        """Let Python begin the gathered writes, unless they may wait, and answer those that it has not begun."""
        cdef list gathered
        cdef GatheredWrites writes
        cdef Py_ssize_t number
        cdef BacklogRequest* request
        if not self.gathered:
            return 0
        gathered = list(self.gathered.values())
        if not self.writer.begin_writes(gathered, may_wait=may_wait):
            return 0
        self.gathered, self.gathered_bytes = {}, 0
        for writes in gathered:
            for number in range(0 if writes.has_begun else writes.count):
                request = writes.items[number].request
                if self.connections.find(request.handle) != NULL:  # Else it is gone since they were held.
                    self.answer_one(answer, request, pending)
        return 0

    cdef int answer_one(self, answer, BacklogRequest* request, list pending) except -1:
        cdef bytes method = None
        cdef bytes body
        if request.kind == RESULT or request.kind == REFUSAL:
            self.give_answer(request, request_bytes(request), request.size, request.kind == REFUSAL)
            return 0
        if request.kind == ASKED:
            if self.method is None or not is_method(request, self.method):
                # Keep the method for the next request, which is mostly the same; its hash is computed by then.
                self.method = method_of(request)
            method = self.method
        self.answering = request.handle
        reply = answer(method, params_to_ask(self.core, request), caller_of(self.core, request.handle))
        self.answering = 0
        body = body_of(reply)
        if body is None:
            assert method is not None, "a report is answered at once"
            self.leaves_writes = self.leaves_writes or is_write(request)
            pending.append(PendingRequest(request.handle, request.msgid, request.received_ns, method, reply))
            return 0
        self.apply_effect(self.connections.find(request.handle), reply)
        if isinstance(reply, ProvenResult) and method == b"hello":
            self.connections.find(request.handle).node = True
        self.give_answer(request, <const uint8_t*><const char*>body, len(body), isinstance(reply, Refusal))
        return 0

    cdef int apply_effect(self, Connection* connection, answer) except -1:
        """Apply an answer's effect on its connection: a new user, or the end."""
        if isinstance(answer, ProvenResult):
            connection.user = (<ProvenResult>answer).user
        elif isinstance(answer, Refusal) and (<Refusal>answer).ends:
            self.connections.finish(connection, CLOSED_UNAUTHORIZED)
        return 0

    cdef void give_answer(
        self, BacklogRequest* request, const uint8_t* body, Py_ssize_t size, bint refused
    ) noexcept nogil:
        if respond(self.core, request.handle, request.msgid, body, size, refused):
            buffer_append(&self.given, <const uint8_t*>&request.received_ns, sizeof(int64_t))

    cdef void serve_event(self, const Event* event) noexcept nogil:
        cdef Connection* connection
        if event.handle == OTHERS:
            self.others_wait = True
            return
        if event.handle < LISTENERS:
            self.accept_some(event.handle)
            self.tell_time()
            return
        if event.handle == TIMER:
            self.armed_ns = NEVER
            self.is_due = True
            return
        connection = self.connections.find(event.handle)
        if connection == NULL:  # The connection is gone, or the event comes from `wake`.
            return
        if connection.shaking != 0:
            queue_handshake(self.connections, connection, event.what)
            self.settle(connection)
            return
        if event.what & WRITABLE:
            self.transmit_held(connection)
        if event.what & (READABLE | ENDED):
            if connection.state == LINGERING:
                self.discard(connection)
            elif self.connections.wants_read(connection):
                self.read(connection)
            elif event.what & ENDED:
                self.connections.doom(connection, CLOSED_RESET)
        self.settle(connection)

    cdef void flush_dirty(self) noexcept nogil:
        """Send the answers of this round, with one send for each connection."""
        cdef Connection* connection
        cdef int64_t received_ns
        go_on_with_relays(self.core.driver)
        while buffer_size(&self.connections.dirty) > 0:
            connection = self.connections.find(pop_handle(&self.connections.dirty))
            if connection != NULL:
                connection.dirty = False
                self.transmit_held(connection)
                self.settle(connection)
            go_on_with_relays(self.core.driver)  # A peer may have gone.
        check(
            self.connections, NULL, buffer_size(&self.connections.out) == 0,
            b"no answer is left in `out` when the round's answers are sent",
        )
        if buffer_size(&self.given) > 0:
            self.tell_time()
        while buffer_size(&self.given) > 0:
            received_ns = <int64_t>pop_handle(&self.given)
            histogram_record(&self.core.handed_off.histogram, <uint64_t>(self.connections.now_ns - received_ns), 1)

    cdef void arm(self) noexcept nogil:
        """Set the timer to the next deadline, a little late, so that close deadlines share one event."""
        cdef int64_t due_ns = max(next_due(&self.connections.relays), self.connections.now_ns + MIN_WAIT_NS)
        if self.connections.connection_count > 0 or not self.accepting or self.transport.left_count() > 0:
            due_ns = min(due_ns, self.sweep_ns)
        if due_ns < self.armed_ns:
            self.armed_ns = due_ns
            self.transport.set_timer(due_ns)

    cdef void expire_due(self) noexcept nogil:
        self.tell_time()
        expire_relays(self.core.driver)
        if self.connections.now_ns >= self.sweep_ns:
            self.expire_all()

    cdef void expire_all(self) noexcept nogil:
        cdef uint32_t i
        self.tell_time()
        self.sweep_ns = self.connections.now_ns + SWEEP_NS
        self.connections.http.now_s = self.transport.wall_ms() // 1000
        for i in range(self.connections.slot_count):
            expire_one(self.connections, self.connections.slots[i])
            if self.connections.slots[i].state != FREE and self.connections.slots[i].doomed:
                self.settle(self.connections.slots[i])
        self.transport.expire()
        if not self.draining and not self.accepting:
            self.accepting = self.transport.listen(True)

    cdef void drain_all(self) noexcept nogil:
        cdef Connection* connection
        cdef uint32_t i
        cdef int reads
        cdef int64_t until_ns
        self.tell_time()
        self.welcome_arrivals()
        until_ns = self.connections.now_ns + DRAIN_NS
        for i in range(self.connections.slot_count):
            connection = self.connections.slots[i]
            if connection.state != OPEN or connection.peer:
                continue
            if connection.shaking != 0:
                self.connections.doom(connection, CLOSED_DRAINED)
            reads = DRAIN_READS if self.connections.now_ns < until_ns else 0
            while reads > 0 and self.connections.wants_read(connection) and self.read(connection):
                reads -= 1
            self.connections.finish(connection, CLOSED_DRAINED)
            if self.connections.is_finished(connection) and self.connections.now_ms - connection.active_ms > QUIET_MS:
                self.connections.doom(connection, CLOSED_DRAINED)
            self.settle(connection)

    cdef void close_all(self, int reason) noexcept nogil:
        cdef uint32_t i
        for i in range(self.connections.slot_count):
            if self.connections.slots[i].state != FREE:
                self.connections.doom(self.connections.slots[i], reason)
                self.settle(self.connections.slots[i])

    # One connection ---------------------------------------------------------------------------------------------

    cdef void accept_some(self, uint64_t listener) noexcept nogil:
        """Accept some clients; without free descriptors, pause until the next `expire`.

        A client beyond `max_connections` is accepted and closed, so that it knows.
        """
        cdef int left = ACCEPTS_PER_STEP
        cdef int fd
        cdef int pump
        cdef uint64_t address
        while left > 0 and not self.draining:
            left -= 1
            fd = self.transport.accept(listener, &address)
            if fd == GONE:
                continue
            if fd == EXHAUSTED:
                self.counts[ACCEPT_PAUSES] += 1
                self.accepting = self.transport.listen(False)
            if fd < 0:
                return
            pump = self.connections.admit(address)
            if pump < 0:
                self.transport.close(fd, True)
            elif pump == self.connections.pump:
                self.welcome(fd, address, listener)
            elif not self.connections.group.send(pump, Arrival(fd, address, listener)):
                self.connections.group.move(pump, self.connections.pump)
                self.welcome(fd, address, listener)

    cdef void welcome(self, int fd, uint64_t address, uint64_t listener) noexcept nogil:
        """Serve a connection that was admitted to this serving loop and came to `listener`."""
        cdef Connection* connection = self.connections.begin(fd, address, listener)
        if connection == NULL:
            self.transport.close(fd, True)
            return
        check(self.connections, connection, connection.handle > OTHERS, b"the listener's handle is the listener's")
        connection.interest = READABLE
        if self.transport.begin(fd, connection.handle) < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.settle(connection)
        elif self.transport.is_secured(listener):
            expect_handshake(self.connections, connection)

    cdef void welcome_arrivals(self) noexcept nogil:
        """Serve the connections that the first serving loop accepted for this one."""
        cdef Arrival arrival
        while self.connections.group.receive(self.connections.pump, &arrival):
            self.welcome(arrival.fd, arrival.address, arrival.listener)

    cdef void turn_away_arrivals(self) noexcept nogil:
        """Close the connections that the first serving loop accepted for this one."""
        cdef Arrival arrival
        while self.connections.group.receive(self.connections.pump, &arrival):
            self.connections.group.leave(self.connections.pump, arrival.address)
            self.transport.close(arrival.fd, True)

    cdef bint read(self, Connection* connection) noexcept nogil:
        """Receive once and answer. Return True if bytes came."""
        cdef ssize_t size = self.transport.receive(connection.fd, self.inbox, most_to_receive(self.core))
        if size > 0 and connection.peer:
            receive_answers(self.core.driver, connection, self.inbox, size)
            self.tell_time()
            return True
        if size > 0:
            receive_requests(self.core, connection, self.inbox, size)
            self.transmit(connection)
            self.tell_time()
            count_answered(self.core, connection)
            return True
        if size == 0:
            self.connections.finish(connection, CLOSED_BY_PEER)
        elif size == BROKEN:
            self.connections.doom(connection, CLOSED_RESET)
        return False

    cdef ssize_t give(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Send bytes. Return how many the transport took."""
        cdef ssize_t taken = self.transport.send(connection.fd, data, size)
        if taken < 0:
            if taken == BROKEN:
                self.connections.doom(connection, CLOSED_RESET)
            return 0
        self.counts[BYTES_SENT] += <uint64_t>taken
        return taken

    cdef void transmit(self, Connection* connection) noexcept nogil:
        """Send the answers that the core has just written, or queue them behind waiting ones."""
        cdef ssize_t taken = 0
        cdef Py_ssize_t size
        if connection.replies != NULL:
            self.translate_answers(connection)
        size = buffer_size(&self.connections.out)
        if size > 0 and buffer_size(&connection.output) == 0 and not connection.doomed:
            taken = self.give(connection, self.connections.out.data + self.connections.out.start, size)
        self.connections.hold_output(connection, taken)
        if connection.replies != NULL:
            connection.replies.translated = buffer_size(&connection.output)
        self.connections.sent(connection, 0)

    cdef inline void translate_answers(self, Connection* connection) noexcept nogil:
        """Translate the answers into the connection's dialect."""
        if connection.listener == HTTP_LISTENER:
            self.connections.http.now_s = self.transport.wall_ms() // 1000
        self.connections.translate_answers(connection)

    cdef void transmit_held(self, Connection* connection) noexcept nogil:
        cdef Py_ssize_t size
        if connection.replies != NULL:
            self.translate_answers(connection)
        size = buffer_size(&connection.output)
        if size > 0 and not connection.doomed:
            self.connections.sent(
                connection, self.give(connection, connection.output.data + connection.output.start, size)
            )

    cdef void detach(self, Connection* connection) noexcept nogil:
        """Move the connection out of this loop, with its kept input, to another server."""
        cdef DetachedConnection head = DetachedConnection(
            -1, connection.handle, connection.user, connection.address, buffer_size(&connection.input)
        )
        cdef Buffer* input = &connection.input
        if buffer_reserve(&self.detached, sizeof(DetachedConnection) + head.size) == 0:
            head.fd = self.transport.leave(connection.fd)
        if head.fd < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)
            return
        buffer_append(&self.detached, <const uint8_t*>&head, sizeof(DetachedConnection))
        buffer_append(&self.detached, input.data + input.start, head.size)
        connection.reason = CLOSED_DETACHED
        self.connections.release(connection)

    cdef void discard(self, Connection* connection) noexcept nogil:
        """Discard input that comes after our end, until the peer's end closes the connection.

        A plain close with unread bytes in the queue would send a reset, which may destroy the last answer on its way.
        """
        cdef ssize_t size = self.transport.receive(connection.fd, self.inbox, INBOX_BYTES)
        if size == 0 or size == BROKEN:
            self.connections.doom(connection, connection.reason)

    cdef void settle(self, Connection* connection) noexcept nogil:
        """Close the connection, end it, or watch for the events that it now waits for."""
        cdef uint32_t interest = 0
        if connection.strange and self.connections.may_detach(connection):
            self.detach(connection)
            return
        if self.connections.is_finished(connection) and not connection.doomed:
            if connection.reason == CLOSED_BY_PEER:
                connection.doomed = True
            else:
                self.transport.end(connection.fd)
                self.connections.linger(connection)
        if connection.doomed:
            self.transport.close(connection.fd, connection.reason == CLOSED_CUT)
            self.connections.release(connection)
            return
        if connection.shaking != 0:
            interest = 0 if connection.due else connection.shaking
        elif connection.state == LINGERING or self.connections.wants_read(connection):
            interest = READABLE
        if buffer_size(&connection.output) > 0:
            interest |= WRITABLE
        if interest != connection.interest:
            connection.interest = interest
            if self.transport.watch(connection.fd, connection.handle, interest) < 0:
                self.connections.doom(connection, CLOSED_MEMORY)  # The next `expire` closes the connection.
