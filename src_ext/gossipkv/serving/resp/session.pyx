"""The session of a RESP connection: its reads see its writes, and do not go back.

    answers' tokens ──> joined, unless settled ──> shown by each read of their table ──> the answer's replaces them

`ReplyQueue.seen` has the tokens that answers gave, one behind the other, and of each origin of a table the last one
only. A token is *settled* if all hosts have what it names, by a map that this node knows: any replica that is asked
then has it, so it is not kept, and a connection that reads settled records has no session to show.

A read waits until the writes before it are answered (`RespState.writes`). A write of many keys waits for all before it
(`must_be_held`): the answer to each batch has an entry for each partition, and several at once would fill the session.
A write of one key shows the session only when Python is asked, which may ask another node: a replica that covers the
session, and takes the write in the loop, gives it a later time than all of that. Pipelined requests show the same
tokens; the first answer replaces them and begins another *era*, and the tokens of the others are joined.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from gossipkv.replication._replication cimport (
    TABLE_ID_BYTES, TOKEN_HEAD_BYTES, TOKEN_PART_BYTES, TOKEN_SEAL_BYTES, CalmReplica, CalmTable, is_covered,
    is_settled, load_calm, load_number,
)
from gossipkv.serving._transport cimport RESP_LISTENER
from gossipkv.storage.engine._engine cimport ReadGate, enter_gate, leave_gate
from gossipkv.wire._buffer cimport buffer_append, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, put_array, put_bin_head, put_bytes, put_map, put_text, take_array, take_bin,
)

cdef enum:
    MAX_SESSION_BYTES = 65536  # as the usual `max_token`; a connection whose session is longer ends
    PRUNED_BYTES = 1024  # Longer sessions are looked through for what is settled by now.
    ENTRY_AT = TOKEN_HEAD_BYTES + TOKEN_PART_BYTES
    PLAIN_TOKEN_BYTES = ENTRY_AT + TOKEN_SEAL_BYTES  # of a token of one table without entries
    ENTRY_SIZE = 16

cdef uint64_t NO_ORIGIN = <uint64_t>-1  # LEFT_OUT, which names no write


cdef inline Py_ssize_t token_length(const uint8_t* token) noexcept nogil:
    """Return the length of the first of some whole tokens."""
    cdef const uint8_t* at = token + 1
    cdef Py_ssize_t body = <Py_ssize_t>at[0] << 24 | <Py_ssize_t>at[1] << 16 | <Py_ssize_t>at[2] << 8 | at[3]
    return TOKEN_HEAD_BYTES + body + TOKEN_SEAL_BYTES


cdef inline Py_ssize_t entries_of(const uint8_t* token) noexcept nogil:
    """Return how many entries a token of one table has; -1 for one of several tables."""
    cdef const uint8_t* at = token + ENTRY_AT - 4
    cdef Py_ssize_t count = <Py_ssize_t>at[0] << 24 | <Py_ssize_t>at[1] << 16 | <Py_ssize_t>at[2] << 8 | at[3]
    return count if token_length(token) == PLAIN_TOKEN_BYTES + ENTRY_SIZE * count else -1


cdef inline uint64_t table_of(const uint8_t* token) noexcept nogil:
    """Return what stands for a token's only table; 0 for several tables."""
    return load_number(token + TOKEN_HEAD_BYTES) if entries_of(token) >= 0 else 0


cdef bint are_whole_tokens(const Blob* token) noexcept nogil:
    """True if the data is whole tokens, each of one table at least."""
    cdef Py_ssize_t at = 0
    while at < token.size:
        if token.size - at < PLAIN_TOKEN_BYTES or token_length(token.data + at) < PLAIN_TOKEN_BYTES:
            return False
        at += token_length(token.data + at)
    return at == token.size


