"""Relays: requests that wait, the attempts to get an answer, and their deadlines.

A *relay* is a request that waits for other nodes or for the disk: a client's read, or a request of Python. A relay is a
head, defined here, and a body for its reason to wait (`wait_reasons.pyx`). An *attempt* is one send of a relay to one
peer; slot and generation form the id on the wire. Attempts outlive their relay, until the answer comes or the
connection ends. The invariants:

* No slot of an attempt is reused while its answer may still come on a living connection.
* An attempt is in the list of its connection and, while the answer is awaited, in the list of its relay.
* A relay of a client is in the list of its connection, and ends with the connection.

Memory comes in chunks that never move and are never freed, so pointers stay valid.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from gossipkv.wire._buffer cimport buffer_release

cdef enum:
    CHUNK = 256
    MAX_CHUNKS = (1 << SLOT_BITS) // CHUNK
    # A relay that has ended keeps this much memory for the next use.
    SPARE_BODY_BYTES = 1024

cdef uint32_t NOWHERE_DUE = 0xFFFFFFFFU

# Memory -----------------------------------------------------------------------------------------------------------


cdef void set_relay_body(Relays* relays, RelayKind kind, RelayBody body) noexcept nogil:
    """Register the body of that kind. Requires: no relay exists."""
    relays.bodies[<int>kind] = body
    relays.slot_size = max(relays.slot_size, body.size)


cdef inline Relay* slot_of(const Relays* relays, uint32_t chunk, uint32_t i) noexcept nogil:
    return <Relay*>(relays.chunks[chunk] + i * relays.slot_size)


cdef int grow_relays(Relays* relays) noexcept nogil:
    """Add a chunk of free relays, and room in the heap for their deadlines."""
    cdef uint32_t capacity = (relays.chunk_count + 1) * CHUNK
    cdef char** chunks = <char**>realloc(relays.chunks, (relays.chunk_count + 1) * sizeof(char*))
    cdef Deadline* heap
    cdef Relay* relay
    cdef uint32_t i
    if chunks == NULL:
        return -1
    relays.chunks = chunks
    heap = <Deadline*>realloc(relays.heap, capacity * sizeof(Deadline))
    if heap == NULL:
        return -1
    relays.heap = heap
    relays.heap_capacity = capacity
    chunks[relays.chunk_count] = <char*>calloc(CHUNK, relays.slot_size)
    if chunks[relays.chunk_count] == NULL:
        return -1
    for i in range(<uint32_t>CHUNK):
        relay = slot_of(relays, relays.chunk_count, i)
        relay.heap_at = NOWHERE_DUE
        relay.next = relays.free
        relays.free = relay
    relays.chunk_count += 1
    return 0


cdef int grow_attempts(Relays* relays) noexcept nogil:
    """Add a chunk of free attempts."""
    cdef Attempt** chunks
    cdef Attempt* chunk
    cdef uint32_t i
    if relays.attempt_chunk_count == MAX_CHUNKS:
        return -1
    chunks = <Attempt**>realloc(relays.attempt_chunks, (relays.attempt_chunk_count + 1) * sizeof(Attempt*))
    if chunks == NULL:
        return -1
    relays.attempt_chunks = chunks
    chunk = <Attempt*>calloc(CHUNK, sizeof(Attempt))
    if chunk == NULL:
        return -1
    chunks[relays.attempt_chunk_count] = chunk
    for i in range(<uint32_t>CHUNK):
        chunk[i].id = relays.attempt_chunk_count * CHUNK + i
        chunk[i].next = relays.free_attempts
        relays.free_attempts = &chunk[i]
    relays.attempt_chunk_count += 1
    return 0


cdef void relays_release(Relays* relays) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t j
    for i in range(relays.chunk_count):
        for j in range(<uint32_t>CHUNK):
            buffer_release(&slot_of(relays, i, j).body)
        free(relays.chunks[i])
    for i in range(relays.attempt_chunk_count):
        free(relays.attempt_chunks[i])
    free(relays.chunks)
    free(relays.attempt_chunks)
    free(relays.heap)
    buffer_release(&relays.spare)
    memset(relays, 0, sizeof(Relays))


# Relays -----------------------------------------------------------------------------------------------------------


cdef Relay* relay_begin(Relays* relays, RelayKind kind, ClientRelays* owner) noexcept nogil:
    """Return a new relay for a client's connection, or for none if `owner` is NULL; NULL if out of memory."""
    cdef Relay* relay
    if relays.free == NULL and grow_relays(relays) < 0:
        return NULL
    relay = relays.free
    relays.free = relay.next
    relays.count += 1
    relay.kind = kind
    relay.resting = False
    relay.forwarded = False
    relay.whole = relay
    relay.attempts = NULL
    relay.tried_count = 0
    relay.rounds = 1
    relay.due_ns = NEVER
    relay.body.start = 0
    relay.body.end = 0
    relay.keys_size = 0
    memset(<char*>relay + sizeof(Relay), 0, relays.bodies[<int>kind].size - sizeof(Relay))
    relay.owner = owner
    relay.previous = NULL
    relay.next = NULL
    if owner != NULL:
        relay.next = owner.first
        if owner.first != NULL:
            owner.first.previous = relay
        owner.first = relay
    relay.held = 0
    relay_note_size(relays, relay)
    return relay


