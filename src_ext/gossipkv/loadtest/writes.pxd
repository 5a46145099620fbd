"""The writes of a load, and the reads that they allow; `writes.pyx` has the rules."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob

cdef enum:
    VALUE_HEAD = 16  # A value begins with its run, its key and its write, and is thus at least so long.
    RECENT = 4  # Writes of a key whose predecessors are known.
    SEEN = 32  # Keys that a session remembers.
    MAX_STRAYS = 1048576
    WAIT_MS = 500  # How long a replica may wait for what a session has seen.
    TOKEN_BYTES = 98304  # 64 KiB, a node's longest, in base64, and some more.

cdef enum ReadFault:
    NO_FAULT = 0
    NEVER_WRITTEN = 1
    WENT_BACK = 2
    LOST_WRITE = 3

cdef enum ValueOrigin:
    NO_ORIGIN = 0  # No load test has written it to this key.
    OTHER_RUN = 1
    THIS_RUN = 2

cdef struct WrittenKey:
    uint32_t last  # The number of the last write that was begun; 0 stands for what was there before the load.
    uint32_t floor  # No write before this one may be the last, because of those acknowledged.
    uint32_t deleted  # The last delete.
    uint32_t settled  # Writes before this one had ended for `APART_MS` when the next was begun.
    uint32_t mark
    uint32_t older  # Writes in flight before the mark, and from it on.
    uint32_t younger
    uint32_t ready_ms  # When the last one before the mark ended.
    uint32_t ended_ms
    uint32_t bases[RECENT]  # The settled write when these writes were begun, by their number.
    bint is_confirmed

cdef struct SeenKey:
    uint32_t key
    uint32_t floor

cdef struct Session:
    Buffer token
    SeenKey seen[SEEN]

cdef struct Stray:
    uint32_t key
    uint32_t write


cdef inline Blob token_of(const Slot* slot) noexcept nogil:
    """Return the token that a request shows."""
    return Blob(NULL, 0) if slot.session == NULL else Blob(slot.session.token.data, slot.session.token.end)


cdef class Writes:
    cdef uint64_t run
    cdef uint32_t count
    cdef uint32_t shortest
    cdef uint32_t longest
    cdef readonly bint sessions  # Requests are made in sessions.
    cdef bint is_ours  # Nobody but load tests writes these keys.
    cdef uint64_t ttl_ms  # Lifetime of written records; 0: endless.
    cdef bint has_begun
    cdef uint32_t first_ms  # When the first write was begun.
    cdef uint32_t now_ms  # When the answers at hand were received.
    cdef bint is_final  # Reads must have what will stay.
    cdef bint tells_lost  # They are the last, and count.
    cdef WrittenKey* keys
    cdef Stray* strays  # Writes of which nobody knows whether, and when, they are made.
    cdef uint32_t stray_count
    cdef uint32_t stray_room
    cdef bint has_more_strays
    cdef Session* all_sessions
    cdef Session** idle  # A ring: the sessions of users without a request.
    cdef uint32_t users
    cdef uint64_t idle_begin
    cdef uint64_t idle_end
    cdef Session* session  # The session of the request at hand; NULL: none.
    # The evidence of the first fault.
    cdef int fault
    cdef uint32_t fault_key
    cdef uint32_t fault_read
    cdef uint32_t fault_floor

    cdef Session* take_session(self) noexcept nogil
    cdef void free_session(self, Session* session) noexcept nogil
    cdef void saw(self, const Blob* token) noexcept nogil
    cdef void begin(self, Asked* asked, bint deletes, uint32_t now_ms) noexcept nogil
    cdef void end(self, const Asked* asked, bint deletes, bint is_done, uint32_t now_ms) noexcept nogil
    cdef Py_ssize_t size_of(self, const Asked* asked) noexcept nogil
    cdef void put_value(self, Buffer* out, const Asked* asked) noexcept nogil
    cdef void advance(self, WrittenKey* state, uint32_t now_ms) noexcept nogil
    cdef bint is_stray(self, uint32_t key, uint32_t write) noexcept nogil
    cdef void judge(self, uint32_t key, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil
    cdef void remember(self, uint32_t key, uint32_t floor) noexcept nogil
