"""What a connection is owed, in the order of its requests.  The idea stands in `owed.pyx`."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from gossipkv.wire._buffer cimport Buffer, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport FRAME_COMPLETE, FRAME_DEPTH, Cursor, FrameLimits, FrameState, frame_begin, frame_scan

cdef enum:
    # What an idle connection may keep of each of its buffers.
    SPARE_ANSWER_BYTES = 4096
    MAX_PARTS = 64  # Requests of one command, each of another database than the one before.

cdef struct Owed:  # the answer to a request
    uint8_t form  # how it is said, in the dialect's own numbers
    uint8_t protocol  # of RESP, at that moment
    uint16_t parts  # requests whose answers are said together, this one and those behind it; 0: it is behind one
    bint is_kept
    bint is_last  # the connection ends behind it
    Py_ssize_t at  # in what is kept
    Py_ssize_t size
    Py_ssize_t note_size
    int64_t first  # of the bytes that are asked for
    int64_t last

# Say the next answer if it is a plain one, read once; False: it is another.
ctypedef bint (*SayPlain)(Owing* owing, Cursor* left, Buffer* out) noexcept nogil
# Say the answer that these `error, result` make up; -1: no memory.
ctypedef int (*Say)(Owing* owing, const Cursor* bodies, int parts, Buffer* out) noexcept nogil

cdef struct Owing:  # of a connection whose dialect has no ids
    SayPlain say_plain  # NULL: there is no such short way
    Say say  # of the first that is owed
    uint32_t first_id  # of the request that is answered next
    Buffer owed  # an `Owed` for each that is not answered yet
    Buffer notes  # what the dialect keeps of each request for its answer
    Buffer kept  # answers that wait for earlier ones, as they came
    uint32_t kept_count
    Py_ssize_t held  # of all three, as it was counted last
    Py_ssize_t said  # of the output, from its beginning; the rest is yet to be said


cdef void owing_release(Owing* owing) noexcept nogil
cdef int say_answers(Owing* owing, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil


cdef inline void skip_value(Cursor* cursor) noexcept nogil:
    """Pass over one whole value, a message too; what is not whole is passed over to the end."""
    cdef FrameState scan
    cdef FrameLimits limits = FrameLimits(cursor.end - cursor.at, cursor.end - cursor.at, FRAME_DEPTH)
    frame_begin(&scan)
    cursor.at = cursor.at + scan.position if frame_scan(
        &scan, cursor.at, cursor.end - cursor.at, &limits
    ) == FRAME_COMPLETE else cursor.end


cdef inline uint32_t owed_count(const Owing* owing) noexcept nogil:
    return <uint32_t>((owing.owed.end - owing.owed.start) // <Py_ssize_t>sizeof(Owed))


cdef inline Owed* owed_of(const Owing* owing, uint32_t number) noexcept nogil:
    """The one that is so far behind the first."""
    return <Owed*>(owing.owed.data + owing.owed.start) + number


cdef inline Py_ssize_t owing_bytes(const Owing* owing) noexcept nogil:
    """What it holds."""
    return (
        owing.owed.end - owing.owed.start + owing.kept.end - owing.kept.start + owing.notes.end - owing.notes.start
    )


cdef inline uint32_t next_id(const Owing* owing) noexcept nogil:
    """The id of the request that is read next."""
    return owing.first_id + owed_count(owing)


cdef inline Owed* owe(Owing* owing, int form, int parts) noexcept nogil:
    """Note that the request with `next_id` is to be answered; NULL: no memory."""
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
    """Owe nothing from that request on: it is as if it had not been read."""
    while next_id(owing) != id:
        owing.notes.end -= owed_of(owing, owed_count(owing) - 1).note_size
        owing.owed.end -= sizeof(Owed)


cdef inline void empty(Buffer* buffer) noexcept nogil:
    """Forget all of it, and keep no memory for nothing."""
    if buffer.capacity > SPARE_ANSWER_BYTES:
        buffer_release(buffer)
    buffer.start = buffer.end = 0


cdef inline void pay(Owing* owing, uint32_t count) noexcept nogil:
    """Owe the first ones no more."""
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