cdef PyObject* table_here(PyObject* published, const uint8_t* token) noexcept nogil:
    """Return the `CalmTable` of a token's only table; NULL: this node has no part of it."""
    cdef DatabaseRow* database
    cdef Py_ssize_t i
    if published == NULL:
        return NULL
    for i in range((<PublishedTable>published).database_count):
        database = &(<PublishedTable>published).databases[i]
        if database.table != NULL and memcmp(
            (<CalmTable>database.table).id_bytes, token + TOKEN_HEAD_BYTES, TABLE_ID_BYTES
        ) == 0:
            return database.table
    return NULL


cdef bint is_known_as_settled(const RespState* resp, const Blob* token) noexcept nogil:
    """True if a token names no write that is not on all hosts, and no newer map than this node goes by."""
    cdef PyObject* table
    if token.size != PLAIN_TOKEN_BYTES and (
        token.size != PLAIN_TOKEN_BYTES + ENTRY_SIZE or load_number(token.data + ENTRY_AT) != NO_ORIGIN
    ):
        return False
    table = table_here(resp.published[0], token.data)
    return table != NULL and (
        load_number(token.data + TOKEN_HEAD_BYTES + TABLE_ID_BYTES) <= load_calm(&(<CalmTable>table).config)
    )


cdef int note_new_token(RespState* resp, const PendingReply* reply, const Blob* token) noexcept nogil:
    """Join a token that is not the settled one of before; -1 if it cannot be kept."""
    if not are_whole_tokens(token):
        return 0
    if reply.is_shown and reply.era == resp.era:
        drop_tokens(resp, reply.shown_table, reply.shown_end)
    if is_known_as_settled(resp, token):
        resp.settled_size = <uint8_t>token.size
        memcpy(resp.settled, token.data, <size_t>token.size)
        return 0
    return join_token(resp, token)


cdef void drop_tokens(RespState* resp, uint64_t table, Py_ssize_t end) noexcept nogil:
    """Drop the tokens that were shown: of the first `end` bytes those of this table, or all if it is 0."""
    cdef Buffer* seen = &resp.replies.seen
    cdef uint8_t* data = seen.data + seen.start
    cdef Py_ssize_t size = buffer_size(seen)
    cdef Py_ssize_t at = 0, kept = 0, length
    cdef uint64_t of
    while at < size:
        length = token_length(data + at)
        of = table_of(data + at)
        if at >= end or not (table == 0 or of == table or of == 0):
            memmove(data + kept, data + at, <size_t>length)
            kept += length
        at += length
    seen.end = seen.start + kept
    resp.era += 1
    if kept == 0:
        buffer_release(seen)


cdef int join_token(RespState* resp, const Blob* token) noexcept nogil:
    """Join a token: it takes the place of the former one of the same single origin, or is appended."""
    cdef Buffer* seen = &resp.replies.seen
    cdef Py_ssize_t at = 0
    cdef bint is_single = token.size == PLAIN_TOKEN_BYTES + ENTRY_SIZE
    cdef uint8_t* former
    while at < buffer_size(seen):
        former = seen.data + seen.start + at
        at += token_length(former)
        if token_length(former) != token.size:
            continue
        if memcmp(former, token.data, <size_t>token.size) == 0:
            return 0
        if not is_single or memcmp(former, token.data, TOKEN_HEAD_BYTES + TABLE_ID_BYTES) != 0:
            continue
        if load_number(former + ENTRY_AT) == load_number(token.data + ENTRY_AT) != NO_ORIGIN and (
            load_number(former + ENTRY_AT + 8) <= load_number(token.data + ENTRY_AT + 8)
            and load_number(former + ENTRY_AT - 12) <= load_number(token.data + ENTRY_AT - 12)
        ):
            memcpy(former, token.data, <size_t>token.size)
            resp.era += 1
            return 0
    if buffer_size(seen) + token.size > MAX_SESSION_BYTES:
        return -1
    return buffer_append(seen, token.data, token.size)


