"""The pending replies of a connection, in request order; `reply_queue.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from gossipkv.wire._buffer cimport Buffer, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport FRAME_COMPLETE, FRAME_DEPTH, Cursor, FrameLimits, FrameState, frame_begin, frame_scan

cdef enum:
    # An idle connection may keep this much of each of its buffers.
    SPARE_ANSWER_BYTES = 4096
    MAX_PARTS = 64  # Requests of one command, each for another database than the one before.

cdef struct Owed:  # the pending reply to a request
    uint8_t form  # how to write the reply, in the dialect's own numbers
    uint8_t protocol  # RESP version at the time of the request
    uint16_t parts  # number of requests (this one and the next ones) with one common answer; 0 for those next ones
    bint is_kept
    bint is_last  # the connection ends after this reply
    Py_ssize_t at  # offset in `kept`
    Py_ssize_t size
    Py_ssize_t note_size
    int64_t first  # first and last byte of a requested range
    int64_t last

# Write the next answer if it is a plain one, reading it once; False for any other answer.
ctypedef bint (*SayPlain)(Owing* owing, Cursor* left, Buffer* out) noexcept nogil
# Write the answer that these `error, result` bodies make up; -1 if out of memory.
ctypedef int (*Say)(Owing* owing, const Cursor* bodies, int parts, Buffer* out) noexcept nogil

cdef struct Owing:  # reply queue of a connection in a dialect without ids
    SayPlain say_plain  # NULL if the dialect has no short way
    Say say  # writes the answer to the first pending request
    uint32_t first_id  # id of the request that is answered next
    Buffer owed  # an `Owed` for each unanswered request
    Buffer notes  # the dialect's notes on each request for its answer
    Buffer kept  # answers that wait for earlier ones, as they came
    uint32_t kept_count
    Py_ssize_t held  # size of all three buffers as last counted
    Py_ssize_t said  # bytes of the output already in the dialect; the rest is to be translated


cdef void owing_release(Owing* owing) noexcept nogil
cdef int say_answers(Owing* owing, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil


cdef inline void skip_value(Cursor* cursor) noexcept nogil:
    """Skip one whole value or message; skip to the end if the value is incomplete."""
    cdef FrameState scan
    cdef FrameLimits limits = FrameLimits(cursor.end - cursor.at, cursor.end - cursor.at, FRAME_DEPTH)
    frame_begin(&scan)
    cursor.at = cursor.at + scan.position if frame_scan(
        &scan, cursor.at, cursor.end - cursor.at, &limits
    ) == FRAME_COMPLETE else cursor.end


cdef inline uint32_t owed_count(const Owing* owing) noexcept nogil:
    return <uint32_t>((owing.owed.end - owing.owed.start) // <Py_ssize_t>sizeof(Owed))


cdef inline Owed* owed_of(const Owing* owing, uint32_t number) noexcept nogil:
    """Return the pending reply `number` places behind the first."""
    return <Owed*>(owing.owed.data + owing.owed.start) + number


cdef inline Py_ssize_t owing_bytes(const Owing* owing) noexcept nogil:
    return (
        owing.owed.end - owing.owed.start + owing.kept.end - owing.kept.start + owing.notes.end - owing.notes.start
    )


cdef inline uint32_t next_id(const Owing* owing) noexcept nogil:
    """Return the id of the request that is read next."""
    return owing.first_id + owed_count(owing)


cdef inline Owed* owe(Owing* owing, int form, int parts) noexcept nogil:
    """Queue a reply for the request with `next_id`; NULL if out of memory."""
    cdef Owed* owed
    if buffer_reserve(&owing.owed, sizeof(Owed)) < 0:
        return NULL
    owed = <Owed*>(owing.owed.data + owing.owed.end)
    owing.owed.end += sizeof(Owed)
    owed.form = <uint8_t>form
    owed.parts = <uint16_t>parts
    owed.is_kept = False
    owed.is_last = False
    owed.note_size = 0
    return owed


cdef inline void take_back(Owing* owing, uint32_t id) noexcept nogil:
    """Withdraw the replies from that request on, as if those requests had not been read."""
    while next_id(owing) != id:
        owing.notes.end -= owed_of(owing, owed_count(owing) - 1).note_size
        owing.owed.end -= sizeof(Owed)


cdef inline void empty(Buffer* buffer) noexcept nogil:
    """Empty the buffer, and free its memory if it is large."""
    if buffer.capacity > SPARE_ANSWER_BYTES:
        buffer_release(buffer)
    buffer.start = buffer.end = 0


cdef inline void pay(Owing* owing, uint32_t count) noexcept nogil:
    """Remove the first `count` replies, which have been sent."""
    cdef uint32_t i
    for i in range(count):
        owing.notes.start += owed_of(owing, i).note_size
    owing.first_id += count
    owing.owed.start += <Py_ssize_t>(count * sizeof(Owed))
    if owing.kept_count == 0 and owing.kept.end > 0:
        empty(&owing.kept)
    if owing.owed.start == owing.owed.end:
        empty(&owing.owed)
        empty(&owing.notes)
