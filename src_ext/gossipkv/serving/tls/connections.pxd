"""The TLS connections of a transport; `connection/connections.pyx` explains the design."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer

cdef struct TlsConnection:
    void* tls  # NULL if the connection is plain, or its handshake has not begun
    uint64_t handle
    uint32_t interest
    bint holds  # bytes or an end that epoll does not report
    bint listed
    bint judged  # `proofs` has the verdict
    void* tunnel  # the tunnel to another server; NULL if the connection is served here


cdef class TlsConnections:
    cdef Tls tls  # for new connections; None without TLS
    cdef TlsConnection* slots  # indexed by descriptor
    cdef int size
    cdef dict proofs  # what the certificates of judged connections prove, by descriptor
    cdef Buffer holding  # descriptors of connections that hold input, or did

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil
    cdef int take_over(self, int fd, TlsEnd end) except -1
    cdef int grow(self, int size) noexcept nogil
    cdef void note(self, int fd, bint holds) noexcept nogil
    cdef bint has_events(self) noexcept nogil
    cdef int tell(self, Event* events, int most) noexcept nogil
    cdef object proven(self, int fd)
    cdef object named(self, int fd)
    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void end(self, int fd) noexcept nogil
    cdef void forget(self, int fd) noexcept nogil


cdef inline TlsConnection* tls_connection_of(TlsConnections tls_connections, int fd) noexcept nogil:
    """Return the TLS connection of that descriptor; NULL if it is plain."""
    return &tls_connections.slots[fd] if fd < tls_connections.size and tls_connections.slots[fd].tls != NULL else NULL
