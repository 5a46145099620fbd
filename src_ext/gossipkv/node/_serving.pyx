"""The epoll loop around the connection core: accept, receive, send, close.

One Trio task waits until this loop's epoll descriptor is readable and calls `step`; the step drops the GIL, serves
what is ready within a budget, and returns what Python must answer.  Replies to those are kept until `flush`, which
sends once for each connection.

Level-triggered on purpose: one `recv` and one `send` for each readable connection and step, no second `recv` that
only finds the queue empty, and a connection whose bytes did not fit into the shared buffer simply shows up again,
behind the others.  (Edge-triggered needs that second call or a list of one's own.)  The price, one `epoll_ctl` when
reading is turned off or on, is paid only by a connection that is held back.

Fairness: what a step had no time for stays in `events` and comes first in the next one; held input gets one turn for
each connection and step; a connection's answers in one turn are bounded by the core.

When descriptors run out, `accept` is left alone until the next `expire`: those who wait in the backlog are served
when there are descriptors again.  Beyond `max_connections` a connection is accepted and closed, so its peer knows.

A connection ends in two halves: our end is sent, then the peer's is awaited for a moment; a plain close with unread
bytes in the queue would send a reset, and that may destroy the last answer on its way.
"""

cimport cython
from libc.errno cimport (
    EAGAIN,
    ECONNABORTED,
    EINTR,
    EMFILE,
    ENFILE,
    ENOBUFS,
    ENOMEM,
    EPROTO,
    errno,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

from gossipkv.node._addresses cimport address_number
from gossipkv.node._buffer cimport buffer_size
from gossipkv.node._connection cimport Core, pop_handle
from gossipkv.node._counters cimport (
    ACCEPT_PAUSES, BYTES_SENT, CLOSED_BY_PEER, CLOSED_CUT, CLOSED_DRAINED, CLOSED_MEMORY, CLOSED_RESET,
)
from gossipkv.node._state cimport FREE, LINGERING, OPEN, Connection

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLL_CLOEXEC
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_MOD
    enum: EPOLL_CTL_DEL
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

cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC
    enum: EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)
    int eventfd_read(int fd, uint64_t* value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<sys/socket.h>" nogil:
    enum: SOCK_NONBLOCK
    enum: SOCK_CLOEXEC
    enum: MSG_NOSIGNAL
    enum: SHUT_WR
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct sockaddr_storage:
        unsigned short ss_family
    enum: AF_INET
    enum: AF_INET6
    int accept4(int fd, sockaddr* address, socklen_t* size, int flags)
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int shutdown(int fd, int how)
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)

cdef extern from "<netinet/in.h>" nogil:
    enum: IPPROTO_TCP
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        in_addr sin_addr
    struct sockaddr_in6:
        in6_addr sin6_addr

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_NODELAY

cdef enum:
    INBOX_BYTES = 65536  # One receive: 1,300 gets, which take a quarter of a millisecond.
    EVENTS = 256  # Ready connections fetched at once.
    ACCEPTS_PER_STEP = 64  # A flood of newcomers leaves time for those who are here.
    LOOK_AGAIN = 8  # With fewer events than this, nobody else is likely to be ready yet.
    DRAIN_READS = 16  # Receives of one connection when draining: 1 MiB, more than socket buffers usually hold.
    QUIET_MS = 1000  # A connection silent for this long has nothing on its way that a close could destroy.
    LISTENER = 0  # No connection has these handles: generations start at 1.
    WAKER = 1


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef inline uint64_t number_of(const sockaddr_storage* peer) noexcept nogil:
    """What the peer's address counts as; all that are neither IPv4 nor IPv6 count as one."""
    if peer.ss_family == AF_INET:
        return address_number(<const uint8_t*>&(<const sockaddr_in*>peer).sin_addr, 4)
    if peer.ss_family == AF_INET6:
        return address_number(<const uint8_t*>&(<const sockaddr_in6*>peer).sin6_addr, 16)
    return 0


