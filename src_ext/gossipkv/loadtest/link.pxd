"""One connection of the generator: its socket, its waiting output, a partial answer, and its window.

    DOWN  ->  DIALLING  ->  SHAKING  ->  GREETING  ->  UP  ->  DOWN

SHAKING is TLS, if used; GREETING lasts until the answer to the dialect's first message.  A connection that went down is
made again: at once after an answer, else after a pause that doubles with each failure.  These functions move bytes and
states; the generator counts.
"""

from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.unistd cimport close

from gossipkv.environment._sockets cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLL_CTL_ADD, EPOLL_CTL_MOD, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL,
    SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SO_ERROR, SO_LINGER, TCP_NODELAY, connect, epoll_ctl,
    epoll_event, getpeername, getsockopt, linger_time, open_socket, recv, send, setsockopt, sockaddr, sockaddr_storage,
)
from gossipkv.serving._transport cimport (
    BROKEN, NOT_YET, WRITABLE, TlsClient, tls_free, tls_receive, tls_send, tls_shake,
)
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_size
from gossipkv.wire._wire cimport Blob

cdef enum:
    KEPT_BYTES = 1048576  # Larger empty buffers are released.
    FIRST_PAUSE_NS = 10000000  # The pause before a failed connection is made again.
    LONGEST_PAUSE_NS = 1000000000

cdef enum SendResult:
    SENT = 0
    SEND_FAILED = 1
    SEND_NO_MEMORY = 2

cdef enum LinkState:
    DOWN = 0
    DIALLING = 1
    SHAKING = 2
    GREETING = 3
    UP = 4

cdef struct Link:
    int fd  # -1: down.
    uint8_t state
    bint blocked  # True while output waits until the server takes more.
    bint is_ending  # The server has announced the end.
    uint32_t target
    uint32_t lined_up  # The number of its slots in the ring of idle ones.
    int64_t since_ns  # When it began to come up.
    int64_t retry_ns  # When it is made again.
    int64_t pause_ns
    unsigned int address_size  # The size is 0 if the address is unknown.
    sockaddr_storage address
    PyObject* secures  # A `TlsClient`; NULL: plain.
    void* tls  # OpenSSL's SSL*, while it is not down.
    Window window
    Buffer input  # A partial answer.
    Buffer output  # Output that the server has not taken.


cdef inline void drop(Buffer* buffer, Py_ssize_t size) noexcept nogil:
    """Drop the first `size` bytes; empty buffers keep their memory, so that answers allocate nothing."""
    buffer.start += size
    if buffer_size(buffer) == 0:
        buffer.start = 0
        buffer.end = 0
        if buffer.capacity > KEPT_BYTES:
            buffer_release(buffer)


cdef inline int link_watch(Link* link, int epoll, uint64_t number, int operation) noexcept nogil:
    """Register for input under this number, and for room if output waits."""
    cdef epoll_event event
    event.events = EPOLLIN | EPOLLOUT if link.blocked or link.state == DIALLING else EPOLLIN
    event.data.u64 = number
    return epoll_ctl(epoll, operation, link.fd, &event)


