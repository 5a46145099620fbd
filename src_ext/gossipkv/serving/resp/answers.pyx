"""RESP: answers of the core, written in the form that the request noted (`AnswerForm`).

`connection/reply_queue.pyx` has the reply queue.
An answer that needs no request (PING, an error, Python's INFO) is a message with a RESP result (`SAID`). MGET over
several databases is several `get_many`, and fails if one of them does.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport strlen

from gossipkv.wire._buffer cimport Buffer, buffer_reserve
from gossipkv.wire._wire cimport (
    Blob, Cursor, blob_is, put, put_bytes, take_array, take_bin, take_blob, take_map, take_nil, take_str, take_unsigned,
)
from gossipkv.wire._resp cimport BULK_BYTES, put_bulk, put_line, put_null
from gossipkv.wire._text cimport put_end


# Clients know these texts of Redis.
cdef const char* NO_TOKEN = b"Authentication required."
cdef const char* NO_PERMISSION = b"No permissions to access a key or to run this command"


cdef ReplyQueue* resp_begin(PyObject** published) noexcept nogil:
    """Return the state of a new connection; NULL if out of memory."""
    cdef RespState* resp = <RespState*>calloc(1, sizeof(RespState))
    if resp == NULL:
        return NULL
    resp.protocol = 2
    resp.published = published
    resp.prune_bytes = PRUNED_BYTES
    resp.replies.write = write_resp_answer
    resp.replies.write_plain = write_value_answer
    return &resp.replies


cdef bint write_value_answer(ReplyQueue* replies, Cursor* left, Buffer* out) noexcept nogil:
    """Write the next answer if it is a value or null in its turn, as most are, so that it is read once."""
    cdef const PendingReply* reply = reply_at(replies, 0)
    cdef Cursor ahead = Cursor(left.at + 2, left.end)
    cdef uint64_t id = 0
    cdef Blob value
    cdef Blob version
    cdef bint found
    if reply_count(replies) == 0 or reply.form != VALUE:
        return False
    take_unsigned(&ahead, &id)
    if <uint32_t>id != replies.first_id or not take_nil(&ahead) or take_array(&ahead) != 2:
        return False
    found = take_bin(&ahead, &value)
    if not (found or take_nil(&ahead)):
        return False
    if not take_str(&ahead, &version) and (  # Else it is a dataset's.
        not take_bin(&ahead, &version) or note_token(resp_of(replies), reply, &version) < 0
    ):
        return False
    if buffer_reserve(out, BULK_BYTES + (value.size if found else 0)) < 0:
        return False
    if found:
        put_bulk(out, value.data, value.size)
    else:
        put_null(out, reply.protocol)
    left.at = ahead.at
    remove_replies(replies, 1)
    return True


# Forms of answers -------------------------------------------------------------------------------------------------


cdef int write_resp_answer(ReplyQueue* replies, const Cursor* bodies, int parts, Buffer* out) noexcept nogil:
    """Write the first error, or the results in the noted form."""
    cdef const PendingReply* reply = reply_at(replies, 0)
    cdef Cursor results[MAX_PARTS]
    cdef Py_ssize_t size = 0
    cdef int i
    for i in range(parts):
        if note_result(resp_of(replies), reply_at(replies, i), bodies[i]) < 0:
            return -1
    if is_of_write(reply.form):
        resp_of(replies).writes -= <uint32_t>parts
    for i in range(parts):
        results[i] = bodies[i]
        size += results[i].end - results[i].at
        if not take_nil(&results[i]):
            return write_resp_refusal(results[i], out)
    if reply.form == VALUES:
        return write_values(replies, reply, results, parts, out)
    if buffer_reserve(out, size + BULK_BYTES) < 0:
        return -1
    if FOUND_OF <= reply.form <= DELETED:
        put_sum(reply, results, parts, out)
    else:
        put_one(reply, results[0], out)
    return 0


cdef int write_resp_refusal(Cursor error, Buffer* out) noexcept nogil:
    """Write `[code, message, details]` as a line `-CODE message` without line breaks; or in Redis's own words."""
    cdef Py_ssize_t at
    cdef Blob code = Blob(NULL, 0)
    cdef Blob message = Blob(NULL, 0)
    take_array(&error)
    take_blob(&error, &code)
    take_blob(&error, &message)
    if blob_is(&code, b"UNAUTHORIZED", 12):
        code = Blob(<const uint8_t*>b"NOPERM", 6)
        message = Blob(<const uint8_t*>NO_PERMISSION, <Py_ssize_t>strlen(NO_PERMISSION))
        if take_map(&error) > 0:  # The error says that `auth` is missing.
            code = Blob(<const uint8_t*>b"NOAUTH", 6)
            message = Blob(<const uint8_t*>NO_TOKEN, <Py_ssize_t>strlen(NO_TOKEN))
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


