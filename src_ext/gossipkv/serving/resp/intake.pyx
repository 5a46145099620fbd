"""Received commands of RESP: processed one after the other, with plain gets gathered as in `request/intake.pyx`.

A broken stream (invalid size, endless line, open quotes, another protocol) gets one error after all pending answers,
and the connection ends.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_size
from gossipkv.wire._wire cimport BAD_REQUEST, FIX_MAP, IS_REQUEST, Blob, Envelope, frame_begin, read_envelope
from gossipkv.wire._resp cimport RESP_COMPLETE, RESP_PARTIAL, resp_scan, scan_get

cdef enum:
    RESP_PARAMS_BYTES = 400  # Bytes of a request's parameters beside its words: a database and heads.
    # Words of an inline command grow at most by this factor, as words of an array and as parameters.
    LINE_GROWTH = 16
    SPARE_WORDS_BYTES = 4 * 1024 * 1024

# The error lines are in the order of `RespResult`, from `RESP_NO_BULK` on downwards.
cdef const char* WHY[6]
WHY[:] = [
    b"",
    b"-ERR Protocol error: expected '$': a command is an array of strings\r\n",
    b"-ERR Protocol error: invalid bulk length\r\n",
    b"-ERR Protocol error: invalid multibulk length\r\n",
    b"-ERR Protocol error: too big inline request, of more than 65536 bytes\r\n",
    b"-ERR Protocol error: the command is larger than max_frame, which is %zd bytes\r\n",
]
cdef int COUNTED[6]
COUNTED[:] = [
    FRAMES_MALFORMED, FRAMES_MALFORMED, FRAMES_TOO_LARGE, FRAMES_TOO_MANY_ELEMENTS, FRAMES_TOO_LARGE, FRAMES_TOO_LARGE,
]

cdef const char* NO_MESSAGES = (
    b"this port of the node speaks RESP, as Redis does, not MessagePack-RPC: use that of `listen`"
)
cdef const char* NO_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port of a GossipKV node speaks RESP, as Redis does, not HTTP.\r\n"
)


cdef Py_ssize_t take_commands(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process commands. Return how many bytes they had."""
    cdef Py_ssize_t at = 0, length = 0
    cdef int result
    cdef bint is_read, awaits_write
    cdef Command command
    while at < size:
        if not may_process(core, connection):
            connection.held = not connection.broken
            break
        awaits_write = resp_of(connection.replies).writes > 0
        length = 0
        if connection.scan.position == 0 and not awaits_write and not resp_of(connection.replies).in_multi:
            length = gather_get(core, connection, data + at, size - at)
        if length > 0:
            at += length
            if core.gathered.count == MAX_GATHERED and not answer_gathered(core, connection, data, &at):
                break
            continue
        result = RESP_PARTIAL
        is_read = False
        if connection.spoken or data[at] < FIX_MAP:
            result = resp_scan(&connection.scan, data + at, size - at, &core.frame_limits)
        if result == RESP_COMPLETE:
            length = connection.scan.position
            core.elements = connection.scan.elements
            is_read = find_room(
                core, connection, (length if data[at] == 0x2A else LINE_GROWTH * length)
                + RESP_PARAMS_BYTES + buffer_size(&connection.replies.seen)
            )
            if is_read:
                read_command(core, connection, data + at, length, &command)
            if is_read and command.verb == ONE_KEY and not awaits_write:
                if gather(core, data + at, &command.request) != HAND_OFF:
                    queue_answer(core, connection, &command, 1)
                    frame_begin(&connection.scan)
                    at += length
                    if core.gathered.count == MAX_GATHERED and not answer_gathered(core, connection, data, &at):
                        break
                    continue
        if core.gathered.count > 0:  # The gathered gets come first, and may leave no room for this command.
            frame_begin(&connection.scan)
            if not answer_gathered(core, connection, data, &at):
                break
            continue
        if not connection.spoken and is_foreign(
            core, connection, data + at, length if result == RESP_COMPLETE else size - at, result
        ):
            break
        if result == RESP_PARTIAL or connection.doomed:
            break
        if result != RESP_COMPLETE:
            refuse_stream(core, connection, result)
            break
        frame_begin(&connection.scan)
        if must_be_held(core, connection, &command, awaits_write):
            connection.held = True
            break
        core.turn_work -= REQUEST_WORK
        take_command(core, connection, &command)
        connection.spoken = True
        at += length
        if command.verb == REFUSED and command.count < 0:
            break_stream(core, connection, FRAMES_MALFORMED)
    answer_gathered(core, connection, data, &at)
    if core.words.capacity > SPARE_WORDS_BYTES:
        buffer_release(&core.words)
    return at


