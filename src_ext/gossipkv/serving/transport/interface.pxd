"""The interface of transports, which carry bytes and provide the clock; `interface.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:  # Handles that no connection has, since generations start at 1.
    LISTENER = 0  # for MessagePack-RPC
    RESP_LISTENER = 1
    HTTP_LISTENER = 2
    LISTENERS = 3  # number of listeners
    WAKER = 3
    TIMER = 4
    OTHERS = 5

cdef enum:  # Events and interests, with epoll's numbers, so that no translation is needed.
    READABLE = 0x01
    WRITABLE = 0x04
    ENDED = 0x18  # The connection is broken; reported without interest.

cdef enum:  # Results in place of a size or a descriptor.
    NOT_YET = -1
    BROKEN = -2
    GONE = -3  # The client has left before `accept`; another one may wait.
    EXHAUSTED = -4  # There are no descriptors left.
    FOREIGN = -5  # The peer does not begin a handshake.

cdef struct Event:
    uint64_t handle
    uint32_t what


cdef class Transport:
    cdef readonly bint polls  # a busy poll before a sleep pays

    # Calls within a round.
    cdef int64_t now_ns(self) noexcept nogil
    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept nogil
    cdef void set_timer(self, int64_t due_ns) noexcept nogil
    cdef bint listen(self, bint wanted) noexcept nogil
    cdef int accept(self, uint64_t listener, uint64_t* address) noexcept nogil
    cdef int begin(self, int fd, uint64_t handle) noexcept nogil
    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept nogil
    cdef bint is_secured(self, uint64_t listener) noexcept nogil
    cdef int shake(self, int fd, uint64_t handle) noexcept nogil
    cdef bint is_resumed(self, int fd) noexcept nogil
    cdef bint is_certified(self, int fd) noexcept nogil
    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef ssize_t send(self, int fd, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void end(self, int fd) noexcept nogil
    cdef void close(self, int fd, bint cut) noexcept nogil
    cdef int leave(self, int fd) noexcept nogil
    cdef int left_count(self) noexcept nogil
    cdef void expire(self) noexcept nogil
    cdef int64_t wall_ms(self) noexcept nogil

    # Calls by Python between rounds.
    cdef int fileno(self) except -2
    cdef int waker_fd(self) except -2
    cdef bint has_events(self) except -1
    cdef object due_s(self)
    cdef int wake(self) except -1
    cdef bint watch_others(self, int fd) except -1
    cdef int be_alone(self) except -1
    cdef int use_tls(self, tls) except -1
    cdef object proven(self, int fd)
    cdef object named(self, int fd)
    cdef void ring(self) noexcept nogil
    cdef int hush(self) except -1
    cdef int admit(self, connection) except -1
    cdef int raise_failure(self) except -1
    cdef int stop_listening(self) except -1
    cdef int shut(self) except -1
