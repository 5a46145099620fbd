"""Hand-offs: requests passed on to Python, the connections in turn, and Python's answers on their way back.

The hand-offs of one step are bounded in number and bytes. Waiting requests are taken connection by connection; those of
a peer that does not read are parked.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport buffer_reserve, buffer_size
from gossipkv.wire._wire cimport ENVELOPE_BYTES, Envelope, blob_is, put, put_bytes, put_response, unsigned_size

cdef enum:
    # Python decodes at most so many elements: 1 ms of decoding, and enough for all methods but `takes_many`.
    HAND_OFF_ELEMENTS = 1024
    # If more bytes of parameters wait for their turn, further requests are refused.
    MAX_WAITING_BYTES = 16 * 1024 * 1024
    # If more bytes are parked for peers that do not read, a connection is closed rather than parked.
    MAX_PARKED_BYTES = 16 * 1024 * 1024


@cython.final
cdef class Refusal:
    """A refusal by Python: the error `[code, message, details]` as MessagePack.

    With `ends` the connection takes no more requests, for example because its peer is a node of another cluster.
    """

    def __cinit__(self, bytes error not None, bint ends=False):
        self.error = error
        self.ends = ends


@cython.final
cdef class ProvenResult:
    """A result for a caller that has proved its identity, with the connection's user from now on."""

    def __cinit__(self, uint32_t user, bytes body not None):
        self.user = user
        self.body = body


@cython.final
cdef class Caller:
    """A caller: connection, user, and the peer's address as counted for limits (`connection/_addresses.pxd`)."""

    def __cinit__(self, uint64_t handle, int pump, uint32_t user, uint64_t address):
        self.handle = handle
        self.pump = pump
        self.user = user
        self.address = address


@cython.final
cdef class PendingRequest:
    """A request with a slow answer: its method, and the object that Python returned instead of an answer."""

    def __cinit__(self, uint64_t handle, uint32_t msgid, int64_t received_ns, bytes method not None, waiting):
        self.handle = handle
        self.msgid = msgid
        self.received_ns = received_ns
        self.method = method
        self.waiting = waiting

    def take(self):
        """Return `waiting`, and keep it no more: an object that refers to this request would be a cycle."""
        waiting = self.waiting
        self.waiting = None
        return waiting


cdef bytes body_of(object answer):
    """Return an answer as MessagePack; None for an object that is no answer, so the request is pending."""
    if isinstance(answer, bytes):
        return <bytes>answer
    if isinstance(answer, Refusal):
        return (<Refusal>answer).error
    return (<ProvenResult>answer).body if isinstance(answer, ProvenResult) else None


cdef Caller caller_of(Core core, uint64_t handle):
    """Return the caller of a connection. Requires: the connection exists."""
    cdef Connection* connection = core.connections.find(handle)
    return Caller(handle, core.connections.pump, connection.user, connection.address)


cdef inline bint takes_many(const Envelope* request) noexcept nogil:
    """True if a method takes any number of keys, or bounds its parameters itself."""
    return blob_is(&request.method, b"get_many", 8) or blob_is(&request.method, b"create_table", 12)


cdef int may_hand_off(Core core, const Connection* connection, const Envelope* request) noexcept nogil:
    """Return `HAND_OFF` if Python may get the request; else refuse it here, so that it holds up no other request."""
    cdef int written
    if ids_contain(&connection.in_flight, request.msgid):
        core.counts[DUPLICATE_IDS] += 1
        written = refuse_id(core.out, request.msgid)
    elif core.elements > HAND_OFF_ELEMENTS and not connection.node and not takes_many(request):
        core.counts[BAD_REQUESTS] += 1
        written = refuse_elements(core.out, request.msgid, HAND_OFF_ELEMENTS, core.elements)
    elif not may_be_in_flight(core.connections.group):
        core.counts[OVERLOADED] += 1
        written = refuse_load(core.out, request.msgid, core.connections.group.max_in_flight)
    elif core.connections.backlog.size_bytes >= MAX_WAITING_BYTES:
        core.counts[OVERLOADED] += 1
        written = refuse_load(core.out, request.msgid, MAX_WAITING_BYTES)
    else:
        return HAND_OFF
    return ANSWERED if written == 0 else OUT_OF_MEMORY


