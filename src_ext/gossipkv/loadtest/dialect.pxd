"""The generator's interface to a protocol: writing requests, and judging answers.

The loop moves bytes and counts; a dialect knows neither sockets nor clocks.  Servers with different protocols are thus
put under load by the same loop.

A window holds the requests in flight on one connection: slots, each with its keys.  An id always belongs to one slot
(the id modulo the number of slots).  An answer therefore finds its slot without a table, and an answered id is no
longer in flight.  In protocols without ids, answers come in order, and `oldest` is the next slot.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport (
    FRAME_BYTES, FRAME_DEPTH, FRAME_ELEMENTS, Blob, Cursor, FrameLimits, FrameState, frame_begin, frame_scan, put,
    put_bytes,
)

cdef enum:
    NO_SLOT = 0xFFFFFFFF
    NUMBER_BYTES = 24  # A number in digits, with its surroundings in a line.

# The kinds of requests, in the order of `KIND_NAMES`.
cdef enum RequestKind:
    GET = 0
    GET_MANY = 1
    SCAN = 2
    PUT = 3  # This and later ones write.
    DELETE = 4
    PUT_MANY = 5
    FORMS = 6  # The kinds from here on are sent in other forms.
    INSERT = 6  # A put of a new key.
    MODIFY = 7  # A get, and then a put of the key.
    KINDS = 8

cdef enum ReplyResult:
    UNASKED = -2  # The answer matches no request in flight: it is invented, or repeated.
    GARBAGE = -1  # The bytes violate the protocol.
    PARTIAL = 0
    COMPLETE = 1

cdef struct Session  # `writes.pxd` has it.

# A key of a request.  A write of it has a number, and the first write that is not before it.
cdef struct Asked:
    uint32_t key
    uint32_t write
    uint32_t base

cdef struct Slot:
    int64_t due_ns  # When the request was due; its latency counts from here.
    int64_t sent_ns
    uint32_t id
    uint32_t next  # The next free slot, or the next one in flight in the order of sending.
    uint32_t count  # Keys of a read, records of a scan.
    uint32_t stage  # The stage of the run.
    int32_t floor  # The newest version that this server had answered with at the time of sending; -1: none.
    uint8_t kind
    uint8_t form  # The request on the wire at the moment: a kind below FORMS.
    Session* session  # NULL: nobody's request.
    bint busy

cdef struct Window:
    Slot* slots
    Asked* asked  # Each slot has `batch` keys.
    uint32_t capacity
    uint32_t batch
    uint32_t in_flight
    uint32_t free
    uint32_t oldest  # `oldest` and `newest` are kept for dialects without ids.
    uint32_t newest

cdef struct Reply:
    Py_ssize_t size  # The size of the answer in bytes.
    uint32_t slot
    bint is_error
    bint is_last  # The server announces the end of this connection behind the answer.
    const uint8_t* code  # The code of an error.
    Py_ssize_t code_size
    const uint8_t* version  # The version that answered; empty if none was named.
    Py_ssize_t version_size
    uint32_t keys  # Keys that the answer covers.
    uint32_t misses  # The number of keys without a value.
    uint32_t unchecked  # Values that are unknown.
    uint32_t untold  # Unknown values because their whole version is unknown.
    uint32_t wrong  # The number of wrong, missing or surplus values.
    uint32_t wrong_key  # The first wrong key, if known.
    const uint8_t* got  # The value received for it; NULL: none.
    Py_ssize_t got_size


# The state of checking a scan's records in their order.
cdef struct ScanCheck:
    const Record* table  # The table of the version that answered; NULL: it is unknown.
    uint32_t start  # The record at which the scan began.
    Py_ssize_t place  # The place in key order, behind the last record received.
    Blob last  # The last key received; before the first, the start.
    bint is_first


cdef inline uint32_t window_find(const Window* window, uint32_t id) noexcept nogil:
    """Return the slot of an id in flight, or NO_SLOT."""
    cdef uint32_t slot = id % window.capacity
    return slot if window.slots[slot].busy and window.slots[slot].id == id else NO_SLOT


cdef inline uint32_t window_oldest(const Window* window) noexcept nogil:
    """Return the slot whose answer must come next, or NO_SLOT."""
    return window.oldest if window.in_flight > 0 else NO_SLOT


cdef inline Asked* window_asked(const Window* window, uint32_t at) noexcept nogil:
    """Return the keys of a slot."""
    return window.asked + <Py_ssize_t>at * window.batch


cdef inline uint32_t window_take(Window* window, bint in_order) noexcept nogil:
    """Take a free slot, with a new id.  Requires: there is one."""
    cdef uint32_t at = window.free
    cdef Slot* slot = window.slots + at
    window.free = slot.next
    slot.id = slot.id + window.capacity if slot.id <= 0xFFFFFFFFU - window.capacity else at
    slot.busy = True
    if in_order:
        if window.in_flight == 0:
            window.oldest = at
        else:
            window.slots[window.newest].next = at
        window.newest = at
    window.in_flight += 1
    return at


cdef inline void window_free(Window* window, uint32_t at, bint in_order) noexcept nogil:
    """Free a slot after its answer."""
    cdef Slot* slot = window.slots + at
    if in_order:
        window.oldest = slot.next
    slot.busy = False
    slot.next = window.free
    window.free = at
    window.in_flight -= 1


cdef inline void window_clear(Window* window) noexcept nogil:
    """Free all slots, after the end of the connection."""
    cdef uint32_t at
    for at in range(window.capacity):
        window.slots[at].busy = False
        window.slots[at].next = at + 1
    window.free = 0
    window.in_flight = 0


cdef inline void window_begin(
    Window* window, Slot* slots, uint32_t capacity, Asked* asked, uint32_t batch
) noexcept nogil:
    """Use these slots, none in flight, with room for `batch` keys each."""
    cdef uint32_t at
    window.slots = slots
    window.asked = asked
    window.capacity = capacity
    window.batch = batch
    for at in range(capacity):
        slots[at].id = at
    window_clear(window)


cdef inline void reply_begin(Reply* reply, uint32_t slot) noexcept nogil:
    """Begin an answer without faults."""
    reply.slot = slot
    reply.is_error = False
    reply.is_last = False
    reply.version = <const uint8_t*>b""  # It is empty but not NULL, as memcpy and memcmp require.
    reply.version_size = 0
    reply.code = reply.version
    reply.code_size = 0
    reply.keys = 1
    reply.misses = 0
    reply.unchecked = 0
    reply.untold = 0
    reply.wrong = 0
    reply.wrong_key = ABSENT


cdef inline void reply_wrong(Reply* reply, uint32_t key, const uint8_t* got, Py_ssize_t size) noexcept nogil:
    """Count one wrong value; the first is kept as evidence."""
    if reply.wrong == 0:
        reply.wrong_key = key
        reply.got = got
        reply.got_size = size
    reply.wrong += 1


cdef inline void reply_too_many(Reply* reply, Py_ssize_t found, Py_ssize_t asked) noexcept nogil:
    """Count each value beyond the requested ones as wrong."""
    while found > asked:
        found -= 1
        reply_wrong(reply, ABSENT, NULL, 0)


cdef inline void reply_error(Reply* reply, const uint8_t* code, Py_ssize_t size) noexcept nogil:
    """Note that the server refused."""
    reply.is_error = True
    reply.code = code
    reply.code_size = size


cdef inline void reply_value(
    Reply* reply, const Record* table, uint32_t key, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    """Judge a key's value, or its absence (NULL), by the table of its version, if known."""
    if data == NULL:
        reply.misses += 1
    if table == NULL:
        reply.unchecked += 1
        reply.untold += 1
    elif is_unknown(table + key):
        reply.unchecked += 1
    elif not (may_be_absent(table + key) if data == NULL else is_value(table + key, data, size)):
        reply_wrong(reply, key, data, size)


