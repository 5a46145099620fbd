"""Tunnels: TLS connections that are *detached*, so another server serves them while TLS still ends here.

The keys and counters of a TLS connection cannot be passed on with a descriptor. The server therefore gets one end of a
socket pair, in the clear and inside this machine, and a *tunnel* carries the bytes:

    client ── TLS ── `fd` [tunnel] `pair` ── plain ── server

A tunnel has no buffers. Bytes are peeked at, and taken once the other side has them, so a slow reader slows down the
writer as without a tunnel. Each side's end is passed on. A tunnel ends with both ends, or when the client breaks off.
After the server's close it waits a limited time for the client to take the rest and to end.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport close as close_descriptor

from gossipkv.environment._sockets cimport (
    EPOLLHUP, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, MSG_NOSIGNAL, SHUT_WR, SOCK_CLOEXEC, SOCK_NONBLOCK,
    SOCK_STREAM, epoll_ctl, epoll_event, recv, send, shutdown,
)

cdef extern from "<sys/socket.h>" nogil:
    enum: AF_UNIX
    enum: MSG_PEEK
    int socketpair(int family, int kind, int protocol, int* ends)

cdef enum:
    CHUNKS = 4  # Chunks carried at once in one direction, while other connections wait.
    PATIENCE_NS = 30000000000  # How long a client may take nothing of the bytes that its server has left.
    LINGER_NS = 1000000000  # How long to wait for the end of a client that has all bytes, as for any connection.


@cython.final
@cython.no_gc_clear
cdef class Tunnels:
    """The tunnels of a transport, with events from `epoll`."""

    def __cinit__(self, TlsConnections tls_connections not None, int epoll):
        self.tls_connections = tls_connections
        self.epoll = epoll

    def __dealloc__(self):
        self.close_all()

    cdef int begin(self, int fd, int64_t now_ns) noexcept nogil:
        """Start a tunnel on that connection. Return the server's descriptor, or -1 if there are no resources.

        Requires: it is watched, and no output waits.
        """
        cdef int ends[2]
        cdef Tunnel* tunnel = <Tunnel*>calloc(1, sizeof(Tunnel))
        if tunnel == NULL:
            return -1
        if socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0:
            free(tunnel)
            return -1
        tunnel.fd = fd
        tunnel.pair = ends[0]
        tunnel.interest = tunnel.pair_interest = READABLE
        tunnel.moved_ns = now_ns
        if (
            self.control(EPOLL_CTL_ADD, tunnel, True, READABLE) < 0
            or self.control(EPOLL_CTL_MOD, tunnel, False, READABLE) < 0
        ):
            close_descriptor(ends[0])
            close_descriptor(ends[1])
            free(tunnel)
            return -1
        self.tls_connections.slots[fd].handle = FIRST_HANDLE + 2 * <uint64_t>fd
        self.tls_connections.slots[fd].interest = READABLE
        self.tls_connections.slots[fd].tunnel = tunnel
        tunnel.next = self.first
        self.first = tunnel
        self.count += 1
        return ends[1]

    cdef int control(self, int operation, Tunnel* tunnel, bint at_pair, uint32_t interest) noexcept nogil:
        cdef epoll_event event
        event.events = interest
        event.data.u64 = FIRST_HANDLE + 2 * <uint64_t>tunnel.fd + at_pair
        return epoll_ctl(self.epoll, operation, tunnel.pair if at_pair else tunnel.fd, &event)

    cdef bint serve(self, uint64_t handle, uint32_t what, int64_t now_ns) noexcept nogil:
        """Handle an event. Return False if it is not an event of a tunnel."""
        cdef bint at_pair = (handle - FIRST_HANDLE) & 1
        cdef Tunnel* tunnel
        if not FIRST_HANDLE <= handle < <uint64_t>1 << 32:
            return False
        tunnel = <Tunnel*>self.tls_connections.slots[(handle - FIRST_HANDLE) // 2].tunnel
        if tunnel == NULL:
            return True
        if what & ENDED and not at_pair:
            self.close(tunnel)
            return True
        if what & EPOLLHUP and at_pair:  # Epoll would report the hang-up again and again, whatever is watched for.
            tunnel.server_gone = True
            self.control(EPOLL_CTL_DEL, tunnel, True, 0)
        self.carry_in(tunnel)
        if not self.carry_out(tunnel, now_ns) or (tunnel.server_ended and tunnel.client_ended):
            self.close(tunnel)
        return True

    cdef void carry_in(self, Tunnel* tunnel) noexcept nogil:
        """Carry bytes from the client to the server."""
        cdef void* tls = self.tls_connections.slots[tunnel.fd].tls
        cdef int left = CHUNKS
        cdef ssize_t size = 0
        cdef ssize_t sent = 0
        cdef bint holds = False
        if tunnel.client_ended:
            return
        while left > 0 and sent == size:
            left -= 1
            size = tls_peek(tls, self.chunk, CHUNK_BYTES)
            if size == NOT_YET:
                break
            if size <= 0:
                tunnel.client_ended = True
                shutdown(tunnel.pair, SHUT_WR)
                break
            sent = send(tunnel.pair, self.chunk, size, MSG_NOSIGNAL)
            if sent < 0 and errno != EAGAIN and errno != EINTR:
                sent = size  # The server is gone. Bytes left unread would make the system reset output on its way.
            if sent > 0:
                tls_receive(tls, self.chunk, sent, &holds)
        self.tls_connections.note(tunnel.fd, size > 0 and sent == size and tls_holds(tls))
        if tunnel.client_ended:
            self.watch(tunnel, tunnel.interest & ~READABLE, tunnel.pair_interest & ~WRITABLE)
        elif size > 0 and sent < size:
            self.watch(tunnel, tunnel.interest & ~READABLE, tunnel.pair_interest | WRITABLE)
        else:
            self.watch(tunnel, tunnel.interest | READABLE, tunnel.pair_interest & ~WRITABLE)

    cdef bint carry_out(self, Tunnel* tunnel, int64_t now_ns) noexcept nogil:
        """Carry bytes from the server to the client. Return False if the tunnel is broken."""
        cdef void* tls = self.tls_connections.slots[tunnel.fd].tls
        cdef int left = CHUNKS
        cdef ssize_t size = 0
        cdef ssize_t taken = 0
        if tunnel.server_ended:
            return True
        while left > 0 and taken == size:
            left -= 1
            size = recv(tunnel.pair, self.chunk, CHUNK_BYTES, MSG_PEEK)
            if size < 0 and (errno == EAGAIN or errno == EINTR):
                break
            if size <= 0:
                tunnel.server_ended = True
                tunnel.moved_ns = now_ns
                tls_end(tls)
                shutdown(tunnel.fd, SHUT_WR)
                break
            taken = tls_send(tls, self.chunk, size)
            if taken == BROKEN:
                return False
            if taken > 0:
                tunnel.moved_ns = now_ns
                recv(tunnel.pair, self.chunk, taken, 0)
        if tunnel.server_ended:
            self.watch(tunnel, tunnel.interest & ~WRITABLE, tunnel.pair_interest & ~READABLE)
        elif size > 0 and (taken < size or tunnel.server_gone):
            self.watch(tunnel, tunnel.interest | WRITABLE, tunnel.pair_interest & ~READABLE)
        else:
            self.watch(tunnel, tunnel.interest & ~WRITABLE, tunnel.pair_interest | READABLE)
        return True

    cdef void watch(self, Tunnel* tunnel, uint32_t interest, uint32_t pair_interest) noexcept nogil:
        """Watch both sides for these events; a failure to watch shows when the other side ends."""
        if interest != tunnel.interest:
            self.control(EPOLL_CTL_MOD, tunnel, False, interest)
            tunnel.interest = self.tls_connections.slots[tunnel.fd].interest = interest
        if pair_interest != tunnel.pair_interest:
            if not tunnel.server_gone:
                self.control(EPOLL_CTL_MOD, tunnel, True, pair_interest)
            tunnel.pair_interest = pair_interest

    cdef void close(self, Tunnel* tunnel) noexcept nogil:
        cdef Tunnel** at = &self.first
        while at[0] != tunnel:
            at = &at[0].next
        at[0] = tunnel.next
        self.count -= 1
        self.tls_connections.slots[tunnel.fd].tunnel = NULL
        self.tls_connections.forget(tunnel.fd)
        close_descriptor(tunnel.fd)
        close_descriptor(tunnel.pair)
        free(tunnel)

    cdef void expire(self, int64_t now_ns) noexcept nogil:
        """Close tunnels of a gone server if the client has taken nothing, or not ended, for too long."""
        cdef Tunnel* tunnel = self.first
        cdef Tunnel* following
        cdef int64_t patience_ns
        while tunnel != NULL:
            following = tunnel.next
            patience_ns = <int64_t>LINGER_NS if tunnel.server_ended else <int64_t>PATIENCE_NS
            if tunnel.server_gone and now_ns - tunnel.moved_ns > patience_ns:
                self.close(tunnel)
            tunnel = following

    cdef void close_all(self) noexcept nogil:
        while self.first != NULL:
            self.close(self.first)
