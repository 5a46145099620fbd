"""RESP over a core that speaks MessagePack-RPC: answers in order, said in another way.

A dialect is what is read and what is said, and nothing in between.  A connection of the listener for RESP has a `Resp`
(`Connection.resp`; of MessagePack-RPC it is NULL, and one `if` for each receive and each send asks for it):

* *bound* is `resp_scan`; *read* makes each command one or more requests, `get`, `get_many`, `put`, with ids that count
  up (`_resp_commands.pyx`), and the loop that gathers them is `_resp_intake.pyx`.
* From there on a request is as any other: here, forwarded, waiting for the disk, handed off.  Limits and counters are
  the same, and pipelined gets that are elsewhere are asked for together.
* Whoever answers writes a message, `[1, id, error, result]`, where answers go: in `out`, or behind what the connection
  has yet to send.  *Answer* is `resp_say`: just before bytes are sent it says all messages that have come as RESP, in
  the order of the ids.  One whose turn it is not is kept, and counts as what the connection holds.

So there is one rule of order, and it is here.  How an answer is said is noted with the request (`Owed.form`).  What is
known without asking (PING, an error, what Python says of INFO) is a message as well, whose result is RESP (`SAID`).

A command over several databases is as many requests, whose answers are said together (`Owed.parts`): MGET of two is two
`get_many`, and if one of them fails the command does.

Rejected: RESP written by the functions that answer, the value copied once.  Each of those who answer later (owners, the
disk, Python) would have to know what a get, an EXISTS or a part of an MGET becomes, and to wait for its turn.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._frames cimport FRAME_COMPLETE, FRAME_DEPTH, FrameLimits, FrameState, frame_begin, frame_scan
from gossipkv.wire._message cimport (
    Blob, Cursor, put, put_bytes, take_array, take_bin, take_blob, take_nil, take_response, take_str, take_unsigned,
)
from gossipkv.wire._resp cimport BULK_BYTES, put_bulk, put_end, put_line, put_null

cdef enum:
    # What an idle connection may keep of what it owed.
    SPARE_BYTES = 4096


cdef Resp* resp_begin() noexcept nogil:
    """A connection that has said nothing; NULL: no memory."""
    cdef Resp* resp = <Resp*>calloc(1, sizeof(Resp))
    if resp != NULL:
        resp.protocol = 2
    return resp


cdef void resp_release(Resp* resp) noexcept nogil:
    buffer_release(&resp.owed)
    buffer_release(&resp.kept)
    free(resp)


cdef inline Owed* owed_of(Resp* resp, uint32_t number) noexcept nogil:
    """The one that is so far behind the first."""
    return <Owed*>(resp.owed.data + resp.owed.start) + number


cdef int resp_say(Resp* resp, const uint8_t* data, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Say these answers, and those that have waited for them; keep whose turn it is not.  -1: no memory.

    Requires: they are whole messages of this node's own.
    """
    cdef Cursor message
    cdef Cursor left = Cursor(data, data + size)
    cdef Owed* owed
    cdef uint32_t id = 0
    while left.at < left.end:
        if say_value(resp, &left, out):
            if resp.kept_count > 0 and say_kept(resp, out) < 0:
                return -1
            continue
        message.at = left.at
        take_message(&left)
        message.end = left.at
        take_response(&message, &id)
        id -= resp.first_id
        if id >= owed_count(resp):  # It was told, and the connection ends.
            continue
        owed = owed_of(resp, id)
        if id == 0 and owed.parts == 1:
            if say(owed, &message, 1, out) < 0:
                return -1
            pay(resp, 1)
        else:
            owed.is_kept = True
            owed.at = buffer_size(&resp.kept)
            owed.size = message.end - message.at
            if buffer_append(&resp.kept, message.at, owed.size) < 0:
                return -1
            resp.kept_count += 1
        if resp.kept_count > 0 and say_kept(resp, out) < 0:
            return -1
    return 0


cdef inline bint say_value(Resp* resp, Cursor* left, Buffer* out) noexcept nogil:
    """Say the next answer if it is a value, or none, whose turn it is: as most are, so it is read once."""
    cdef const Owed* owed = owed_of(resp, 0)
    cdef Cursor ahead = Cursor(left.at + 2, left.end)
    cdef uint64_t id = 0
    cdef Blob value
    cdef Blob version
    cdef bint found
    if owed_count(resp) == 0 or owed.form != VALUE:
        return False
    take_unsigned(&ahead, &id)
    if <uint32_t>id != resp.first_id or not take_nil(&ahead) or take_array(&ahead) != 2:
        return False
    found = take_bin(&ahead, &value)
    if not (found or take_nil(&ahead)) or not take_str(&ahead, &version):
        return False
    if buffer_reserve(out, BULK_BYTES + (value.size if found else 0)) < 0:
        return False
    if found:
        put_bulk(out, value.data, value.size)
    else:
        put_null(out, owed.protocol)
    left.at = ahead.at
    pay(resp, 1)
    return True


cdef inline void take_message(Cursor* left) noexcept nogil:
    """Pass over one whole message."""
    cdef FrameState scan
    cdef FrameLimits limits = FrameLimits(left.end - left.at, left.end - left.at, FRAME_DEPTH)
    frame_begin(&scan)
    left.at = left.at + scan.position if frame_scan(
        &scan, left.at, left.end - left.at, &limits
    ) == FRAME_COMPLETE else left.end