cdef void relay_note_size(Relays* relays, Relay* relay) noexcept nogil:
    """Count the bytes that the relay holds now."""
    cdef Py_ssize_t size = <Py_ssize_t>relays.slot_size + relay.body.end
    if relays.bodies[<int>relay.kind].more != NULL:
        size += relays.bodies[<int>relay.kind].more(relay)
    hold_bytes(relays, relay, size)


cdef void hold_bytes(Relays* relays, Relay* relay, Py_ssize_t size) noexcept nogil:
    cdef ClientRelays* owner = relay.owner
    relays.held_bytes += size - relay.held
    while owner != NULL:
        owner.held_bytes += size - relay.held
        owner = owner.above
    relay.held = size


cdef void abandon(Relay* relay) noexcept nogil:
    """Stop awaiting the answers to the relay's attempts."""
    cdef Attempt* attempt = relay.attempts
    while attempt != NULL:
        attempt.relay = NULL
        attempt.peer.abandoned += 1
        attempt = attempt.next_of_relay
    relay.attempts = NULL


cdef void relay_end(Relays* relays, Relay* relay) noexcept nogil:
    """End a relay that is answered, given up or no longer awaited. Its memory is reusable; its attempts live on."""
    abandon(relay)
    if relay.restless:
        leave_line(relays, relay)
    if relays.bodies[<int>relay.kind].release != NULL:
        relays.bodies[<int>relay.kind].release(relays, relay)
    hold_bytes(relays, relay, 0)
    if relay.owner != NULL:
        if relay.previous != NULL:
            relay.previous.next = relay.next
        else:
            relay.owner.first = relay.next
        if relay.next != NULL:
            relay.next.previous = relay.previous
    relay.owner = NULL
    relay.kind = UNUSED
    relay.due_ns = NEVER
    if relay.body.capacity > SPARE_BODY_BYTES:
        buffer_release(&relay.body)
    relay.next = relays.free
    relays.free = relay
    relays.count -= 1


cdef void relays_drop(Relays* relays, ClientRelays* owner) noexcept nogil:
    """End all relays of a client or batch."""
    while owner.first != NULL:
        relay_end(relays, owner.first)


cdef void relay_reply(Relays* relays, Relay* relay) noexcept nogil:
    """Keep a request of Python that is answered, or never will be, until Python takes the reply."""
    abandon(relay)
    if relay.restless:
        leave_line(relays, relay)
    relay.kind = REPLIED
    relay.due_ns = NEVER
    relay.next = NULL
    relay_note_size(relays, relay)
    if relays.last_reply != NULL:
        relays.last_reply.next = relay
    else:
        relays.first_reply = relay
    relays.last_reply = relay


cdef void relay_note(Relay* relay, uint16_t column, AttemptOutcome outcome) noexcept nogil:
    """Record the outcome of asking that peer in this round, for at most MAX_TRIED peers."""
    cdef uint32_t i
    for i in range(relay.tried_count):
        if relay.tried[i].column == column:
            relay.tried[i].outcome = outcome
            return
    if relay.tried_count < MAX_TRIED:
        relay.tried[relay.tried_count] = AskedOwner(column, outcome)
        relay.tried_count += 1


# Relays that continue at once -------------------------------------------------------------------------------------


cdef void relay_stir(Relays* relays, Relay* relay) noexcept nogil:
    """Let the relay take its next step at once: a peer has refused or is gone."""
    if relay.restless:
        return
    relay.restless = True
    relay.later = NULL
    relay.sooner = relays.last_restless
    if relay.sooner != NULL:
        relay.sooner.later = relay
    else:
        relays.first_restless = relay
    relays.last_restless = relay


cdef void leave_line(Relays* relays, Relay* relay) noexcept nogil:
    relay.restless = False
    if relay.sooner != NULL:
        relay.sooner.later = relay.later
    else:
        relays.first_restless = relay.later
    if relay.later != NULL:
        relay.later.sooner = relay.sooner
    else:
        relays.last_restless = relay.sooner


cdef Relay* next_restless(Relays* relays) noexcept nogil:
    """Remove and return the first restless relay; NULL for none."""
    cdef Relay* relay = relays.first_restless
    if relay != NULL:
        leave_line(relays, relay)
    return relay


# Attempts ---------------------------------------------------------------------------------------------------------


cdef Attempt* attempt_begin(
    Relays* relays, Relay* relay, PeerAttempts* peer, uint64_t handle, uint16_t column
) noexcept nogil:
    """Return a new attempt on that connection, with an unused id; NULL if out of memory or of ids."""
    cdef Attempt* attempt
    if relays.free_attempts == NULL and grow_attempts(relays) < 0:
        return NULL
    attempt = relays.free_attempts
    relays.free_attempts = attempt.next
    relays.attempt_count += 1
    attempt.used = True
    attempt.column = column
    attempt.handle = handle
    attempt.relay = relay
    attempt.next_of_relay = relay.attempts
    relay.attempts = attempt
    attempt.peer = peer
    attempt.previous = NULL
    attempt.next = peer.first
    if peer.first != NULL:
        peer.first.previous = attempt
    peer.first = attempt
    peer.count += 1
    return attempt


