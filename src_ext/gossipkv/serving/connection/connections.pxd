"""Connections and what each holds; `connections.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport prefetch
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_size
from gossipkv.wire._wire cimport FrameState

cdef extern from "gossipkv/checks.h" nogil:
    bint CHECKED "GKV_CHECKS"  # the debug build checks invariants

cdef enum:
    MAX_BROKEN = 8  # At most so many broken invariants are kept.
    NO_COLUMN = -1
    LOOK_MS = 500  # Interval between two searches for connections to close, after one that found none.
    ANONYMOUS = 0  # The number of a user (`gossipkv.node.access`) that has proved nothing.
    PROVEN = 1  # The number for nodes of the cluster, and for this node's gateway.

cdef enum ConnectionState:
    FREE = 0
    OPEN = 1
    FINISHING = 2  # reads no more; ends when everything received is answered and sent
    LINGERING = 3  # the end was sent; waits for the peer's, so that no reset overtakes the last answer

cdef struct Connection:
    uint64_t handle  # generation << 32 | slot
    uint64_t address  # the peer's address as counted for the limit per address
    uint32_t user  # number of the proved user; 0 for none
    uint32_t certified  # the user named in its certificate, which `user` was at first; 0 for none
    int fd
    uint32_t interest  # events that are watched for now
    ConnectionState state
    int reason  # the counter for its end; counted on release
    bint held  # `input` has unprocessed bytes because something else must give way first
    bint spoken  # a whole message of its peer has been taken
    bint broken  # the rest of the input is not parsed
    bint strange  # the next request in `input` is not answered here; the connection is detached when nothing is owed
    uint32_t shaking  # the event that the handshake waits for; 0 without a handshake under way
    bint due  # the next handshake step can run
    bint doomed  # to be closed at once, unsent answers included
    bint runnable
    bint dirty
    bint parked  # its hand-offs are parked until the peer has read
    bint peer  # another node, which receives requests and answers
    bint node  # its other end said `hello` as a node: the limits for clients do not apply
    bint gateway  # this node's own gateway, exempt from the limits for clients
    int column  # column of the peer; NO_COLUMN if the peer is forgotten
    uint64_t listener  # the listener it came to, which determines the dialect
    ReplyQueue* replies  # pending replies in request order; NULL for MessagePack-RPC
    FrameState scan
    Buffer input  # a frame that has not arrived whole, or held input
    Buffer output  # bytes that the peer has not taken yet
    IdSet in_flight
    # its limit; 1 from a request that changes the user or data (`awaits_others`) until nothing is in flight
    uint32_t max_in_flight
    ClientRelays relays  # requests that other nodes answer for it
    PeerAttempts attempts  # attempts sent to this peer
    Scanner scanner
    int64_t begun_ms  # when it was accepted
    int64_t received_ns  # when bytes last arrived, in ns
    int64_t active_ms  # when bytes or a reply last arrived, or the peer took some
    int64_t partial_ms  # since when a frame is incomplete; 0 for none
    int64_t blocked_ms  # since when the peer takes nothing; 0 if no output waits
    # The debug build compared the sums of all connections with these values last.
    Py_ssize_t seen_bytes
    uint32_t seen_in_flight

cdef struct BrokenInvariant:
    const char* invariant
    uint64_t handle  # 0 for no connection

cdef struct TimeLimits:
    int64_t frame_ms
    int64_t output_ms
    int64_t idle_ms  # 0 for no limit


cdef class Connections:
    cdef Py_ssize_t max_queued
    cdef Py_ssize_t share  # bytes this loop may hold, out of the node's total
    cdef uint32_t max_in_flight
    cdef LoopGroup group  # the limits that all serving loops share
    cdef int pump  # the number of this serving loop
    cdef TimeLimits time_limits

    cdef int64_t now_ns
    cdef int64_t now_ms  # `now_ns` in milliseconds
    cdef Connection** slots
    cdef uint32_t slot_count
    cdef uint32_t* free_slots
    cdef uint32_t free_count
    cdef uint32_t connection_count
    cdef uint32_t peer_count  # connections to other nodes, included in `connection_count`
    cdef bint wants_tokens  # clients without a token may do nothing
    cdef int64_t in_vain_ms  # when a search last found no connection to close
    cdef uint32_t in_flight_count  # ids in flight on all connections
    cdef Py_ssize_t held_bytes  # bytes of all inputs and outputs
    cdef Buffer out  # answers of the connection being processed
    cdef Buffer translated  # the same answers in the connection's dialect
    cdef HttpWords http
    cdef Buffer runnable  # handles of connections with held input that may go on
    cdef Buffer handshakes  # handles of connections with a handshake step due
    cdef Buffer dirty  # handles of connections with replies to send
    cdef int64_t work  # work left before sockets are polled again
    cdef Backlog backlog  # requests handed off to Python
    cdef Scans scans  # requests answered in slices
    cdef Relays relays  # requests answered by other nodes
    cdef Buffer lost  # column and close reason of each lost peer
    cdef Buffer left  # handles of connections that ended, or began to, with requests in flight
    cdef uint64_t counts[COUNTERS]
    cdef Py_ssize_t seen_bytes  # bytes counted in all connections
    cdef uint32_t seen_in_flight
    cdef BrokenInvariant broken[MAX_BROKEN]
    cdef int broken_count

    cdef int admit(self, uint64_t address) noexcept nogil
    cdef Connection* begin(self, int fd, uint64_t address, uint64_t listener) noexcept nogil
    cdef Connection* begin_peer(self, int fd, int column) noexcept nogil
    cdef Connection* begin_gateway(self, int fd) noexcept nogil
    cdef Connection* enter(self, int fd) noexcept nogil
    cdef int grow(self) noexcept nogil
    cdef Connection* find(self, uint64_t handle) noexcept nogil
    cdef void release(self, Connection* connection) noexcept nogil
    cdef void become(self, Connection* connection, ConnectionState state) noexcept nogil
    cdef void finish(self, Connection* connection, int reason) noexcept nogil
    cdef void end_waits(self, Connection* connection) noexcept nogil
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
    cdef bint make_room(self, const Connection* asker, Py_ssize_t size) noexcept nogil
    cdef int hold_input(self, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void drop_input(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef Buffer take_input(self, Connection* connection) noexcept nogil
    cdef void put_input_back(self, Connection* connection, Buffer* kept) noexcept nogil
    cdef void note_output(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef void hold_output(self, Connection* connection, Py_ssize_t skip) noexcept nogil
    cdef void translate_answers(self, Connection* connection) noexcept nogil
    cdef void drop_replies(self, Connection* connection) noexcept nogil
    cdef void sent(self, Connection* connection, Py_ssize_t size) noexcept nogil
    cdef void set_time(self, int64_t now_ns) noexcept nogil
    cdef void drop_readers(self) noexcept nogil
    cdef void check_sums(self, Connection* connection) noexcept nogil
    cdef void check_relays(self, Connection* connection) noexcept nogil
    cdef void note_broken(self, Connection* connection, const char* invariant) noexcept nogil
    cdef list take_broken(self)


cdef inline bint has_room(Connections connections, const Connection* connection) noexcept nogil:
    """True if the connection's own limits allow one more message."""
    return (
        connection.in_flight.count < connection.max_in_flight
        and buffer_size(&connection.output) + buffer_size(&connections.out) < connections.max_queued
        and connection.relays.held_bytes < connections.max_queued
    )


