"""Requests that wait for other nodes or for the disk; `relays.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    # The low bits of an attempt's id are its slot, the others count the uses of the slot.
    SLOT_BITS = 20
    # One round asks at most so many owners; the next round asks the rest.
    MAX_TRIED = 16
    # A connection with more unanswered, abandoned attempts is closed.
    MAX_ABANDONED_REQUESTS = 4096

cdef extern from "<stdint.h>" nogil:
    const int64_t NEVER "INT64_MAX"

cdef enum RelayKind:
    UNUSED = 0
    READ = 1  # a client's get
    PEER_REQUEST = 2  # a request of Python to a peer
    REPLIED = 3  # the reply to such a request, until Python takes it
    BATCH = 4  # a client's get_many
    PART = 5  # the keys of a batch that one owner is asked for
    WAITING_READ = 6  # a client's get of a local record that is not in memory
    KINDS = 7

cdef enum AttemptOutcome:
    ASKED_STILL = 0  # no answer yet
    WAS_SILENT = 1  # a stage has passed without an answer
    WAS_LOST = 2  # the connection has ended
    WAS_UNCONNECTED = 3  # there was no connection
    WAS_FULL = 4  # too much output waits for this peer
    SAID_NOT_SERVED = 5
    SAID_NOT_READY = 6
    SAID_UNKNOWN_VERSION = 7
    SAID_CORRUPT = 8
    SAID_OVERLOADED = 9
    SAID_OTHERWISE = 10
    SAID_NONSENSE = 11

cdef struct AskedOwner:
    uint16_t column
    uint8_t outcome

cdef struct ClientRelays:  # the relays of a connection, or of a batch
    Relay* first
    Py_ssize_t held_bytes
    ClientRelays* above  # `held_bytes` counts there as well

cdef struct Relay:  # the head; each kind has its own struct that begins with this one
    RelayKind kind
    bint resting  # every owner was asked, and the relay waits for the next round
    bint restless  # in the list of relays that continue at once
    bint forwarded  # counted as forwarded, since other nodes were asked
    uint32_t msgid  # the client's message id
    uint32_t heap_at  # index of its deadline in the heap; NOWHERE_DUE for none
    uint64_t client  # handle of the connection that asked
    Relay* whole  # the client's request that this relay is a part of; else itself
    Relay* next  # next relay of the same client, or next free one
    Relay* previous
    Relay* sooner  # neighbours in the list of restless relays
    Relay* later
    ClientRelays* owner
    Attempt* attempts
    int64_t due_ns  # end of the stage, or start of the next round
    int64_t whole_ns  # when it is given up unless an answer is arriving
    int64_t limit_ns  # when it is given up in any case
    int64_t begun_ns
    int64_t pause_ns  # pause before the next round
    uint32_t rounds
    uint32_t tried_count
    AskedOwner tried[MAX_TRIED]
    uint8_t identity[IDENTITY_BYTES]  # the identity whose owners are asked
    Py_ssize_t partition
    # A client's request keeps its parameters as received, then the version's name. A part keeps the places of its keys,
    # each a uint32_t. A request of Python keeps its answer.
    Buffer body
    Py_ssize_t params_size
    Py_ssize_t subject_at  # offset of database and key in the parameters; of a batch, of the database alone
    Py_ssize_t subject_size
    Py_ssize_t keys_size  # size of the keys that are sent behind the subject
    Py_ssize_t held

cdef struct RelayBody:  # the body of a relay kind
    size_t size  # size including the head
    Py_ssize_t (*more)(const Relay* relay) noexcept nogil  # bytes held beside `body`; NULL for none
    void (*release)(Relays* relays, Relay* relay) noexcept nogil  # NULL if nothing is held

cdef struct Attempt:
    uint32_t id
    uint16_t column
    bint used
    bint hopeful  # the peer was not known as dead when it was asked
    uint64_t handle  # handle of the peer's connection
    PeerAttempts* peer
    Relay* relay  # NULL if the answer is no longer awaited
    Attempt* next_of_relay
    Attempt* next  # next attempt on the same connection, or next free one
    Attempt* previous

cdef struct PeerAttempts:  # the attempts on a connection to a peer
    Attempt* first
    uint32_t count
    uint32_t abandoned

cdef struct Deadline:
    int64_t due_ns
    Relay* relay

cdef struct Relays:
    RelayBody bodies[KINDS]
    size_t slot_size  # size of the largest kind
    char** chunks
    Attempt** attempt_chunks
    uint32_t chunk_count
    uint32_t attempt_chunk_count
    Relay* free
    Attempt* free_attempts
    uint32_t count
    uint32_t attempt_count
    Deadline* heap
    uint32_t heap_count
    uint32_t heap_capacity
    Relay* first_restless
    Relay* last_restless
    Relay* first_reply
    Relay* last_reply
    Buffer spare  # value memory of a finished batch, for reuse
    Py_ssize_t held_bytes


cdef void set_relay_body(Relays* relays, RelayKind kind, RelayBody body) noexcept nogil
cdef void relays_release(Relays* relays) noexcept nogil
cdef Relay* relay_begin(Relays* relays, RelayKind kind, ClientRelays* owner) noexcept nogil
cdef void relay_note_size(Relays* relays, Relay* relay) noexcept nogil
cdef void relay_end(Relays* relays, Relay* relay) noexcept nogil
cdef void relay_reply(Relays* relays, Relay* relay) noexcept nogil
cdef void relays_drop(Relays* relays, ClientRelays* owner) noexcept nogil
cdef Attempt* attempt_begin(
    Relays* relays, Relay* relay, PeerAttempts* peer, uint64_t handle, uint16_t column
) noexcept nogil
cdef Attempt* attempt_find(Relays* relays, uint32_t id, uint64_t handle) noexcept nogil
cdef void attempt_end(Relays* relays, Attempt* attempt) noexcept nogil
cdef void attempts_lose(Relays* relays, PeerAttempts* peer) noexcept nogil
cdef void relay_note(Relay* relay, uint16_t column, AttemptOutcome outcome) noexcept nogil
cdef void relay_stir(Relays* relays, Relay* relay) noexcept nogil
cdef Relay* next_restless(Relays* relays) noexcept nogil
cdef void set_due(Relays* relays, Relay* relay, int64_t due_ns) noexcept nogil
cdef Relay* pop_due(Relays* relays, int64_t now_ns) noexcept nogil


cdef inline int64_t next_due(const Relays* relays) noexcept nogil:
    """Return when the earliest deadline may be over; its relay may turn out to be due later."""
    return relays.heap[0].due_ns if relays.heap_count > 0 else NEVER


cdef inline Blob version_name(const Relay* relay) noexcept nogil:
    """Return the name of the version that is asked for."""
    cdef const Relay* whole = relay.whole
    return Blob(whole.body.data + whole.params_size, whole.body.end - whole.params_size)
