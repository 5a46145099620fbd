"""The transport of a real node: sockets, epoll, a timer and the system's clock.

Events are level-triggered on purpose. Each step makes one `recv` and one `send` per readable connection, without a
second `recv` on an empty queue. A connection with more bytes than the shared buffer holds shows up again, behind the
others. Edge-triggered events would need that second call or an own list. The price, one `epoll_ctl` when reading is
switched, is paid only by a connection that is held back.
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
from posix.fcntl cimport F_GETFL, F_SETFL, O_NONBLOCK, fcntl
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close as close_descriptor

from gossipkv.environment._sockets cimport (
    AF_INET, AF_INET6, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL,
    EPOLL_CTL_MOD, IPPROTO_TCP, MSG_NOSIGNAL, SHUT_WR, SOCK_CLOEXEC, SOCK_NONBLOCK, SOL_SOCKET, SO_KEEPALIVE,
    TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_NODELAY, accept4, epoll_create1, epoll_ctl, epoll_event, epoll_wait,
    recv, send as send_bytes, setsockopt, shutdown, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
)
from gossipkv.serving.connection._addresses cimport address_number
from gossipkv.wire._buffer cimport buffer_size

cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC
    enum: EFD_NONBLOCK
    int eventfd(unsigned int value, int flags)
    int eventfd_read(int fd, uint64_t* value)
    int eventfd_write(int fd, uint64_t value)

cdef extern from "<sys/timerfd.h>" nogil:
    enum: TFD_CLOEXEC
    enum: TFD_NONBLOCK
    enum: TFD_TIMER_ABSTIME

    struct itimerspec:
        timespec it_interval
        timespec it_value

    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)

cdef enum:
    EVENTS = 256  # fetched at once

    # Seconds: an idle connection whose other end is gone without a word ends after half a minute.
    KEEPALIVE_IDLE_S = 15
    KEEPALIVE_PAUSE_S = 5
    KEEPALIVE_PROBES = 3


cdef inline ssize_t socket_failed() noexcept nogil:
    """Translate the error of a failed call into a value for its connection."""
    return NOT_YET if errno == EAGAIN or errno == EINTR else BROKEN


cdef inline uint64_t number_of(const sockaddr_storage* peer) noexcept nogil:
    """Return the number of the peer's address; all families but IPv4 and IPv6 share one number."""
    if peer.ss_family == AF_INET:
        return address_number(<const uint8_t*>&(<const sockaddr_in*>peer).sin_addr, 4)
    if peer.ss_family == AF_INET6:
        return address_number(<const uint8_t*>&(<const sockaddr_in6*>peer).sin6_addr, 16)
    return 0