cdef inline ssize_t link_put(Link* link, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Send at once as much as possible; return its size, or `BROKEN`."""
    cdef ssize_t taken
    if link.tls != NULL:
        taken = tls_send(link.tls, data, size)
        return 0 if taken == NOT_YET else taken
    taken = send(link.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
    if taken >= 0:
        return taken
    return 0 if errno == EAGAIN or errno == EINTR else BROKEN


cdef inline ssize_t link_take(Link* link, uint8_t* data, Py_ssize_t size, bint* holds) noexcept nogil:
    """Receive; return the size, 0 at the end, `NOT_YET` or `BROKEN`; `holds`: TLS has more, unseen by epoll."""
    cdef ssize_t came
    if link.tls != NULL:
        return tls_receive(link.tls, data, size, holds)
    holds[0] = False
    came = recv(link.fd, data, size, MSG_DONTWAIT)
    if came >= 0:
        return came
    return NOT_YET if errno == EAGAIN or errno == EINTR else BROKEN


cdef inline int link_send(Link* link, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Send, or append to the waiting output and set `blocked`.  Returns a `SendResult`."""
    cdef ssize_t taken = 0
    if buffer_size(&link.output) == 0:
        taken = link_put(link, data, size)
        if taken == size:
            return SENT
        if taken == BROKEN:
            return SEND_FAILED
    if buffer_append(&link.output, data + taken, size - taken) < 0:
        return SEND_NO_MEMORY
    link.blocked = True
    return SENT


cdef inline int link_flush(Link* link) noexcept nogil:
    """Send as much waiting output as possible.  Returns a `SendResult`."""
    cdef Buffer* output = &link.output
    cdef ssize_t taken = link_put(link, output.data + output.start, buffer_size(output))
    if taken == BROKEN:
        return SEND_FAILED
    drop(output, taken)
    link.blocked = buffer_size(output) > 0
    return SENT


cdef inline void link_begin(Link* link, int64_t now) noexcept nogil:
    """Begin a connected state, with TLS if used."""
    link.state = GREETING
    link.since_ns = now
    link.is_ending = False
    link.blocked = False
    if link.secures != NULL:
        link.state = SHAKING
        link.tls = (<TlsClient>link.secures).dial(link.fd)


cdef inline int link_shake(Link* link) noexcept nogil:
    """Continue the handshake; return the event that it waits for, 0 when done, or `BROKEN`."""
    cdef int waits = BROKEN if link.tls == NULL else tls_shake(link.tls)
    if waits == 0:
        link.state = GREETING
    link.blocked = waits == WRITABLE
    return waits


cdef inline bint link_greet(Link* link, const Blob* greeting) noexcept nogil:
    """Queue the greeting, or be up without one; return True if it is up."""
    if greeting.size == 0:
        link.state = UP
    else:
        link.blocked = buffer_append(&link.output, greeting.data, greeting.size) == 0
    return link.state == UP


cdef inline void link_close(Link* link) noexcept nogil:
    """End a connection, and release its resources."""
    if link.tls != NULL:
        tls_free(link.tls)
    link.tls = NULL
    if link.fd >= 0:
        close(link.fd)
    link.fd = -1
    buffer_release(&link.input)
    buffer_release(&link.output)


cdef inline void link_reset(Link* link) noexcept nogil:
    """Make a connection end without a farewell."""
    cdef linger_time at_once = linger_time(1, 0)
    if link.fd >= 0:
        setsockopt(link.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once))


cdef inline int link_remember(Link* link) noexcept nogil:
    """Note the peer's address, to make the connection again."""
    link.address_size = sizeof(sockaddr_storage)
    return getpeername(link.fd, <sockaddr*>&link.address, &link.address_size)


cdef inline void link_down(Link* link, int64_t now) noexcept nogil:
    """Take a connection down; it may be made again after its pause."""
    link_close(link)
    link.state = DOWN
    window_clear(&link.window)
    link.retry_ns = now + link.pause_ns
    link.pause_ns = min(<int64_t>LONGEST_PAUSE_NS, max(<int64_t>FIRST_PAUSE_NS, 2 * link.pause_ns))


cdef inline bint link_dial(Link* link, int epoll, uint64_t number, int64_t now) noexcept nogil:
    """Begin to make a connection again; return False on failure."""
    cdef int yes = 1
    link.fd = open_socket(link.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    if link.fd < 0:
        return False
    setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes))
    if connect(link.fd, <sockaddr*>&link.address, link.address_size) < 0 and errno != EINPROGRESS:
        return False
    link.state = DIALLING
    link.since_ns = now
    return link_watch(link, epoll, number, EPOLL_CTL_ADD) == 0


cdef inline bint link_is_made(Link* link, uint32_t events) noexcept nogil:
    """Return True if the dialled connection is established."""
    cdef int error = 0
    cdef unsigned int size = sizeof(error)
    return not (
        events & (EPOLLERR | EPOLLHUP)
        or getsockopt(link.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0
        or error != 0
    )
