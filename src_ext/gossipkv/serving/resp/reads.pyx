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
    Py_ssize_t size  # bytes of its keys as parameters
    Py_ssize_t begin  # where its parameters begin, and where its next key is written
    Py_ssize_t at


cdef inline bint takes_key(const Part* part, const Blob* database) noexcept nogil:
    return part.count < part.limit and blob_is(database, <const char*>part.database.data, part.database.size)


cdef int divide_reads(
    Core core, const RespState* resp, const Command* command, Part* parts, uint8_t* order
) noexcept nogil:
    """Note the part of each key. Return the number of parts; -1: a word names no database, -2: they are too many."""
    cdef Cursor words = command.words
    cdef Blob word, database, key
    cdef DatabaseRow* row
    cdef Py_ssize_t i
    cdef int count = 0, part = -1
    for i in range(command.count - 1):
        take_word(&words, &word)
        if not divide_key(core, resp, &word, &database, &key):
            return -1
        if part < 0 or not takes_key(&parts[part], &database):
            part = count - 1
            while part >= 0 and not takes_key(&parts[part], &database):
                part -= 1
        if part < 0:
            if count - i // READ_KEYS >= MAX_DATABASES:
                return -2
            row = core.published.find_database(&database)
            part = count
            count += 1
            parts[part] = Part(database, 0, command.count if row != NULL and row.table == NULL else READ_KEYS, 0, 0, 0)
        order[i] = <uint8_t>part
        parts[part].count += 1
        parts[part].size += key.size + (2 if key.size <= 0xFF else 3 if key.size <= 0xFFFF else 5)
    return count


cdef bint note_order(Core core, Connection* connection, const uint8_t* order, Py_ssize_t count) noexcept nogil:
    """Note for the last reply which of its parts has each value. Return False if out of memory."""
    reply_at(connection.replies, reply_count(connection.replies) - 1).note_size = count
    if buffer_append(&connection.replies.notes, order, count) < 0:
        core.connections.doom(connection, CLOSED_MEMORY)
    return not connection.doomed


cdef void take_reads(Core core, Connection* connection, Command* command) noexcept nogil:
    """Serve requests for the keys of each database, with one answer."""
    cdef RespState* resp = resp_of(connection.replies)
    cdef Buffer* out = &core.words
    cdef uint8_t* order = out.data + out.end
    cdef Part parts[MAX_PARTS + 1]
    cdef Cursor words = command.words
    cdef Blob word, database
    cdef Blob key = Blob(NULL, 0)
    cdef Py_ssize_t i, shown
    cdef int count = divide_reads(core, resp, command, parts, order)
    if count < 0:
        write_line(core, connection, NO_DATABASE if count == -1 else TOO_MANY_DATABASES)
        return
    out.end += command.count
    for i in range(count):
        shown = shown_bytes(core, resp, &parts[i].database)
        parts[i].begin = out.end
        begin_params(out, 2 + <int>(shown > 0), &parts[i].database)
        put_array(out, parts[i].count)
        parts[i].at = out.end
        out.end += parts[i].size
        if shown > 0:
            put_map(out, 1)
            put_shown(resp, shown, out)
    parts[count].begin = out.end
    for i in range(command.count - 1):
        take_word(&words, &word)
        divide_key(core, resp, &word, &database, &key)
        out.end = parts[order[i]].at
        put_bin(out, key.data, key.size)
        parts[order[i]].at = out.end
    for i in range(count):
        core.elements = 5 + parts[i].count
        shown_bytes(core, resp, &parts[i].database)  # Notes the table for the reply.
        command.request.msgid = next_id(connection.replies)
        command.request.params = Cursor(out.data + parts[i].begin, out.data + parts[i + 1].begin)
        if not queue_answer(core, connection, command, count if i == 0 else 0) or (
            i == 0 and count > 1 and not note_order(core, connection, order, command.count - 1)
        ):
            return
        take_request(core, connection, &command.request)
