"""Connections of a transport that speak TLS: a *line* for each, by its descriptor.

A line begins with the first step of a handshake, not when somebody is let in: who says nothing costs nothing.  Before
that the first byte is looked at and left where it is.  One that begins no handshake is told to the loop, which answers
in the clear.

OpenSSL reads ahead, so bytes may lie in a line while the system has none.  Such a line *holds* them, and is told as
readable with each `fetch` while it is watched for that: events stay level-triggered.
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
    HANDSHAKE = 0x16  # What a record of TLS begins with, if it is part of one.
    MIN_LINES = 64


@cython.final
cdef class Secured:
    """The lines of a transport."""

    def __dealloc__(self):
        cdef int fd
        for fd in range(self.size):
            if self.lines[fd].tls != NULL:
                tls_free(self.lines[fd].tls)
        free(self.lines)
        buffer_release(&self.holding)

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        """As `Transport.shake`."""
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
        """Go on with a line whose handshake was done elsewhere, once it has begun here."""
        if fd >= self.size and self.grow(fd + 1) < 0:
            raise MemoryError
        self.lines[fd].tls = end.take()
        return 0

    cdef int grow(self, int size) noexcept nogil:
        """Have room for so many descriptors."""
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
        """Note whether it holds something."""
        cdef Line* line = &self.lines[fd]
        line.holds = holds
        if holds and not line.listed:
            line.listed = buffer_append(&self.holding, <const uint8_t*>&fd, sizeof(int)) == 0

    cdef bint has_events(self) noexcept nogil:
        """Whether there are any to `tell`."""
        cdef Event event
        return buffer_size(&self.holding) > 0 and self.tell(&event, 1) > 0

    cdef int tell(self, Event* events, int most) noexcept nogil:
        """Write down which lines are readable by what they hold, those first that were not told before."""
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
        """As `Transport.proven`: who is a node once stays it, whatever is read anew meanwhile."""
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
        """As `Transport.named`.  Requires: it has a line."""
        return self.tls.named(self.lines[fd].tls)

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        """As `Transport.receive`.  Requires: it has a line."""
        cdef bint holds
        cdef ssize_t came = tls_receive(self.lines[fd].tls, data, size, &holds)
        self.note(fd, holds)
        return came

    cdef void end(self, int fd) noexcept nogil:
        """Say that nothing more is sent.  Requires: it has a line."""
        tls_end(self.lines[fd].tls)

    cdef void forget(self, int fd) noexcept nogil:
        """It is a line no more."""
        tls_free(self.lines[fd].tls)
        self.lines[fd].tls = NULL
        self.lines[fd].judged = False
        self.lines[fd].holds = False