@cython.final
cdef class Loop:
    """The sockets of a core."""

    cdef readonly Core core
    cdef object listener
    cdef int epoll
    cdef int waker
    cdef int listener_fd  # -1 once draining has begun
    cdef bint accepting
    cdef uint8_t* inbox
    cdef epoll_event events[EVENTS]
    cdef int event_count
    cdef int event_at

    def __cinit__(self, Core core not None, listener):
        self.epoll = -1
        self.waker = -1
        self.core = core
        self.listener = listener
        self.listener_fd = listener.fileno()
        self.inbox = <uint8_t*>malloc(INBOX_BYTES)
        if self.inbox == NULL:
            raise MemoryError
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")
        if self.watch(EPOLL_CTL_ADD, self.listener_fd, LISTENER, EPOLLIN) < 0:
            raise OSError(errno, "the listening socket cannot be watched")
        self.waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.waker < 0 or self.watch(EPOLL_CTL_ADD, self.waker, WAKER, EPOLLIN) < 0:
            raise OSError(errno, "eventfd failed")
        self.accepting = True
        core.now_ms = now_ns() // 1000000

    def __dealloc__(self):
        # The connections are closed with the loop, not here: the core may be gone already.
        if self.epoll >= 0:
            close(self.epoll)
        if self.waker >= 0:
            close(self.waker)
        free(self.inbox)

    # From Python ------------------------------------------------------------------------------------------------

    def fileno(self):
        """The descriptor that is readable when a step has something to do."""
        return self.epoll

    @property
    def has_work(self):
        """Whether a step has something to do although the descriptor may not be readable."""
        return (
            self.event_at < self.event_count
            or self.core.has_work()
            or buffer_size(&self.core.open_again) > 0
        )

    @property
    def connections(self):
        """How many there are."""
        return self.core.connection_count

    def step(self, int64_t budget_us):
        """Serve what is ready; `[(handle, message id, method, parameters), ...]` for Python to answer."""
        self.core.check_thread()
        with nogil:
            self.serve_ready(now_ns() + 1000 * budget_us)
        return self.core.collect() if self.core.hand_off_count > 0 else []

    def wake(self):
        """Make the descriptor readable: there is `has_work` although nobody may send anything."""
        eventfd_write(self.waker, 1)

    def flush(self):
        """Send the replies that were given since the last time, one send for each connection."""
        with nogil:
            self.flush_dirty()

    def expire(self):
        """Close what is overdue, and accept again if that had paused.  To be called now and then."""
        with nogil:
            self.expire_all()

    def drain(self):
        """Take no more connections and no more requests than have arrived; each connection ends once all is answered.

        What those last requests hand off is returned, as by `step`.
        """
        if self.listener_fd >= 0:
            self.watch(EPOLL_CTL_DEL, self.listener_fd, LISTENER, 0)
            self.listener_fd = -1
            self.listener.close()
            with nogil:
                self.drain_all()
        return self.core.collect()

    def close(self):
        """Close everything at once."""
        if self.epoll >= 0:
            self.close_all(CLOSED_CUT)
            close(self.epoll)
            self.epoll = -1
            self.listener_fd = -1
            self.listener.close()

    # Rounds -----------------------------------------------------------------------------------------------------

    cdef void serve_ready(self, int64_t deadline_ns) noexcept nogil:
        cdef Connection* connection
        cdef int fetched
        cdef Py_ssize_t left = buffer_size(&self.core.runnable) // <Py_ssize_t>sizeof(uint64_t)
        self.core.now_ms = now_ns() // 1000000
        while left > 0 and self.core.has_work() and now_ns() < deadline_ns:
            left -= 1
            connection = self.core.next_runnable()
            if connection != NULL:
                self.core.resume(connection)
                self.transmit(connection)
                self.settle(connection)
        while True:
            if self.event_at == self.event_count:
                self.event_at = 0
                self.event_count = max(0, epoll_wait(self.epoll, self.events, EVENTS, 0))
            fetched = self.event_count
            while self.event_at < self.event_count:
                self.serve_event(&self.events[self.event_at])
                self.event_at += 1
                if self.event_at & 15 == 0 and now_ns() > deadline_ns:
                    return
            if fetched < LOOK_AGAIN or self.core.hand_off_count > 0 or now_ns() > deadline_ns:
                return

    cdef void serve_event(self, const epoll_event* event) noexcept nogil:
        cdef Connection* connection
        cdef uint64_t ignored
        if event.data.u64 == LISTENER:
            self.accept_some()
            return
        if event.data.u64 == WAKER:
            eventfd_read(self.waker, &ignored)
            return
        connection = self.core.find(event.data.u64)
        if connection == NULL:
            return
        if event.events & EPOLLOUT:
            self.transmit_held(connection)
        if event.events & (EPOLLIN | EPOLLHUP | EPOLLERR):
            if connection.state == LINGERING:
                self.discard(connection)
            elif self.core.wants_read(connection):
                self.read(connection)
            elif event.events & (EPOLLHUP | EPOLLERR):
                self.core.doom(connection, CLOSED_RESET)
        self.settle(connection)

    cdef void flush_dirty(self) noexcept nogil:
        cdef Connection* connection
        while buffer_size(&self.core.dirty) > 0:
            connection = self.core.find(pop_handle(&self.core.dirty))
            if connection != NULL:
                connection.dirty = False
                self.transmit_held(connection)
                self.settle(connection)

    cdef void expire_all(self) noexcept nogil:
        cdef uint32_t i
        self.core.now_ms = now_ns() // 1000000
        for i in range(self.core.slot_count):
            self.core.expire_one(self.core.slots[i])
            if self.core.slots[i].state != FREE and self.core.slots[i].doomed:
                self.settle(self.core.slots[i])
        if self.listener_fd >= 0 and not self.accepting:
            self.accepting = self.watch(EPOLL_CTL_MOD, self.listener_fd, LISTENER, EPOLLIN) == 0

    cdef void drain_all(self) noexcept nogil:
        cdef Connection* connection
        cdef uint32_t i
        cdef int reads
        self.core.now_ms = now_ns() // 1000000
        for i in range(self.core.slot_count):
            connection = self.core.slots[i]
            if connection.state != OPEN:
                continue
            reads = DRAIN_READS
            while reads > 0 and self.core.wants_read(connection) and self.read(connection):
                reads -= 1
            self.core.finish(connection, CLOSED_DRAINED)
            if self.core.is_finished(connection) and self.core.now_ms - connection.active_ms > QUIET_MS:
                self.core.doom(connection, CLOSED_DRAINED)
            self.settle(connection)

    cdef void close_all(self, int reason) noexcept nogil:
        cdef uint32_t i
        for i in range(self.core.slot_count):
            if self.core.slots[i].state != FREE:
                self.core.doom(self.core.slots[i], reason)
                self.settle(self.core.slots[i])

    # One connection ---------------------------------------------------------------------------------------------

    cdef void accept_some(self) noexcept nogil:
        cdef int left = ACCEPTS_PER_STEP
        cdef int one = 1
        cdef int fd
        cdef sockaddr_storage peer
        cdef socklen_t size
        cdef Connection* connection
        while left > 0 and self.listener_fd >= 0:
            left -= 1
            size = sizeof(peer)
            fd = accept4(self.listener_fd, <sockaddr*>&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd < 0:
                if errno == ECONNABORTED or errno == EINTR or errno == EPROTO:
                    continue
                if errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
                    self.core.count(ACCEPT_PAUSES, 1)
                    self.accepting = self.watch(EPOLL_CTL_MOD, self.listener_fd, LISTENER, 0) < 0
                return
            connection = self.core.begin(fd, number_of(&peer))
            if connection == NULL:
                close(fd)
                continue
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
            connection.interest = EPOLLIN
            if self.watch(EPOLL_CTL_ADD, fd, connection.handle, EPOLLIN) < 0:
                self.core.doom(connection, CLOSED_MEMORY)
                self.settle(connection)

    cdef bint read(self, Connection* connection) noexcept nogil:
        """Receive once, and answer; whether bytes came."""
        cdef ssize_t size = recv(connection.fd, self.inbox, INBOX_BYTES, 0)
        if size > 0:
            self.core.receive_bytes(connection, self.inbox, size)
            self.transmit(connection)
            return True
        if size == 0:
            self.core.finish(connection, CLOSED_BY_PEER)
        elif errno != EAGAIN and errno != EINTR:
            self.core.doom(connection, CLOSED_RESET)
        return False

    cdef ssize_t give(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """How much of it the kernel took."""
        cdef ssize_t taken = send(connection.fd, data, size, MSG_NOSIGNAL)
        if taken < 0:
            if errno != EAGAIN and errno != EINTR:
                self.core.doom(connection, CLOSED_RESET)
            return 0
        self.core.count(BYTES_SENT, <uint64_t>taken)
        return taken

    cdef void transmit(self, Connection* connection) noexcept nogil:
        """Send the answers that the core has just written, or put them behind those that wait."""
        cdef ssize_t taken = 0
        cdef Py_ssize_t size = buffer_size(&self.core.out)
        if size > 0 and buffer_size(&connection.output) == 0 and not connection.doomed:
            taken = self.give(connection, self.core.out.data + self.core.out.start, size)
        self.core.hold_output(connection, taken)
        self.core.sent(connection, 0)

    cdef void transmit_held(self, Connection* connection) noexcept nogil:
        """Send what waits."""
        cdef Py_ssize_t size = buffer_size(&connection.output)
        if size > 0 and not connection.doomed:
            self.core.sent(
                connection, self.give(connection, connection.output.data + connection.output.start, size)
            )

    cdef void discard(self, Connection* connection) noexcept nogil:
        """After our end: whatever comes is too late, and the peer's end closes."""
        cdef ssize_t size = recv(connection.fd, self.inbox, INBOX_BYTES, 0)
        if size == 0 or (size < 0 and errno != EAGAIN and errno != EINTR):
            self.core.doom(connection, connection.reason)

    cdef void settle(self, Connection* connection) noexcept nogil:
        """After anything happened to a connection: close it, end it, or watch for what it now waits for."""
        cdef uint32_t interest = 0
        if self.core.is_finished(connection) and not connection.doomed:
            if connection.reason == CLOSED_BY_PEER:
                connection.doomed = True
            else:
                shutdown(connection.fd, SHUT_WR)
                connection.state = LINGERING
                connection.active_ms = self.core.now_ms
        if connection.doomed:
            close(connection.fd)
            self.core.release(connection)
            return
        if connection.state == LINGERING or self.core.wants_read(connection):
            interest = EPOLLIN
        if buffer_size(&connection.output) > 0:
            interest |= EPOLLOUT
        if interest != connection.interest:
            connection.interest = interest
            if self.watch(EPOLL_CTL_MOD, connection.fd, connection.handle, interest) < 0:
                self.core.doom(connection, CLOSED_MEMORY)  # Closed by the next `expire`.

    cdef int watch(self, int operation, int fd, uint64_t handle, uint32_t interest) noexcept nogil:
        cdef epoll_event event
        event.events = interest
        event.data.u64 = handle
        return epoll_ctl(self.epoll, operation, fd, &event)