cdef inline bint is_unproven(Connections connections, const Connection* connection) noexcept nogil:
    """True of an unproven client: no whole request yet, or no token where tokens are required."""
    return (
        connection.state == OPEN
        and not connection.peer
        and not connection.gateway
        and not connection.doomed
        and connection.in_flight.count == 0
        and (not connection.spoken or (connections.wants_tokens and connection.user == ANONYMOUS))
    )


cdef inline bint awaits_others(Connection* connection) noexcept nogil:
    """True if this request must wait for earlier ones; later ones wait for its answer."""
    connection.max_in_flight = 1
    return connection.in_flight.count > 0


cdef inline bint may_hold(Connections connections, Py_ssize_t size) noexcept nogil:
    """True if all connections together may hold `size` more bytes; borrow from the loop group if needed."""
    if size > connections.room():
        connections.share += connections.group.lend(size - connections.room())
    return size <= connections.room()


cdef inline void give_back(Connections connections) noexcept nogil:
    """Return borrowed bytes to the group, except one block that the next request may need."""
    cdef Py_ssize_t block = connections.group.block
    cdef Py_ssize_t idle
    if connections.share > block:
        idle = (connections.room() - block) // block * block
        if idle > 0:
            connections.share -= idle
            connections.group.take_back(idle)


cdef inline void note_reply_bytes(Connections connections, Connection* connection, Py_ssize_t held) noexcept nogil:
    """Count the connection's pending replies as bytes held by its relays."""
    connection.relays.held_bytes += held - connection.replies.held
    connections.relays.held_bytes += held - connection.replies.held
    connection.replies.held = held


cdef inline void check(
    Connections connections, Connection* connection, bint holds, const char* invariant
) noexcept nogil:
    """Note a broken invariant in the debug build, and end its connection; NULL for no connection."""
    if CHECKED and not holds:
        connections.note_broken(connection, invariant)


cdef inline void fetch_connection(Connections connections, uint64_t handle) noexcept nogil:
    """Prefetch the connection that is served next: with thousands of connections it is in no cache."""
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
