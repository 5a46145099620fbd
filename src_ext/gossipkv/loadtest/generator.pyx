"""The loop that puts servers under load: send, receive, check, count.

A connection is a window of `in_flight` slots to one target.  A run is a sequence of stages.  In a closed loop each
answered slot sends the next request.  In an open one requests fall due at a rate, and free slots take the oldest.  An
open latency counts from the due time, so waiting for slots is not left out ("coordinated omission").  Of `share`
processes at one rate, number `turn` sends each `share`-th request.  Each sent request is answered, refused with an
error, or lost with its connection.  A connection breaks if the server ends it unannounced, sends no valid or an unasked
answer, or is silent for `timeout_ms`.  With `redial` it is made again, after growing pauses.  A connection sends
requests only after TLS and the dialect's greeting (`settle` waits for both).  The loop must not distort the
measurement: requests allocate nothing, free slots share one send, and keys are drawn ahead.  `step` runs without the
GIL for a slice of time; `step_at` runs one turn at a given time, for tests without a clock.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from posix.unistd cimport close

from gossipkv.environment._sockets cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, epoll_create1, epoll_event,
    epoll_wait,
)
from gossipkv.serving._transport cimport BROKEN, NOT_YET, TlsClient
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Blob

cdef enum:
    INBOX_BYTES = 262144  # A window of sixteen answers to `get_many` of a hundred short values.
    MIN_ROOM = 65536  # A receive behind half an answer needs this room.
    EVENTS = 256
    SLICE_MS = 20  # The longest sleep within a step.
    SWEEPS = 16  # Overdue requests are looked for this often during one timeout.


@cython.final
cdef class Generator:
    """Load on connected sockets, which it takes over (`detach`) and closes.

    `targets` has for each socket the number of its dialect; all dialects ask for the same records.  `mix` has the
    weights of the kinds, in the order of `KIND_NAMES`.  With `writes`, which all dialects then have, every request
    belongs to a user if there are sessions, and its outcome is noted there.  `tls` has a TLS client for each dialect,
    over non-blocking sockets; None: without TLS.
    """

    cdef list dialects
    cdef PyObject** dialect_of  # Each target has one.
    cdef list secured  # The TLS clients, which this list owns.
    cdef uint32_t target_count
    cdef KeysAhead ahead
    cdef KindChooser kinds
    cdef Schedule schedule
    cdef readonly Ledger ledger  # The ledger of this run, or the last one.
    cdef bint redials
    cdef int64_t redial_ns  # When the next connection is due to be made again.
    cdef Link* links
    cdef Slot* slots
    cdef Asked* asked
    cdef Writes writes
    cdef uint32_t* walk  # The keys of a run that takes each once; NULL: keys are chosen.
    cdef uint32_t walk_at
    cdef uint32_t walk_end
    cdef bint walk_writes
    cdef uint64_t scans  # The random state of the lengths of scans.
    cdef uint32_t* idle  # A ring: the connection of each free slot, the one that has been free longest first.
    cdef uint64_t idle_begin
    cdef uint64_t idle_end
    cdef uint32_t link_count
    cdef uint32_t alive
    cdef uint32_t in_flight  # The number of slots of each connection.
    cdef uint32_t batch  # The most keys of a request: those of `many`, or of a walk.
    cdef uint32_t many
    cdef int epoll
    cdef uint8_t* inbox
    cdef Buffer outbox  # The output of one connection in one turn.
    cdef int64_t timeout_ns
    # The state of one run.
    cdef int64_t told_ns  # The time given by the caller; -1: use the clock.
    cdef int64_t begun_ns
    cdef int64_t end_ns
    cdef int64_t last_ns
    cdef int64_t sweep_ns
    cdef uint64_t sent
    cdef uint64_t wanted  # The number of requests to be sent in this run.
    cdef uint64_t waiting  # Sent requests that are neither answered nor lost.
    cdef bint is_open
    cdef epoll_event events[EVENTS]

    def __cinit__(self, dialects not None, sockets, *, uint32_t in_flight, uint32_t batch, int64_t timeout_ms,
                  uint64_t seed, Writes writes=None, uint32_t walk=0, targets=None, chooser=None, mix=None,
                  bint redial=False, tls=None):
        cdef Py_ssize_t slot_count = len(sockets) * <Py_ssize_t>in_flight
        cdef Py_ssize_t room = 0
        cdef Dialect dialect
        cdef Py_ssize_t i
        self.epoll = -1
        self.told_ns = -1
        self.dialects = [dialects] if isinstance(dialects, Dialect) else list(dialects)
        if not len(sockets) or in_flight < 1 or batch < 1 or timeout_ms < 1 or not self.dialects:
            raise ValueError("a run needs at least one connection, one request, one key and one millisecond")
        for dialect in self.dialects:
            room = max(room, dialect.room(max(batch, walk)))
        self.target_count = <uint32_t>len(self.dialects)
        self.in_flight = in_flight
        self.batch = max(batch, walk)
        self.many = batch
        self.timeout_ns = timeout_ms * 1000000
        self.redials = redial
        self.secured = [None] * len(self.dialects) if tls is None else list(tls)
        if chooser is None:
            chooser = KeyChooser("uniform", dialect.count, seed=seed)
        self.ahead = KeysAhead(chooser, dialect)
        self.kinds = KindChooser((batch == 1, batch > 1, 0) if mix is None else mix, seed=seed)
        self.ledger = Ledger(1, self.dialects)
        self.schedule = Schedule([(0, 1)])
        self.dialect_of = <PyObject**>calloc(self.target_count, sizeof(PyObject*))
        self.links = <Link*>calloc(len(sockets), sizeof(Link))
        self.slots = <Slot*>calloc(slot_count, sizeof(Slot))
        self.writes = writes
        self.scans = seed ^ 0x7363616E73ULL
        if writes is not None and writes.sessions and writes.users < slot_count:
            raise ValueError("each request in flight needs a user")
        self.asked = <Asked*>calloc(slot_count * self.batch, sizeof(Asked))
        self.idle = <uint32_t*>calloc(slot_count, sizeof(uint32_t))
        self.inbox = <uint8_t*>malloc(INBOX_BYTES)
        if not (self.dialect_of and self.links and self.slots and self.asked and self.idle and self.inbox):
            raise MemoryError
        if buffer_reserve(&self.outbox, in_flight * room) < 0:
            raise MemoryError
        for i in range(self.target_count):
            self.dialect_of[i] = <PyObject*>self.dialects[i]
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")
        for i, connected in enumerate(sockets):
            self.adopt(connected, 0 if targets is None else targets[i])

    def __dealloc__(self):
        self.close_all()
        free(self.dialect_of)
        free(self.links)
        free(self.slots)
        free(self.asked)
        free(self.walk)
        free(self.idle)
        free(self.inbox)
        buffer_release(&self.outbox)

    cdef int adopt(self, socket, uint32_t target) except -1:
        cdef Link* link = self.links + self.link_count
        cdef Py_ssize_t first = <Py_ssize_t>self.link_count * self.in_flight
        if target >= self.target_count:
            raise ValueError(f"there are {self.target_count} targets, and no target {target}")
        window_begin(&link.window, self.slots + first, self.in_flight, self.asked + first * self.batch, self.batch)
        link.target = target
        if self.secured[target] is not None:
            link.secures = <PyObject*>(<TlsClient?>self.secured[target])
        link.fd = socket.detach()
        self.link_count += 1
        if self.redials and link_remember(link) < 0:
            raise OSError(errno, "the address of the other end of a connection cannot be read")
        if link_watch(link, self.epoll, self.number_of(link), EPOLL_CTL_ADD) < 0:
            raise OSError(errno, "a connection cannot be watched")
        self.set_out(link, self.now())
        return 0

    cdef void close_all(self) noexcept:
        cdef uint32_t i
        for i in range(self.link_count):
            link_close(self.links + i)
        self.alive = 0
        if self.epoll >= 0:
            close(self.epoll)
            self.epoll = -1

    # Called from Python ----------------------------------------------------------------------------------------

    def settle(self):
        """Wait until all connections are up, or one is broken, at most `timeout_ms`; return how many are not up."""
        cdef int64_t give_up_ns = real_now() + self.timeout_ns
        with nogil:
            while self.alive == self.link_count and self.count_up() < self.link_count and real_now() < give_up_ns:
                self.turn(SLICE_MS)
        return self.link_count - self.count_up()

    def begin(self, *, double rate=0, int64_t duration_ns=0, uint64_t requests=0, int64_t now_ns=-1):
        """Start a run of `rate` requests a second, or 0 for a closed loop; it ends after this time or number.

        Requires: no run is under way; a duration, a number or both.
        """
        self.begin_stages(Schedule([(rate, duration_ns)], requests=requests), now_ns=now_ns)

    def begin_walk(self, numbers not None, *, bint writes=False, int64_t duration_ns=0, int64_t now_ns=-1):
        """Start a run that reads or writes each of these keys once, in a closed loop and in nobody's session."""
        cdef uint32_t at
        cdef uint32_t* walk = <uint32_t*>malloc(len(numbers) * sizeof(uint32_t) + 1)
        if walk == NULL:
            raise MemoryError
        for at, number in enumerate(numbers):
            walk[at] = number
        free(self.walk)
        self.walk, self.walk_at, self.walk_end, self.walk_writes = walk, 0, <uint32_t>len(numbers), writes
        requests = (len(numbers) + self.batch - 1) // self.batch
        self.start(Schedule([(0, duration_ns)], requests=requests), now_ns, -1)

    def begin_stages(self, Schedule schedule not None, *, int64_t now_ns=-1, int64_t begun_ns=-1):
        """Start a run of several stages, which begins at `begun_ns` of the system's monotonic clock.

        Requires: no run is under way.
        """
        free(self.walk)
        self.walk = NULL
        self.start(schedule, now_ns, begun_ns)

    cdef int start(self, Schedule schedule, int64_t now_ns, int64_t begun_ns) except -1:
        if self.waiting > 0:
            raise RuntimeError("a run is already under way")
        self.schedule = schedule
        self.ledger = Ledger(schedule.count, self.dialects)
        self.told_ns = now_ns
        self.begun_ns = begun_ns if begun_ns >= 0 else self.now()
        self.last_ns = self.begun_ns
        self.sweep_ns = self.begun_ns + self.timeout_ns // SWEEPS
        self.sent, self.wanted = 0, schedule.limit
        self.is_open = schedule.is_open
        if self.is_open:
            self.end_ns = self.begun_ns + schedule.last_due() + self.timeout_ns
            self.line_up()
        else:
            is_endless = schedule.duration_ns == INT64_MAX
            self.end_ns = INT64_MAX if is_endless else self.begun_ns + schedule.duration_ns
            self.fill_all()
        return 0

    def step(self, int64_t budget_ms):
        """Run without the GIL for `budget_ms`; return True if the run is still under way."""
        cdef bint more
        with nogil:
            more = self.run_until(real_now() + budget_ms * 1000000)
        assert self.is_accounted(), "a request that was sent is answered, refused, lost or in flight"
        return more

    def step_at(self, int64_t now_ns):
        """Run one turn at the caller's time, without waiting; return True if the run is still under way."""
        self.told_ns = now_ns
        with nogil:
            self.turn(0)
        assert self.is_accounted(), "a request that was sent is answered, refused, lost or in flight"
        return not self.is_done()

    def stop(self, *, int64_t now_ns=-1):
        """Send no more: requests not yet due are dropped, and those in flight are still awaited."""
        cdef int64_t now = real_now() if now_ns < 0 else now_ns
        self.end_ns = min(self.end_ns, now)
        self.wanted = min(self.wanted, self.schedule.due_by(now - self.begun_ns)) if self.is_open else self.sent

    def close(self, *, bint reset=False):
        """End all connections; `reset`: without a farewell, so that they do not hold their ports for a minute."""
        cdef uint32_t i
        for i in range(self.link_count if reset else 0):
            link_reset(self.links + i)
        self.close_all()
        self.waiting = 0

    @property
    def connections(self):
        """Return the number of connections that are not broken."""
        return self.alive

    @property
    def duration_ns(self):
        """Return the time from the beginning of the run to the last answer."""
        return self.last_ns - self.begun_ns

    @property
    def unsent(self):
        """Return the unsent requests of an open run; after a stop, of those that had fallen due."""
        return self.wanted - self.sent if self.is_open else 0

    @property
    def tally(self):
        """Return the tally of a run with one target and one stage."""
        return self.ledger.tally_at(0, 0)

    # A turn -----------------------------------------------------------------------------------------------------

    cdef inline int64_t now(self) noexcept nogil:
        return real_now() if self.told_ns < 0 else self.told_ns

    cdef bint run_until(self, int64_t until_ns) noexcept nogil:
        self.told_ns = -1
        while not self.is_done():
            if real_now() >= until_ns:
                return True
            self.turn(SLICE_MS)
        return False

    cdef bint is_done(self) noexcept nogil:
        if self.alive == 0 and not self.redials:
            return True
        return self.waiting == 0 and not self.may_send(self.now())

    cdef bint is_accounted(self) noexcept:
        """Return True if every request is accounted for; used only in assertions."""
        cdef uint64_t in_flight = 0
        cdef uint32_t i
        for i in range(self.link_count):
            in_flight += self.links[i].window.in_flight
        return in_flight == self.waiting and self.sent == self.ledger.ended() + in_flight

    cdef inline bint may_send(self, int64_t now) noexcept nogil:
        return self.sent < self.wanted and now < self.end_ns

    cdef void turn(self, int longest_ms) noexcept nogil:
        cdef int64_t now = self.now()
        cdef int64_t wait_ns
        cdef int found
        cdef int i
        if now >= self.sweep_ns:
            self.sweep(now)
        if self.redials and now >= self.redial_ns:
            self.redial(now)
        if self.is_open:
            self.send_due(now)
            if self.may_send(now) and self.idle_begin != self.idle_end:
                # epoll's clock has milliseconds, so shorter waits are polled.
                wait_ns = max(<int64_t>0, self.due() - now)
                longest_ms = <int>min(<int64_t>longest_ms, wait_ns // 1000000)
        found = epoll_wait(self.epoll, self.events, EVENTS, longest_ms)
        for i in range(found):
            self.serve(self.links + self.events[i].data.u64, self.events[i].events)

    cdef void serve(self, Link* link, uint32_t events) noexcept nogil:
        if link.state == DIALLING:
            self.meet(link, events)
            return
        if link.state == SHAKING:
            self.advance(link)
            return
        if link.fd >= 0 and events & EPOLLOUT:
            self.flush(link)
        if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            while link.fd >= 0 and self.receive(link):
                pass

    cdef void sweep(self, int64_t now) noexcept nogil:
        """End connections with servers that were silent for too long."""
        cdef uint32_t i
        cdef uint32_t j
        cdef Window* window
        self.sweep_ns = now + self.timeout_ns // SWEEPS
        for i in range(self.link_count):
            window = &self.links[i].window
            if DOWN < self.links[i].state < UP and now - self.links[i].since_ns > self.timeout_ns:
                if self.links[i].state == DIALLING:
                    self.go_down(self.links + i, now)
                else:
                    self.end(self.links + i, SILENT, self.now())
            if self.links[i].fd < 0 or window.in_flight == 0:
                continue
            for j in range(window.capacity):
                if window.slots[j].busy and now - window.slots[j].sent_ns > self.timeout_ns:
                    self.end(self.links + i, SILENT, self.now())
                    break

    # Sending ----------------------------------------------------------------------------------------------------

    cdef inline int64_t due(self) noexcept nogil:
        """Return when the next request of an open run is due."""
        return self.begun_ns + self.schedule.due(self.sent)

    cdef void line_up(self) noexcept nogil:
        """Mark every slot as free: first one of each connection, then the second ones."""
        cdef uint32_t i
        self.idle_begin = 0
        self.idle_end = 0
        for i in range(self.link_count):
            self.links[i].lined_up = 0
        for _ in range(self.in_flight):
            for i in range(self.link_count):
                if self.links[i].state == UP:
                    self.put_idle(i)

    cdef inline void put_idle(self, uint32_t link) noexcept nogil:
        self.idle[self.idle_end % (<uint64_t>self.link_count * self.in_flight)] = link
        self.idle_end += 1
        self.links[link].lined_up += 1

    cdef void fill_all(self) noexcept nogil:
        cdef uint32_t i
        for i in range(self.link_count):
            if self.links[i].state == UP:
                self.fill(self.links + i, self.begun_ns)

    cdef void fill(self, Link* link, int64_t now) noexcept nogil:
        """Send requests for all free slots at once."""
        while link.window.in_flight < self.in_flight and self.may_send(now):
            self.schedule.stage_at(now - self.begun_ns)
            self.ask(link, now, now)
        if buffer_size(&self.outbox) > 0:
            self.give(link)

    cdef void send_due(self, int64_t now) noexcept nogil:
        """Send requests that have fallen due, while slots are free."""
        cdef uint64_t all_slots = <uint64_t>self.link_count * self.in_flight
        cdef Link* link
        cdef int64_t due_ns
        while self.idle_begin != self.idle_end and self.may_send(now):
            due_ns = self.due()
            if due_ns > now:
                return
            link = self.links + self.idle[self.idle_begin % all_slots]
            self.idle_begin += 1
            link.lined_up -= 1
            if link.state == UP:
                self.ask(link, due_ns, now)
                self.give(link)

    cdef void ask(self, Link* link, int64_t due_ns, int64_t now) noexcept nogil:
        """Write a request with a free slot."""
        cdef uint32_t at = window_take(&link.window, (<Dialect>self.dialect_of[link.target]).in_order)
        cdef Slot* slot = link.window.slots + at
        cdef Asked* asked = window_asked(&link.window, at)
        cdef uint32_t i
        slot.due_ns = due_ns
        slot.sent_ns = now
        slot.stage = self.schedule.at
        slot.floor = self.ledger.versions[link.target].newest
        slot.session = NULL
        if self.walk != NULL:
            slot.count = min(self.batch, self.walk_end - self.walk_at)
            if self.walk_writes:
                slot.kind = PUT if self.batch == 1 else PUT_MANY
            else:
                slot.kind = GET if self.batch == 1 else GET_MANY
        else:
            slot.kind = <uint8_t>self.kinds.draw()
            slot.count = self.many if slot.kind == GET_MANY or slot.kind == SCAN or slot.kind == PUT_MANY else 1
            if self.writes is not None and self.writes.sessions:
                slot.session = self.writes.take_session()
        slot.form = slot.kind if slot.kind < FORMS else PUT if slot.kind == INSERT else GET
        self.waiting += 1
        self.sent += 1
        (<Tally>self.tally_of(link)).count_sent(now - due_ns if self.is_open else -1)
        for i in range(1 if slot.kind == SCAN else slot.count):
            asked[i].key = self.key_of(slot)
        self.write(link, slot, asked, now)

    cdef inline uint32_t key_of(self, const Slot* slot) noexcept nogil:
        if self.walk != NULL:
            self.walk_at += 1
            return self.walk[self.walk_at - 1]
        return (<KeyChooser>self.ahead.chooser).insert() if slot.kind == INSERT else self.ahead.draw()

    cdef void write(self, Link* link, Slot* slot, Asked* asked, int64_t now) noexcept nogil:
        """Write the request of a slot; its writes begin."""
        cdef uint32_t i
        if self.writes is not None:
            if slot.form == SCAN:
                slot.count = 1 + below(&self.scans, self.many)
            for i in range(slot.count if slot.form >= PUT else 0):
                self.writes.begin(asked + i, slot.form == DELETE, <uint32_t>(now // 1000000))
        (<Dialect>self.dialect_of[link.target]).write(&self.outbox, slot, asked)

    cdef void end_request(self, Link* link, uint32_t at, bint is_done, int64_t now) noexcept nogil:
        """Note the outcome of the writes of a request, and let its user go on."""
        cdef Slot* slot = link.window.slots + at
        cdef const Asked* asked = window_asked(&link.window, at)
        cdef uint32_t i
        self.writes.session = slot.session
        for i in range(slot.count if slot.form >= PUT else 0):
            self.writes.end(asked + i, slot.form == DELETE, is_done, <uint32_t>(now // 1000000))
        if slot.kind == INSERT and is_done:
            (<KeyChooser>self.ahead.chooser).grow()
        if slot.session != NULL:
            self.writes.free_session(slot.session)

    cdef void go_on(self, Link* link, const Reply* reply, int64_t now) noexcept nogil:
        """Send the put of a request that has got its value, in the same slot: free slots are a stack."""
        cdef bint in_order = (<Dialect>self.dialect_of[link.target]).in_order
        cdef Slot* slot = link.window.slots + reply.slot
        (<Tally>tally_of(self.ledger, slot.stage, link.target)).count_values(reply)
        window_free(&link.window, reply.slot, in_order)
        window_take(&link.window, in_order)
        slot.form, slot.sent_ns = PUT, now
        self.write(link, slot, window_asked(&link.window, reply.slot), now)
        self.give(link)

    cdef void give(self, Link* link) noexcept nogil:
        """Send the written requests, or append them to the waiting output."""
        cdef Py_ssize_t size = self.outbox.end
        cdef bint was_blocked = link.blocked
        self.outbox.end = 0
        (<Tally>self.tally_of(link)).count_bytes(size, 0)
        self.sent_some(link, link_send(link, self.outbox.data, size), was_blocked)

    cdef void flush(self, Link* link) noexcept nogil:
        self.sent_some(link, link_flush(link), link.blocked)

    cdef void sent_some(self, Link* link, int result, bint was_blocked) noexcept nogil:
        """Update the wait for room after a send, or end a broken connection."""
        if result != SENT:
            self.end(link, RESET if result == SEND_FAILED else NO_MEMORY, self.now())
        elif link.blocked != was_blocked:
            link_watch(link, self.epoll, self.number_of(link), EPOLL_CTL_MOD)

    cdef inline PyObject* tally_of(self, const Link* link) noexcept nogil:
        """Return the tally of the current stage."""
        return tally_of(self.ledger, self.schedule.at, link.target)

    cdef inline uint64_t number_of(self, const Link* link) noexcept nogil:
        return <uint64_t>(link - self.links)

    # Receiving --------------------------------------------------------------------------------------------------

    cdef bint receive(self, Link* link) noexcept nogil:
        """Receive, count the answers, and send as many requests; return True if more can be received."""
        cdef Buffer* input = &link.input
        cdef bint is_half = buffer_size(input) > 0
        cdef uint8_t* into = self.inbox
        cdef Py_ssize_t room = INBOX_BYTES
        cdef ssize_t size
        cdef int64_t now
        cdef bint holds
        if is_half:
            if buffer_reserve(input, MIN_ROOM) < 0:
                self.end(link, NO_MEMORY, self.now())
                return False
            into = input.data + input.end
            room = input.capacity - input.end
        size = link_take(link, into, room, &holds)
        if size <= 0:
            if size != NOT_YET:
                self.end(link, CLOSED_BY_PEER if size == 0 else RESET, self.now())
            return False
        now = self.now()
        (<Tally>self.tally_of(link)).count_bytes(0, size)
        if is_half:
            input.end += size
            size = self.take(link, input.data + input.start, buffer_size(input), now)
            if link.fd >= 0:
                drop(input, size)
        else:
            room = self.take(link, self.inbox, size, now)
            if link.fd >= 0 and room < size and buffer_append(input, self.inbox + room, size - room) < 0:
                self.end(link, NO_MEMORY, self.now())
        if link.fd >= 0 and link.is_ending:
            self.leave(link, now)
        elif link.state == UP and not self.is_open:
            self.fill(link, now)
        return holds

    cdef Py_ssize_t take(self, Link* link, const uint8_t* data, Py_ssize_t size, int64_t now) noexcept nogil:
        """Count all complete answers; return their size in bytes."""
        cdef Py_ssize_t at = 0
        cdef Reply reply
        cdef int result
        if self.writes is not None:
            self.writes.now_ms = <uint32_t>(now // 1000000)
        while at < size and link.fd >= 0 and not link.is_ending:
            if link.state == GREETING:
                result = (<Dialect>self.dialect_of[link.target]).take_greeting(data + at, size - at, &reply)
            else:
                result = (<Dialect>self.dialect_of[link.target]).take(&link.window, data + at, size - at, &reply)
            if result == PARTIAL:
                break
            if result != COMPLETE:
                self.end(link, UNASKED_ANSWER if result == UNASKED else BAD_ANSWER, now)
                break
            at += reply.size
            if link.state == GREETING:
                link.state = UP
                self.come_up(link)
            else:
                self.count(link, &reply, now)
        return at

    cdef void count(self, Link* link, const Reply* reply, int64_t now) noexcept nogil:
        cdef const Slot* slot = link.window.slots + reply.slot
        link.pause_ns = 0
        link.is_ending = reply.is_last
        if slot.kind == MODIFY and slot.form == GET and not reply.is_error:
            self.go_on(link, reply, now)
            return
        self.ledger.count(link.target, slot, reply, now)
        self.last_ns = now
        if self.writes is not None:
            self.end_request(link, reply.slot, not reply.is_error, now)
        window_free(&link.window, reply.slot, (<Dialect>self.dialect_of[link.target]).in_order)
        self.waiting -= 1
        if self.is_open and not link.is_ending:
            self.put_idle(<uint32_t>self.number_of(link))

    # Connections that end, and are made again --------------------------------------------------------------------

    cdef void end(self, Link* link, int reason, int64_t now) noexcept nogil:
        """End a broken connection; its requests in flight are lost."""
        cdef uint32_t at
        self.ledger.count_broken(self.schedule.at, link.target, reason, &link.window)
        for at in range(self.in_flight if self.writes is not None else 0):
            if link.window.slots[at].busy:
                self.end_request(link, at, False, now)
        self.waiting -= link.window.in_flight
        self.go_down(link, now)

    cdef void leave(self, Link* link, int64_t now) noexcept nogil:
        """End a connection as its server announced; it is broken if requests were in flight."""
        if link.window.in_flight > 0:
            self.end(link, CLOSED_BY_PEER, now)
        else:
            self.go_down(link, now)

    cdef void go_down(self, Link* link, int64_t now) noexcept nogil:
        """Take a connection down; it may be made again after its pause."""
        if link.state > DIALLING:
            self.alive -= 1
        link_down(link, now)
        self.redial_ns = min(self.redial_ns, link.retry_ns)

    cdef void redial(self, int64_t now) noexcept nogil:
        """Make the connections that are due again."""
        cdef Link* link
        cdef uint32_t i
        self.redial_ns = INT64_MAX
        for i in range(self.link_count):
            link = self.links + i
            if link.state == DOWN and link.retry_ns <= now and not link_dial(link, self.epoll, i, now):
                self.go_down(link, now)
            if link.state == DOWN:
                self.redial_ns = min(self.redial_ns, link.retry_ns)

    cdef void meet(self, Link* link, uint32_t events) noexcept nogil:
        """Continue after the outcome of dialling."""
        cdef int64_t now = self.now()
        if not link_is_made(link, events):
            self.go_down(link, now)
            return
        (<Tally>self.tally_of(link)).count_reconnect()
        self.set_out(link, now)

    cdef void set_out(self, Link* link, int64_t now) noexcept nogil:
        """Begin to use a new connection."""
        self.alive += 1
        link_begin(link, now)
        self.advance(link)

    cdef void advance(self, Link* link) noexcept nogil:
        """Continue with a connection that is not up yet."""
        cdef Blob greeting = (<Dialect>self.dialect_of[link.target]).greeting
        if link.state == SHAKING and link_shake(link) == BROKEN:
            self.end(link, RESET, self.now())
            return
        if link.state == GREETING and link_greet(link, &greeting):
            self.come_up(link)
        link_watch(link, self.epoll, self.number_of(link), EPOLL_CTL_MOD)
        if link.state == UP and not self.is_open:
            self.fill(link, self.now())

    cdef void come_up(self, Link* link) noexcept nogil:
        """Offer the slots of a new connection."""
        while self.is_open and link.lined_up < self.in_flight:
            self.put_idle(<uint32_t>self.number_of(link))

    cdef uint32_t count_up(self) noexcept nogil:
        cdef uint32_t count = 0
        cdef uint32_t i
        for i in range(self.link_count):
            count += self.links[i].state == UP
        return count