cdef int say_kept(Resp* resp, Buffer* out) noexcept nogil:
    """Say what is kept, as far as nothing before it is missing; -1: no memory."""
    cdef Cursor bodies[MOST_PARTS]
    cdef Owed* owed
    cdef const uint8_t* at
    cdef uint32_t parts
    cdef uint32_t i
    while owed_count(resp) > 0:
        parts = owed_of(resp, 0).parts
        if parts > owed_count(resp):
            return 0
        for i in range(parts):
            owed = owed_of(resp, i)
            if not owed.is_kept:
                return 0
            at = resp.kept.data + resp.kept.start + owed.at
            bodies[i] = Cursor(at, at + owed.size)
        if say(owed_of(resp, 0), bodies, <int>parts, out) < 0:
            return -1
        resp.kept_count -= parts
        pay(resp, parts)
    return 0


cdef inline void pay(Resp* resp, uint32_t count) noexcept nogil:
    """Owe the first ones no more; and keep no memory for nothing."""
    resp.first_id += count
    resp.owed.start += <Py_ssize_t>(count * sizeof(Owed))
    if resp.kept_count == 0:
        if resp.kept.capacity > SPARE_BYTES:
            buffer_release(&resp.kept)
        resp.kept.start = resp.kept.end = 0
    if resp.owed.start == resp.owed.end:
        if resp.owed.capacity > SPARE_BYTES:
            buffer_release(&resp.owed)
        resp.owed.start = resp.owed.end = 0


# How it is said ---------------------------------------------------------------------------------------------------


cdef int say(const Owed* owed, const Cursor* bodies, int parts, Buffer* out) noexcept nogil:
    """Say the answer that these `error, result` make up: the first error, or what the form makes of the results."""
    cdef Cursor results[MOST_PARTS]
    cdef Py_ssize_t size = 0
    cdef int i
    for i in range(parts):
        results[i] = bodies[i]
        size += results[i].end - results[i].at
        if not take_nil(&results[i]):
            return say_refusal(results[i], out)
    if owed.form == VALUES:
        return say_values(owed, results, parts, out)
    if buffer_reserve(out, size + BULK_BYTES) < 0:
        return -1
    if owed.form >= FOUND_OF:
        put_sum(owed, results, parts, out)
    else:
        put_one(owed, results[0], out)
    return 0


cdef int say_refusal(Cursor error, Buffer* out) noexcept nogil:
    """`-CODE message`, of `[code, message, details]`: a line, whatever the message has."""
    cdef Py_ssize_t at
    cdef Blob code = Blob(NULL, 0)
    cdef Blob message = Blob(NULL, 0)
    take_array(&error)
    take_blob(&error, &code)
    take_blob(&error, &message)
    if buffer_reserve(out, code.size + message.size + BULK_BYTES) < 0:
        return -1
    put(out, 0x2D)
    put_bytes(out, code.data, code.size)
    put(out, 0x20)
    at = out.end
    put_bytes(out, message.data, message.size)
    while at < out.end:
        if out.data[at] == 0x0D or out.data[at] == 0x0A:
            out.data[at] = 0x20
        at += 1
    put_end(out)
    return 0


cdef void put_one(const Owed* owed, Cursor result, Buffer* out) noexcept nogil:
    """What is made of a single value, or is said as it is."""
    cdef Blob value = Blob(NULL, 0)
    cdef int64_t first
    cdef int64_t last
    cdef bint found
    if owed.form == SAID:
        take_bin(&result, &value)
        put_bytes(out, value.data, value.size)
        return
    take_array(&result)
    found = take_blob(&result, &value)
    if owed.form == VALUE:
        if found:
            put_bulk(out, value.data, value.size)
        else:
            put_null(out, owed.protocol)
    elif owed.form == RANGE:
        first = max(owed.first + value.size if owed.first < 0 else owed.first, <int64_t>0)
        last = min(owed.last + value.size if owed.last < 0 else owed.last, <int64_t>value.size - 1)
        if first <= last:
            put_bulk(out, value.data + first, <Py_ssize_t>(last - first + 1))
        else:
            put_bulk(out, out.data, 0)
    elif owed.form == TYPE:
        put_bytes(out, <const uint8_t*>(b"+string\r\n" if found else b"+none\r\n"), 9 if found else 7)
    elif owed.form == LIFETIME:  # Nothing expires; -2 is what is not there.
        put_line(out, 0x3A, -1 if found else -2)
    else:
        put_line(out, 0x3A, value.size if owed.form == LENGTH else found)


cdef int say_values(const Owed* owed, Cursor* results, int parts, Buffer* out) noexcept nogil:
    """The values of one `get_many` behind those of another, as one array."""
    cdef Py_ssize_t counts[MOST_PARTS]
    cdef Py_ssize_t room = BULK_BYTES
    cdef Py_ssize_t count = 0
    cdef Blob value
    cdef int i
    for i in range(parts):
        take_array(&results[i])
        counts[i] = max(take_array(&results[i]), <Py_ssize_t>0)
        count += counts[i]
        room += results[i].end - results[i].at
    if buffer_reserve(out, room + count * BULK_BYTES) < 0:
        return -1
    put_line(out, 0x2A, count)
    for i in range(parts):
        for _ in range(counts[i]):
            if take_blob(&results[i], &value):
                put_bulk(out, value.data, value.size)
            else:
                take_nil(&results[i])
                put_null(out, owed.protocol)
    return 0


cdef void put_sum(const Owed* owed, Cursor* results, int parts, Buffer* out) noexcept nogil:
    """That it was done, how many were found, or how many were deleted."""
    cdef Blob value
    cdef int64_t found = 0
    cdef int i
    if owed.form == DONE:
        put_bytes(out, <const uint8_t*>b"+OK\r\n", 5)
        return
    if owed.form == DELETED:
        put_line(out, 0x3A, parts)
        return
    for i in range(parts):
        take_array(&results[i])
        for _ in range(take_array(&results[i])):
            if take_blob(&results[i], &value):
                found += 1
            else:
                take_nil(&results[i])
    put_line(out, 0x3A, found)
