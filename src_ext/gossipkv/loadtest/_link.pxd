"""One connection of the generator: its socket, what waits to be sent, half an answer, its window.

    DOWN  ->  DIALLING  ->  UP  ->  DOWN

A connection that went down is made again: at once after an answer, else after a pause, which doubles with each
failure.  These functions move bytes and states; what they mean for the counts is the generator's.
"""

from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.unistd cimport close

from gossipkv.environment._sockets cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL,
    SO_ERROR, SO_LINGER, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY, connect, epoll_ctl,
    epoll_event, getpeername, getsockopt, linger_time, open_socket, send, setsockopt, sockaddr, sockaddr_storage,
)
from gossipkv.loadtest._dialect cimport Window, window_clear
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_size
from gossipkv.wire._message cimport Blob

cdef enum:
    KEPT_BYTES = 1048576  # Beyond, a connection's buffer that is empty is given back.
    FIRST_PAUSE_NS = 10000000  # Before a connection is made again that was made, or dialled, in vain.
    LONGEST_PAUSE_NS = 1000000000

cdef enum Sent:
    SENT = 0
    SEND_FAILED = 1
    SEND_NO_MEMORY = 2

cdef enum State:
    DOWN = 0
    DIALLING = 1
    UP = 2

cdef struct Link:
    int fd  # -1: down
    uint8_t state
    bint blocked  # waits until the server takes more
    bint greets  # the next answer is to the greeting
    bint is_ending  # the server has said so
    uint32_t target
    uint32_t lined_up  # of its slots, how many stand in the ring of idle ones
    int64_t since_ns  # dialling
    int64_t retry_ns  # when it is made again
    int64_t pause_ns
    unsigned int address_size  # 0: not known
    sockaddr_storage address
    Window window
    Buffer input  # half an answer
    Buffer output  # what the server has not taken


cdef inline void drop(Buffer* buffer, Py_ssize_t size) noexcept nogil:
    """Forget the first `size` bytes; what is empty keeps its memory, so that nothing is allocated for an answer."""
    buffer.start += size
    if buffer_size(buffer) == 0:
        buffer.start = 0
        buffer.end = 0
        if buffer.capacity > KEPT_BYTES:
            buffer_release(buffer)


cdef inline int link_watch(Link* link, int epoll, uint64_t number, int operation) noexcept nogil:
    """Be told, under this number, when something is there to read, and when there is room for what waits."""
    cdef epoll_event event
    event.events = EPOLLIN | EPOLLOUT if link.blocked or link.state == DIALLING else EPOLLIN
    event.data.u64 = number
    return epoll_ctl(epoll, operation, link.fd, &event)


cdef inline int link_send(Link* link, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Send, or put it behind what waits; `blocked` says that something does.  A `Sent`."""
    cdef ssize_t taken = 0
    if buffer_size(&link.output) == 0:
        taken = send(link.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if taken == size:
            return SENT
        if taken < 0:
            if errno != EAGAIN and errno != EINTR:
                return SEND_FAILED
            taken = 0
    if buffer_append(&link.output, data + taken, size - taken) < 0:
        return SEND_NO_MEMORY
    link.blocked = True
    return SENT


cdef inline int link_flush(Link* link) noexcept nogil:
    """Send what waits, as far as there is room for it.  A `Sent`."""
    cdef Buffer* output = &link.output
    cdef ssize_t taken = send(link.fd, output.data + output.start, buffer_size(output), MSG_NOSIGNAL | MSG_DONTWAIT)
    if taken < 0:
        return SENT if errno == EAGAIN or errno == EINTR else SEND_FAILED
    drop(output, taken)
    link.blocked = buffer_size(output) > 0
    return SENT


cdef inline void link_up(Link* link, const Blob* greeting) noexcept nogil:
    """A connection is there; what it says first waits to be sent."""
    link.state = UP
    link.is_ending = False
    link.greets = greeting.size > 0
    link.blocked = link.greets and buffer_append(&link.output, greeting.data, greeting.size) == 0


cdef inline void link_close(Link* link) noexcept nogil:
    """End a connection, and let go of what it holds."""
    if link.fd >= 0:
        close(link.fd)
    link.fd = -1
    buffer_release(&link.input)
    buffer_release(&link.output)


cdef inline void link_reset(Link* link) noexcept nogil:
    """Have a connection end without a farewell."""
    cdef linger_time at_once = linger_time(1, 0)
    if link.fd >= 0:
        setsockopt(link.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once))


cdef inline int link_remember(Link* link) noexcept nogil:
    """Note where the other end is, to make the connection again."""
    link.address_size = sizeof(sockaddr_storage)
    return getpeername(link.fd, <sockaddr*>&link.address, &link.address_size)


cdef inline void link_down(Link* link, int64_t now) noexcept nogil:
    """Forget a connection; it may be made again after its pause."""
    link_close(link)
    link.state = DOWN
    window_clear(&link.window)
    link.retry_ns = now + link.pause_ns
    link.pause_ns = min(<int64_t>LONGEST_PAUSE_NS, max(<int64_t>FIRST_PAUSE_NS, 2 * link.pause_ns))


cdef inline bint link_dial(Link* link, int epoll, uint64_t number, int64_t now) noexcept nogil:
    """Begin to make a connection again; whether that began."""
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
    """Whether what was dialled is connected."""
    cdef int error = 0
    cdef unsigned int size = sizeof(error)
    return not (
        events & (EPOLLERR | EPOLLHUP)
        or getsockopt(link.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0
        or error != 0
    )