cdef void put_one(const PendingReply* reply, Cursor result, Buffer* out) noexcept nogil:
    """Write a form of a single value, or a result that is RESP already."""
    cdef Blob value = Blob(NULL, 0)
    cdef int64_t first
    cdef int64_t last
    cdef bint found
    if reply.form == SAID:
        if not take_bin(&result, &value):  # A token of the session follows.
            take_array(&result)
            take_bin(&result, &value)
        put_bytes(out, value.data, value.size)
        return
    take_array(&result)
    found = take_blob(&result, &value)
    if reply.form == VALUE:
        if found:
            put_bulk(out, value.data, value.size)
        else:
            put_null(out, reply.protocol)
    elif reply.form == RANGE:
        first = max(reply.first + value.size if reply.first < 0 else reply.first, <int64_t>0)
        last = min(reply.last + value.size if reply.last < 0 else reply.last, <int64_t>value.size - 1)
        if first <= last:
            put_bulk(out, value.data + first, <Py_ssize_t>(last - first + 1))
        else:
            put_bulk(out, out.data, 0)
    elif reply.form == TYPE:
        put_bytes(out, <const uint8_t*>(b"+string\r\n" if found else b"+none\r\n"), 9 if found else 7)
    elif reply.form == EXPIRES:
        put_line(out, 0x3A, lifetime_of(reply, result) if found else -2)
    else:
        put_line(out, 0x3A, value.size if reply.form == LENGTH else found)


cdef int64_t lifetime_of(const PendingReply* reply, Cursor rest) noexcept nogil:
    """Return a record's lifetime from `version or token, {explanation}`, rounded to its unit; -1: it never expires."""
    cdef Blob name
    cdef uint64_t expires_ms
    skip_value(&rest)
    for _ in range(take_map(&rest)):
        if take_blob(&rest, &name) and blob_is(&name, b"expires_at", 10) and take_unsigned(&rest, &expires_ms):
            return (max(<int64_t>expires_ms - reply.last, <int64_t>0) + reply.first // 2) // reply.first
        skip_value(&rest)
    return -1


cdef int write_values(
    const ReplyQueue* replies, const PendingReply* reply, Cursor* results, int parts, Buffer* out
) noexcept nogil:
    """Write the values of all `get_many` results as one array, in the order of the keys."""
    cdef const uint8_t* order = replies.notes.data + replies.notes.start
    cdef Cursor* result = results
    cdef Py_ssize_t room = BULK_BYTES
    cdef Py_ssize_t count = 0
    cdef Blob value
    cdef Py_ssize_t i
    for i in range(parts):
        take_array(&results[i])
        count += max(take_array(&results[i]), <Py_ssize_t>0)
        room += results[i].end - results[i].at
    if buffer_reserve(out, room + count * BULK_BYTES) < 0:
        return -1
    put_line(out, 0x2A, count)
    for i in range(count):
        if reply.note_size > 0:
            result = &results[order[i]]
        if take_blob(result, &value):
            put_bulk(out, value.data, value.size)
        else:
            take_nil(result)
            put_null(out, reply.protocol)
    return 0


cdef void put_sum(const PendingReply* reply, Cursor* results, int parts, Buffer* out) noexcept nogil:
    """Write success, the number of found keys, or one delete."""
    cdef Blob value
    cdef int64_t found = 0
    cdef int i
    if reply.form == DONE:
        put_bytes(out, <const uint8_t*>b"+OK\r\n", 5)
        return
    if reply.form == DELETED:
        put_line(out, 0x3A, 1)
        return
    for i in range(parts):
        take_array(&results[i])
        for _ in range(take_array(&results[i])):
            if take_blob(&results[i], &value):
                found += 1
            else:
                take_nil(&results[i])
    put_line(out, 0x3A, found)
