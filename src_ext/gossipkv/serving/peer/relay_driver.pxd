"""Requests to other nodes for data that is not here; `relay_driver.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Cursor, FrameLimits, LatencyHistogram, take_blob

cdef enum:
    # First pause between rounds, which doubles up to a stage.
    PAUSE_NS = 1000000

cdef class RelayDriver

ctypedef void (*RelayStep)(RelayDriver driver, Relay* relay) noexcept nogil

cdef struct WaitReason:  # a reason to wait: the steps of relays of one kind
    RelayBody body
    const char* method  # method name on the wire; NULL if it is not a read
    void (*put_keys)(Buffer* out, const Relay* relay) noexcept nogil  # writes keys behind the subject; NULL for none
    RelayStep go_on  # a peer has refused or is gone, or pages were read
    RelayStep expire  # the deadline is over; `expire_asked` for requests to other nodes, which needs the next four
    # when a partial answer last grew; 0 for never
    int64_t (*heard)(RelayDriver driver, const Relay* relay) noexcept nogil
    # True if a peer that was asked may still answer
    bint (*is_awaited)(RelayDriver driver, const Relay* relay) noexcept nogil
    RelayStep begin_round  # every owner was asked, and the pause is over
    RelayStep give_up
    bint (*is_answer)(const Relay* relay, Cursor result) noexcept nogil  # True if the peer may give this result
    void (*take)(RelayDriver driver, Relay* relay, Cursor result, int column) noexcept nogil  # the peer has answered
    void (*refuse)(
        RelayDriver driver, Relay* relay, const Blob* code, const Cursor* error, int column
    ) noexcept nogil


cdef class RelayDriver:
    cdef Connections connections
    cdef Relays* relays  # the relays of `connections`
    cdef uint64_t* counts  # the counts of `connections`
    cdef Peers peers
    cdef ColdPages cold
    cdef PublishedTable published
    cdef FrameLimits frame_limits
    cdef ReadLimits read_limits
    cdef int64_t whole_ns
    cdef int64_t stage_ns
    cdef uint64_t last_token  # the last token of a request of Python
    cdef LatencyHistogram answered
    cdef LatencyHistogram answered_here  # latencies of reads answered here after all
    cdef bytes name
    cdef Blob own_name  # `name`, for clients that ask which node has answered
    cdef WaitReason reasons[KINDS]


cdef void set_wait_reason(RelayDriver driver, RelayKind kind, WaitReason reason) noexcept nogil

cdef int set_version(RelayDriver driver, Relay* relay, const Lookup* lookup) noexcept nogil

cdef void limit_asking(RelayDriver driver, Relay* relay) noexcept nogil
cdef void ask_next(RelayDriver driver, Relay* relay) noexcept nogil
cdef int next_to_ask(RelayDriver driver, Relay* relay, Py_ssize_t partition) noexcept nogil
cdef void rest_relay(RelayDriver driver, Relay* relay) noexcept nogil
cdef bint send_request(RelayDriver driver, Relay* relay, int column) noexcept nogil

cdef void go_on_with_relays(RelayDriver driver) noexcept nogil
cdef void expire_relays(RelayDriver driver) noexcept nogil
cdef void expire_asked(RelayDriver driver, Relay* relay) noexcept nogil
cdef bint is_asked(RelayDriver driver, const Relay* relay) noexcept nogil
cdef int64_t last_heard(RelayDriver driver, const Relay* relay) noexcept nogil
cdef void read_for(RelayDriver driver, const Relay* relay) noexcept nogil

cdef Connection* claim_client(RelayDriver driver, const Relay* relay) noexcept nogil
cdef void note_damage(
    RelayDriver driver, const Relay* relay, const uint8_t* key, Py_ssize_t key_size
) noexcept nogil
cdef void hand_back(RelayDriver driver, Relay* relay) noexcept nogil
cdef void fail_client(RelayDriver driver, uint64_t handle) noexcept nogil


cdef inline const WaitReason* reason_of(RelayDriver driver, const Relay* relay) noexcept nogil:
    return &driver.reasons[<int>relay.kind]


cdef inline void set_limits(Relay* relay, const ReadOptions* options) noexcept nogil:
    """Set the relay's end to the client's own time limit, if any."""
    relay.limit_ns = NEVER
    if options.has_timeout:
        relay.limit_ns = relay.begun_ns + <int64_t>min(options.timeout_ms, <uint64_t>1 << 40) * 1000000
    relay.pause_ns = PAUSE_NS


cdef inline DatabaseRow* database_of(RelayDriver driver, const Relay* relay) noexcept nogil:
    """Return the database of a client's read; NULL if it is no longer served."""
    cdef const Relay* whole = relay.whole
    cdef const uint8_t* at = whole.body.data + whole.subject_at
    cdef Cursor subject = Cursor(at, at + whole.subject_size)
    cdef Blob name
    return driver.published.find_database(&name) if take_blob(&subject, &name) else NULL