cdef Attempt* attempt_find(Relays* relays, uint32_t id, uint64_t handle) noexcept nogil:
    """Return the attempt with that id on that connection; NULL if there is none or it was answered."""
    cdef uint32_t slot = id & ((1 << SLOT_BITS) - 1)
    cdef Attempt* attempt
    if slot // CHUNK >= relays.attempt_chunk_count:
        return NULL
    attempt = &relays.attempt_chunks[slot // CHUNK][slot % CHUNK]
    return attempt if attempt.used and attempt.id == id and attempt.handle == handle else NULL


cdef void attempt_end(Relays* relays, Attempt* attempt) noexcept nogil:
    """End an attempt that is answered or cannot be; its slot is reused under the next generation's id."""
    cdef PeerAttempts* peer = attempt.peer
    cdef Attempt** at
    if attempt.previous != NULL:
        attempt.previous.next = attempt.next
    else:
        peer.first = attempt.next
    if attempt.next != NULL:
        attempt.next.previous = attempt.previous
    peer.count -= 1
    if attempt.relay == NULL:
        peer.abandoned -= 1
    else:
        at = &attempt.relay.attempts
        while at[0] != attempt:
            at = &at[0].next_of_relay
        at[0] = attempt.next_of_relay
    attempt.used = False
    attempt.relay = NULL
    attempt.id += 1 << SLOT_BITS  # The next generation gives the slot a new id.
    attempt.next = relays.free_attempts
    relays.free_attempts = attempt
    relays.attempt_count -= 1


cdef void attempts_lose(Relays* relays, PeerAttempts* peer) noexcept nogil:
    """End all attempts on a lost connection; each relay that awaits an answer on it continues at once."""
    cdef Attempt* attempt
    cdef Relay* relay
    while peer.first != NULL:
        attempt = peer.first
        relay = attempt.relay
        if relay != NULL:
            relay_note(relay, attempt.column, WAS_LOST)
            relay_stir(relays, relay)
        attempt_end(relays, attempt)


# Deadlines --------------------------------------------------------------------------------------------------------


cdef inline void place(Relays* relays, uint32_t at, Deadline due) noexcept nogil:
    relays.heap[at] = due
    due.relay.heap_at = at


cdef void sift_up(Relays* relays, uint32_t at) noexcept nogil:
    cdef Deadline due = relays.heap[at]
    cdef uint32_t above
    while at > 0:
        above = (at - 1) // 2
        if relays.heap[above].due_ns <= due.due_ns:
            break
        place(relays, at, relays.heap[above])
        at = above
    place(relays, at, due)


cdef void sift_down(Relays* relays, uint32_t at) noexcept nogil:
    cdef Deadline due = relays.heap[at]
    cdef uint32_t below
    while 2 * at + 1 < relays.heap_count:
        below = 2 * at + 1
        if below + 1 < relays.heap_count and relays.heap[below + 1].due_ns < relays.heap[below].due_ns:
            below += 1
        if due.due_ns <= relays.heap[below].due_ns:
            break
        place(relays, at, relays.heap[below])
        at = below
    place(relays, at, due)


cdef void set_due(Relays* relays, Relay* relay, int64_t due_ns) noexcept nogil:
    """Set the relay's deadline.

    The relay's heap entry moves only for an earlier deadline. An entry that comes up too early is corrected then, and
    an ended relay keeps its entry. So a relay that is answered in time, as nearly all are, moves nothing in the heap.
    """
    relay.due_ns = due_ns
    if relay.heap_at == NOWHERE_DUE:
        relay.heap_at = relays.heap_count
        relays.heap_count += 1
        relays.heap[relay.heap_at] = Deadline(due_ns, relay)
        sift_up(relays, relay.heap_at)
    elif due_ns < relays.heap[relay.heap_at].due_ns:
        relays.heap[relay.heap_at].due_ns = due_ns
        sift_up(relays, relay.heap_at)


cdef Relay* pop_due(Relays* relays, int64_t now_ns) noexcept nogil:
    """Return an overdue relay and clear its deadline; NULL for none."""
    cdef Relay* relay
    while relays.heap_count > 0 and relays.heap[0].due_ns <= now_ns:
        relay = relays.heap[0].relay
        if now_ns < relay.due_ns < NEVER:
            relays.heap[0].due_ns = relay.due_ns
            sift_down(relays, 0)
            continue
        relay.heap_at = NOWHERE_DUE
        relays.heap_count -= 1
        if relays.heap_count > 0:
            place(relays, 0, relays.heap[relays.heap_count])
            sift_down(relays, 0)
        if relay.due_ns < NEVER:
            relay.due_ns = NEVER
            return relay
    return NULL