cdef int note_result(RespState* resp, const PendingReply* reply, Cursor result) noexcept nogil:
    """Let the session see the token of a request's answer `nil, result` or `error, nil`."""
    cdef Blob token = Blob(NULL, 0)
    if not take_nil(&result):
        if is_of_session(&result):
            forget_session(resp)  # No later read could be answered; the client is told now.
        return 0
    if reply.form != DONE and reply.form != DELETED:
        if take_array(&result) < 2:
            return 0
        skip_value(&result)
    return note_token(resp, reply, &token) if take_bin(&result, &token) else 0


cdef bint is_of_session(Cursor* error) noexcept nogil:
    """True if `[code, message, {details}]` says that the session's writes are lost, or the key of its token is gone."""
    cdef Blob code, word, option
    if take_array(error) < 3 or not take_blob(error, &code) or not take_blob(error, &word):
        return False
    if blob_is(&code, b"WRITE_LOST", 10):
        return True
    return (
        take_map(error) == 1 and take_blob(error, &word) and take_blob(error, &option)
        and blob_is(&word, b"option", 6) and blob_is(&option, b"token", 5)
    )


cdef void forget_session(RespState* resp) noexcept nogil:
    buffer_release(&resp.replies.seen)
    resp.era += 1


# Requests ---------------------------------------------------------------------------------------------------------


cdef Py_ssize_t shown_bytes(Core core, RespState* resp, const Blob* database) noexcept nogil:
    """Return how many bytes of tokens a request shows: those of its table, or all if the table is not here."""
    cdef Buffer* seen = &resp.replies.seen
    cdef DatabaseRow* row
    cdef Py_ssize_t at = 0, shown = 0
    resp.is_shown = False
    if buffer_size(seen) == 0:
        return 0
    if buffer_size(seen) > resp.prune_bytes:
        prune(core, resp)
    row = core.published.find_database(database)
    if row != NULL and row.table == NULL:  # A dataset.
        return 0
    resp.shown_table = 0 if row == NULL else load_number((<CalmTable>row.table).id_bytes)
    while at < buffer_size(seen):
        if is_for(resp, seen.data + seen.start + at):
            shown += token_length(seen.data + seen.start + at)
        at += token_length(seen.data + seen.start + at)
    resp.is_shown = shown > 0
    return shown


cdef inline bint is_for(const RespState* resp, const uint8_t* token) noexcept nogil:
    cdef uint64_t table = table_of(token)
    return resp.shown_table == 0 or table == 0 or table == resp.shown_table


