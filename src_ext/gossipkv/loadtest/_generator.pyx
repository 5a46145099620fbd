"""The loop that puts a server under load: send, receive, check, count.

A connection is a window of `in_flight` slots.  A run is closed or open:

    closed  a slot whose answer came asks for the next at once: the server sets the pace
    open    requests fall due at a given rate, whatever the server does; a free slot takes the oldest that is due, and
            what it took counts from when it was due, so that time in which the server kept all slots busy is counted
            and not left out ("coordinated omission")

What it insists on is that nothing goes by uncounted.  Each request that was sent ends in one of three ways: answered
(right or wrong), refused with an error, or lost with its connection.  A connection breaks when the server ends it,
sends what is no answer, answers what was not asked or was answered already, or is silent for `timeout_ms`; it stays
broken, and the run goes on with the others until there is none.

It must not be what is measured: nothing is allocated for a request; all free slots of a connection are filled with one
send; keys are drawn ahead, so that records come from memory while others are written.  `step` runs without the
GIL for a slice of time, then returns to Python, where a signal may end it.  `step_at` is one turn at a time that the
caller tells: for tests, which then need no clock.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.math cimport ceil
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

from gossipkv.loadtest._dialect cimport (
    COMPLETE,
    PARTIAL,
    UNASKED,
    Dialect,
    Reply,
    Slot,
    Window,
    window_free,
    window_take,
)
from gossipkv.loadtest._tally cimport (
    BAD_ANSWER,
    CLOSED_BY_PEER,
    NO_MEMORY,
    RESET,
    SILENT,
    UNASKED_ANSWER,
    Tally,
)
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve, buffer_size

cdef extern from * nogil:
    """
    #define gkv_fetch(at) __builtin_prefetch(at)
    """
    void gkv_fetch(const void* at)

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLL_CLOEXEC
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_MOD
    enum: EPOLLIN
    enum: EPOLLOUT
    enum: EPOLLERR
    enum: EPOLLHUP

    ctypedef union epoll_data_t:
        uint64_t u64

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int capacity, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_NOSIGNAL
    enum: MSG_DONTWAIT
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    enum: SOL_SOCKET
    enum: SO_LINGER

    struct linger_time "linger":
        int l_onoff
        int l_linger

    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)

cdef enum:
    INBOX_BYTES = 262144  # A window of sixteen answers to `get_many` of a hundred short values.
    LEAST_ROOM = 65536  # For one receive behind half an answer.
    KEPT_BYTES = 1048576  # Beyond, a connection's buffer that is empty is given back.
    EVENTS = 256
    AHEAD = 32  # Keys drawn before they are written: twice what memory takes to bring one.
    SLICE_MS = 20  # The longest sleep within a step.
    SWEEPS = 16  # Looks for what is overdue, in the time that a request has.

cdef struct Link:
    int fd  # -1: broken
    bint blocked  # waits until the server takes more
    Window window
    Buffer input  # half an answer
    Buffer output  # what the server has not taken


cdef inline int64_t real_now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef void drop(Buffer* buffer, Py_ssize_t size) noexcept nogil:
    """Forget the first `size` bytes; what is empty keeps its memory, so that nothing is allocated for an answer."""
    buffer.start += size
    if buffer_size(buffer) == 0:
        buffer.start = 0
        buffer.end = 0
        if buffer.capacity > KEPT_BYTES:
            buffer_release(buffer)


@cython.final
cdef class Generator:
    """Load on connected sockets, which it takes over (`detach`) and closes."""

    cdef Dialect dialect
    cdef readonly Tally tally  # of this run, or the last one
    cdef Link* links
    cdef Slot* slots
    cdef uint32_t* keys
    cdef uint32_t* idle  # A ring: the connection of each free slot, the one that is free for longest first.
    cdef uint64_t idle_begin
    cdef uint64_t idle_end
    cdef uint32_t link_count
    cdef uint32_t alive
    cdef uint32_t in_flight  # slots of each connection
    cdef uint32_t batch
    cdef int epoll
    cdef uint8_t* inbox
    cdef Buffer outbox  # of one connection in one turn
    cdef int64_t timeout_ns
    cdef uint64_t random
    cdef uint32_t ahead[AHEAD]
    cdef uint32_t ahead_at
    # Of one run.
    cdef int64_t told_ns  # -1: the clock's
    cdef int64_t begun_ns
    cdef int64_t end_ns
    cdef int64_t last_ns
    cdef int64_t sweep_ns
    cdef uint64_t waiting  # sent and neither answered nor lost
    cdef uint64_t limit  # requests
    cdef double period_ns  # between two that fall due; 0: closed
    cdef epoll_event events[EVENTS]

    def __cinit__(self, Dialect dialect not None, sockets, *, uint32_t in_flight, uint32_t batch, int64_t timeout_ms,
                  uint64_t seed):
        cdef Py_ssize_t slot_count = len(sockets) * <Py_ssize_t>in_flight
        self.epoll = -1
        self.told_ns = -1
        if not len(sockets) or in_flight < 1 or batch < 1 or timeout_ms < 1 or dialect.count < 1:
            raise ValueError("at least one connection, one request, one key and a millisecond are needed")
        self.dialect = dialect
        self.in_flight = in_flight
        self.batch = batch
        self.timeout_ns = timeout_ms * 1000000
        self.random = seed
        self.tally = Tally(dialect)
        self.links = <Link*>calloc(len(sockets), sizeof(Link))
        self.slots = <Slot*>calloc(slot_count, sizeof(Slot))
        self.keys = <uint32_t*>calloc(slot_count * batch, sizeof(uint32_t))
        self.idle = <uint32_t*>calloc(slot_count, sizeof(uint32_t))
        self.inbox = <uint8_t*>malloc(INBOX_BYTES)
        if not (self.links and self.slots and self.keys and self.idle and self.inbox):
            raise MemoryError
        if buffer_reserve(&self.outbox, in_flight * dialect.room(batch)) < 0:
            raise MemoryError
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")
        for each in sockets:
            self.adopt(each)
        for _ in range(AHEAD):
            self.draw()

    def __dealloc__(self):
        self.close_all()
        free(self.links)
        free(self.slots)
        free(self.keys)
        free(self.idle)
        free(self.inbox)
        buffer_release(&self.outbox)

    cdef int adopt(self, socket) except -1:
        cdef Link* link = self.links + self.link_count
        cdef Window* window = &link.window
        cdef Py_ssize_t first = <Py_ssize_t>self.link_count * self.in_flight
        cdef uint32_t i
        window.slots = self.slots + first
        window.keys = self.keys + first * self.batch
        window.capacity = self.in_flight
        window.batch = self.batch
        for i in range(self.in_flight):
            window.slots[i].id = i
            window.slots[i].next = i + 1
        link.fd = socket.detach()
        self.link_count += 1
        self.alive += 1
        if self.watch(link, EPOLL_CTL_ADD, EPOLLIN) < 0:
            raise OSError(errno, "a connection cannot be watched")
        return 0

    cdef void close_all(self) noexcept:
        cdef uint32_t i
        for i in range(self.link_count):
            if self.links[i].fd >= 0:
                close(self.links[i].fd)
                self.links[i].fd = -1
            buffer_release(&self.links[i].input)
            buffer_release(&self.links[i].output)
        self.alive = 0
        if self.epoll >= 0:
            close(self.epoll)
            self.epoll = -1

    # From Python ------------------------------------------------------------------------------------------------

    def begin(self, *, double rate=0, int64_t duration_ns=0, uint64_t requests=0, int64_t now_ns=-1):
        """Start a run: `rate` requests a second, or 0 for a closed loop; it ends after this time or this many.

        Requires: no run is under way; a duration, a number or both.
        """
        if rate < 0 or duration_ns < 0 or (duration_ns == 0 and requests == 0):
            raise ValueError("a run needs a duration or a number of requests")
        if self.waiting > 0:
            raise RuntimeError("a run is under way")
        self.told_ns = now_ns
        self.tally = Tally(self.dialect)
        self.begun_ns = self.now()
        self.last_ns = self.begun_ns
        self.end_ns = self.begun_ns + duration_ns if duration_ns > 0 else INT64_MAX
        self.limit = requests if requests > 0 else <uint64_t>INT64_MAX
        self.sweep_ns = self.begun_ns + self.timeout_ns // SWEEPS
        self.period_ns = 0
        if rate > 0:
            self.period_ns = 1e9 / rate
            if duration_ns > 0:
                self.limit = min(self.limit, <uint64_t>max(1.0, ceil(<double>duration_ns / self.period_ns)))
            self.end_ns = self.due(self.limit - 1) + self.timeout_ns
            self.line_up()
        else:
            self.fill_all()

    def step(self, int64_t budget_ms):
        """Go on for so long, without the GIL; whether the run is still under way."""
        cdef bint more
        with nogil:
            more = self.run_until(real_now() + budget_ms * 1000000)
        assert self.is_accounted(), "a request that was sent is answered, refused, lost or in flight"
        return more

    def step_at(self, int64_t now_ns):
        """One turn at a time that the caller tells, without waiting; whether the run is still under way."""
        self.told_ns = now_ns
        with nogil:
            self.turn(0)
        assert self.is_accounted(), "a request that was sent is answered, refused, lost or in flight"
        return not self.is_done()

    def close(self, *, bint reset=False):
        """End all connections; `reset`: without a farewell, so that they do not hold their ports for a minute."""
        cdef linger_time at_once = linger_time(1, 0)
        cdef uint32_t i
        if reset:
            for i in range(self.link_count):
                if self.links[i].fd >= 0:
                    setsockopt(self.links[i].fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once))
        self.close_all()
        self.waiting = 0

    @property
    def connections(self):
        """How many are not broken."""
        return self.alive

    @property
    def duration_ns(self):
        """The time from the beginning of the run to the last answer."""
        return self.last_ns - self.begun_ns

    @property
    def unsent(self):
        """Requests of an open run that have not been sent."""
        return self.limit - self.tally.sent if self.period_ns > 0 else 0

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
        return self.alive == 0 or (self.waiting == 0 and not self.may_send(self.now()))

    cdef bint is_accounted(self) noexcept:
        """Whether nothing goes by uncounted.  For an assertion alone."""
        cdef uint64_t in_flight = 0
        cdef uint32_t i
        for i in range(self.link_count):
            in_flight += self.links[i].window.in_flight
        return (
            in_flight == <uint64_t>self.waiting
            and self.tally.sent == self.tally.answered + self.tally.refused + self.tally.lost + in_flight
        )

    cdef inline bint may_send(self, int64_t now) noexcept nogil:
        return self.tally.sent < self.limit and now < self.end_ns

    cdef void turn(self, int longest_ms) noexcept nogil:
        cdef int64_t now = self.now()
        cdef int64_t wait_ns
        cdef int found
        cdef int i
        if now >= self.sweep_ns:
            self.sweep(now)
        if self.period_ns > 0:
            self.send_due(now)
            if self.may_send(now) and self.idle_begin != self.idle_end:
                # epoll's clock has milliseconds: what is nearer is waited for by looking again and again.
                wait_ns = max(<int64_t>0, self.due(self.tally.sent) - now)
                longest_ms = <int>min(<int64_t>longest_ms, wait_ns // 1000000)
        found = epoll_wait(self.epoll, self.events, EVENTS, longest_ms)
        for i in range(found):
            self.serve(self.links + self.events[i].data.u64, self.events[i].events)

    cdef void serve(self, Link* link, uint32_t events) noexcept nogil:
        if link.fd >= 0 and events & EPOLLOUT:
            self.flush(link)
        if link.fd >= 0 and events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            self.receive(link)

    cdef void sweep(self, int64_t now) noexcept nogil:
        """End connections whose server was silent for too long."""
        cdef uint32_t i
        cdef uint32_t j
        cdef Window* window
        self.sweep_ns = now + self.timeout_ns // SWEEPS
        for i in range(self.link_count):
            window = &self.links[i].window
            if self.links[i].fd < 0 or window.in_flight == 0:
                continue
            for j in range(window.capacity):
                if window.slots[j].busy and now - window.slots[j].sent_ns > self.timeout_ns:
                    self.end(self.links + i, SILENT)
                    break

    # Sending ----------------------------------------------------------------------------------------------------

    cdef inline int64_t due(self, uint64_t number) noexcept nogil:
        """When a request of an open run should be sent."""
        return self.begun_ns + <int64_t>(<double>number * self.period_ns)

    cdef void line_up(self) noexcept nogil:
        """Every slot is free: first one of each connection, then the second ones."""
        cdef uint32_t i
        self.idle_begin = 0
        self.idle_end = 0
        for _ in range(self.in_flight):
            for i in range(self.link_count):
                if self.links[i].fd >= 0:
                    self.put_idle(i)

    cdef inline void put_idle(self, uint32_t link) noexcept nogil:
        self.idle[self.idle_end % (<uint64_t>self.link_count * self.in_flight)] = link
        self.idle_end += 1

    cdef void fill_all(self) noexcept nogil:
        cdef uint32_t i
        for i in range(self.link_count):
            if self.links[i].fd >= 0:
                self.fill(self.links + i, self.begun_ns)

    cdef void fill(self, Link* link, int64_t now) noexcept nogil:
        """Ask with every free slot; one send."""
        while link.window.in_flight < self.in_flight and self.may_send(now):
            self.ask(link, now, now)
        if buffer_size(&self.outbox) > 0:
            self.give(link)

    cdef void send_due(self, int64_t now) noexcept nogil:
        """Ask what has fallen due, as long as slots are free."""
        cdef uint64_t all_slots = <uint64_t>self.link_count * self.in_flight
        cdef Link* link
        cdef int64_t due_ns
        while self.idle_begin != self.idle_end and self.may_send(now):
            due_ns = self.due(self.tally.sent)
            if due_ns > now:
                return
            link = self.links + self.idle[self.idle_begin % all_slots]
            self.idle_begin += 1
            if link.fd >= 0:
                self.ask(link, due_ns, now)
                self.give(link)

    cdef void ask(self, Link* link, int64_t due_ns, int64_t now) noexcept nogil:
        """Write a request with a free slot."""
        cdef uint32_t at = window_take(&link.window, self.dialect.in_order)
        cdef Slot* slot = link.window.slots + at
        cdef uint32_t* keys = link.window.keys + <Py_ssize_t>at * self.batch
        cdef uint32_t i
        slot.due_ns = due_ns
        slot.sent_ns = now
        self.waiting += 1
        self.tally.sent += 1
        for i in range(self.batch):
            keys[i] = self.draw()
        self.dialect.write(&self.outbox, slot.id, keys, self.batch)

    cdef inline uint32_t draw(self) noexcept nogil:
        """The next random key (splitmix64); its record is fetched while those drawn before are written."""
        cdef uint32_t at = self.ahead_at
        cdef uint32_t drawn = self.ahead[at]
        cdef uint32_t halfway = self.ahead[(at + AHEAD // 2) % AHEAD]
        cdef uint64_t mixed
        self.random += 0x9E3779B97F4A7C15ULL
        mixed = self.random
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL
        mixed ^= mixed >> 31
        self.ahead[at] = <uint32_t>(((mixed >> 32) * <uint64_t>self.dialect.count) >> 32)
        self.ahead_at = (at + 1) % AHEAD
        gkv_fetch(self.dialect.records + self.ahead[at])
        gkv_fetch(self.dialect.records[halfway].key)
        gkv_fetch(self.dialect.records[halfway].key + 64)
        return drawn

    cdef void give(self, Link* link) noexcept nogil:
        """Send what was written, or put it behind what waits."""
        cdef const uint8_t* data = self.outbox.data
        cdef Py_ssize_t size = self.outbox.end
        cdef ssize_t taken = 0
        self.outbox.end = 0
        if buffer_size(&link.output) == 0:
            taken = send(link.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
            if taken == size:
                return
            if taken < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.end(link, RESET)
                    return
                taken = 0
        if buffer_append(&link.output, data + taken, size - taken) < 0:
            self.end(link, NO_MEMORY)
        elif not link.blocked:
            link.blocked = self.watch(link, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT) == 0

    cdef void flush(self, Link* link) noexcept nogil:
        cdef Buffer* output = &link.output
        cdef ssize_t taken = send(
            link.fd, output.data + output.start, buffer_size(output), MSG_NOSIGNAL | MSG_DONTWAIT
        )
        if taken < 0:
            if errno != EAGAIN and errno != EINTR:
                self.end(link, RESET)
            return
        drop(output, taken)
        if buffer_size(output) == 0:
            self.watch(link, EPOLL_CTL_MOD, EPOLLIN)
            link.blocked = False

    cdef int watch(self, Link* link, int operation, uint32_t interest) noexcept nogil:
        cdef epoll_event event
        event.events = interest
        event.data.u64 = <uint64_t>(link - self.links)
        return epoll_ctl(self.epoll, operation, link.fd, &event)

    # Receiving --------------------------------------------------------------------------------------------------

    cdef void receive(self, Link* link) noexcept nogil:
        """Take what is there, count the answers, and ask for as many again."""
        cdef Buffer* input = &link.input
        cdef bint is_half = buffer_size(input) > 0
        cdef uint8_t* into = self.inbox
        cdef Py_ssize_t room = INBOX_BYTES
        cdef ssize_t size
        cdef int64_t now
        if is_half:
            if buffer_reserve(input, LEAST_ROOM) < 0:
                self.end(link, NO_MEMORY)
                return
            into = input.data + input.end
            room = input.capacity - input.end
        size = recv(link.fd, into, room, MSG_DONTWAIT)
        if size <= 0:
            if size == 0:
                self.end(link, CLOSED_BY_PEER)
            elif errno != EAGAIN and errno != EINTR:
                self.end(link, RESET)
            return
        now = self.now()
        if is_half:
            input.end += size
            size = self.take(link, input.data + input.start, buffer_size(input), now)
            if link.fd >= 0:
                drop(input, size)
        else:
            room = self.take(link, self.inbox, size, now)
            if link.fd >= 0 and room < size and buffer_append(input, self.inbox + room, size - room) < 0:
                self.end(link, NO_MEMORY)
        if link.fd >= 0 and self.period_ns == 0:
            self.fill(link, now)

    cdef Py_ssize_t take(self, Link* link, const uint8_t* data, Py_ssize_t size, int64_t now) noexcept nogil:
        """Count all answers that are whole; how many bytes those are."""
        cdef Py_ssize_t at = 0
        cdef Reply reply
        cdef int result
        while at < size:
            result = self.dialect.take(&link.window, data + at, size - at, &reply)
            if result == PARTIAL:
                break
            if result != COMPLETE:
                self.end(link, UNASKED_ANSWER if result == UNASKED else BAD_ANSWER)
                break
            at += reply.size
            self.count(link, &reply, now)
        return at

    cdef void count(self, Link* link, const Reply* reply, int64_t now) noexcept nogil:
        cdef int64_t took_ns = max(<int64_t>0, now - link.window.slots[reply.slot].due_ns)
        self.tally.count(reply, self.batch, <uint64_t>took_ns)
        self.last_ns = now
        window_free(&link.window, reply.slot, self.dialect.in_order)
        self.waiting -= 1
        if self.period_ns > 0:
            self.put_idle(<uint32_t>(link - self.links))

    cdef void end(self, Link* link, int reason) noexcept nogil:
        """A connection is broken, and what it had in flight is lost."""
        close(link.fd)
        link.fd = -1
        self.alive -= 1
        self.tally.count_broken(reason, link.window.in_flight)
        self.waiting -= link.window.in_flight
        link.window.in_flight = 0
        buffer_release(&link.input)
        buffer_release(&link.output)
