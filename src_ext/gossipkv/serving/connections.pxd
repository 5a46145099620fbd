"""Who is connected, and what each holds.  The idea stands in `connections.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport prefetch
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_size
from gossipkv.wire._wire cimport FrameState

cdef extern from "gossipkv/checks.h" nogil:
    bint CHECKED "GKV_CHECKS"  # the debug build, in which invariants are checked

cdef enum:
    MAX_BROKEN = 8  # Further invariants that do not hold are not kept.
    NO_COLUMN = -1
    LOOK_MS = 500  # Between two looks for whom to send away, where there was nobody.
    ANONYMOUS = 0  # Numbers of users (`gossipkv.node.access`): whoever has shown nothing,
    PROVEN = 1  # and the nodes of the cluster, and this node's gateway.

cdef enum State:
    FREE = 0
    OPEN = 1
    FINISHING = 2  # reads no more; ends when everything received is answered and sent
    LINGERING = 3  # the end was sent; waits for the peer's, so that no reset overtakes the last answer

cdef struct Connection:
    uint64_t handle  # generation << 32 | slot
    uint64_t address  # what its peer counts as, for the limit per address
    uint32_t user  # who that has proved to be, by a number of Python's; 0: nobody
    uint32_t certified  # the user of the name in its certificate, which it was at first; 0: nobody
    int fd
    uint32_t interest  # what it is watched for now
    State state
    int reason  # the counter of why it ends; counted when it is gone
    bint held  # `input` has bytes that were not looked at, because something else must give way first
    bint spoken  # a whole message of its peer has been taken
    bint broken  # nothing more of the input is believed
    bint strange  # what is next in `input` is not answered here: it is detached when nothing is owed
    uint32_t shaking  # what its handshake waits for; 0: it is over, or there is none
    bint due  # the next step of that can be done
    bint doomed  # to be closed at once, unsent answers included
    bint runnable
    bint dirty
    bint parked  # its hand-offs are parked until the peer has read
    bint peer  # another node, which is asked here and answers
    bint gateway  # this node's own gateway, which the limits for those who come are not for
    int column  # of that node; NO_COLUMN: it is known no more
    uint64_t listener  # that it came to, which names what it speaks
    Owing* owing  # answers, in the order of its requests; NULL: it speaks MessagePack-RPC
    FrameState scan
    Buffer input  # a frame that has not arrived whole; or what is held
    Buffer output  # what the peer has not taken yet
    IdSet in_flight
    uint32_t max_in_flight  # of it; 1 while its user may change: what is behind that waits, and that for what is before
    ClientRelays relays  # what other nodes are to answer for it
    PeerAttempts attempts  # what this other node was asked
    Scanner scanner
    int64_t begun_ms  # when it came
    int64_t received_ns  # when bytes last arrived, exactly
    int64_t active_ms  # when bytes last arrived, or a reply, or the peer took some
    int64_t partial_ms  # since when a frame is half-sent; 0: none is
    int64_t blocked_ms  # since when the peer takes nothing; 0: nothing waits
    # As the sums of all connections were last compared with it, in the debug build.
    Py_ssize_t seen_bytes
    uint32_t seen_in_flight

cdef struct Broken:
    const char* invariant
    uint64_t handle  # 0: of no connection

cdef struct TimeLimits:
    int64_t frame_ms
    int64_t output_ms
    int64_t idle_ms  # 0: none


cdef class Connections:
    cdef Py_ssize_t max_queued
    cdef Py_ssize_t share  # of what all pumps together may hold
    cdef uint32_t max_in_flight
    cdef Crew crew  # with the limits of all pumps together
    cdef int pump  # which of them this is
    cdef TimeLimits time_limits

    cdef int64_t now_ns
    cdef int64_t now_ms  # the same, less exactly
    cdef Connection** slots
    cdef uint32_t slot_count
    cdef uint32_t* free_slots
    cdef uint32_t free_count
    cdef uint32_t connection_count
    cdef uint32_t peer_count  # of these, other nodes
    cdef bint wants_tokens  # who shows no token may do nothing
    cdef int64_t in_vain_ms  # when nobody was found who could make way
    cdef uint32_t in_flight_count  # of all connections
    cdef Py_ssize_t held_bytes  # of all inputs and outputs
    cdef Buffer out  # answers of the connection being processed
    cdef Buffer said  # what its dialect makes of them
    cdef HttpWords http
    cdef Buffer runnable  # handles of those with held input that may go on
    cdef Buffer handshakes  # handles of those of which a step is due
    cdef Buffer dirty  # handles of those with replies to send
    cdef int64_t work  # that may still be done at once, before sockets are looked at again
    cdef Backlog backlog  # what was handed off
    cdef Scans scans  # what is answered in slices
    cdef Relays relays  # what other nodes answer
    cdef Buffer lost  # peers that are gone: column and reason
    cdef uint64_t counts[COUNTERS]
    cdef Py_ssize_t seen_bytes  # of all connections
    cdef uint32_t seen_in_flight
    cdef Broken broken[MAX_BROKEN]
    cdef int broken_count

    cdef int admit(self, uint64_t address) noexcept nogil
    cdef Connection* begin(self, int fd, uint64_t address, uint64_t listener) noexcept nogil
    cdef Connection* begin_peer(self, int fd, int column) noexcept nogil
    cdef Connection* begin_gateway(self, int fd) noexcept nogil
    cdef Connection* enter(self, int fd) noexcept nogil
    cdef int grow(self) noexcept nogil
    cdef Connection* find(self, uint64_t handle) noexcept nogil
    cdef void release(self, Connection* connection) noexcept nogil
    cdef void become(self, Connection* connection, State state) noexcept nogil
    cdef void finish(self, Connection* connection, int reason) noexcept nogil
    cdef void linger(self, Connection* connection) noexcept nogil
    cdef void doom(self, Connection* connection, int reason) noexcept nogil
    cdef bint wants_read(self, const Connection* connection) noexcept nogil
    cdef bint is_finished(self, const Connection* connection) noexcept nogil
    cdef bint may_detach(self, const Connection* connection) noexcept nogil
    cdef void run_later(self, Connection* connection) noexcept nogil
    cdef Connection* next_runnable(self) noexcept nogil
    cdef void flush_later(self, Connection* connection) noexcept nogil
    cdef bint add_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil
    cdef bint remove_in_flight(self, Connection* connection, uint32_t msgid) noexcept nogil
    cdef Py_ssize_t room(self) noexcept nogil
    cdef Py_ssize_t held_by(self, const Connection* connection) noexcept nogil
    cdef Connection* largest_holder(self) noexcept nogil
    cdef bint make_room(self, const Connection* asking, Py_ssize_t size) noexcept nogil
    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef Buffer take_input(self, Connection* connection) noexcept nogil
    cdef void put_input_back(self, Connection* connection, Buffer* kept) noexcept nogil
    cdef void note_output(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef void hold_output(self, Connection* connection, Py_ssize_t skip) noexcept nogil
    cdef void say(self, Connection* connection) noexcept nogil
    cdef void drop_owing(self, Connection* connection) noexcept nogil
    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef void set_time(self, int64_t now_ns) noexcept nogil
    cdef void drop_readers(self) noexcept nogil
    cdef void check_sums(self, Connection* connection) noexcept nogil
    cdef void check_relays(self, Connection* connection) noexcept nogil
    cdef void note_broken(self, Connection* connection, const char* invariant) noexcept nogil
    cdef list take_broken(self)


cdef inline bint has_room(Connections connections, const Connection* connection) noexcept nogil:
    """Whether the connection's own limits allow one more message."""
    return (
        connection.in_flight.count < connection.max_in_flight
        and buffer_size(&connection.output) + buffer_size(&connections.out) < connections.max_queued
        and connection.relays.held_bytes < connections.max_queued
    )


