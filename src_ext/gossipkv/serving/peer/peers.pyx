"""Other nodes: the connections to them, the order in which they are asked, and the events for Python.

Python connects, and passes on a connection after `hello`. From then on reads and requests of Python share it. Python
takes events of peers between rounds, never within one.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport Buffer, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Cursor, put_bytes

cdef extern from * nogil:
    int trailing_zeros "__builtin_ctzll"(unsigned long long word)

cdef enum:
    # The state of a peer that the cluster's members have declared dead.
    DEAD = 2
    # Bytes of refusals kept for Python; further refusals are only counted.
    MAX_REFUSAL_BYTES = 65536


cdef inline bint was_asked(const Relay* relay, int column) noexcept nogil:
    """True if the peer was asked in this round, or has not answered yet."""
    cdef const Attempt* attempt = relay.attempts
    cdef uint32_t i
    for i in range(relay.tried_count):
        if relay.tried[i].column == column:
            return True
    while attempt != NULL:
        if attempt.column == column:
            return True
        attempt = attempt.next_of_relay
    return False


@cython.final
cdef class Peers:
    """The peers that may be asked."""

    def __cinit__(self, Connections connections not None, uint64_t seed):
        self.connections = connections
        self.routes = Routes(seed)

    def __dealloc__(self):
        buffer_release(&self.wanted)
        buffer_release(&self.not_served)
        buffer_release(&self.damaged)

    # Choice of peers ------------------------------------------------------------------------------------------------

    cdef int next_owner(self, const Relay* relay, Py_ssize_t partition) noexcept nogil:
        """Return the next candidate's column, preferring peers already gathering keys among equal ones; -1 for none."""
        cdef const Route* route = self.routes.find(relay.identity)
        cdef const Peer* peer
        cdef const uint64_t* row
        cdef uint64_t bits
        cdef uint32_t w
        cdef uint32_t equals = 0
        cdef int chosen = -1
        cdef int least = 12
        cdef int column
        cdef int rank
        if route == NULL or partition >= route.partitions:
            return -1
        row = route.rows + partition * route.words
        for w in range(route.words):
            bits = row[w]
            while bits != 0:
                column = 64 * w + trailing_zeros(bits)
                bits &= bits - 1
                if <uint32_t>column >= self.routes.peer_count or was_asked(relay, column):
                    continue
                peer = &self.routes.peers[column]
                rank = 2 * (peer.state + 3 * peer.slow) + (peer.gathering == NULL)
                if not peer.known or rank > least:
                    continue
                equals = equals + 1 if rank == least else 1
                if equals == 1 or self.routes.draw(equals) == 0:
                    chosen = column
                least = rank
        return chosen

    cdef bint is_held(self, const uint8_t* identity, Py_ssize_t partition) noexcept nogil:
        """True if a node that is not dead is known to hold that partition."""
        cdef const Route* route = self.routes.find(identity)
        cdef uint32_t column
        if route == NULL or partition >= route.partitions:
            return False
        for column in range(min(self.routes.peer_count, 64 * route.words)):
            if route.rows[partition * route.words + column // 64] >> column % 64 & 1 and (
                self.routes.peers[column].known and self.routes.peers[column].state < DEAD
            ):
                return True
        return False

    cdef Connection* connection_of(self, int column) noexcept nogil:
        """Return the usable connection to a peer; NULL for none."""
        cdef Connection* connection = self.connections.find(self.routes.peers[column].handle)
        if connection == NULL or connection.state != OPEN or connection.doomed:
            return NULL
        if connection.attempts.abandoned < MAX_ABANDONED_REQUESTS:
            return connection
        self.connections.doom(connection, CLOSED_ABANDONED)
        self.connections.flush_later(connection)
        return NULL

    cdef void want(self, int column) noexcept nogil:
        """Tell Python once that a connection is needed."""
        if not self.routes.peers[column].wanted:
            self.routes.peers[column].wanted = push_handle(&self.wanted, <uint64_t>column)

    # Refusals ---------------------------------------------------------------------------------------------------

    cdef void note_not_served(self, int column, const Cursor* error) noexcept nogil:
        """Keep for Python a peer's `not_served` error, which names the version that the peer has active."""
        cdef uint32_t head[2]
        cdef Py_ssize_t size = error.end - error.at
        if buffer_size(&self.not_served) + size > MAX_REFUSAL_BYTES:
            return
        head[0] = <uint32_t>column
        head[1] = <uint32_t>size
        if buffer_reserve(&self.not_served, size + <Py_ssize_t>sizeof(head)) == 0:
            put_bytes(&self.not_served, <const uint8_t*>head, sizeof(head))
            put_bytes(&self.not_served, error.at, size)

    # From Python ------------------------------------------------------------------------------------------------

    cdef int adopt(self, Connection* connection) except -1:
        """Ask the peer on this connection from now on, and end an older one."""
        cdef Peer* peer = self.routes.peer(connection.column)
        self.disown(peer)
        peer.handle = connection.handle
        peer.slow = False
        return 0

    cdef void disown(self, const Peer* peer) noexcept nogil:
        """End a peer's connection, if it has one, without an event for Python."""
        cdef Connection* older = self.connections.find(peer.handle)
        if older != NULL:
            older.column = NO_COLUMN
            self.connections.doom(older, CLOSED_CUT)
            self.connections.flush_later(older)

    cdef void end_peer(self, int column) except *:
        """End a peer's connection, if it has one: all requests on it end, and Python gets the event."""
        cdef Connection* connection = self.connections.find(self.routes.peer(column).handle)
        if connection != NULL:
            self.connections.doom(connection, CLOSED_CUT)
            self.connections.flush_later(connection)

    cdef void forget_peer(self, int column) except *:
        self.disown(self.routes.peer(column))
        self.routes.forget_peer(column)

    cdef bint has_events(self) noexcept nogil:
        return (
            buffer_size(&self.connections.lost) > 0
            or buffer_size(&self.wanted) > 0
            or buffer_size(&self.not_served) > 0
            or buffer_size(&self.damaged) > 0
        )

    def take_peer_events(self):
        """Return the events of peers since the last call, as `(column, event, detail)`.

        `lost`: the connection has ended; the detail is the counter of the reason. `wanted`: a relay needs a connection
        (None). `not_served`: the peer has answered so; the detail is the error as MessagePack. `damaged`, with column
        -1 for this node: other nodes are asked for unreadable local records; the detail is one `[database, key,
        version]`.
        """
        cdef list taken = []
        cdef Buffer* events = &self.not_served
        cdef uint64_t lost
        cdef uint32_t head[2]
        cdef int column
        while buffer_size(&self.connections.lost) > 0:
            lost = pop_handle(&self.connections.lost)
            taken.append((<int>(lost >> 32), "lost", counter_name(<int>(lost & 0xFFFFFFFF))))
        while buffer_size(&self.wanted) > 0:
            column = <int>pop_handle(&self.wanted)
            self.routes.peers[column].wanted = False
            taken.append((column, "wanted", None))
        while buffer_size(events) > 0:
            memcpy(head, events.data + events.start, sizeof(head))
            events.start += <Py_ssize_t>sizeof(head)
            taken.append((
                <int>head[0], "not_served", PyBytes_FromStringAndSize(<const char*>events.data + events.start, head[1])
            ))
            events.start += head[1]
        events.start = 0
        events.end = 0
        if buffer_size(&self.damaged) > 0:
            taken.append((-1, "damaged", PyBytes_FromStringAndSize(<const char*>self.damaged.data, self.damaged.end)))
            self.damaged.end = 0
        return taken
