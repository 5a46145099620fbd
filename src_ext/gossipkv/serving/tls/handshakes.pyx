"""TLS handshakes: a queue of due steps, some of which are run behind the reads of each step of the loop.

A step costs as much as many reads, so handshakes have their own queue. A connection is not watched while it is queued:
a thousand new clients are a thousand queue entries, and no events. `connections.pyx` has the state of OpenSSL.
"""

from libc.stdint cimport int64_t, uint32_t

from gossipkv.serving._transport cimport ENDED, FOREIGN, READABLE
from gossipkv.wire._buffer cimport buffer_size

cdef enum:
    # Each step runs at most so many handshake steps for at most so long, plus the excess of the last one.
    MAX_HANDSHAKES = 4
    HANDSHAKES_NS = 200000


cdef inline void expect_handshake(Connections connections, Connection* connection) noexcept nogil:
    """Begin a new connection with a handshake; it has the same time-out as a frame."""
    connection.shaking = READABLE
    connection.partial_ms = connections.now_ms


cdef inline void queue_handshake(Connections connections, Connection* connection, uint32_t events) noexcept nogil:
    """Queue the next step, for which the peer has sent a message, or close the connection that has ended."""
    if events & ENDED:
        connections.doom(connection, CLOSED_RESET)
    elif not connection.due:
        connection.due = push_handle(&connections.handshakes, connection.handle)


cdef void serve_handshakes(Loop loop) noexcept nogil:
    """Run some handshake steps in the order in which the peers sent their messages."""
    cdef int64_t until_ns = loop.connections.now_ns + HANDSHAKES_NS
    cdef int left = MAX_HANDSHAKES
    cdef Connection* connection
    while left > 0 and buffer_size(&loop.connections.handshakes) > 0 and loop.connections.now_ns < until_ns:
        left -= 1
        connection = loop.connections.find(pop_handle(&loop.connections.handshakes))
        if connection != NULL:
            connection.due = False
            take_handshake_step(loop, connection)
            loop.settle(connection)
            loop.tell_time()


cdef void take_handshake_step(Loop loop, Connection* connection) noexcept nogil:
    cdef int waits = loop.transport.shake(connection.fd, connection.handle)
    if waits > 0:
        connection.shaking = <uint32_t>waits
        return
    connection.shaking = 0
    connection.partial_ms = 0
    if waits == 0:
        connection.active_ms = loop.connections.now_ms
        loop.counts[TLS_HANDSHAKES] += 1
        loop.counts[TLS_RESUMED] += loop.transport.is_resumed(connection.fd)
        if loop.transport.is_certified(connection.fd):
            set_certified_user(loop, connection)
        return
    connection.broken = True
    loop.connections.drop_replies(connection)  # Nothing sent from here on is an answer.
    loop.connections.finish(connection, CLOSED_HANDSHAKE)
    if waits == FOREIGN:
        answer_plain(loop, connection)


cdef void set_certified_user(Loop loop, Connection* connection) noexcept with gil:
    """Set the user that the client's certificate names."""
    name = loop.transport.named(connection.fd)
    if name is not None:
        connection.certified = connection.user = loop.user_named(name)


cdef void answer_plain(Loop loop, Connection* connection) noexcept nogil:
    """Tell a client that speaks plain text, in its own protocol, that TLS is required."""
    cdef ssize_t size = loop.transport.receive(connection.fd, loop.inbox, INBOX_BYTES)
    if size > 0 and refuse_plain(&loop.connections.out, loop.inbox, size) == 0:
        loop.transmit(connection)
