"""TLS connections of a transport, indexed by descriptor.

A TLS connection begins with the first handshake step, not with `accept`, so a silent client costs nothing. The first
byte is peeked at before; if it does not begin a handshake, the loop is told and answers in the clear.

OpenSSL reads ahead, so a connection may hold bytes while the system has none. Such a connection is reported as readable
in each `fetch` while it is watched for input, so events stay level-triggered.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from gossipkv.environment._sockets cimport recv
from gossipkv.wire._buffer cimport buffer_append, buffer_release, buffer_size

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_PEEK

cdef enum:
    HANDSHAKE = 0x16  # first byte of a TLS record of the handshake
    MIN_LINES = 64


@cython.final
cdef class TlsConnections:
    """The TLS connections of a transport."""

    def __cinit__(self):
        self.proofs = {}

    def __dealloc__(self):
        cdef int fd
        for fd in range(self.size):
            if self.slots[fd].tls != NULL:
                tls_free(self.slots[fd].tls)
        free(self.slots)
        buffer_release(&self.holding)

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        cdef TlsConnection* connection
        cdef uint8_t first
        cdef ssize_t came
        cdef int result
        if fd >= self.size and self.grow(fd + 1) < 0:
            return BROKEN
        connection = &self.slots[fd]
        if connection.tls == NULL:
            came = recv(fd, &first, 1, MSG_PEEK)
            if came < 0 and (errno == EAGAIN or errno == EINTR):
                return READABLE
            if came <= 0:
                return BROKEN
            if first != HANDSHAKE:
                return FOREIGN
            connection.tls = self.tls.begin(fd)
            if connection.tls == NULL:
                return BROKEN
            connection.handle = handle
            connection.interest = READABLE
        result = tls_shake(connection.tls)
        if result == BROKEN:
            self.forget(fd)
        elif result == 0:
            self.note(fd, tls_holds(connection.tls))
        return result

    cdef int take_over(self, int fd, TlsEnd end) except -1:
        """Continue a connection after a handshake elsewhere. The transport's `begin` follows."""
        if fd >= self.size and self.grow(fd + 1) < 0:
            raise MemoryError
        self.slots[fd].tls = end.take()
        return 0

    cdef int grow(self, int size) noexcept nogil:
        """Allocate slots for at least that many descriptors."""
        cdef int capacity = max(self.size, <int>MIN_LINES)
        cdef TlsConnection* slots
        while capacity < size:
            capacity *= 2
        slots = <TlsConnection*>realloc(self.slots, capacity * sizeof(TlsConnection))
        if slots == NULL:
            return -1
        memset(slots + self.size, 0, (capacity - self.size) * sizeof(TlsConnection))
        self.slots = slots
        self.size = capacity
        return 0

    cdef void note(self, int fd, bint holds) noexcept nogil:
        """Record if the connection holds input, and list it if so."""
        cdef TlsConnection* connection = &self.slots[fd]
        connection.holds = holds
        if holds and not connection.listed:
            connection.listed = buffer_append(&self.holding, <const uint8_t*>&fd, sizeof(int)) == 0

    cdef bint has_events(self) noexcept nogil:
        """True if `tell` has events."""
        cdef Event event
        return buffer_size(&self.holding) > 0 and self.tell(&event, 1) > 0

    cdef int tell(self, Event* events, int most) noexcept nogil:
        """Store events of watched connections that hold input, least recently reported first. Return their number."""
        cdef Py_ssize_t left = buffer_size(&self.holding) // <Py_ssize_t>sizeof(int)
        cdef int count = 0
        cdef TlsConnection* connection
        cdef int fd
        while left > 0 and count < most:
            left -= 1
            memcpy(&fd, self.holding.data + self.holding.start, sizeof(int))
            self.holding.start += sizeof(int)
            connection = &self.slots[fd]
            connection.listed = False
            self.note(fd, connection.holds)
            if connection.holds and connection.interest & READABLE:
                events[count] = Event(connection.handle, READABLE)
                count += 1
        return count

    cdef object proven(self, int fd):
        """Implement `Transport.proven`: the first verdict stays, whatever certificates are read anew meanwhile."""
        cdef TlsConnection* connection = tls_connection_of(self, fd)
        if connection == NULL or self.tls is None:
            return None
        if not connection.judged:
            self.proofs[fd] = self.tls.proven(connection.tls)
            connection.judged = True
        return self.proofs[fd]

    cdef object named(self, int fd):
        """Implement `Transport.named`. Requires: TLS."""
        return self.tls.named(self.slots[fd].tls)

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Implement `Transport.receive`. Requires: TLS."""
        cdef bint holds
        cdef ssize_t came = tls_receive(self.slots[fd].tls, data, size, &holds)
        self.note(fd, holds)
        return came

    cdef void end(self, int fd) noexcept nogil:
        """Send the end of our output. Requires: TLS."""
        tls_end(self.slots[fd].tls)

    cdef void forget(self, int fd) noexcept nogil:
        tls_free(self.slots[fd].tls)
        self.slots[fd].tls = NULL
        self.slots[fd].judged = False
        self.slots[fd].holds = False
