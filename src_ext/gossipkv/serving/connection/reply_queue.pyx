"""Replies in request order, for the dialects without ids (RESP, HTTP), over a core that speaks MessagePack-RPC.

A connection of a RESP or HTTP listener has an `Owing`, which is NULL for MessagePack-RPC. Its input becomes requests of
the core (`get`, `get_many`, `put`) with ascending ids (`resp/intake.pyx`, `http/intake.pyx`). Limits, counters,
forwarding, disk waits and hand-offs are then the same as for any request. Each answer is a message `[1, id, error,
result]` in `out` or behind the output. Just before bytes are sent, `say_answers` translates the answers into the
dialect in id order. An early answer is kept, and counts as held by the connection. `Owed.form` and `notes` say how to
write an answer; a command over several databases is several requests with one answer (`Owed.parts`).

Rejected: answers written in the dialect by owners, disk and Python. Each would save a copy of the value, but would need
to know the forms of get, EXISTS or MGET, and to wait for its turn.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_size
from gossipkv.wire._wire cimport Cursor, take_response


cdef void owing_release(Owing* owing) noexcept nogil:
    """Free the queue. Requires: the queue is the first member of its allocation."""
    buffer_release(&owing.owed)
    buffer_release(&owing.notes)
    buffer_release(&owing.kept)
    free(owing)


cdef int say_answers(Owing* owing, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Write these answers, and kept ones that waited for them; keep those with missing predecessors. -1: out of memory.

    Requires: the answers are whole messages of this node.
    """
    cdef Cursor message
    cdef Cursor left = Cursor(data, data + size)
    cdef Owed* owed
    cdef uint32_t id = 0
    while left.at < left.end:
        if owing.say_plain != NULL and owing.say_plain(owing, &left, out):
            if owing.kept_count > 0 and say_kept(owing, out) < 0:
                return -1
            continue
        message.at = left.at
        skip_value(&left)
        message.end = left.at
        take_response(&message, &id)
        id -= owing.first_id
        if id >= owed_count(owing):  # The request was already answered, and the connection ends.
            continue
        owed = owed_of(owing, id)
        if id == 0 and owed.parts == 1:
            if owing.say(owing, &message, 1, out) < 0:
                return -1
            pay(owing, 1)
        else:
            owed.is_kept = True
            owed.at = buffer_size(&owing.kept)
            owed.size = message.end - message.at
            if buffer_append(&owing.kept, message.at, owed.size) < 0:
                return -1
            owing.kept_count += 1
        if owing.kept_count > 0 and say_kept(owing, out) < 0:
            return -1
    return 0


cdef int say_kept(Owing* owing, Buffer* out) noexcept nogil:
    """Write the kept answers up to the first missing one; -1 if out of memory."""
    cdef Cursor bodies[MAX_PARTS]
    cdef Owed* owed
    cdef const uint8_t* at
    cdef uint32_t parts
    cdef uint32_t i
    while owed_count(owing) > 0:
        parts = owed_of(owing, 0).parts
        if parts > owed_count(owing):
            return 0
        for i in range(parts):
            owed = owed_of(owing, i)
            if not owed.is_kept:
                return 0
            at = owing.kept.data + owing.kept.start + owed.at
            bodies[i] = Cursor(at, at + owed.size)
        if owing.say(owing, bodies, <int>parts, out) < 0:
            return -1
        owing.kept_count -= parts
        pay(owing, parts)
    return 0
