"""MGET, and EXISTS of several keys: a `get_many` for the keys of each database, and one answer in the keys' order."""

from libc.stdint cimport uint8_t

from gossipkv.wire._buffer cimport Buffer, buffer_append
from gossipkv.wire._resp cimport take_word
from gossipkv.wire._wire cimport Blob, Cursor, blob_is, put_array, put_bin, put_map

cdef enum:
    READ_KEYS = 16000  # of a table in one request; keys of a dataset are from one version, so they are one request
    MAX_DATABASES = 64  # of one command: each key is compared with all of them

cdef const char* TOO_MANY_DATABASES = (
    b"-ERR the command has keys of more than 64 databases; split it into several commands\r\n"
)


cdef struct Part:  # the keys of a command that one request reads
    Blob database
    Py_ssize_t count
    Py_ssize_t limit  # the most keys that it may have
    Py_ssize_t first  # the number of its first key
    Cursor words  # the words from its first key on


cdef int divide_reads(
    Core core, const RespState* resp, const Command* command, Part* parts, uint8_t* order
) noexcept nogil:
    """Note the part of each key. Return the number of parts; -1: a word names no database, -2: they are too many."""
    cdef Cursor words = command.words
    cdef Cursor ahead
    cdef Blob word, database, key
    cdef DatabaseRow* row
    cdef Py_ssize_t i
    cdef int count = 0, part
    for i in range(command.count - 1):
        ahead = words
        take_word(&words, &word)
        if not divide_key(core, resp, &word, &database, &key):
            return -1
        part = count - 1
        while part >= 0 and (
            parts[part].count == parts[part].limit
            or not blob_is(&database, <const char*>parts[part].database.data, parts[part].database.size)
        ):
            part -= 1
        if part < 0:
            if count - i // READ_KEYS >= MAX_DATABASES:
                return -2
            row = core.published.find_database(&database)
            part = count
            count += 1
            parts[part] = Part(
                database, 0, command.count if row != NULL and row.table == NULL else READ_KEYS, i, ahead
            )
        order[i] = <uint8_t>part
        parts[part].count += 1
    return count


cdef void take_reads(Core core, Connection* connection, Command* command) noexcept nogil:
    """Serve requests for the keys of each database, with one answer."""
    cdef RespState* resp = resp_of(connection.replies)
    cdef Buffer* out = &core.words
    cdef uint8_t* order = out.data + out.end
    cdef Part parts[MAX_PARTS]
    cdef PendingReply* reply
    cdef int part, count = divide_reads(core, resp, command, parts, order)
    cdef Py_ssize_t begin, shown, at
    cdef Blob word, database
    cdef Blob key = Blob(NULL, 0)
    if count < 0:
        write_line(core, connection, NO_DATABASE if count == -1 else TOO_MANY_DATABASES)
        return
    out.end += command.count
    begin = out.end
    for part in range(count):
        shown = shown_bytes(core, resp, &parts[part].database)
        begin_params(out, 2 + <int>(shown > 0), &parts[part].database)
        put_array(out, parts[part].count)
        core.elements = 5 + parts[part].count
        at = parts[part].first
        while parts[part].count > 0:
            take_word(&parts[part].words, &word)
            if order[at] == part:
                divide_key(core, resp, &word, &database, &key)
                put_bin(out, key.data, key.size)
                parts[part].count -= 1
            at += 1
        if shown > 0:
            put_map(out, 1)
            put_shown(resp, shown, out)
        command.request.msgid = next_id(connection.replies)
        command.request.params = params_from(out, begin)
        reply = queue_answer(core, connection, command, count if part == 0 else 0)
        if reply == NULL:
            return
        if part == 0 and count > 1:
            reply.note_size = command.count - 1
            if buffer_append(&connection.replies.notes, order, reply.note_size) < 0:
                core.connections.doom(connection, CLOSED_MEMORY)
                return
        take_request(core, connection, &command.request)
        out.end = begin  # Requests that wait keep a copy.