cdef inline Blob blob_of(bytes piece) noexcept:
    """Return the place of bytes with another owner."""
    return Blob(<const uint8_t*>PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))


cdef inline void put_blob(Buffer* out, const Blob* blob) noexcept nogil:
    put_bytes(out, blob.data, blob.size)


cdef inline void put_decimal(Buffer* out, Py_ssize_t number) noexcept nogil:
    """Write a number in digits."""
    cdef uint8_t digits[NUMBER_BYTES]
    cdef int count = 0
    while number > 0 or count == 0:
        digits[count] = <uint8_t>(48 + number % 10)
        number //= 10
        count += 1
    while count > 0:
        count -= 1
        put(out, digits[count])


cdef inline int scan_message(const uint8_t* data, Py_ssize_t size, Py_ssize_t* taken) noexcept nogil:
    """Return the result of `frame_scan` for the MessagePack at `data`; `taken` is its size."""
    cdef FrameLimits limits = FrameLimits(FRAME_BYTES, FRAME_ELEMENTS, FRAME_DEPTH)
    cdef FrameState state
    cdef int result
    frame_begin(&state)
    result = frame_scan(&state, data, size, &limits)
    taken[0] = state.position
    return result


cdef class Writes

cdef class Dialect:
    cdef readonly Records truth
    cdef Writes writes  # The truth of a load that writes; else None.
    cdef const Record* records  # The table of the version that answered last.
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t longest_key
    cdef bint in_order  # Answers have no ids.
    cdef int stretch  # The most bytes on the wire for one of a key.
    cdef list pieces  # Requests consist of these; they own the bytes of `own` and `blob_of`.
    cdef Blob greeting  # The first message of a connection; its answer is not counted.

    cdef int keep(self, records) except -1

    # Keep a piece of requests, and return its place.
    cdef Blob own(self, bytes piece)

    # Return the most bytes of a request for this many keys.
    cdef Py_ssize_t room(self, uint32_t batch) except -1

    # Write the request of a slot.  Requires: there is room.  The count of a scan is its limit.
    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil

    # Begin the answer to the request of a slot; return its keys.
    cdef const Asked* expect(self, const Window* window, uint32_t at, Reply* reply) noexcept nogil

    # Note the version that answered, or the token of a table; return the records of the version, if known.
    cdef const Record* answered_from(self, const Blob* version, Reply* reply) noexcept nogil

    # Judge a key's value, or its absence (NULL).
    cdef void judge_value(
        self, const Record* table, uint32_t key, const uint8_t* data, Py_ssize_t size, Reply* reply
    ) noexcept nogil

    # Judge `found` values at the cursor, in MessagePack and in the requested order; below zero, there is no array.
    cdef void judge_values(
        self, Cursor* cursor, Py_ssize_t found, const Record* table, const Asked* asked, Reply* reply
    ) noexcept nogil

    # Judge a record of a scan by the number of the key that its value tells.
    cdef void judge_written(self, const Blob* key, const Blob* value, Reply* reply) noexcept nogil

    # Judge the answer at `data`, of which `size` bytes are here; fill `reply` if the `ReplyResult` is COMPLETE.
    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil

    cdef void scan_begin(self, ScanCheck* scan, const Record* table, uint32_t start) noexcept nogil

    # Judge a record of a scan: its order, its value, records left out before it, and that the version has it.
    cdef void scan_record(self, ScanCheck* scan, const Blob* key, const Blob* value, Reply* reply) noexcept nogil

    # Judge the end of a scan, with a cursor or with the last record.
    cdef void scan_end(self, const ScanCheck* scan, bint has_cursor, Reply* reply) noexcept nogil

    # Judge the answer to the greeting; return a `ReplyResult`, and fill `size` of `reply` if it is COMPLETE.
    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil
