"""The pending replies of a connection, in request order; `reply_queue.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport FRAME_COMPLETE, FRAME_DEPTH, Cursor, FrameLimits, FrameState, frame_begin, frame_scan

cdef enum:
    # An idle connection may keep this much of each of its buffers.
    SPARE_ANSWER_BYTES = 4096
    MAX_PARTS = 256  # Requests of one command; RESP divides no command into more.

cdef struct PendingReply:  # the pending reply to a request
    uint8_t form  # how to write the reply, in the dialect's own numbers
    uint8_t protocol  # RESP version at the time of the request
    uint16_t parts  # number of requests (this one and the next ones) with one common answer; 0 for those next ones
    bint is_kept
    bint is_last  # the connection ends after this reply
    bint is_shown  # its request has shown tokens of the connection's session (RESP)
    uint32_t era  # the session's era then, the end of its tokens, and the table of those shown; 0 for all
    uint32_t shown_end
    uint64_t shown_table
    Py_ssize_t at  # offset in `kept`
    Py_ssize_t size
    Py_ssize_t note_size
    int64_t first  # first and last byte of a requested range
    int64_t last

# Write the next answer if it is a plain one, reading it once; False for any other answer.
ctypedef bint (*WritePlainReply)(ReplyQueue* replies, Cursor* left, Buffer* out) noexcept nogil
# Write the answer that these `error, result` bodies make up; -1 if out of memory.
ctypedef int (*WriteReply)(ReplyQueue* replies, const Cursor* bodies, int parts, Buffer* out) noexcept nogil

cdef struct ReplyQueue:  # reply queue of a connection in a dialect without ids
    WritePlainReply write_plain  # NULL if the dialect has no short way
    WriteReply write  # writes the answer to the first pending request
    uint32_t first_id  # id of the request that is answered next
    Buffer pending  # a `PendingReply` for each unanswered request
    Buffer notes  # the dialect's notes on each request for its answer
    Buffer kept  # answers that wait for earlier ones, as they came
    Buffer seen  # the tokens of the connection's session (`resp/session.pyx`)
    uint32_t kept_count
    Py_ssize_t held  # size of all four buffers as last counted
    Py_ssize_t translated  # bytes of the output already in the dialect; the rest is to be translated


cdef void replies_release(ReplyQueue* replies) noexcept nogil
cdef int write_answers(ReplyQueue* replies, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil


cdef inline void skip_value(Cursor* cursor) noexcept nogil:
    """Skip one whole value or message; skip to the end if the value is incomplete."""
    cdef FrameState scan
    cdef FrameLimits limits = FrameLimits(cursor.end - cursor.at, cursor.end - cursor.at, FRAME_DEPTH)
    frame_begin(&scan)
    cursor.at = cursor.at + scan.position if frame_scan(
        &scan, cursor.at, cursor.end - cursor.at, &limits
    ) == FRAME_COMPLETE else cursor.end


cdef inline uint32_t reply_count(const ReplyQueue* replies) noexcept nogil:
    return <uint32_t>((replies.pending.end - replies.pending.start) // <Py_ssize_t>sizeof(PendingReply))


cdef inline PendingReply* reply_at(const ReplyQueue* replies, uint32_t number) noexcept nogil:
    """Return the pending reply `number` places behind the first."""
    return <PendingReply*>(replies.pending.data + replies.pending.start) + number


cdef inline Py_ssize_t replies_bytes(const ReplyQueue* replies) noexcept nogil:
    return (
        replies.pending.end - replies.pending.start
        + replies.kept.end - replies.kept.start
        + replies.notes.end - replies.notes.start
        + replies.seen.end - replies.seen.start
    )


cdef inline uint32_t next_id(const ReplyQueue* replies) noexcept nogil:
    """Return the id of the request that is read next."""
    return replies.first_id + reply_count(replies)


cdef inline PendingReply* queue_reply(ReplyQueue* replies, int form, int parts) noexcept nogil:
    """Queue a reply for the request with `next_id`; NULL if out of memory."""
    cdef PendingReply* reply
    if buffer_reserve(&replies.pending, sizeof(PendingReply)) < 0:
        return NULL
    reply = <PendingReply*>(replies.pending.data + replies.pending.end)
    replies.pending.end += sizeof(PendingReply)
    reply.form = <uint8_t>form
    reply.parts = <uint16_t>parts
    reply.is_kept = False
    reply.is_last = False
    reply.note_size = 0
    return reply


cdef inline void withdraw_replies(ReplyQueue* replies, uint32_t id) noexcept nogil:
    """Withdraw the replies from that request on, as if those requests had not been read."""
    while next_id(replies) != id:
        replies.notes.end -= reply_at(replies, reply_count(replies) - 1).note_size
        replies.pending.end -= sizeof(PendingReply)


cdef inline void empty(Buffer* buffer) noexcept nogil:
    """Empty the buffer, and free its memory if it is large."""
    if buffer.capacity > SPARE_ANSWER_BYTES:
        buffer_release(buffer)
    buffer.start = buffer.end = 0


cdef inline void remove_replies(ReplyQueue* replies, uint32_t count) noexcept nogil:
    """Remove the first `count` replies, which have been sent."""
    cdef uint32_t i
    for i in range(count):
        replies.notes.start += reply_at(replies, i).note_size
    replies.first_id += count
    replies.pending.start += <Py_ssize_t>(count * sizeof(PendingReply))
    if replies.kept_count == 0 and replies.kept.end > 0:
        empty(&replies.kept)
    if replies.pending.start == replies.pending.end:
        empty(&replies.pending)
        empty(&replies.notes)
