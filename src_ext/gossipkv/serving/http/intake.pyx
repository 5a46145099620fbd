"""Received requests of HTTP/1.1: plain ones are gathered as gets or handed off; a strange one ends the serving here.

A connection with a strange next request (`request/requests.pyx`) is no longer read. Once all earlier requests are
answered, the loop *detaches* the connection: the descriptor and all bytes from that request on go to the gateway's
process, which serves the connection to its end. A write waits for all requests before it, and those behind wait for
it: only reads are processed together. The only body read here is that of a plain PUT of a table that this node
has: its one `Content-Length` is digits, and nothing else in the head could say where the body ends.
"""

from libc.stdint cimport uint8_t

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._text cimport host_is_expected
from gossipkv.wire._wire cimport TRUE, Blob, Cursor, Envelope, put, put_array, put_bin, put_map, put_text

cdef enum:
    # Bytes of parameters beside database and key, which are shorter than the request.
    HTTP_PARAMS_BYTES = 64
    ELEMENTS = 6


cdef Py_ssize_t take_plain(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process plain requests. Return how many bytes they had."""
    cdef HttpState* state = <HttpState*>connection.replies
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    cdef Envelope request
    cdef PlainRequest plain
    if size < state.needed:
        return 0
    state.needed = 0
    while at < size:
        if connection.strange or not may_process(core, connection):
            connection.held = not connection.broken
            break
        length = read_plain(data + at, size - at, &plain)
        if length >= 0 and plain.wanted == WRITTEN and not is_table(core, &plain.database):
            length = STRANGE
        if length >= 0 and plain.host.data != NULL and not host_is_expected(plain.host, state.words.hosts):
            length = STRANGE
        if length > 0 and find_room(core, connection, length + HTTP_PARAMS_BYTES):
            write_plain_request(core, connection, &plain, &request)
            if plain.method == READ_KEY and gather(core, data + at, &request) != HAND_OFF:
                note(core, connection, &plain)
                at += length
                if (plain.is_last or core.gathered.count == MAX_GATHERED) and not answer_gathered(
                    core, connection, data, &at
                ):
                    break
                if plain.is_last:
                    end_behind(core, connection)
                continue
        if core.gathered.count > 0:  # The gathered gets come first, and may leave no room for this request.
            if not answer_gathered(core, connection, data, &at):
                break
            continue
        if length == NOT_WHOLE or connection.doomed:
            core.turn_work -= REQUEST_WORK
            if plain.wanted == WRITTEN:  # A body that comes in pieces does not have its head parsed with each.
                state.needed = plain.body.data + plain.body.size - (data + at)
            break
        if length < 0:
            connection.strange = connection.held = True
            break
        if plain.wanted == WRITTEN and awaits_others(connection):  # RFC 9112, 9.3.2: the reads before it run first.
            connection.held = True
            break
        core.turn_work -= REQUEST_WORK
        core.elements = ELEMENTS
        note(core, connection, &plain)
        take_request(core, connection, &request)
        connection.spoken = True
        at += length
        if plain.is_last:
            end_behind(core, connection)
    answer_gathered(core, connection, data, &at)
    return at


cdef inline void end_behind(Core core, Connection* connection) noexcept nogil:
    """Read nothing more: the connection ends after the pending answers."""
    connection.broken = True
    core.connections.finish(connection, CLOSED_AS_ASKED)


cdef inline bint is_table(Core core, const Blob* name) noexcept nogil:
    """True of a table of which this node has a part."""
    cdef DatabaseRow* database = core.published.find_database(name)
    return database != NULL and database.table != NULL


cdef inline void write_plain_request(
    Core core, Connection* connection, const PlainRequest* plain, Envelope* request
) noexcept nogil:
    """Rewrite the request: `get [database, key, {"explain": true}]`, `put [table, key, value, {}]`, `delete [...]`."""
    cdef Buffer* out = &core.words
    cdef Py_ssize_t begin = out.end
    cdef bint shows = plain.token.size > 0
    put_array(out, 4 if plain.method == PUT_KEY else 3)
    put_bin(out, plain.database.data, plain.database.size)
    put_key(plain, out)
    if plain.method == READ_KEY:
        put_map(out, 1 + shows)
        put_text(out, b"explain")
        put(out, TRUE)
    else:
        if plain.method == PUT_KEY:
            put_bin(out, plain.body.data, plain.body.size)
        put_map(out, shows)
    if shows:
        put_text(out, b"token")
        put_shown_token(plain, out)
    request.msgid = next_id(connection.replies)
    request.method = Blob(<const uint8_t*>b"get", 3)
    if plain.method == PUT_KEY:
        request.method = Blob(<const uint8_t*>b"put", 3)
    elif plain.method == DELETE_KEY:
        request.method = Blob(<const uint8_t*>b"delete", 6)
    request.params = Cursor(out.data + begin, out.data + out.end)


cdef inline void note(Core core, Connection* connection, const PlainRequest* plain) noexcept nogil:
    """Note how to write the answer."""
    cdef PendingReply* reply = queue_reply(connection.replies, plain.wanted, 1)
    if reply == NULL or note_request(connection.replies, reply, &plain.database, &plain.tag) < 0:
        core.connections.doom(connection, CLOSED_MEMORY)
        return
    reply.is_last = plain.is_last
    reply.first = plain.first
    reply.last = plain.last