@cython.final
cdef class Sockets(Transport):
    """The connections of a listening socket, and of optional ones for RESP and HTTP; None if another loop accepts."""

    cdef list listeners  # a listener for each dialect, or None
    cdef int[LISTENERS] listens  # their descriptors; -1 for none, or after closing
    cdef int epoll  # -1 after `shut`
    cdef int waker
    cdef int timer
    cdef bint watches_others
    cdef int bell  # not in `epoll`: Trio waits for the bell, and `epoll` for Trio
    cdef bint rings  # true from `ring` to `hush`, which one thread calls
    cdef epoll_event ready[EVENTS]
    cdef TlsConnections tls_connections
    cdef Tunnels tunnels

    def __cinit__(self, listener, *beside, bint polls):
        cdef int i
        assert READABLE == EPOLLIN and WRITABLE == EPOLLOUT and ENDED == EPOLLERR | EPOLLHUP
        self.epoll = -1
        self.waker = -1
        self.timer = -1
        self.bell = -1
        self.polls = polls
        self.tls_connections = TlsConnections()
        self.listeners = [listener, *beside, *[None] * (LISTENERS - 1 - len(beside))]
        for i in range(LISTENERS):
            self.listens[i] = -1 if self.listeners[i] is None else self.listeners[i].fileno()
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1 failed")
        self.tunnels = Tunnels(self.tls_connections, self.epoll)
        for i in range(LISTENERS):
            if self.listens[i] >= 0 and self.control(EPOLL_CTL_ADD, self.listens[i], i, READABLE) < 0:
                raise OSError(errno, "the listening socket cannot be watched")
        self.waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.waker < 0 or self.control(EPOLL_CTL_ADD, self.waker, WAKER, READABLE) < 0:
            raise OSError(errno, "eventfd failed")
        self.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)
        if self.timer < 0 or self.control(EPOLL_CTL_ADD, self.timer, TIMER, READABLE) < 0:
            raise OSError(errno, "timerfd failed")
        self.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.bell < 0:
            raise OSError(errno, "eventfd failed")

    def __dealloc__(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)
        if self.waker >= 0:
            close_descriptor(self.waker)
        if self.timer >= 0:
            close_descriptor(self.timer)
        if self.bell >= 0:
            close_descriptor(self.bell)

    cdef int control(self, int operation, int fd, uint64_t handle, uint32_t interest) noexcept nogil:
        cdef epoll_event event
        event.events = interest
        event.data.u64 = handle
        return epoll_ctl(self.epoll, operation, fd, &event)

    # Within a round ---------------------------------------------------------------------------------------------

    cdef int64_t now_ns(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec

    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept nogil:
        cdef int held_count = 0
        cdef int count
        cdef uint64_t ignored
        cdef int i
        cdef Event* free_events = events
        if buffer_size(&self.tls_connections.holding) > 0:
            held_count = self.tls_connections.tell(events, most - 1)
            free_events += held_count
        count = epoll_wait(self.epoll, self.ready, min(most - held_count, EVENTS), wait_ms if held_count == 0 else 0)
        for i in range(count):
            free_events[i].handle = self.ready[i].data.u64
            free_events[i].what = self.ready[i].events
            if free_events[i].handle == WAKER:
                eventfd_read(self.waker, &ignored)
            elif free_events[i].handle == TIMER:
                eventfd_read(self.timer, &ignored)  # A timer is read like an event counter.
        held_count += max(0, count)
        return held_count if self.tunnels.count == 0 else self.serve_tunnels(events, held_count)

    cdef int serve_tunnels(self, Event* events, int count) noexcept nogil:
        """Let tunnels handle their events. Return how many other events remain, which are moved to the front."""
        cdef int64_t now_ns = self.now_ns()
        cdef int left = 0
        cdef int i
        for i in range(count):
            if not self.tunnels.serve(events[i].handle, events[i].what, now_ns):
                events[left] = events[i]
                left += 1
        return left

    cdef void set_timer(self, int64_t due_ns) noexcept nogil:
        cdef itimerspec when
        when.it_interval.tv_sec = 0
        when.it_interval.tv_nsec = 0
        when.it_value.tv_sec = due_ns // 1000000000
        when.it_value.tv_nsec = due_ns % 1000000000
        timerfd_settime(self.timer, TFD_TIMER_ABSTIME, &when, NULL)

    cdef bint listen(self, bint wanted) noexcept nogil:
        cdef uint32_t interest = READABLE if wanted else 0
        cdef bint done = True
        cdef int i
        for i in range(LISTENERS):
            if self.listens[i] >= 0:
                done = self.control(EPOLL_CTL_MOD, self.listens[i], i, interest) == 0 and done
        return wanted == done

    cdef int accept(self, uint64_t listener, uint64_t* address) noexcept nogil:
        cdef sockaddr_storage peer
        cdef unsigned int size = sizeof(peer)
        cdef int fd = accept4(self.listens[listener], <sockaddr*>&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            address[0] = number_of(&peer)
            return fd
        if errno == ECONNABORTED or errno == EINTR or errno == EPROTO:
            return GONE
        if errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
            return EXHAUSTED
        return NOT_YET

    cdef int begin(self, int fd, uint64_t handle) noexcept nogil:
        cdef int enabled = 1
        cdef int idle_s = KEEPALIVE_IDLE_S
        cdef int pause_s = KEEPALIVE_PAUSE_S
        cdef int probes = KEEPALIVE_PROBES
        cdef TlsConnection* connection = tls_connection_of(self.tls_connections, fd)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof(enabled))
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &enabled, sizeof(enabled))
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s))
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof(pause_s))
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes))
        if connection != NULL:
            connection.handle = handle
            connection.interest = READABLE
            self.tls_connections.note(fd, tls_holds(connection.tls))
        return self.control(EPOLL_CTL_ADD, fd, handle, READABLE)

    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept nogil:
        cdef TlsConnection* connection = tls_connection_of(self.tls_connections, fd)
        if connection != NULL:
            connection.interest = interest
        return self.control(EPOLL_CTL_MOD, fd, handle, interest)

    cdef bint is_secured(self, uint64_t listener) noexcept nogil:
        return self.tls_connections.tls is not None and self.tls_connections.tls.listeners >> listener & 1

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        return self.tls_connections.shake(fd, handle)

    cdef bint is_resumed(self, int fd) noexcept nogil:
        return tls_resumed(tls_connection_of(self.tls_connections, fd).tls)

    cdef bint is_certified(self, int fd) noexcept nogil:
        return tls_certified(tls_connection_of(self.tls_connections, fd).tls)

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        cdef ssize_t came
        if tls_connection_of(self.tls_connections, fd) != NULL:
            return self.tls_connections.receive(fd, data, size)
        came = recv(fd, data, size, 0)
        return came if came >= 0 else socket_failed()

    cdef ssize_t send(self, int fd, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        cdef TlsConnection* connection = tls_connection_of(self.tls_connections, fd)
        cdef ssize_t taken
        if connection != NULL:
            return tls_send(connection.tls, data, size)
        taken = send_bytes(fd, data, size, MSG_NOSIGNAL)
        return taken if taken >= 0 else socket_failed()

    cdef void end(self, int fd) noexcept nogil:
        if tls_connection_of(self.tls_connections, fd) != NULL:
            self.tls_connections.end(fd)
        shutdown(fd, SHUT_WR)

    cdef void close(self, int fd, bint cut) noexcept nogil:
        if tls_connection_of(self.tls_connections, fd) != NULL:
            if not cut:
                self.tls_connections.end(fd)
            self.tls_connections.forget(fd)
        close_descriptor(fd)  # Sent bytes still arrive, unless input is unread: the system sends a reset then.

    cdef int leave(self, int fd) noexcept nogil:
        if tls_connection_of(self.tls_connections, fd) != NULL:
            return self.tunnels.begin(fd, self.now_ns())
        self.control(EPOLL_CTL_DEL, fd, 0, 0)
        return fd

    cdef int left_count(self) noexcept nogil:
        return self.tunnels.count

    cdef void expire(self) noexcept nogil:
        self.tunnels.expire(self.now_ns())

    cdef int64_t wall_ms(self) noexcept nogil:
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    # Between rounds, from Python --------------------------------------------------------------------------------

    cdef int fileno(self) except -2:
        return self.bell if self.watches_others else self.epoll

    cdef int waker_fd(self) except -2:
        return self.waker

    cdef bint has_events(self) except -1:
        return self.tls_connections.has_events()

    cdef int use_tls(self, tls) except -1:
        self.tls_connections.tls = tls
        return 0

    cdef object proven(self, int fd):
        return self.tls_connections.proven(fd)

    cdef object named(self, int fd):
        return self.tls_connections.named(fd)

    cdef int wake(self) except -1:
        if self.watches_others:
            self.ring()
        else:
            eventfd_write(self.waker, 1)
        return 0

    cdef bint watch_others(self, int fd) except -1:
        self.watches_others = self.control(EPOLL_CTL_ADD, fd, OTHERS, READABLE) == 0
        return self.watches_others

    cdef int be_alone(self) except -1:
        self.watches_others = True
        return 0

    cdef void ring(self) noexcept nogil:
        if not self.rings:
            self.rings = True
            eventfd_write(self.bell, 1)

    cdef int hush(self) except -1:
        cdef uint64_t ignored
        if self.rings:
            self.rings = False
            eventfd_read(self.bell, &ignored)
        return 0

    cdef int admit(self, connection) except -1:
        cdef int fd = (<TlsEnd>connection).fd if isinstance(connection, TlsEnd) else connection
        if fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0:
            raise OSError(errno, "the connection to a peer cannot be taken")
        if isinstance(connection, TlsEnd):
            self.tls_connections.take_over(fd, connection)
        return fd

    cdef int stop_listening(self) except -1:
        cdef int i
        for i in range(LISTENERS):
            if self.listens[i] >= 0:
                self.control(EPOLL_CTL_DEL, self.listens[i], i, 0)
                self.listens[i] = -1
                self.listeners[i].close()
        return 0

    cdef int shut(self) except -1:
        self.stop_listening()
        self.tunnels.close_all()
        if self.epoll >= 0:
            close_descriptor(self.epoll)
            self.epoll = -1
        return 0