cdef void hand_off(Core core, Connection* connection, const Envelope* request) noexcept nogil:
    """Copy the request for Python; the receive buffer is reused, and a held frame is dropped."""
    cdef Py_ssize_t size = request.params.end - request.params.at
    cdef BacklogRequest* waiting = NULL
    if (
        core.connections.make_room(connection, request.method.size + size - buffer_size(&connection.input))
        and core.connections.add_in_flight(connection, request.msgid)
    ):
        waiting = core.connections.backlog.put(
            connection.handle, request.msgid, ASKED, connection.received_ns, request.method.size, size
        )
    if waiting == NULL:
        core.connections.doom(connection, CLOSED_MEMORY)
        return
    memcpy(request_bytes(waiting), request.method.data, request.method.size)
    memcpy(request_bytes(waiting) + request.method.size, request.params.at, size)
    core.hand_off_count += 1
    core.hand_off_bytes += request.method.size + size
    core.counts[HANDED_OFF] += 1


cdef BacklogRequest* next_request(Core core) noexcept nogil:
    """Return the next request to answer, for the caller to free; NULL for none. Park those of peers not reading."""
    cdef Connection* connection
    cdef uint64_t handle
    while not core.connections.backlog.is_empty():
        handle = core.connections.backlog.next_turn()
        connection = core.connections.find(handle)
        if connection == NULL or connection.doomed:
            core.connections.backlog.forget_queue(handle)
        elif buffer_size(&connection.output) < core.connections.max_queued:
            return core.connections.backlog.pop()
        else:
            core.connections.backlog.park_queue(handle)
            connection.parked = True
            limit_parked(core, connection)
    return NULL


cdef void limit_parked(Core core, Connection* connection) noexcept nogil:
    """After parking more, close the connection with the next flush if too much is parked."""
    if core.connections.backlog.parked_bytes > MAX_PARKED_BYTES:
        core.connections.backlog.forget_queue(connection.handle)
        core.connections.doom(connection, CLOSED_MEMORY)
        core.connections.flush_later(connection)


cdef void answer_pending(
    Core core, uint64_t handle, uint32_t msgid, int64_t received_ns, BacklogKind kind, const uint8_t* body,
    Py_ssize_t size
) noexcept nogil:
    """Answer a pending request in the next round."""
    cdef Connection* connection = core.connections.find(handle)
    cdef BacklogRequest* waiting = NULL
    if connection == NULL or connection.doomed:
        core.counts[REPLIES_DROPPED] += 1
        return
    if core.connections.make_room(connection, size):
        waiting = core.connections.backlog.put(handle, msgid, kind, received_ns, 0, size)
    if waiting == NULL:
        core.connections.doom(connection, CLOSED_MEMORY)
        core.connections.flush_later(connection)
        return
    memcpy(request_bytes(waiting), body, size)
    if connection.parked:
        limit_parked(core, connection)


cdef Connection* claim_answered(Core core, uint64_t handle, uint32_t msgid) noexcept nogil:
    """Return the connection that awaits this answer, and stop awaiting; NULL if none awaits it."""
    cdef Connection* connection = core.connections.find(handle)
    if connection == NULL or not core.connections.remove_in_flight(connection, msgid):
        core.counts[REPLIES_DROPPED] += 1
        return NULL
    check(
        core.connections, connection, not ids_contain(&connection.in_flight, msgid),
        b"an id is in flight once, so its request is answered once",
    )
    core.counts[REPLIES] += 1
    connection.active_ms = core.connections.now_ms
    return connection


cdef void deliver(Core core, Connection* connection) noexcept nogil:
    """Move the answer from `out` behind the connection's output, to be sent with its other answers."""
    core.connections.hold_output(connection, 0)
    core.connections.flush_later(connection)
    core.connections.sent(connection, 0)


cdef bint respond(
    Core core, uint64_t handle, uint32_t msgid, const uint8_t* body, Py_ssize_t size, bint refused
) noexcept nogil:
    """Answer a hand-off with a result or an error as MessagePack. Return False if the answer is no longer awaited."""
    cdef Connection* connection = claim_answered(core, handle, msgid)
    cdef Py_ssize_t frame_size = size + ENVELOPE_BYTES + unsigned_size(msgid)
    if connection == NULL:
        return False
    if frame_size > limits_of(core, connection).max_size:
        core.counts[REPLIES_TOO_LARGE] += 1
        if refuse_answer(core.out, msgid, limits_of(core, connection).max_size, frame_size) < 0:
            core.connections.doom(connection, CLOSED_MEMORY)
    elif buffer_reserve(core.out, frame_size) < 0:
        core.connections.doom(connection, CLOSED_MEMORY)
    else:
        put_response(core.out, msgid)
        if not refused:
            put(core.out, 0xC0)
        put_bytes(core.out, body, size)
        if refused:
            put(core.out, 0xC0)
    deliver(core, connection)
    check(
        core.connections, connection,
        buffer_size(&connection.output) < core.connections.max_queued + limits_of(core, connection).max_size,
        b"the output is `max_queued` and one answer at most",
    )
    return True
