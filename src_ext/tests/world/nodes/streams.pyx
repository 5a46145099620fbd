"""The transport of a node in a simulation: streams and a clock with Python's methods (`streams.py` has what they are).

The rounds call it without the GIL, which each call takes.  There is no system here that would look after readiness, so
each `fetch` asks all streams: a simulated node has few.  The descriptor is the listener's, and tells of what moves
between rounds; what a round has left ready is asked for by `has_events`.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.serving._serving cimport NEVER
from gossipkv.serving._transport cimport BROKEN, ENDED, LISTENER, NOT_YET, READABLE, TIMER, WRITABLE, Event, Transport


@cython.final
cdef class Line:
    """One of the streams, and what it is watched for."""

    cdef object stream
    cdef uint64_t handle
    cdef uint32_t interest

    cdef uint32_t ready(self) except? 0:
        """What it is watched for and has come, and whether it is broken."""
        cdef uint32_t what = 0
        if self.stream.is_broken:
            what = ENDED
        if self.interest & READABLE and self.stream.is_readable:
            what |= READABLE
        if self.interest & WRITABLE and self.stream.room_bytes > 0:
            what |= WRITABLE
        return what


@cython.final
cdef class Streams(Transport):
    """The streams of a listener, in the time of a clock."""

    cdef object listener
    cdef object clock
    cdef dict lines  # by descriptor
    cdef int latest_fd
    cdef int64_t latest_ns  # the time, when it was told last
    cdef int64_t due_ns
    cdef bint listening
    cdef object failure  # of a stream, if it was not its peer's doing

    def __cinit__(self, listener, clock):
        self.listener = listener
        self.clock = clock
        self.lines = {}
        self.due_ns = NEVER
        self.listening = True

    cdef int enter(self, stream) except -1:
        cdef Line line = Line()
        line.stream = stream
        self.latest_fd += 1
        self.lines[self.latest_fd] = line
        return self.latest_fd

    cdef int look(self, Event* events, int most) except -1:
        """Write down what is ready."""
        cdef int count = 0
        cdef Line line
        cdef uint32_t what
        if self.due_ns != NEVER and self.clock.monotonic_ns() >= self.due_ns:
            events[count] = Event(TIMER, READABLE)
            count += 1
        if count < most and self.listening and self.listener.is_readable:
            events[count] = Event(LISTENER, READABLE)
            count += 1
        for line in self.lines.values():
            if count == most:
                break
            what = line.ready()
            if what > 0:
                events[count] = Event(line.handle, what)
                count += 1
        return count

    # What a round does ------------------------------------------------------------------------------------------

    cdef int64_t now_ns(self) noexcept with gil:
        try:
            self.latest_ns = self.clock.monotonic_ns()
        except BaseException as error:
            self.failure = error
        return self.latest_ns

    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept with gil:
        cdef int count = 0
        if self.failure is not None:
            return 0  # The round ends, and raises it.
        try:
            count = self.look(events, most)
        except BaseException as error:
            self.failure = error
        if count > 0 and events[0].handle == TIMER:
            self.due_ns = NEVER
        return count

    cdef void set_timer(self, int64_t due_ns) noexcept nogil:
        self.due_ns = due_ns

    cdef bint listen(self, bint wanted) noexcept nogil:
        self.listening = wanted
        return wanted

    cdef int accept(self, uint64_t listener, uint64_t* address) noexcept with gil:
        address[0] = 0
        try:
            stream = self.listener.accept()
            return NOT_YET if stream is None else self.enter(stream)
        except BaseException as error:
            self.failure = error
            return NOT_YET

    cdef int begin(self, int fd, uint64_t handle) noexcept with gil:
        cdef Line line = self.lines[fd]
        line.handle = handle
        line.interest = READABLE
        return 0

    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept with gil:
        cdef Line line = self.lines[fd]
        line.interest = interest
        return 0

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept with gil:
        cdef Line line = self.lines[fd]
        cdef bytes came
        try:
            came = line.stream.receive(size)
            if came is None:
                return NOT_YET
            if len(came) > size:
                raise ValueError(f"a stream was asked for {size} bytes and gave {len(came)}")
            memcpy(data, <const char*>came, len(came))
            return len(came)
        except OSError:
            return BROKEN
        except BaseException as error:
            self.failure = error
            return BROKEN

    cdef ssize_t send(self, int fd, const uint8_t* data, Py_ssize_t size) noexcept with gil:
        cdef Line line = self.lines[fd]
        cdef Py_ssize_t taken
        try:
            if line.stream.is_broken:
                return BROKEN
            taken = min(size, <Py_ssize_t>line.stream.room_bytes)
            if taken == 0:
                return NOT_YET
            line.stream.send((<const char*>data)[:taken])
            return taken
        except OSError:
            return BROKEN
        except BaseException as error:
            self.failure = error
            return BROKEN

    cdef void end(self, int fd) noexcept with gil:
        cdef Line line = self.lines[fd]
        try:
            line.stream.close()
        except BaseException as error:
            self.failure = error

    cdef void close(self, int fd, bint cut) noexcept with gil:
        cdef Line line = self.lines.pop(fd)
        try:
            if cut:
                line.stream.abort()
            else:
                line.stream.close()
        except BaseException as error:
            self.failure = error

    # What Python does between rounds ----------------------------------------------------------------------------

    cdef int fileno(self) except -2:
        return self.listener.fileno()

    cdef bint has_events(self) except -1:
        cdef Event event
        return self.look(&event, 1) > 0

    cdef object due_s(self):
        if self.due_ns == NEVER:
            return None
        # Whole milliseconds: a clock that runs slow would be asked again and again towards the end.
        return max(0, -((self.clock.monotonic_ns() - self.due_ns) // 1000000)) / 1000

    cdef int wake(self) except -1:
        self.listener.wake()
        return 0

    cdef int admit(self, connection) except -1:
        self.listener.watch(connection)
        return self.enter(connection)

    cdef int raise_failure(self) except -1:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return 0

    cdef int stop_listening(self) except -1:
        self.listening = False
        self.listener.close()
        return 0

    cdef int shut(self) except -1:
        return self.stop_listening()
