"""Transports: the interface through which the serving loop (`loop/loop.pyx`) moves bytes and reads the time.

There are two. `sockets.pyx` is Linux: sockets, epoll, a timer, CLOCK_MONOTONIC. `streams.pyx` of the tests calls Python
methods for the same: connections of a simulation, and its time, which stands still during a round. The loop alone
determines the order of a round, so findings of a simulation hold for a node. The rules of both:

* A connection has a descriptor, a small number of the transport's own, and the handle given to `begin`.
* Events are level-triggered: a ready connection shows up in each `fetch` until it is read, written or unwatched.
* A peer's behaviour is reported by a value (`NOT_YET`, `BROKEN`, `EXHAUSTED`), never by an exception. A defect of the
  transport is kept for `raise_failure`, which is called where Python can handle it.

A call within a round goes through a class's table, and one more for a system call: a nanosecond or two each.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class Transport:
    """The contract of both transports; the methods here suit a transport without that function."""

    # Within a round ---------------------------------------------------------------------------------------------

    cdef int64_t now_ns(self) noexcept nogil:
        """Return the time in ns, from any origin; it never goes back."""
        return 0

    cdef int fetch(self, Event* events, int most, int wait_ms) noexcept nogil:
        """Store ready events and return their number; `wait_ms` is 0 unless Trio's descriptor is watched."""
        return 0

    cdef void set_timer(self, int64_t due_ns) noexcept nogil:
        """Let the event `TIMER` come once at `due_ns`, in place of the previous time."""

    cdef bint listen(self, bint wanted) noexcept nogil:
        """Switch the events of listeners on or off while clients wait. Return True if listener events now come."""
        return wanted

    cdef int accept(self, uint64_t listener, uint64_t* address) noexcept nogil:
        """Return a new client's descriptor, and its address number in `address`; or the reason for none."""
        return NOT_YET

    cdef int begin(self, int fd, uint64_t handle) noexcept nogil:
        """Watch an accepted or admitted connection for input under that handle; -1 if it cannot be watched."""
        return 0

    cdef int watch(self, int fd, uint64_t handle, uint32_t interest) noexcept nogil:
        """Watch a connection for other events than before; -1 if it cannot be watched."""
        return 0

    cdef bint is_secured(self, uint64_t listener) noexcept nogil:
        """True if a client of that listener must `shake` before bytes are received or sent."""
        return False

    cdef int shake(self, int fd, uint64_t handle) noexcept nogil:
        """Take a handshake step. Return the event it waits for, 0 when done, or `FOREIGN` or `BROKEN`: plain again."""
        return BROKEN

    cdef bint is_resumed(self, int fd) noexcept nogil:
        """True if the handshake resumed an earlier session."""
        return False

    cdef bint is_certified(self, int fd) noexcept nogil:
        """True if the client has shown a certificate in the handshake, so that `named` applies."""
        return False

    cdef ssize_t receive(self, int fd, uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Receive bytes. Return how many came; 0 at the peer's end; `NOT_YET` or `BROKEN`."""
        return NOT_YET

    cdef ssize_t send(self, int fd, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Send bytes. Return how many were taken; `NOT_YET` or `BROKEN`."""
        return NOT_YET

    cdef void end(self, int fd) noexcept nogil:
        """Send our end behind the sent bytes; the peer may go on."""

    cdef void close(self, int fd, bint cut) noexcept nogil:
        """Close the connection; with `cut`, bytes on their way need not arrive."""

    cdef int leave(self, int fd) noexcept nogil:
        """Detach the connection. Return the descriptor for another server; -1 if it cannot be detached."""
        return -1

    cdef int left_count(self) noexcept nogil:
        """Return how many detached connections still need this transport."""
        return 0

    cdef void expire(self) noexcept nogil:
        """End the overdue detached connections."""

    cdef int64_t wall_ms(self) noexcept nogil:
        """Return milliseconds since 1970 by the wall clock, which may go back."""
        return 0

    # Between rounds, from Python --------------------------------------------------------------------------------

    cdef int fileno(self) except -2:
        """Return the descriptor that is readable on events (the bell while Trio is watched); -1 after `shut`."""
        return -1

    cdef bint has_events(self) except -1:
        """True if there are events that the descriptor does not show."""
        return False

    cdef object due_s(self):
        """Return the seconds until the timer's event if the descriptor does not show that event; else None."""
        return None

    cdef int waker_fd(self) except -2:
        """Return an eventfd with the effect of `wake` for any thread; -1 for none."""
        return -1

    cdef int wake(self) except -1:
        """Make the descriptor readable, until the next `fetch` or `hush`."""
        return 0

    cdef bint watch_others(self, int fd) except -1:
        """Let the event `OTHERS` come while `fd`, Trio's descriptor, is readable. Return True if that is possible."""
        return False

    cdef int be_alone(self) except -1:
        """Use the bell as the descriptor, since a thread of its own sleeps in `fetch`."""
        raise ValueError("a loop with its own thread needs sockets")

    cdef int use_tls(self, tls) except -1:
        """Use TLS for new clients of the listeners that `tls` names."""
        raise ValueError("TLS needs sockets")

    cdef object proven(self, int fd):
        """Return the uuid (16 bytes) of the node that the peer's certificate proves; None if it proves none."""
        return None

    cdef object named(self, int fd):
        """Return the name in a client's certificate; None if there is none, or the certificate is a node's."""
        return None

    cdef void ring(self) noexcept nogil:
        """Make the bell readable, which Trio can watch while Trio's descriptor is watched here."""

    cdef int hush(self) except -1:
        """Make the bell unreadable."""
        return 0

    cdef int admit(self, connection) except -1:
        """Return the descriptor of a connection made elsewhere. Raises: OSError; the caller then keeps it."""
        return -1

    cdef int raise_failure(self) except -1:
        """Raise a failure of the transport itself, if any."""
        return 0

    cdef int stop_listening(self) except -1:
        """Take no more connections and close the listeners, so clients are refused."""
        return 0

    cdef int shut(self) except -1:
        """Stop listening and fetching events. Requires: the connections are closed."""
        return 0