cdef inline bint must_be_held(
    Core core, Connection* connection, const Command* command, bint awaits_write
) noexcept nogil:
    """Return True if a command waits for room or for what was sent before it.

    Reads wait for all writes before them, so if a write is not answered, only writes are in flight. No read sees a
    later write, and the last write of a key counts. A command that Python answers waits for all before it, and those
    behind it wait: it may set the user, or write in steps.
    """
    cdef bint waits
    if must_wait(core, &command.request):
        return True
    if command.verb == OTHER or command.verb == HELLO or command.verb == RESET:
        return awaits_others(connection)
    if command.verb == SET or command.verb == DELETE:
        waits = (
            is_being_written(connection.replies, command.first) if awaits_write else connection.in_flight.count > 0
        )
    else:
        waits = awaits_write and (command.verb == ONE_KEY or command.verb == MANY_KEYS)
    if waits:
        awaits_others(connection)
    return waits


cdef inline bint is_being_written(const ReplyQueue* replies, int64_t hash) noexcept nogil:
    """True if a write of a key with that hash is not answered."""
    cdef const PendingReply* reply
    cdef uint32_t i
    for i in range(reply_count(replies)):
        reply = reply_at(replies, i)
        if reply.first == hash and is_of_write(reply.form) and not reply.is_kept:
            return True
    return False


cdef inline Py_ssize_t gather_get(
    Core core, Connection* connection, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    """Gather a plain `GET`. Return its length, or 0 for any other command."""
    cdef Envelope request
    cdef PendingReply* reply
    cdef Blob key
    cdef Py_ssize_t length = scan_get(data, size, &core.frame_limits, &key)
    if (
        length == 0
        or not find_room(core, connection, length + RESP_PARAMS_BYTES + buffer_size(&connection.replies.seen))
        or not write_get(core, resp_of(connection.replies), &key, False, &request)
        or gather(core, data, &request) == HAND_OFF
    ):
        return 0
    reply = queue_reply(connection.replies, VALUE, 1)
    if reply == NULL:
        core.connections.doom(connection, CLOSED_MEMORY)
    else:
        reply.protocol = <uint8_t>resp_of(connection.replies).protocol
        note_shown(resp_of(connection.replies), reply)
    return length


# Broken streams ---------------------------------------------------------------------------------------------------


cdef inline void break_stream(Core core, Connection* connection, int counter) noexcept nogil:
    connection.broken = True
    core.connections.finish(connection, CLOSED_BAD_FRAME)
    core.counts[counter] += 1


cdef void refuse_stream(Core core, Connection* connection, int result) noexcept nogil:
    """Answer, as Redis does, why no further command can be found."""
    cdef char line[ERROR_LINE_BYTES]
    snprintf(line, ERROR_LINE_BYTES, WHY[-result], core.frame_limits.max_size)
    write_line(core, connection, line)
    break_stream(core, connection, COUNTED[-result])


cdef bint is_foreign(
    Core core, Connection* connection, const uint8_t* data, Py_ssize_t size, int result
) noexcept nogil:
    """True if the client begins in another protocol; answer in that protocol which one is served here."""
    cdef Envelope envelope
    cdef Buffer answer
    cdef int kind
    if data[0] >= FIX_MAP:
        kind = read_envelope(data, size, &envelope)
        buffer_init(&answer)
        if (kind == IS_REQUEST or kind == BAD_REQUEST) and write_bad_request(&answer, envelope.msgid, NO_MESSAGES) == 0:
            write_now(core, connection, answer.data, answer.end)
        buffer_release(&answer)
    elif result == RESP_COMPLETE and size > 10 and memcmp(data + size - 10, b"HTTP/1.", 7) == 0:
        write_line(core, connection, NO_HTTP)
    else:
        return False
    connection.broken = True
    core.connections.finish(connection, CLOSED_BAD_MESSAGE)
    return True
