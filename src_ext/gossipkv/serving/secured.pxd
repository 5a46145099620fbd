"""Which connections of a transport speak TLS.  The idea stands in `secured.pyx`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer

cdef struct Line:
    void* tls  # NULL: the connection is plain, or its handshake has not begun
    uint64_t handle
    uint32_t interest
    bint holds  # bytes, or an end, of which the system does not tell
    bint listed
    bint judged  # whether it is known if that is a node at the other end, and which
    bint is_node
    uint8_t uuid[16]
    void* tunnel  # that carries what comes to somebody else; NULL: it is served here


cdef class Secured:
    cdef Tls tls  # what newcomers speak; None: nothing but plain bytes
    cdef Line* lines  # by descriptor
    cdef int size
    cdef Buffer holding  # descriptors of lines that hold something, or did

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


cdef inline Line* line_of(Secured secured, int fd) noexcept nogil:
    """The line of that connection; NULL: it speaks plainly."""
    return &secured.lines[fd] if fd < secured.size and secured.lines[fd].tls != NULL else NULL
