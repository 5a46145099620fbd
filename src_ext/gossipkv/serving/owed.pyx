"""Answers in the order of their requests, for dialects that have no ids, over a core that speaks MessagePack-RPC.

A dialect is what is read and what is said, and nothing in between.  A connection of a listener for RESP or HTTP has an
`Owing` (of MessagePack-RPC it is NULL, and one `if` for each receive and each send asks for it):

* What it *reads* becomes requests of the core, `get`, `get_many`, `put`, with ids that count up
  (`resp_intake.pyx`, `http_intake.pyx`).
* From there on a request is as any other: here, forwarded, waiting for the disk, handed off.  Limits and counters are
  the same, and pipelined gets that are elsewhere are asked for together.
* Whoever answers writes a message, `[1, id, error, result]`, where answers go: in `out`, or behind what the connection
  has yet to send.  `say_answers` *says* all that have come in the dialect, in the order of the ids, just before bytes
  are sent.  One whose turn it is not is kept, and counts as what the connection holds.

So there is one rule of order, and it is here.  How an answer is said is noted with the request (`Owed.form`, and what
the dialect has put into `notes`).

A command over several databases is as many requests, whose answers are said together (`Owed.parts`).

Rejected: answers written in the dialect by the functions that answer, the value copied once.  Each of those who answer
later (owners, the disk, Python) would have to know what a get, an EXISTS or a part of an MGET becomes, and to wait for
its turn.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_size
from gossipkv.wire._wire cimport Cursor, take_response


cdef void owing_release(Owing* owing) noexcept nogil:
    """Give back all of it.  Requires: it is the first member of what was allocated."""
    buffer_release(&owing.owed)
    buffer_release(&owing.notes)
    buffer_release(&owing.kept)
    free(owing)


cdef int say_answers(Owing* owing, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Say these answers, and those that have waited for them; keep whose turn it is not.  -1: no memory.

    Requires: they are whole messages of this node's own.
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
        if id >= owed_count(owing):  # It was told, and the connection ends.
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
    """Say what is kept, as far as nothing before it is missing; -1: no memory."""
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
