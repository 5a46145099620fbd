"""Connections of TLS that are *detached*: somebody else serves them, and TLS still ends here.

Keys and counters of a connection cannot be passed on with a descriptor.  So whoever serves it gets one end of a socket
pair, in the clear and inside this machine, and a *tunnel* carries what comes:

    client ── TLS ── `fd` [tunnel] `pair` ── plain ── who serves it

A tunnel has no buffers.  What cannot be carried on stays where it is: it is peeked at, and taken when the other side
has it.  So who reads slowly slows down who writes, as without a tunnel.

Each side's end is passed on.  A tunnel ends with both, or when the client breaks off.  Once the server has closed it
waits for the client to take the rest, and to end, but not for ever.
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
    CHUNKS = 4  # That are carried at once in one direction: others wait meanwhile.
    PATIENCE_NS = 30000000000  # With a client that takes nothing of what its server has left for it.
    LINGER_NS = 1000000000  # For its end, when it has all: as long as any connection lingers.


@cython.final
@cython.no_gc_clear
cdef class Tunnels:
    """The tunnels of a transport, whose events come by `epoll`."""

    def __cinit__(self, Secured secured not None, int epoll):
        self.secured = secured
        self.epoll = epoll

    def __dealloc__(self):
        self.close_all()

    cdef int begin(self, int fd, int64_t now_ns) noexcept nogil:
        """Carry what comes on that line from now on; the descriptor of who serves it, or -1: there is no room.

        Requires: it is watched, and nothing waits to be sent.
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
        self.secured.lines[fd].handle = FIRST_HANDLE + 2 * <uint64_t>fd
        self.secured.lines[fd].interest = READABLE
        self.secured.lines[fd].tunnel = tunnel
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
        """Carry on what an event tells of; False: it is no event of a tunnel."""
        cdef bint at_pair = (handle - FIRST_HANDLE) & 1
        cdef Tunnel* tunnel
        if not FIRST_HANDLE <= handle < <uint64_t>1 << 32:
            return False
        tunnel = <Tunnel*>self.secured.lines[(handle - FIRST_HANDLE) // 2].tunnel
        if tunnel == NULL:
            return True
        if what & ENDED and not at_pair:
            self.close(tunnel)
            return True
        if what & EPOLLHUP and at_pair:  # It would be told again and again, whatever is watched for.
            tunnel.server_gone = True
            self.control(EPOLL_CTL_DEL, tunnel, True, 0)
        self.carry_in(tunnel)
        if not self.carry_out(tunnel, now_ns) or (tunnel.server_ended and tunnel.client_ended):
            self.close(tunnel)
        return True

    cdef void carry_in(self, Tunnel* tunnel) noexcept nogil:
        """From the client."""
        cdef void* tls = self.secured.lines[tunnel.fd].tls
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
                sent = size  # Nobody hears it.  Left unread it would make the system cut off what is on its way out.
            if sent > 0:
                tls_receive(tls, self.chunk, sent, &holds)
        self.secured.note(tunnel.fd, size > 0 and sent == size and tls_holds(tls))
        if tunnel.client_ended:
            self.watch(tunnel, tunnel.interest & ~READABLE, tunnel.pair_interest & ~WRITABLE)
        elif size > 0 and sent < size:
            self.watch(tunnel, tunnel.interest & ~READABLE, tunnel.pair_interest | WRITABLE)
        else:
            self.watch(tunnel, tunnel.interest | READABLE, tunnel.pair_interest & ~WRITABLE)

    cdef bint carry_out(self, Tunnel* tunnel, int64_t now_ns) noexcept nogil:
        """To the client; False: the tunnel is broken."""
        cdef void* tls = self.secured.lines[tunnel.fd].tls
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
        """Watch both sides for that; what cannot be watched shows when the other side ends."""
        if interest != tunnel.interest:
            self.control(EPOLL_CTL_MOD, tunnel, False, interest)
            tunnel.interest = self.secured.lines[tunnel.fd].interest = interest
        if pair_interest != tunnel.pair_interest:
            if not tunnel.server_gone:
                self.control(EPOLL_CTL_MOD, tunnel, True, pair_interest)
            tunnel.pair_interest = pair_interest

    cdef void close(self, Tunnel* tunnel) noexcept nogil:
        """Let go of both sides."""
        cdef Tunnel** at = &self.first
        while at[0] != tunnel:
            at = &at[0].next
        at[0] = tunnel.next
        self.count -= 1
        self.secured.lines[tunnel.fd].tunnel = NULL
        self.secured.forget(tunnel.fd)
        close_descriptor(tunnel.fd)
        close_descriptor(tunnel.pair)
        free(tunnel)

    cdef void expire(self, int64_t now_ns) noexcept nogil:
        """Close those whose server is gone, and whose client takes nothing any more, and does not end."""
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
