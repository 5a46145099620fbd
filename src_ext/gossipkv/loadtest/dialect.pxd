"""What the generator's loop needs to know of a protocol: how a request is written, and what an answer says.

The loop moves bytes and counts; a dialect knows neither sockets nor clocks.  So two servers that speak different
protocols are put under load by the very same loop.

A window is what one connection has in flight: slots, each with the keys that it asked for.  An id belongs to one slot
for ever (the id modulo the number of slots), so an answer finds its slot without a table, and an id that was answered
already is not in flight any more.  Where a protocol has no ids, answers come in order, and `oldest` is whose they are.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport (
    FRAME_BYTES, FRAME_DEPTH, FRAME_ELEMENTS, Blob, FrameLimits, FrameState, frame_begin, frame_scan, put,
)

cdef enum:
    NO_SLOT = 0xFFFFFFFF
    NUMBER_BYTES = 24  # A number in digits, with what stands around it in a line.

# What a request asks, in the order of `KIND_NAMES`.
cdef enum Kind:
    GET = 0
    GET_MANY = 1
    SCAN = 2
    KINDS = 3

cdef enum Taken:
    UNASKED = -2  # an answer to nothing that is in flight: made up, or given twice
    GARBAGE = -1  # not the protocol
    PARTIAL = 0
    COMPLETE = 1

cdef struct Slot:
    int64_t due_ns  # when the request should have been sent; what it took counts from here
    int64_t sent_ns
    uint32_t id
    uint32_t next  # of the free ones, or of those in flight in the order of sending
    uint32_t count  # keys of a read, records of a scan
    uint32_t stage  # of the run
    int32_t floor  # the newest version that this server had answered with when it was sent; -1: none
    uint8_t kind
    bint busy

cdef struct Window:
    Slot* slots
    uint32_t* keys  # `batch` numbers of records for each slot
    uint32_t capacity
    uint32_t batch
    uint32_t in_flight
    uint32_t free
    uint32_t oldest  # oldest and newest: kept for dialects without ids
    uint32_t newest

cdef struct Reply:
    Py_ssize_t size  # bytes of the answer
    uint32_t slot
    bint is_error
    bint is_last  # the server says that it ends this connection behind the answer
    const uint8_t* code  # of an error
    Py_ssize_t code_size
    const uint8_t* version  # that answered; of no bytes: none was told
    Py_ssize_t version_size
    uint32_t keys  # that the answer is about
    uint32_t misses  # keys without a value
    uint32_t unchecked  # values of which nothing is known
    uint32_t untold  # those of them that are of a version of which nothing is known
    uint32_t wrong  # values that are not what they should be, or too few, or too many
    uint32_t wrong_key  # the first of them, if it is known which
    const uint8_t* got  # what came in its place; NULL: nothing
    Py_ssize_t got_size


# The records of one answer to a scan, looked at in the order in which they come.
cdef struct Scan:
    const Record* table  # of the version that answered; NULL: nothing is known of it
    uint32_t start  # the record that it began at
    Py_ssize_t place  # in key order, behind the record that came last
    Blob last  # the key that came last; before the first, the start
    bint is_first


cdef inline uint32_t window_find(const Window* window, uint32_t id) noexcept nogil:
    """The slot of an id that is in flight, or NO_SLOT."""
    cdef uint32_t slot = id % window.capacity
    return slot if window.slots[slot].busy and window.slots[slot].id == id else NO_SLOT


cdef inline uint32_t window_oldest(const Window* window) noexcept nogil:
    """The slot whose answer must come next, or NO_SLOT."""
    return window.oldest if window.in_flight > 0 else NO_SLOT


cdef inline uint32_t window_take(Window* window, bint in_order) noexcept nogil:
    """A free slot, with a new id.  Requires: there is one."""
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
    """The request of a slot was answered."""
    cdef Slot* slot = window.slots + at
    if in_order:
        window.oldest = slot.next
    slot.busy = False
    slot.next = window.free
    window.free = at
    window.in_flight -= 1


cdef inline void window_clear(Window* window) noexcept nogil:
    """No slot is in flight any more: the connection ended."""
    cdef uint32_t at
    for at in range(window.capacity):
        window.slots[at].busy = False
        window.slots[at].next = at + 1
    window.free = 0
    window.in_flight = 0


cdef inline void window_begin(
    Window* window, Slot* slots, uint32_t capacity, uint32_t* keys, uint32_t batch
) noexcept nogil:
    """Take these slots, none in flight, with room for so many keys each."""
    cdef uint32_t at
    window.slots = slots
    window.keys = keys
    window.capacity = capacity
    window.batch = batch
    for at in range(capacity):
        slots[at].id = at
    window_clear(window)


cdef inline void reply_begin(Reply* reply, uint32_t slot) noexcept nogil:
    """An answer without a fault so far."""
    reply.slot = slot
    reply.is_error = False
    reply.is_last = False
    reply.version = <const uint8_t*>b""  # Of no bytes, but somewhere: memcpy and memcmp must not have NULL.
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
    """One value is wrong; the first is kept as evidence."""
    if reply.wrong == 0:
        reply.wrong_key = key
        reply.got = got
        reply.got_size = size
    reply.wrong += 1


cdef inline void reply_too_many(Reply* reply, Py_ssize_t found, Py_ssize_t asked) noexcept nogil:
    """Each value beyond those that were asked for is wrong."""
    while found > asked:
        found -= 1
        reply_wrong(reply, ABSENT, NULL, 0)


cdef inline void reply_error(Reply* reply, const uint8_t* code, Py_ssize_t size) noexcept nogil:
    """The server refused."""
    reply.is_error = True
    reply.code = code
    reply.code_size = size


cdef inline void reply_value(
    Reply* reply, const Record* table, uint32_t key, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    """Judge the value of a key, or that there is none (NULL), by the table of its version, if that is known."""
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
    """Where bytes stand, which somebody else owns."""
    return Blob(<const uint8_t*>PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))


cdef inline void put_decimal(Buffer* out, Py_ssize_t number) noexcept nogil:
    """A number in digits."""
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
    """Bound the MessagePack at `data`: what `frame_scan` says of it, and its bytes."""
    cdef FrameLimits limits = FrameLimits(FRAME_BYTES, FRAME_ELEMENTS, FRAME_DEPTH)
    cdef FrameState state
    cdef int result
    frame_begin(&state)
    result = frame_scan(&state, data, size, &limits)
    taken[0] = state.position
    return result


cdef class Dialect:
    cdef readonly Records truth
    cdef const Record* records  # a table of it: of the version that answered last
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t longest_key
    cdef bint in_order  # answers have no ids
    cdef list pieces  # of requests; the owners of what `blob_of` told
    cdef Blob greeting  # what a connection says first; its answer counts for nothing

    cdef int keep(self, records) except -1

    # The most bytes that a request for so many keys takes.
    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil

    # Writes a request for these records.  Requires: there is room.  A scan has the one that it starts at, and a limit.
    cdef void write(self, Buffer* out, uint32_t id, uint8_t kind, const uint32_t* keys, uint32_t count) noexcept nogil

    # The answer at `data`, of which `size` bytes are here: a `Taken`; `reply` is filled when it is COMPLETE.
    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil

    cdef void scan_begin(self, Scan* scan, const Record* table, uint32_t start) noexcept nogil

    # A record of it: in order, of a right value, none left out before it, none that the version does not have.
    cdef void scan_record(self, Scan* scan, const Blob* key, const Blob* value, Reply* reply) noexcept nogil

    # It has ended with a cursor, or with the last record that there is.
    cdef void scan_end(self, const Scan* scan, bint has_cursor, Reply* reply) noexcept nogil

    # The answer to the greeting: a `Taken`; `size` of `reply` is filled when it is COMPLETE.
    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil
