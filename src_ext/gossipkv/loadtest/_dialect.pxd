"""What the generator's loop needs to know of a protocol: how a request is written, and what an answer says.

The loop moves bytes and counts; a dialect knows neither sockets nor clocks.  So two servers that speak different
protocols are put under load by the very same loop.

A window is what one connection has in flight: slots, each with the keys that it asked for.  An id belongs to one slot
for ever (the id modulo the number of slots), so an answer finds its slot without a table, and an id that was answered
already is not in flight any more.  Where a protocol has no ids, answers come in order, and `oldest` is whose they are.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from gossipkv.wire._buffer cimport Buffer

cdef enum:
    NO_SLOT = 0xFFFFFFFF
    ABSENT = 0xFFFFFFFF  # The size of the value of a key that the server must not have.

cdef enum Taken:
    UNASKED = -2  # an answer to nothing that is in flight: made up, or given twice
    GARBAGE = -1  # not the protocol
    PARTIAL = 0
    COMPLETE = 1

cdef struct Record:
    const uint8_t* key  # the value stands behind it
    uint32_t key_size
    uint32_t value_size

cdef struct Slot:
    int64_t due_ns  # when the request should have been sent; what it took counts from here
    int64_t sent_ns
    uint32_t id
    uint32_t next  # of the free ones, or of those in flight in the order of sending
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
    const uint8_t* code  # of an error
    Py_ssize_t code_size
    uint32_t wrong  # values that are not what they should be, or too few, or too many
    uint32_t wrong_key  # the first of them, if it is known which
    const uint8_t* got  # what came in its place; NULL: nothing
    Py_ssize_t got_size


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


cdef inline void reply_begin(Reply* reply, uint32_t slot) noexcept nogil:
    """An answer without a fault so far."""
    reply.slot = slot
    reply.is_error = False
    reply.wrong = 0
    reply.wrong_key = ABSENT


cdef inline void reply_wrong(Reply* reply, uint32_t key, const uint8_t* got, Py_ssize_t size) noexcept nogil:
    """One value is wrong; the first is kept as evidence."""
    if reply.wrong == 0:
        reply.wrong_key = key
        reply.got = got
        reply.got_size = size
    reply.wrong += 1


cdef inline bint is_value(const Record* record, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Whether this is the value of the record."""
    return size == <Py_ssize_t>record.value_size and memcmp(data, record.key + record.key_size, size) == 0


cdef class Dialect:
    cdef Record* records
    cdef uint8_t* content
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t longest_key
    cdef bint in_order  # answers have no ids

    cdef int keep(self, records) except -1

    # The most bytes that a request for so many keys takes.
    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil

    # Writes a request for these records.  Requires: there is room.
    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil

    # The answer at `data`, of which `size` bytes are here: a `Taken`; `reply` is filled when it is COMPLETE.
    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil
