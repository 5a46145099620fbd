"""The rounds around the connection core: accept, receive, answer, hand off, send, close, and in which order.

One Trio task waits until this loop's descriptor is readable and calls `round`.  A round drops the GIL and serves what
is ready; takes it again and has Python answer what was handed off, the connections in turn; sends those answers, once
for each connection; and begins anew until nothing is ready or its time is over.  Going back to Trio costs many times
what a look at epoll does, so a round ends with one that finds nothing, or with a look-out (`busy_poll.pyx`).

The GIL is taken back only when Python is to answer, and at the end: beside a thread that computes each time takes as
long as that thread may keep it.

Where it can be, this loop sleeps in the place of Trio: it *rests*.  What Trio waits for is watched beside the
connections (`watch_others`), so a signal, a datagram or a thread's result ends the rest at once, and so does Trio's
next deadline; while a task of Trio can run there is no sleep, only a look at what is ready.  What Python has to do is
left to a round, for which a bell is rung that Trio waits for.  So a request costs a sleep, a receive and a send, and
no GIL.  Rejected: to rest in the task that calls `round`, which cannot know whether others can still run in its turn.

A pump beside the first has a thread for its rounds (`serve_alone`), and all of it is whose turn it is (`turn.pyx`):
the thread's in a step, and between two of them, or while it sleeps, that of Trio's, which answers what was handed off,
when the bell has rung, and sends that (`round`).  It never asks for events there: those are the thread's.

Sockets and clock are a transport's (`transport.pyx`): this is the one order for a node in the world and for a
simulated one.  Where time stands still the budgets in time mean nothing, and those in numbers hold.

Fairness: what a round had no time for stays in `events` and is not fetched again; held input gets one turn for each
connection and pass, in half of the time; a connection's answers and keys in one turn are bounded by the core.

How long an answer took is counted when it is sent: those of the core after each connection's `send`, where the clock is
read once, those of Python when all of the round are sent.  So both are rather too long than too short.

A handshake of TLS costs what many reads do, so it is not served with them: a step of it, once its peer has said its
part, waits in a line of its own, of which each step of the loop does a little.  Its connection is watched again behind
that, so a thousand who come at once are a thousand entries in that line, and no events.

When descriptors run out, `accept` is left alone until the next `expire`: those who wait in the backlog are served
when there are descriptors again.  Beyond `max_connections` a connection is accepted and closed, so its peer knows.

A connection ends in two halves: our end is sent, then the peer's is awaited for a moment; a plain close with unread
bytes in the queue would send a reset, and that may destroy the last answer on its way.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.wire._wire cimport histogram_record
from gossipkv.serving._transport cimport (
    BROKEN, ENDED, EXHAUSTED, FOREIGN, GONE, HTTP_LISTENER, LISTENERS, OTHERS, READABLE, TIMER, WRITABLE, Event,
    Transport,
)
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve, buffer_size

cdef enum:
    EVENTS = 256  # Ready connections fetched at once.
    MIN_NS = 250000  # What those that are ready have in each step, whatever held input took: thirty gets or so.
    ACCEPTS_PER_STEP = 64  # A flood of newcomers leaves time for those who are here.
    # Steps of handshakes in each step, and how long they may take: the last one longer, by what it costs itself.
    MAX_HANDSHAKES = 4
    HANDSHAKES_NS = 200000
    DRAIN_READS = 16  # Receives of one connection when draining: 1 MiB, more than socket buffers usually hold.
    DRAIN_NS = 50000000  # For those of all connections: a second signal must not wait for long.
    QUIET_MS = 1000  # A connection silent for this long has nothing on its way that a close could destroy.
    BUSY = 0  # There have been events since the last time that there were none.
    LOOKED_OUT = -1  # There is none, and a look-out has counted that; so it is at the start.
    # How exact the time-outs of connections are.  A look at 10,000 connections takes about 1 ms.
    SWEEP_NS = 500000000
    # Deadlines within so much are done at once.
    MIN_WAIT_NS = 1000000
    MILLISECOND_NS = 1000000
    MAX_REST_S = 3600


cdef struct Detached:
    int fd
    uint64_t handle
    uint32_t user
    uint64_t address
    Py_ssize_t size  # of what has been received, which follows


@cython.final
cdef class Loop:
    """The connections of a core and of a transport."""

    cdef readonly Core core
    cdef Connections connections
    cdef uint64_t* counts  # those of `connections`
    cdef Transport transport
    cdef int64_t armed_ns  # when the timer goes off; NEVER: it does not
    cdef int64_t sweep_ns  # when connections are looked at for the next time
    cdef bint draining
    cdef bint accepting  # not while there are no descriptors
    cdef bint closed
    cdef uint8_t* inbox
    cdef Event events[EVENTS]
    cdef int event_count
    cdef int event_at
    cdef int64_t deadline_ns  # of this round
    cdef int64_t serve_ns  # how long others may be kept waiting
    cdef int64_t rest_until_ns  # others have nothing to do before
    cdef bint sleeps_for_others
    cdef bint others_wait  # they do have, and this round is to end
    cdef bint is_due  # something is: the timer has gone off
    cdef PollCredit poll
    cdef Turn turn  # that of the core
    cdef bint alone  # a thread serves, and Python answers in turns
    cdef bint stopping  # that thread is to end
    cdef object user_named  # gives the user of a name in a certificate
    cdef uint64_t asking  # the connection whose request is being answered; 0: none's is
    cdef int64_t idle_ns  # since when there is no event; or BUSY, or LOOKED_OUT
    cdef bytes method  # of the latest request that was answered by Python
    cdef Buffer detached  # a `Detached` and its bytes for each that somebody else is to serve
    cdef Buffer given  # when the requests arrived whose answers are to be sent by this round

    def __cinit__(self, Core core not None, Transport transport not None):
        self.core = core
        self.connections = core.connections
        self.counts = self.connections.counts
        self.transport = transport
        self.inbox = <uint8_t*>malloc(INBOX_BYTES)
        if self.inbox == NULL:
            raise MemoryError
        self.accepting = True
        self.tell_time()
        self.armed_ns = NEVER
        self.sweep_ns = self.connections.now_ns + SWEEP_NS
        self.arm()
        self.idle_ns = LOOKED_OUT
        core.cold.pager.tell(transport.waker_fd())
        core.connections.crew.seats[core.connections.pump].waker = transport.waker_fd()
        self.turn = core.turn
        self.alone = core.turn is not None
        if self.alone:
            self.turn.waker = transport.waker_fd()
            transport.be_alone()

    def __dealloc__(self):
        # The connections are closed with the loop, not here: the core may be gone already.
        free(self.inbox)
        buffer_release(&self.given)
        buffer_release(&self.detached)

    # From Python ------------------------------------------------------------------------------------------------

    def fileno(self):
        """The descriptor that is readable when a step has something to do."""
        return self.transport.fileno()

    @property
    def has_work(self):
        """Whether a step has something to do although the descriptor may not be readable."""
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
        """How long until a round has something to do although nothing arrives; None: the descriptor tells of it."""
        return self.transport.due_s()

    @property
    def connection_count(self):
        """How many connections there are: those to other nodes not counted, those detached that need this loop are."""
        return self.connections.connection_count - self.connections.peer_count + self.transport.left_count()

    def adopt(self, int column, connection):
        """Ask that peer on this connection from now on, which is the loop's: nothing was read beyond `hello`.

        It is what the environment's streams are detached to.  A loop that is closed closes it.  Raises KeyError when
        there is no such peer: the connection is the caller's then.
        """
        cdef Connection* adopted
        cdef int fd
        self.core.check_thread()
        self.core.asking.peers.routes.peer(column)
        fd = self.transport.admit(connection)
        if self.closed:
            self.transport.close(fd, True)
            return
        self.tell_time()
        adopted = self.connections.begin_peer(fd, column)
        self.watch_made(fd, adopted)
        self.core.asking.peers.adopt(adopted)

    def serve_gateway(self, int fd):
        """Serve this node's own gateway at that end of a socket pair, which is the loop's from now on.

        It speaks MessagePack-RPC, in the clear; it counts as nobody's connection, and its time is never up.
        """
        self.core.check_thread()
        self.tell_time()
        self.watch_made(fd, self.connections.begin_gateway(fd))

    cdef int watch_made(self, int fd, Connection* connection) except -1:
        """Watch a connection that was made elsewhere; NULL: there is no memory for it.  Closes it where it raises."""
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
        """Have newcomers speak TLS by that `Tls` from now on, where it says so; those who are here go on as before.

        `user_named` gives the number of the user of whom a certificate is that a client shows, 0 for nobody's.  Raises
        ValueError: the transport cannot.
        """
        self.core.check_thread()
        self.user_named = user_named
        self.transport.use_tls(tls)

    @property
    def proven(self):
        """The uuid, 16 bytes, that a node whose request is being answered has proved; None: nobody has proved one."""
        cdef Connection* connection
        if self.asking == 0:
            return None
        connection = self.connections.find(self.asking)
        return None if connection == NULL else self.transport.proven(connection.fd)

    def watch_others(self, int fd):
        """Be ready for `rest`: that descriptor is readable when others have something to do; whether that can be.

        From then on this loop's own descriptor is another, which they can watch although they are watched.
        """
        self.sleeps_for_others = self.transport.watch_others(fd)
        return self.sleeps_for_others

    def rest(self, double idle_s, int64_t serve_us):
        """Serve what needs no Python, in the place of others who would sleep so long, until one of them is to go on.

        It is the end of `idle_s`, or the descriptor that is watched for them says so, or Python has something to do
        here: then ours is readable.  Takes `serve_us` where `idle_s` is 0.
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
        """Serve what is ready; answer what was handed off; send those answers; again, until nothing is ready.

        `answer(method, parameters, caller)` gives the result as MessagePack, a `Refused` or a `Welcome`.  Whatever else
        it gives is returned here as a `Pending`, to be answered by `complete`.  Of a read that no other node has
        answered the method is None, and the report stands for the parameters (`Forwarding.write_report`).  Takes at
        most `serve_us`, `answer_us` and what one request takes.
        """
        cdef list pending = []
        cdef bint answered = False
        self.core.check_thread()
        self.transport.hush()
        if self.alone:
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
        """Serve what needs no Python until `stop`: for a thread of its own, of another pump than the first."""
        assert self.alone
        with nogil:
            self.turn.take()
            while not self.stopping:
                self.begin_round(serve_us)
                self.rest_until_ns = self.connections.now_ns + <int64_t>MAX_REST_S * 1000000000
                self.welcome_arrivals()
                self.serve_ready()
                self.serve_scans()
                self.serve_handshakes()
                self.flush_dirty()
                self.arm()
            self.turn.give(False)

    def stop(self):
        """Have the thread in `serve_alone` end, soon."""
        self.core.check_thread()
        self.stopping = True

    def complete(self, Pending pending not None, answer):
        """Answer what was pending, with the next round: the result as MessagePack, a `Refused` or a `Welcome`."""
        cdef Connection* connection = self.connections.find(pending.handle)
        cdef bytes body = body_of(answer)
        cdef Py_ssize_t size = len(body)
        cdef Request* waiting = NULL
        self.core.check_thread()
        if connection == NULL or connection.doomed:
            self.counts[REPLIES_DROPPED] += 1
            return
        self.heed(connection, answer)
        if self.connections.make_room(connection, size):
            waiting = self.connections.backlog.put(
                pending.handle, pending.msgid, REFUSAL if isinstance(answer, Refused) else RESULT,
                pending.received_ns, 0, size,
            )
        if waiting == NULL:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)
            return
        memcpy(request_bytes(waiting), <const uint8_t*><const char*>body, size)
        if connection.parked:
            limit_parked(self.core, connection)

    def refuse(self, Pending pending not None, Refused error not None):
        """The same, when too much is pending."""
        self.counts[OVERLOADED] += 1
        self.complete(pending, error)

    def end_those_of(self, uint32_t user):
        """Take no more requests of that user's connections: each ends once what has arrived is answered."""
        cdef Connection* connection
        cdef uint32_t i
        self.core.check_thread()
        for i in range(self.connections.slot_count):
            connection = self.connections.slots[i]
            if connection.state == OPEN and not connection.peer and connection.user == user:
                self.connections.finish(connection, CLOSED_UNAUTHORIZED)
                self.connections.flush_later(connection)

    def take_detached(self):
        """Connections that are the caller's from now on: descriptor, who asks, and what has been received of each."""
        cdef list taken = []
        cdef Detached head
        cdef const char* at
        while buffer_size(&self.detached) > 0:
            at = <const char*>self.detached.data + self.detached.start
            memcpy(&head, at, sizeof(Detached))
            self.detached.start += sizeof(Detached) + head.size
            caller = Caller(head.handle, self.connections.pump, head.user, head.address)
            taken.append((head.fd, caller, at[sizeof(Detached):sizeof(Detached) + head.size]))
        buffer_release(&self.detached)
        return taken

    def wake(self):
        """Make the descriptor readable: there is `has_work` although nobody may send anything."""
        self.core.check_thread()
        self.transport.wake()

    def expire(self):
        """Close what is overdue, and accept again if that had paused, as the timer does each half second."""
        with nogil:
            self.expire_all()
        self.core.release_retired()
        self.transport.raise_failure()

    def drain(self):
        """Take no more connections, and no more requests than have arrived; a connection ends once it is answered."""
        if not self.draining:
            self.draining = self.connections.http.draining = True
            self.transport.stop_listening()
            with nogil:
                self.drain_all()
            self.transport.raise_failure()

    def close(self):
        """Close everything at once."""
        if not self.closed:
            self.closed = self.draining = True
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

    cdef void begin_round(self, int64_t serve_us) noexcept nogil:
        self.tell_time()
        self.serve_ns = 1000 * serve_us
        self.deadline_ns = self.connections.now_ns + self.serve_ns
        self.rest_until_ns = 0
        self.others_wait = False

    cdef bint serve(self, bint answered) noexcept nogil:
        """All that needs no Python, behind what it has `answered`; True: it has to answer, False: the round is over."""
        cdef bint goes_on = not answered or self.end_step()
        while goes_on:
            self.serve_ready()
            self.serve_scans()
            self.serve_handshakes()
            go_on_with_relays(self.core.asking)
            if not self.connections.backlog.is_empty():
                return True
            goes_on = self.end_step()
        return False

    cdef bint end_step(self) noexcept nogil:
        """Send what is to be sent; whether there is another step."""
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
        """Held input in half of the time, each connection once; then what is ready, in what is left and a little more.

        So neither keeps the other waiting, whatever a turn costs.  Sockets are looked at each time; again when nothing
        is left and Python has nothing to answer.
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
        """One turn of a connection whose input was held; NULL: there is none."""
        if connection != NULL:
            resume_requests(self.core, connection)
            self.transmit(connection)
            self.tell_time()
            count_answered(self.core, connection)
            self.settle(connection)

    cdef void serve_scans(self) noexcept nogil:
        """One slice: a get that comes meanwhile waits for no more of it."""
        cdef int64_t work = SLICE_WORK
        cdef Connection* connection = run_scans(self.core, &work)
        while connection != NULL:
            self.transmit(connection)
            self.settle(connection)
            connection = run_scans(self.core, &work)
        self.tell_time()

    cdef void serve_handshakes(self) noexcept nogil:
        """Some steps of handshakes, in the order in which their peers have spoken."""
        cdef int64_t until_ns = self.connections.now_ns + HANDSHAKES_NS
        cdef int left = MAX_HANDSHAKES
        cdef Connection* connection
        while left > 0 and buffer_size(&self.connections.handshakes) > 0 and self.connections.now_ns < until_ns:
            left -= 1
            connection = self.connections.find(pop_handle(&self.connections.handshakes))
            if connection != NULL:
                connection.due = False
                self.shake(connection)
                self.settle(connection)
                self.tell_time()

    cdef bint has_held_work(self) noexcept nogil:
        """Whether there is something to do although no socket is ready."""
        return (
            scans_have_turn(&self.connections.scans)
            or buffer_size(&self.connections.runnable) > 0
            or buffer_size(&self.connections.handshakes) > 0
            or (not self.alone and not self.connections.backlog.is_empty())
        )

    cdef bint wants_python(self) noexcept nogil:
        """Whether a round, and who calls it, has something to do."""
        return (
            not self.connections.backlog.is_empty()
            or self.connections.relays.first_reply != NULL
            or self.core.asking.peers.has_events()
            or buffer_size(&self.detached) > 0
            or self.connections.broken_count > 0
            or (
                self.draining
                and self.connections.connection_count == self.connections.peer_count
                and self.transport.left_count() == 0
            )
        )

    cdef bint may_rest(self) noexcept nogil:
        """Whether there is nothing to do before the next event, for anybody."""
        return (
            self.connections.now_ns < self.rest_until_ns
            and not self.others_wait
            and (self.alone or not self.wants_python())
            and not self.has_held_work()
            and buffer_size(&self.connections.dirty) == 0
            and self.connections.relays.first_restless == NULL
        )

    cdef bint fetch(self) noexcept nogil:
        """Ask for events, look out for them if that pays, rest until some come if that may be; whether any came."""
        cdef bint rests
        if self.is_due:  # Not before: what came beside the timer may be what is waited for.
            self.is_due = False
            self.expire_due()
        self.flush_dirty()  # Whoever is waited for next may wait for it.
        self.arm()
        self.event_at = 0
        self.event_count = 0
        if self.alone:
            self.let_others()
        give_back(self.connections)
        if self.others_wait or self.stopping:  # They are among the events until the round has ended.
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
                self.look_out()
        if self.event_count == 0 and rests:
            self.sleep()
        allow_work(self.core)
        self.tell_time()
        if self.event_count == 1 and self.events[0].handle == OTHERS:  # It is no event of ours.
            self.event_count = 0
            self.others_wait = True
        if self.event_count == 0:
            return False
        if rests:  # Others had nothing to do until now.
            self.deadline_ns = self.connections.now_ns + self.serve_ns
        if self.idle_ns > 0:
            poll_slept(&self.poll, self.connections.now_ns - self.idle_ns)
        self.idle_ns = BUSY
        return True

    cdef void sleep(self) noexcept nogil:
        """Rest until something comes.  While a thread does so alone it is the turn of others."""
        cdef int wait_ms = self.rest_ms()  # Others may tell the time then.
        if self.alone:
            self.turn.give(True)
        self.event_count = self.transport.fetch(self.events, EVENTS, wait_ms)
        if self.alone:
            self.turn.take()
            self.welcome_arrivals()

    cdef void let_others(self) noexcept nogil:
        """Have Python look, if it has something to do here, and let those in who wait for their turn."""
        if self.wants_python():
            self.transport.ring()
        if self.turn.is_wanted():
            self.turn.give(False)
            self.turn.take()

    cdef int rest_ms(self) noexcept nogil:
        """How long to rest, no shorter than it may be, as Trio does: what is due is not asked about twice."""
        return <int>((self.rest_until_ns - self.connections.now_ns + MILLISECOND_NS - 1) // MILLISECOND_NS)

    cdef void look_out(self) noexcept nogil:
        """Ask again and again for a moment, or until the round ends."""
        cdef int64_t until_ns = min(self.connections.now_ns + POLL_NS, self.deadline_ns)
        self.counts[BUSY_POLLS] += 1
        while self.event_count == 0 and self.connections.now_ns < until_ns:
            self.event_count = self.transport.fetch(self.events, EVENTS, 0)
            self.tell_time()
        self.idle_ns = LOOKED_OUT
        if self.event_count > 0:
            self.counts[BUSY_POLL_HITS] += 1
            poll_hit(&self.poll)
        else:
            poll_missed(&self.poll)

    cdef void answer_some(self, answer, int64_t budget_ns, list pending):
        """The connections in turn, one request each, until the time is over."""
        cdef int64_t deadline_ns = self.transport.now_ns() + budget_ns
        cdef Request* request = next_request(self.core)
        while request != NULL:
            try:
                self.answer_one(answer, request, pending)
            finally:
                free(request)
            request = next_request(self.core) if self.transport.now_ns() < deadline_ns else NULL

    cdef int answer_one(self, answer, Request* request, list pending) except -1:
        cdef bytes method = None
        cdef bytes body
        if request.kind == RESULT or request.kind == REFUSAL:
            self.give_answer(request, request_bytes(request), request.size, request.kind == REFUSAL)
            return 0
        if request.kind == ASKED:
            if self.method is None or not is_method(request, self.method):
                self.method = method_of(request)  # Kept: most requests ask the same, and its hash is known by then.
            method = self.method
        self.asking = request.handle
        reply = answer(method, params_of(request), caller_of(self.core, request.handle))
        self.asking = 0
        body = body_of(reply)
        if body is None:
            assert method is not None, "a report is answered at once"
            pending.append(Pending(request.handle, request.msgid, request.received_ns, method, reply))
            return 0
        self.heed(self.connections.find(request.handle), reply)
        self.give_answer(request, <const uint8_t*><const char*>body, len(body), isinstance(reply, Refused))
        return 0

    cdef int heed(self, Connection* connection, answer) except -1:
        """Do what an answer means for its connection."""
        if isinstance(answer, Welcome):
            connection.user = (<Welcome>answer).user
        elif isinstance(answer, Refused) and (<Refused>answer).ends:
            self.connections.finish(connection, CLOSED_UNAUTHORIZED)
        return 0

    cdef void give_answer(self, Request* request, const uint8_t* body, Py_ssize_t size, bint refused) noexcept nogil:
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
        if connection == NULL:  # It is gone, or somebody has called `wake`.
            return
        if connection.shaking != 0:
            if event.what & ENDED:
                self.connections.doom(connection, CLOSED_RESET)
            elif not connection.due:
                connection.due = push_handle(&self.connections.handshakes, connection.handle)
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
        """Send the answers of this round, one send for each connection."""
        cdef Connection* connection
        cdef int64_t received_ns
        go_on_with_relays(self.core.asking)
        while buffer_size(&self.connections.dirty) > 0:
            connection = self.connections.find(pop_handle(&self.connections.dirty))
            if connection != NULL:
                connection.dirty = False
                self.transmit_held(connection)
                self.settle(connection)
            go_on_with_relays(self.core.asking)  # A peer may have gone.
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
        """Have the timer go off when something is due: a little later, so that what is due nearly together is one."""
        cdef int64_t due_ns = max(next_due(&self.connections.relays), self.connections.now_ns + MIN_WAIT_NS)
        if self.connections.connection_count > 0 or not self.accepting or self.transport.left_count() > 0:
            due_ns = min(due_ns, self.sweep_ns)
        if due_ns < self.armed_ns:
            self.armed_ns = due_ns
            self.transport.set_timer(due_ns)

    cdef void expire_due(self) noexcept nogil:
        self.tell_time()
        expire_relays(self.core.asking)
        if self.connections.now_ns >= self.sweep_ns:
            self.expire_all()

    cdef void expire_all(self) noexcept nogil:
        cdef uint32_t i
        self.tell_time()
        self.sweep_ns = self.connections.now_ns + SWEEP_NS
        self.connections.http.now_s = self.transport.wall_s()
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
            elif not self.connections.crew.send(pump, Arrival(fd, address, listener)):
                self.connections.crew.move(pump, self.connections.pump)
                self.welcome(fd, address, listener)

    cdef void welcome(self, int fd, uint64_t address, uint64_t listener) noexcept nogil:
        """Serve a connection that was admitted to this pump, and came to that listener."""
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
            connection.shaking = READABLE
            connection.partial_ms = self.connections.now_ms  # A handshake has the time that a frame has.

    cdef void welcome_arrivals(self) noexcept nogil:
        """Serve whom another pump has accepted and sent here."""
        cdef Arrival arrival
        while self.connections.crew.receive(self.connections.pump, &arrival):
            self.welcome(arrival.fd, arrival.address, arrival.listener)

    cdef void turn_away_arrivals(self) noexcept nogil:
        """Close them."""
        cdef Arrival arrival
        while self.connections.crew.receive(self.connections.pump, &arrival):
            self.connections.crew.leave(self.connections.pump, arrival.address)
            self.transport.close(arrival.fd, True)

    cdef void shake(self, Connection* connection) noexcept nogil:
        """A step of its handshake."""
        cdef int waits = self.transport.shake(connection.fd, connection.handle)
        if waits > 0:
            connection.shaking = <uint32_t>waits
            return
        connection.shaking = 0
        connection.partial_ms = 0
        if waits == 0:
            connection.active_ms = self.connections.now_ms
            self.counts[TLS_HANDSHAKES] += 1
            self.counts[TLS_RESUMED] += self.transport.is_resumed(connection.fd)
            if self.transport.is_certified(connection.fd):
                self.recognise(connection)
            return
        connection.broken = True
        self.connections.drop_owing(connection)  # Whatever is said now is no answer.
        self.connections.finish(connection, CLOSED_HANDSHAKE)
        if waits == FOREIGN:
            self.answer_plain(connection)

    cdef void recognise(self, Connection* connection) noexcept with gil:
        """Have it be of the user of whom it has shown a certificate."""
        name = self.transport.named(connection.fd)
        if name is not None:
            connection.certified = connection.user = self.user_named(name)

    cdef void answer_plain(self, Connection* connection) noexcept nogil:
        """Tell whoever speaks plainly, as they do, that TLS is spoken here."""
        cdef ssize_t size = self.transport.receive(connection.fd, self.inbox, INBOX_BYTES)
        if size > 0 and refuse_plain(&self.connections.out, self.inbox, size) == 0:
            self.transmit(connection)

    cdef bint read(self, Connection* connection) noexcept nogil:
        """Receive once, and answer; whether bytes came."""
        cdef ssize_t size = self.transport.receive(connection.fd, self.inbox, most_to_receive(self.core))
        if size > 0 and connection.peer:
            receive_answers(self.core.asking, connection, self.inbox, size)
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
        """How much of it the transport took."""
        cdef ssize_t taken = self.transport.send(connection.fd, data, size)
        if taken < 0:
            if taken == BROKEN:
                self.connections.doom(connection, CLOSED_RESET)
            return 0
        self.counts[BYTES_SENT] += <uint64_t>taken
        return taken

    cdef void transmit(self, Connection* connection) noexcept nogil:
        """Send the answers that the core has just written, or put them behind those that wait."""
        cdef ssize_t taken = 0
        cdef Py_ssize_t size
        if connection.owing != NULL:
            self.say(connection)
        size = buffer_size(&self.connections.out)
        if size > 0 and buffer_size(&connection.output) == 0 and not connection.doomed:
            taken = self.give(connection, self.connections.out.data + self.connections.out.start, size)
        self.connections.hold_output(connection, taken)
        if connection.owing != NULL:
            connection.owing.said = buffer_size(&connection.output)
        self.connections.sent(connection, 0)

    cdef inline void say(self, Connection* connection) noexcept nogil:
        """Say its answers as it speaks."""
        if connection.listener == HTTP_LISTENER:
            self.connections.http.now_s = self.transport.wall_s()
        self.connections.say(connection)

    cdef void transmit_held(self, Connection* connection) noexcept nogil:
        """Send what waits."""
        cdef Py_ssize_t size
        if connection.owing != NULL:
            self.say(connection)
        size = buffer_size(&connection.output)
        if size > 0 and not connection.doomed:
            self.connections.sent(
                connection, self.give(connection, connection.output.data + connection.output.start, size)
            )

    cdef void detach(self, Connection* connection) noexcept nogil:
        """Have it served by somebody else from now on, beginning with the input that is kept."""
        cdef Detached head = Detached(
            -1, connection.handle, connection.user, connection.address, buffer_size(&connection.input)
        )
        cdef Buffer* input = &connection.input
        if buffer_reserve(&self.detached, sizeof(Detached) + head.size) == 0:
            head.fd = self.transport.leave(connection.fd)
        if head.fd < 0:
            self.connections.doom(connection, CLOSED_MEMORY)
            self.connections.flush_later(connection)
            return
        buffer_append(&self.detached, <const uint8_t*>&head, sizeof(Detached))
        buffer_append(&self.detached, input.data + input.start, head.size)
        connection.reason = CLOSED_DETACHED
        self.connections.release(connection)

    cdef void discard(self, Connection* connection) noexcept nogil:
        """Hear, after our end, that whatever comes is too late, and the peer's end closes."""
        cdef ssize_t size = self.transport.receive(connection.fd, self.inbox, INBOX_BYTES)
        if size == 0 or size == BROKEN:
            self.connections.doom(connection, connection.reason)

    cdef void settle(self, Connection* connection) noexcept nogil:
        """Settle a connection after anything happened to it: close it, end it, or watch for what it now waits for."""
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
                self.connections.doom(connection, CLOSED_MEMORY)  # Closed by the next `expire`.
