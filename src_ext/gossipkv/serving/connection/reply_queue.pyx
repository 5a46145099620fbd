"""Replies in request order, for the dialects without ids (RESP, HTTP), over a core that speaks MessagePack-RPC.

A connection of a RESP or HTTP listener has a `ReplyQueue`, which is NULL for MessagePack-RPC. Its input becomes
requests of the core (`get`, `get_many`, `put`) with ascending ids (`resp/intake.pyx`, `http/intake.pyx`). Limits,
counters, forwarding, disk waits and hand-offs are then the same as for any request. Each answer is a message `[1, id,
error, result]` in `out` or behind the output. Just before bytes are sent, `say_answers` translates the answers into the
dialect in id order. An early answer is kept, and counts as held by the connection. `PendingReply.form` and `notes` say
how to write an answer; a command over several databases is several requests with one answer (`PendingReply.parts`).
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_size
from gossipkv.wire._wire cimport Cursor, take_response


cdef void replies_release(ReplyQueue* replies) noexcept nogil:
    """Free the queue. Requires: the queue is the first member of its allocation."""
    buffer_release(&replies.pending)
    buffer_release(&replies.notes)
    buffer_release(&replies.kept)
    buffer_release(&replies.seen)
    free(replies)


cdef int write_answers(ReplyQueue* replies, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Write these answers, and kept ones that waited for them; keep those with missing predecessors. -1: out of memory.

    Requires: the answers are whole messages of this node.
    """
    cdef Cursor message
    cdef Cursor left = Cursor(data, data + size)
    cdef PendingReply* reply
    cdef uint32_t id = 0
    while left.at < left.end:
        if replies.write_plain != NULL and replies.write_plain(replies, &left, out):
            if replies.kept_count > 0 and write_kept(replies, out) < 0:
                return -1
            continue
        message.at = left.at
        skip_value(&left)
        message.end = left.at
        take_response(&message, &id)
        id -= replies.first_id
        if id >= reply_count(replies):  # The request was already answered, and the connection ends.
            continue
        reply = reply_at(replies, id)
        if id == 0 and reply.parts == 1:
            if replies.write(replies, &message, 1, out) < 0:
                return -1
            remove_replies(replies, 1)
        else:
            reply.is_kept = True
            reply.at = buffer_size(&replies.kept)
            reply.size = message.end - message.at
            if buffer_append(&replies.kept, message.at, reply.size) < 0:
                return -1
            replies.kept_count += 1
        if replies.kept_count > 0 and write_kept(replies, out) < 0:
            return -1
    return 0


cdef int write_kept(ReplyQueue* replies, Buffer* out) noexcept nogil:
    """Write the kept answers up to the first missing one; -1 if out of memory."""
    cdef Cursor bodies[MAX_PARTS]
    cdef PendingReply* reply
    cdef const uint8_t* at
    cdef uint32_t parts
    cdef uint32_t i
    while reply_count(replies) > 0:
        parts = reply_at(replies, 0).parts
        if parts > reply_count(replies):
            return 0
        for i in range(parts):
            reply = reply_at(replies, i)
            if not reply.is_kept:
                return 0
            at = replies.kept.data + replies.kept.start + reply.at
            bodies[i] = Cursor(at, at + reply.size)
        if replies.write(replies, bodies, <int>parts, out) < 0:
            return -1
        replies.kept_count -= parts
        remove_replies(replies, parts)
    return 0