cdef inline bint is_unproven(Connections connections, const Connection* connection) noexcept nogil:
    """True of a client that nothing is known of: it has sent no whole request, or no token where one is needed."""
    return (
        connection.state == OPEN
        and not connection.peer
        and not connection.gateway
        and not connection.doomed
        and connection.in_flight.count == 0
        and (not connection.spoken or (connections.wants_tokens and connection.user == ANONYMOUS))
    )


cdef inline bint awaits_others(Connection* connection) noexcept nogil:
    """True if a request that may change its user has to wait for those before it; those behind wait for the answer."""
    connection.max_in_flight = 1
    return connection.in_flight.count > 0


cdef inline bint may_hold(Connections connections, Py_ssize_t size) noexcept nogil:
    """Whether so much more may be held for all connections; what this pump has not is borrowed."""
    if size > connections.room():
        connections.share += connections.crew.lend(size - connections.room())
    return size <= connections.room()


cdef inline void give_back(Connections connections) noexcept nogil:
    """Give the crew what was borrowed and is not needed, but for a block: what comes next may need it."""
    cdef Py_ssize_t block = connections.crew.block
    cdef Py_ssize_t idle
    if connections.share > block:
        idle = (connections.room() - block) // block * block
        if idle > 0:
            connections.share -= idle
            connections.crew.take_back(idle)


cdef inline void note_owed(Connections connections, Connection* connection, Py_ssize_t held) noexcept nogil:
    """Count what a connection is owed in order, and waits, as what its relays hold."""
    connection.relays.held_bytes += held - connection.owing.held
    connections.relays.held_bytes += held - connection.owing.held
    connection.owing.held = held


cdef inline void check(
    Connections connections, Connection* connection, bint holds, const char* invariant
) noexcept nogil:
    """Note, in the debug build, an invariant that does not hold, and end the connection; NULL: it is of none."""
    if CHECKED and not holds:
        connections.note_broken(connection, invariant)


cdef inline void fetch_connection(Connections connections, uint64_t handle) noexcept nogil:
    """Have the connection fetched that is served next: with thousands of them it is in no cache."""
    cdef uint32_t slot = <uint32_t>handle
    cdef const char* connection
    if slot < connections.slot_count:
        connection = <const char*>connections.slots[slot]
        prefetch(connection)
        prefetch(connection + 64)
        prefetch(connection + sizeof(Connection) - 64)


cdef inline bint push_handle(Buffer* handles, uint64_t handle) noexcept nogil:
    return buffer_append(handles, <const uint8_t*>&handle, sizeof(uint64_t)) == 0


cdef inline uint64_t pop_handle(Buffer* handles) noexcept nogil:
    cdef uint64_t handle
    memcpy(&handle, handles.data + handles.start, sizeof(uint64_t))
    handles.start += sizeof(uint64_t)
    if handles.start == handles.end:
        handles.start = 0
        handles.end = 0
    return handle
