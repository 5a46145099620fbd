"""Requests that wait: for other nodes, or for the disk.  The idea stands in `relays.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    # An attempt's id: so many bits are its slot, the others count how often that was used.
    SLOT_BITS = 20
    # Owners that one round asks: what is left out is asked by the next one.
    MAX_TRIED = 16
    # Answers that nobody awaits any more, of one connection; with more it is closed.
    MAX_ABANDONED_REQUESTS = 4096

cdef extern from "<stdint.h>" nogil:
    const int64_t NEVER "INT64_MAX"

cdef enum RelayKind:
    UNUSED = 0
    READ = 1  # a client's get
    QUESTION = 2  # of Python
    REPLIED = 3  # the answer to a question, until it is taken
    BATCH = 4  # a client's get_many
    PART = 5  # of its keys, those that one owner is asked for
    WAITING_READ = 6  # a client's get of what is here, but not in memory
    KINDS = 7

cdef enum Tried:
    ASKED_STILL = 0  # no answer yet
    WAS_SILENT = 1  # a stage has passed without one
    WAS_LOST = 2  # the connection has ended
    WAS_UNCONNECTED = 3  # there was none
    WAS_FULL = 4  # too much waits to be sent to it
    SAID_NOT_SERVED = 5
    SAID_NOT_READY = 6
    SAID_UNKNOWN_VERSION = 7
    SAID_CORRUPT = 8
    SAID_OVERLOADED = 9
    SAID_OTHERWISE = 10
    SAID_NONSENSE = 11

cdef struct Asked:
    uint16_t column
    uint8_t outcome

cdef struct ClientRelays:  # of a connection; of a batch
    Relay* first
    Py_ssize_t held_bytes
    ClientRelays* above  # what is held here is held there as well

cdef struct Relay:  # the head; what a kind has beside it follows, in a struct of its own that begins with this one
    RelayKind kind
    bint resting  # all have been asked, and it waits to begin anew
    bint restless  # in the line of those that go on at once
    bint forwarded  # it is counted as such: others were asked
    uint32_t msgid  # of the client
    uint32_t heap_at  # where its deadline stands; NOWHERE_DUE: it has none
    uint64_t client  # the handle of the connection that asked
    Relay* whole  # the client's request that it is a part of; else itself
    Relay* next  # of the same client; of the free ones
    Relay* previous
    Relay* sooner  # in the line
    Relay* later
    ClientRelays* owner
    Attempt* attempts
    int64_t due_ns  # of the stage, or of the next round
    int64_t whole_ns  # when it is given up unless an answer is under way
    int64_t limit_ns  # when it is given up
    int64_t begun_ns
    int64_t pause_ns  # before the next round
    uint32_t rounds
    uint32_t tried_count
    Asked tried[MAX_TRIED]
    uint8_t identity[IDENTITY_BYTES]  # whose owners are asked
    Py_ssize_t partition
    # What it keeps.  Of a client's request the parameters as they came, then the version's name; of a part the places
    # of its keys, each a uint32_t; of a question what is asked, then its answer.
    Buffer body
    Py_ssize_t params_size
    Py_ssize_t subject_at  # what is asked for, within the parameters: database and key; of a batch the database alone
    Py_ssize_t subject_size
    Py_ssize_t keys_size  # of the keys that are sent behind it
    Py_ssize_t held

cdef struct Body:  # of a kind
    size_t size  # with the head
    Py_ssize_t (*more)(const Relay* relay) noexcept nogil  # bytes that it holds beside `body`; NULL: none
    void (*release)(Relays* relays, Relay* relay) noexcept nogil  # NULL: it holds nothing

cdef struct Attempt:
    uint32_t id
    uint16_t column
    bint used
    uint64_t handle  # of the peer's connection
    PeerAttempts* peer
    Relay* relay  # NULL: nobody awaits its answer any more
    Attempt* next_of_relay
    Attempt* next  # of the same connection; of the free ones
    Attempt* previous

cdef struct PeerAttempts:  # of a connection to a peer
    Attempt* first
    uint32_t count
    uint32_t abandoned

cdef struct Due:
    int64_t due_ns
    Relay* relay

cdef struct Relays:
    Body bodies[KINDS]
    size_t slot_size  # the largest of them
    char** chunks
    Attempt** attempt_chunks
    uint32_t chunk_count
    uint32_t attempt_chunk_count
    Relay* free
    Attempt* free_attempts
    uint32_t count
    uint32_t attempt_count
    Due* heap
    uint32_t heap_count
    uint32_t heap_capacity
    Relay* first_restless
    Relay* last_restless
    Relay* first_reply
    Relay* last_reply
    Buffer spare  # what the values of a batch that has ended were in
    Py_ssize_t held_bytes


cdef void relays_know(Relays* relays, RelayKind kind, Body body) noexcept nogil
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
cdef void relay_note(Relay* relay, uint16_t column, Tried outcome) noexcept nogil
cdef void relay_stir(Relays* relays, Relay* relay) noexcept nogil
cdef Relay* next_restless(Relays* relays) noexcept nogil
cdef void set_due(Relays* relays, Relay* relay, int64_t due_ns) noexcept nogil
cdef Relay* pop_due(Relays* relays, int64_t now_ns) noexcept nogil


cdef inline int64_t next_due(const Relays* relays) noexcept nogil:
    """When the next deadline may be over; it may turn out to be later then."""
    return relays.heap[0].due_ns if relays.heap_count > 0 else NEVER


cdef inline Blob version_name(const Relay* relay) noexcept nogil:
    """The version that is asked for."""
    cdef const Relay* whole = relay.whole
    return Blob(whole.body.data + whole.params_size, whole.body.end - whole.params_size)
