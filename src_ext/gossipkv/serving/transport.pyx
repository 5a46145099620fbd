"""What the rounds of the loop (`serving.pyx`) stand on: something that carries bytes, and a clock.

There are two.  `sockets.pyx` is Linux: sockets, epoll, a timer, CLOCK_MONOTONIC.  `streams.pyx` is whatever has
Python's methods for the same: the connections of a simulation, and its time, which stands still while a round lasts.
The order of a round is the loop's alone, so what a simulation finds is true of a node.

The rules of both:

* A connection is known by a descriptor, a small number of the transport's own, and by the handle it was begun with.
* Events are level-triggered: who is ready shows up in each `fetch` until it is read, written or watched no more.
* What may happen to a peer is a value (`NOT_YET`, `BROKEN`, `EXHAUSTED`) and never an exception; a defect of the
  transport is kept for `raise_failure`, which is called where Python may hear of it.

What a round does is a call through the table of a class, and one for a system call: a nanosecond or two each.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class Transport:
    """Contract of the two; what stands here is done where one of them has nothing to do."""

    # What a round does ------------------------------------------------------------------------------------------

    cdef int64_t now_ns(self) noexcept nogil:
        """The time, from any beginning; it never goes back."""
        return 0

    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept nogil:
        """Write down what is ready, and return how many that are; `wait_ms` are 0 unless others are watched."""
        return 0

    cdef void set_timer(self, int64_t due_ns) noexcept nogil:
        """Have the event `TIMER` come once, then, and not when it was to come before."""

    cdef bint listen(self, bint wanted) noexcept nogil:
        """Have the events of listeners come, or not, while somebody knocks; whether that is so now."""
        return wanted

    cdef int accept(self, uint64_t listener, uint64_t* address) noexcept nogil:
        """The descriptor of somebody who knocks there, and what their address counts as; or why there is none."""
        return NOT_YET

    cdef int begin(self, int fd, uint64_t handle) noexcept nogil:
        """Watch a connection that was accepted or admitted for what it brings, under that handle; -1: it cannot be."""
        return 0

    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept nogil:
        """Watch it for other things than before; -1: it cannot be."""
        return 0

    cdef bint is_secured(self, uint64_t listener) noexcept nogil:
        """Whether who comes there has to `shake` hands before anything is received or sent."""
        return False

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        """One step of its handshake: what that waits for then, or 0: it is done; `FOREIGN` or `BROKEN`: plain again."""
        return BROKEN

    cdef bint is_resumed(self, int fd) noexcept nogil:
        """Whether its handshake was short, since it has been here before."""
        return False

    cdef bint is_certified(self, int fd) noexcept nogil:
        """Whether it has shown a certificate in its handshake, so that it may be `named`."""
        return False

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        """How many bytes have come; 0: the peer's end; `NOT_YET` or `BROKEN`."""
        return NOT_YET

    cdef ssize_t send(self, int fd, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """How many of these bytes were taken; `NOT_YET` or `BROKEN`."""
        return NOT_YET

    cdef void end(self, int fd) noexcept nogil:
        """Send our end behind what was sent; the peer may go on."""

    cdef void close(self, int fd, bint cut) noexcept nogil:
        """Let go of it; `cut`: what is on its way need not arrive."""

    cdef int leave(self, int fd) noexcept nogil:
        """Have somebody else serve it from now on, by the descriptor that is returned; -1: it cannot be."""
        return -1

    cdef int left_count(self) noexcept nogil:
        """How many of those that somebody else serves still need this transport."""
        return 0

    cdef void expire(self) noexcept nogil:
        """End those of them whose time is up."""

    cdef int64_t wall_s(self) noexcept nogil:
        """Whole seconds since 1970, as the wall clock has it; it may go back."""
        return 0

    # What Python does between rounds ----------------------------------------------------------------------------

    cdef int fileno(self) except -2:
        """The descriptor that is readable when there are events, the bell while others are watched; -1: it is shut."""
        return -1

    cdef bint has_events(self) except -1:
        """Whether there are events of which the descriptor does not tell."""
        return False

    cdef object due_s(self):
        """How long until the timer's event, if the descriptor does not tell of it; else None."""
        return None

    cdef int waker_fd(self) except -2:
        """An eventfd that does what `wake` does, for any thread; -1: there is none."""
        return -1

    cdef int wake(self) except -1:
        """Make the descriptor readable, until the next `fetch` or `hush`."""
        return 0

    cdef bint watch_others(self, int fd) except -1:
        """Have the event `OTHERS` come while that descriptor is readable; whether that can be."""
        return False

    cdef int be_alone(self) except -1:
        """Have the descriptor be the bell: a thread sleeps at the events."""
        raise ValueError("a thread of its own needs sockets")

    cdef int use_tls(self, tls) except -1:
        """Have newcomers speak TLS by that `Tls`, at the listeners that it names."""
        raise ValueError("TLS needs sockets")

    cdef object proven(self, int fd):
        """The uuid of the node at the other end, 16 bytes, that its certificate proves; None: it proves none."""
        return None

    cdef object named(self, int fd):
        """The name in the certificate that a client has shown; None: it shows none, or it is a node's."""
        return None

    cdef void ring(self) noexcept nogil:
        """Make the bell readable, which others can watch while they are watched."""

    cdef int hush(self) except -1:
        """Make it readable no more."""
        return 0

    cdef int admit(self, connection) except -1:
        """The descriptor of a connection that was made elsewhere.  Raises OSError: it is the caller's then."""
        return -1

    cdef int raise_failure(self) except -1:
        """Raise what has gone wrong in the transport itself."""
        return 0

    cdef int stop_listening(self) except -1:
        """Take no more connections; who knocks is turned away."""
        return 0

    cdef int shut(self) except -1:
        """Stop listening, and have no more events.  Requires: the connections are closed."""
        return 0
