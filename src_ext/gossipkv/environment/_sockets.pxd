# Sockets and their readiness, as Linux has them.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLL_CLOEXEC
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_DEL
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
    enum: AF_INET
    enum: AF_INET6
    enum: MSG_NOSIGNAL
    enum: MSG_DONTWAIT
    enum: SHUT_WR
    enum: SOL_SOCKET
    enum: SO_ERROR
    enum: SO_KEEPALIVE
    enum: SO_LINGER
    enum: SOCK_STREAM
    enum: SOCK_NONBLOCK
    enum: SOCK_CLOEXEC

    struct linger_time "linger":
        int l_onoff
        int l_linger

    struct sockaddr:
        unsigned short sa_family

    struct sockaddr_storage:
        unsigned short ss_family

    int accept4(int fd, sockaddr* address, unsigned int* size, int flags)
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int shutdown(int fd, int how)
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size)
    int getsockopt(int fd, int level, int name, void* value, unsigned int* size)
    int getpeername(int fd, sockaddr* address, unsigned int* size)
    int open_socket "socket"(int family, int kind, int protocol)
    int connect(int fd, const sockaddr* address, unsigned int size)

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_KEEPCNT
    enum: TCP_KEEPIDLE
    enum: TCP_KEEPINTVL
    enum: TCP_NODELAY

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