cdef void put_shown(RespState* resp, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Write the option that shows the session, without the head of the map. Requires: there is room, and `shown_bytes`
    came before."""
    cdef Buffer* seen = &resp.replies.seen
    cdef const uint8_t* token
    cdef Py_ssize_t at = 0
    put_text(out, b"token")
    put_bin_head(out, size)
    while at < buffer_size(seen):
        token = seen.data + seen.start + at
        if is_for(resp, token):
            put_bytes(out, token, token_length(token))
        at += token_length(token)


cdef RespState* writing_session(Core core, const BacklogRequest* request) noexcept nogil:
    """Return the state of the connection that writes one key, if it has a session to show then; else NULL."""
    cdef Connection* connection
    if request.kind != ASKED or request.method_size != 3 and request.method_size != 6 or not is_write(request):
        return NULL
    connection = core.connections.find(request.handle)
    if connection == NULL or connection.listener != RESP_LISTENER or buffer_size(&connection.replies.seen) == 0:
        return NULL
    return resp_of(connection.replies)


cdef bint covers_session(
    Core core, const BacklogRequest* request, CalmTable table, CalmReplica replica
) noexcept nogil:
    """True if a replica has what the session of the one who writes has seen of its partition."""
    cdef RespState* resp = writing_session(core, request)
    cdef Buffer* seen
    cdef Py_ssize_t at = 0
    if resp == NULL:
        return True
    seen = &resp.replies.seen
    if buffer_size(seen) > resp.prune_bytes:
        prune(core, resp)
    resp.shown_table = load_number(table.id_bytes)
    while at < buffer_size(seen):
        if is_for(resp, seen.data + seen.start + at) and not covers_token(replica, seen.data + seen.start + at):
            return False
        at += token_length(seen.data + seen.start + at)
    return True


cdef bytes params_to_ask(Core core, BacklogRequest* request):
    """Return the parameters with which Python is asked; the write of one key shows the session.

    Its only options before are the lifetime of a SET.
    """
    cdef RespState* resp = writing_session(core, request)
    cdef Cursor params
    cdef Cursor rest
    cdef Blob database, word
    cdef Buffer shown
    cdef Py_ssize_t count, size
    if resp == NULL:
        return params_of(request)
    params.at = request_bytes(request) + request.method_size
    params.end = params.at + request.size
    count = take_array(&params)
    rest = params
    size = shown_bytes(core, resp, &database) if take_text(&params, &database) else 0
    if size == 0:
        return params_of(request)
    note_shown(resp, reply_at(&resp.replies, request.msgid - resp.replies.first_id))
    memset(&shown, 0, sizeof(Buffer))
    try:
        if buffer_reserve(&shown, request.size + size + 4 * HEAD_BYTES) < 0:
            raise MemoryError
        if count == 4:
            take_text(&params, &word)
            take_text(&params, &word)
        else:
            params.at = params.end
        put_array(&shown, 4 if count == 4 else count + 1)
        put_bytes(&shown, rest.at, params.at - rest.at)
        put_map(&shown, 1 + <int>(count == 4))
        if count == 4 and take_map(&params) == 1:
            put_bytes(&shown, params.at, params.end - params.at)
        put_shown(resp, size, &shown)
        return PyBytes_FromStringAndSize(<const char*>shown.data + shown.start, buffer_size(&shown))
    finally:
        buffer_release(&shown)


cdef bint covers_token(CalmReplica replica, const uint8_t* token) noexcept nogil:
    """True if the replica has what a token of one table names of its partition."""
    cdef const uint8_t* entry = token + ENTRY_AT
    cdef Py_ssize_t left = entries_of(token)
    cdef int place
    if left < 0:
        return False
    while left > 0:
        place = replica.place_of(load_number(entry))
        if place >= 0 and not is_covered(replica, place, load_number(entry + 8)):
            return False
        entry += ENTRY_SIZE
        left -= 1
    return True


cdef void prune(Core core, RespState* resp) noexcept nogil:
    """Drop the tokens of single writes that are settled by now."""
    cdef Buffer* seen = &resp.replies.seen
    cdef uint8_t* data = seen.data + seen.start
    cdef Py_ssize_t size = buffer_size(seen)
    cdef Py_ssize_t at = 0, kept = 0, length
    if core.published.gate is None:
        return
    enter_gate(<ReadGate>core.published.gate, core.connections.pump)
    while at < size:
        length = token_length(data + at)
        if not is_settled_here(resp, data + at):
            memmove(data + kept, data + at, <size_t>length)
            kept += length
        at += length
    leave_gate(<ReadGate>core.published.gate, core.connections.pump)
    seen.end = seen.start + kept
    resp.prune_bytes = max(2 * kept, <Py_ssize_t>PRUNED_BYTES)
    resp.era += 1
    if kept == 0:
        buffer_release(seen)


cdef bint is_settled_here(const RespState* resp, const uint8_t* token) noexcept nogil:
    """True if a token is of one write, and a calm replica here knows that all hosts have it."""
    cdef PyObject* table
    cdef PyObject* replica
    cdef uint64_t origin = load_number(token + ENTRY_AT)
    if entries_of(token) != 1:
        return False
    table = table_here(resp.published[0], token)
    if table == NULL or load_number(token + TOKEN_HEAD_BYTES + TABLE_ID_BYTES) > load_calm(&(<CalmTable>table).config):
        return False
    replica = (<CalmTable>table).host_of(origin)
    return replica != NULL and is_settled(
        <CalmReplica>replica, (<CalmReplica>replica).place_of(origin), load_number(token + ENTRY_AT + 8)
    )
