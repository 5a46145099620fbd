"""TLS connections of a transport: a *line* for each, indexed by descriptor.

A line begins with the first handshake step, not with `accept`, so a silent client costs nothing. The first byte is
peeked at before; if it does not begin a handshake, the loop is told and answers in the clear.

OpenSSL reads ahead, so a line may hold bytes while the system has none. Such a line is reported as readable in each
`fetch` while it is watched for input, so events stay level-triggered.
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
cdef class Secured:
    """The TLS lines of a transport."""

    def __dealloc__(self):
        cdef int fd
        for fd in range(self.size):
            if self.lines[fd].tls != NULL:
                tls_free(self.lines[fd].tls)
        free(self.lines)
        buffer_release(&self.holding)

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        cdef Line* line
        cdef uint8_t first
        cdef ssize_t came
        cdef int result
        if fd >= self.size and self.grow(fd + 1) < 0:
            return BROKEN
        line = &self.lines[fd]
        if line.tls == NULL:
            came = recv(fd, &first, 1, MSG_PEEK)
            if came < 0 and (errno == EAGAIN or errno == EINTR):
                return READABLE
            if came <= 0:
                return BROKEN
            if first != HANDSHAKE:
                return FOREIGN
            line.tls = self.tls.begin(fd)
            if line.tls == NULL:
                return BROKEN
            line.handle = handle
            line.interest = READABLE
        result = tls_shake(line.tls)
        if result == BROKEN:
            self.forget(fd)
        elif result == 0:
            self.note(fd, tls_holds(line.tls))
        return result

    cdef int take_over(self, int fd, TlsEnd end) except -1:
        """Continue a line after a handshake elsewhere. The transport's `begin` follows."""
        if fd >= self.size and self.grow(fd + 1) < 0:
            raise MemoryError
        self.lines[fd].tls = end.take()
        return 0

    cdef int grow(self, int size) noexcept nogil:
        """Allocate lines for at least that many descriptors."""
        cdef int capacity = max(self.size, <int>MIN_LINES)
        cdef Line* lines
        while capacity < size:
            capacity *= 2
        lines = <Line*>realloc(self.lines, capacity * sizeof(Line))
        if lines == NULL:
            return -1
        memset(lines + self.size, 0, (capacity - self.size) * sizeof(Line))
        self.lines = lines
        self.size = capacity
        return 0

    cdef void note(self, int fd, bint holds) noexcept nogil:
        """Record if the line holds input, and list it if so."""
        cdef Line* line = &self.lines[fd]
        line.holds = holds
        if holds and not line.listed:
            line.listed = buffer_append(&self.holding, <const uint8_t*>&fd, sizeof(int)) == 0

    cdef bint has_events(self) noexcept nogil:
        """True if `tell` has events."""
        cdef Event event
        return buffer_size(&self.holding) > 0 and self.tell(&event, 1) > 0

    cdef int tell(self, Event* events, int most) noexcept nogil:
        """Store events of watched lines that hold input, least recently reported lines first. Return their number."""
        cdef Py_ssize_t left = buffer_size(&self.holding) // <Py_ssize_t>sizeof(int)
        cdef int count = 0
        cdef Line* line
        cdef int fd
        while left > 0 and count < most:
            left -= 1
            memcpy(&fd, self.holding.data + self.holding.start, sizeof(int))
            self.holding.start += sizeof(int)
            line = &self.lines[fd]
            line.listed = False
            self.note(fd, line.holds)
            if line.holds and line.interest & READABLE:
                events[count] = Event(line.handle, READABLE)
                count += 1
        return count

    cdef object proven(self, int fd):
        """Implement `Transport.proven`: the first verdict stays, whatever certificates are read anew meanwhile."""
        cdef Line* line = line_of(self, fd)
        cdef bytes uuid
        if line == NULL or self.tls is None:
            return None
        if not line.judged:
            uuid = self.tls.proven(line.tls)
            line.judged = True
            line.is_node = uuid is not None
            if line.is_node:
                memcpy(line.uuid, <const uint8_t*>uuid, sizeof(line.uuid))
        return (<const char*>line.uuid)[:sizeof(line.uuid)] if line.is_node else None

    cdef object named(self, int fd):
        """Implement `Transport.named`. Requires: a line."""
        return self.tls.named(self.lines[fd].tls)

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Implement `Transport.receive`. Requires: a line."""
        cdef bint holds
        cdef ssize_t came = tls_receive(self.lines[fd].tls, data, size, &holds)
        self.note(fd, holds)
        return came

    cdef void end(self, int fd) noexcept nogil:
        """Send the end of our output. Requires: a line."""
        tls_end(self.lines[fd].tls)

    cdef void forget(self, int fd) noexcept nogil:
        tls_free(self.lines[fd].tls)
        self.lines[fd].tls = NULL
        self.lines[fd].judged = False
        self.lines[fd].holds = False
