"""The transport of a simulated node: streams and a clock, which are Python objects (`streams.py`).

Rounds call the transport without the GIL, so each method takes it. No system reports readiness here, so `fetch` asks
each stream; a simulated node has few. The listener's descriptor reports events between rounds, and `has_events`
reports events that a round has left.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.serving._serving cimport NEVER
from gossipkv.serving._transport cimport BROKEN, ENDED, LISTENER, NOT_YET, READABLE, TIMER, WRITABLE, Event, Transport


@cython.final
cdef class WatchedStream:
    """A stream, with the events that it is watched for."""

    cdef object stream
    cdef uint64_t handle
    cdef uint32_t interest

    cdef uint32_t ready(self) except? 0:
        """Return the events that have occurred, among the watched ones and ENDED."""
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
    cdef dict watched_streams  # by descriptor
    cdef int latest_fd
    cdef int64_t latest_ns  # the time as last returned
    cdef int64_t due_ns
    cdef bint listening
    cdef object failure  # an exception of a stream that is not its peer's fault

    def __cinit__(self, listener, clock):
        self.listener = listener
        self.clock = clock
        self.watched_streams = {}
        self.due_ns = NEVER
        self.listening = True

    cdef int enter(self, stream) except -1:
        cdef WatchedStream watched = WatchedStream()
        watched.stream = stream
        self.latest_fd += 1
        self.watched_streams[self.latest_fd] = watched
        return self.latest_fd

    cdef int look(self, Event* events, int most) except -1:
        """Store the events that are ready; return their number."""
        cdef int count = 0
        cdef WatchedStream watched
        cdef uint32_t what
        if self.due_ns != NEVER and self.clock.monotonic_ns() >= self.due_ns:
            events[count] = Event(TIMER, READABLE)
            count += 1
        if count < most and self.listening and self.listener.is_readable:
            events[count] = Event(getattr(self.listener, "dialect", LISTENER), READABLE)
            count += 1
        for watched in self.watched_streams.values():
            if count == most:
                break
            what = watched.ready()
            if what > 0:
                events[count] = Event(watched.handle, what)
                count += 1
        return count

    # Within a round ---------------------------------------------------------------------------------------------

    cdef int64_t now_ns(self) noexcept with gil:
        try:
            self.latest_ns = self.clock.monotonic_ns()
        except BaseException as error:
            self.failure = error
        return self.latest_ns

    cdef int64_t wall_ms(self) noexcept with gil:
        try:
            return self.clock.wall_ms()
        except BaseException as error:
            self.failure = error
            return 0

    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept with gil:
        cdef int count = 0
        if self.failure is not None:
            return 0  # The round ends and raises the failure.
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
        cdef WatchedStream watched = self.watched_streams[fd]
        watched.handle = handle
        watched.interest = READABLE
        return 0

    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept with gil:
        cdef WatchedStream watched = self.watched_streams[fd]
        watched.interest = interest
        return 0

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept with gil:
        cdef WatchedStream watched = self.watched_streams[fd]
        cdef bytes came
        try:
            came = watched.stream.receive(size)
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
        cdef WatchedStream watched = self.watched_streams[fd]
        cdef Py_ssize_t taken
        try:
            if watched.stream.is_broken:
                return BROKEN
            taken = min(size, <Py_ssize_t>watched.stream.room_bytes)
            if taken == 0:
                return NOT_YET
            watched.stream.send((<const char*>data)[:taken])
            return taken
        except OSError:
            return BROKEN
        except BaseException as error:
            self.failure = error
            return BROKEN

    cdef void end(self, int fd) noexcept with gil:
        cdef WatchedStream watched = self.watched_streams[fd]
        try:
            watched.stream.close()
        except BaseException as error:
            self.failure = error

    cdef void close(self, int fd, bint cut) noexcept with gil:
        cdef WatchedStream watched = self.watched_streams.pop(fd)
        try:
            if cut:
                watched.stream.abort()
            else:
                watched.stream.close()
        except BaseException as error:
            self.failure = error

    # Between rounds, from Python --------------------------------------------------------------------------------

    cdef int fileno(self) except -2:
        return self.listener.fileno()

    cdef bint has_events(self) except -1:
        cdef Event event
        return self.look(&event, 1) > 0

    cdef object due_s(self):
        if self.due_ns == NEVER:
            return None
        # Rounded up to milliseconds: otherwise a slow clock would be polled repeatedly towards the end.
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
