"""What the loop asks of Linux: epoll, eventfd, sockets, the clock."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from gossipkv.node._addresses cimport address_number

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
