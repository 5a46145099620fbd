"""HTTP/1.1: answers to `get`, `put` and `delete`, exactly as the gateway writes them (`gossipkv.http.reads`, `writes`).

The connection's notes hold a request's database and `If-None-Match`. The core answers `[value, origin, {"node": ...}]`,
where the origin is the version of a dataset or the token of a table, or answers an error. The map has `expires_at` of a
record that expires.

    a read          200, 206, 304, 404, 416; the tag has a version's name, or the size of a table's value
    a write         204 with the token, or 202 if it was accepted for later
    an error        its status, in one line of text

Python has set the media types of databases (`HttpWords`) and the modification times of versions (published table).
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, strlen

from gossipkv.storage._storage cimport crc32c_of
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve
from gossipkv.wire._wire cimport (
    Blob, Cursor, blob_is, put, put_bytes, take_array, take_bin, take_blob, take_map, take_nil, take_str, take_unsigned,
)
from gossipkv.wire._text cimport is_of_name, is_space, put_blob, put_decimal, put_end, put_word

cdef extern from "<time.h>" nogil:
    struct tm:
        int tm_sec
        int tm_min
        int tm_hour
        int tm_mday
        int tm_mon
        int tm_year
        int tm_wday
    ctypedef long time_t
    tm* gmtime_r(const time_t* seconds, tm* result)

cdef enum:
    # Room for a head: status, date, and the words around the variable parts.
    HEAD_ROOM = 1024
    CODES = 17

cdef struct StatusLine:
    const char* code  # code on the wire
    const char* line

cdef StatusLine STATUSES[CODES]
STATUSES[:] = [
    StatusLine(b"NOT_READY", b"503 Service Unavailable"),
    StatusLine(b"UNKNOWN_DATABASE", b"404 Not Found"),
    StatusLine(b"UNAVAILABLE", b"502 Bad Gateway"),
    StatusLine(b"OVERLOADED", b"429 Too Many Requests"),
    StatusLine(b"TIMEOUT", b"504 Gateway Timeout"),
    StatusLine(b"BAD_REQUEST", b"400 Bad Request"),
    StatusLine(b"UNAUTHORIZED", b"401 Unauthorized"),
    StatusLine(b"UNKNOWN_VERSION", b"404 Not Found"),
    StatusLine(b"CONFLICT", b"409 Conflict"),
    StatusLine(b"STALE_CONFIG", b"409 Conflict"),
    StatusLine(b"WRITE_LOST", b"410 Gone"),
    StatusLine(b"TOO_LARGE", b"413 Content Too Large"),
    StatusLine(b"CORRUPT", b"500 Internal Server Error"),
    StatusLine(b"INTERNAL", b"500 Internal Server Error"),
    StatusLine(b"NOT_SERVED", b"500 Internal Server Error"),
    StatusLine(b"UNKNOWN_METHOD", b"501 Not Implemented"),
    StatusLine(b"UNKNOWN", b"504 Gateway Timeout"),
]

cdef struct HttpAnswer:  # an answer of the core to a `get`
    Blob database
    Blob tag  # value of `If-None-Match`; empty for none
    Blob value
    Blob origin
    Blob node  # another node that answered; empty for this one
    Blob modified  # header line with the time of modification
    Blob tagged  # the tag without its checksum: the version's name, or the size of a table's value
    char size[24]
    bint found
    bint of_table
    int64_t lifetime_s  # of a record that expires, at least 1; else 0
    uint32_t checksum  # CRC-32C of the value


cdef ReplyQueue* http_begin(HttpWords* words) noexcept nogil:
    """Return the state of a new connection; NULL if out of memory."""
    cdef HttpState* http = <HttpState*>calloc(1, sizeof(HttpState))
    if http == NULL:
        return NULL
    http.words = words
    http.replies.write = write_http_answer
    return &http.replies


cdef void http_forget(HttpWords* words) noexcept nogil:
    free(words.types)
    words.types = NULL
    words.type_count = 0


cdef int note_request(ReplyQueue* replies, PendingReply* reply, const Blob* database, const Blob* tag) noexcept nogil:
    """Keep the parts of a request that its answer needs; -1 if out of memory."""
    cdef uint16_t sizes[2]
    sizes[0] = <uint16_t>database.size
    sizes[1] = <uint16_t>tag.size
    if buffer_reserve(&replies.notes, sizeof(sizes) + database.size + tag.size) < 0:
        return -1
    buffer_append(&replies.notes, <const uint8_t*>sizes, sizeof(sizes))
    put_blob(&replies.notes, database)
    put_blob(&replies.notes, tag)
    reply.note_size = sizeof(sizes) + database.size + tag.size
    return 0


cdef inline void read_note(const ReplyQueue* replies, HttpAnswer* answer) noexcept nogil:
    cdef const uint8_t* at = replies.notes.data + replies.notes.start
    cdef uint16_t sizes[2]
    memcpy(sizes, at, sizeof(sizes))
    answer.database = Blob(at + sizeof(sizes), sizes[0])
    answer.tag = Blob(answer.database.data + sizes[0], sizes[1])


cdef int write_http_answer(ReplyQueue* replies, const Cursor* bodies, int parts, Buffer* out) noexcept nogil:
    """Write the answer to the first pending request."""
    cdef HttpWords* words = (<HttpState*>replies).words
    cdef const PendingReply* reply = reply_at(replies, 0)
    cdef bint is_last = reply.is_last or (words.draining and reply_count(replies) == 1)
    cdef Cursor result = bodies[0]
    cdef Blob media_type
    cdef HttpAnswer answer
    read_note(replies, &answer)
    if not take_nil(&result):
        return write_http_refusal(words, result, reply.form == HEAD, is_last, out)
    if reply.form == WRITTEN:
        return write_written(words, &result, is_last, out)
    read_result(words, &result, &answer)
    # The name is another node's lie, which must not inject a header.
    if not answer.of_table and not is_name(&answer.origin):
        return write_bad_node(words, reply.form == HEAD, is_last, out)
    media_type = type_of(words, &answer.database)
    if buffer_reserve(
        out, HEAD_ROOM + answer.value.size + answer.database.size + media_type.size + 3 * answer.origin.size +
        answer.node.size
    ) < 0:
        return -1
    if not answer.found:
        put_missing(words, &answer, reply.form == HEAD, is_last, out)
    else:
        put_value(words, reply, &answer, &media_type, is_last, out)
    return 0


cdef void read_result(HttpWords* words, Cursor* result, HttpAnswer* answer) noexcept nogil:
    """Parse `[value or nil, version or token, {"node": ...}]`, and find the version's modification time."""
    cdef Py_ssize_t count = take_array(result)
    cdef DatabaseRow* database = NULL
    cdef VersionRow* version = NULL
    cdef uint64_t expires_ms = 0
    cdef Blob name
    answer.value = answer.origin = answer.node = answer.modified = Blob(NULL, 0)
    answer.lifetime_s = 0
    answer.found = take_blob(result, &answer.value)
    if not answer.found:
        take_nil(result)
    answer.of_table = take_bin(result, &answer.origin)
    if not answer.of_table:
        take_str(result, &answer.origin)
        if words.table != NULL:
            database = (<PublishedTable>words.table).find_database(&answer.database)
        if database != NULL:
            version = version_named(database, &answer.origin)
        if version != NULL:
            answer.modified = version.modified
    for _ in range(take_map(result) if count > 2 else 0):
        if not take_blob(result, &name):
            break
        if blob_is(&name, b"node", 4):
            take_blob(result, &answer.node)
            if compare(&answer.node, &words.node) == 0 or not is_printable(&answer.node):
                answer.node.size = 0
        elif blob_is(&name, b"expires_at", 10) and take_unsigned(result, &expires_ms):
            answer.lifetime_s = max(<int64_t>(expires_ms // 1000) - words.now_s, <int64_t>1)
        else:
            skip_value(result)


cdef bint is_name(const Blob* name) noexcept nogil:
    """True if the name is a possible name of a version."""
    cdef Py_ssize_t i
    for i in range(name.size):
        if not is_of_name(name.data[i]):
            return False
    return name.size > 0


cdef bint is_printable(const Blob* text) noexcept nogil:
    """True if the text may appear in a header."""
    cdef Py_ssize_t i
    for i in range(text.size):
        if text.data[i] < 0x20 or text.data[i] == 0x7F:
            return False
    return True


cdef Blob type_of(const HttpWords* words, const Blob* database) noexcept nogil:
    """Return the media type of the database's values."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = words.type_count
    cdef Py_ssize_t middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = compare(&words.types[middle].database, database)
        if order == 0:
            return words.types[middle].name
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return words.usual


# A value ----------------------------------------------------------------------------------------------------------


cdef void put_value(
    HttpWords* words, const PendingReply* reply, HttpAnswer* answer, const Blob* media_type, bint is_last, Buffer* out
) noexcept nogil:
    """Write the value, a part of the value, or that the client knows it."""
    cdef int64_t first
    cdef int64_t last
    cdef bint is_part = choose_part(reply, answer.value.size, &first, &last)
    answer.checksum = crc32c_of(answer.value.data, answer.value.size, 0)
    answer.tagged = answer.origin
    if answer.of_table:
        answer.tagged = Blob(
            <const uint8_t*>answer.size, snprintf(answer.size, sizeof(answer.size), b"%zd", answer.value.size)
        )
    if answer.tag.size > 0 and matches_tag(answer):
        put_status(words, b"304 Not Modified", out)
        put_validators(answer, out)
        put_about(answer, out)
        end_connection(is_last, out)
        return
    if is_part and first >= answer.value.size:
        put_unsatisfiable(words, answer, is_last, out)
        return
    put_status(words, b"206 Partial Content" if is_part else b"200 OK", out)
    put_type(media_type, out)
    if is_part:
        put_word(out, b"Content-Range: bytes ")
        put_decimal(out, <uint64_t>first)
        put(out, 0x2D)
        put_decimal(out, <uint64_t>last)
        put(out, 0x2F)
        put_decimal(out, <uint64_t>answer.value.size)
        put_end(out)
    else:
        put_word(out, b"Accept-Ranges: bytes\r\n")
    put_validators(answer, out)
    put_about(answer, out)
    end_head(last + 1 - first, is_last, out)
    if reply.form != HEAD:
        put_bytes(out, answer.value.data + first, <Py_ssize_t>(last + 1 - first))


cdef bint choose_part(const PendingReply* reply, int64_t size, int64_t* first, int64_t* last) noexcept nogil:
    """Find the first and last byte to send. Return True for a part, which may be empty."""
    first[0] = 0
    last[0] = size - 1
    if reply.form == BYTE_RANGE:
        first[0] = reply.first
        if reply.last >= 0:
            last[0] = min(reply.last, size - 1)
        return True
    # The last bytes of an empty value are the whole value.
    if reply.form == LAST_BYTES and (size > 0 or reply.last == 0):
        first[0] = max(size - reply.last, <int64_t>0)
        return True
    return False


cdef bint matches_tag(const HttpAnswer* answer) noexcept nogil:
    """True if `If-None-Match` names the value's tag, weak or not; `*` names any tag."""
    cdef const uint8_t* at = answer.tag.data
    cdef Py_ssize_t size = answer.tag.size
    cdef uint8_t checksum[8]
    if at[0] == 0x2A:
        return True
    if at[0] == 0x57:  # The tag is weak (`W/`).
        at += 2
        size -= 2
    if size != answer.tagged.size + 11 or memcmp(at + 1, answer.tagged.data, answer.tagged.size) != 0:
        return False
    write_checksum(answer.checksum, checksum)
    return at[answer.tagged.size + 1] == 0x2D and memcmp(at + answer.tagged.size + 2, checksum, 8) == 0


cdef inline void write_checksum(uint32_t checksum, uint8_t* digits) noexcept nogil:
    """Write the checksum as eight hexadecimal digits."""
    cdef int i
    cdef uint8_t digit
    for i in range(8):
        digit = <uint8_t>((checksum >> (28 - 4 * i)) & 0xF)
        digits[i] = <uint8_t>(0x30 + digit if digit < 10 else 0x57 + digit)


# Answers without a value ------------------------------------------------------------------------------------------


cdef void put_missing(
    HttpWords* words, const HttpAnswer* answer, bint is_head, bint is_last, Buffer* out
) noexcept nogil:
    """Write `DATABASE VERSION has no such key`, or `DATABASE has no such key` for a table."""
    cdef Py_ssize_t size = answer.database.size + 17 + (0 if answer.of_table else 1 + answer.origin.size)
    put_status(words, b"404 Not Found", out)
    put_text_type(out)
    put_about(answer, out)
    end_head(size, is_last, out)
    if is_head:
        return
    put_blob(out, &answer.database)
    if not answer.of_table:
        put(out, 0x20)
        put_blob(out, &answer.origin)
    put_word(out, b" has no such key\n")


cdef int write_written(HttpWords* words, Cursor* result, bint is_last, Buffer* out) noexcept nogil:
    """Write that a write is done, and the token; or that it was accepted for later, which no session depends on."""
    cdef Blob token = Blob(NULL, 0)
    cdef bint is_done = take_bin(result, &token)
    if buffer_reserve(out, HEAD_ROOM + 2 * token.size) < 0:
        return -1
    put_status(words, b"204 No Content" if is_done else b"202 Accepted", out)
    if is_done:
        put_token_line(&token, out)
        end_connection(is_last, out)
    else:
        end_head(0, is_last, out)
    return 0


cdef void put_unsatisfiable(HttpWords* words, const HttpAnswer* answer, bint is_last, Buffer* out) noexcept nogil:
    """Refuse a range that has no byte of the value."""
    cdef char line[128]
    cdef int size = snprintf(
        line, sizeof(line), b"the value has %lld bytes, and the requested range is outside of it\n",
        <long long>answer.value.size,
    )
    put_status(words, b"416 Range Not Satisfiable", out)
    put_text_type(out)
    put_word(out, b"Content-Range: bytes */")
    put_decimal(out, <uint64_t>answer.value.size)
    put_end(out)
    put_about(answer, out)
    end_head(size, is_last, out)
    put_bytes(out, <const uint8_t*>line, size)


cdef int write_http_refusal(HttpWords* words, Cursor error, bint is_head, bint is_last, Buffer* out) noexcept nogil:
    """Write `[code, message, details]` as a text line, with the code as a header; an unknown code is UNAVAILABLE."""
    cdef Blob code = Blob(NULL, 0)
    cdef Blob message = Blob(NULL, 0)
    cdef Blob strange = Blob(NULL, 0)
    cdef const char* line
    take_array(&error)
    take_blob(&error, &code)
    take_blob(&error, &message)
    line = status_of(&code, &error)
    if line == NULL:
        strange = code
        code = Blob(<const uint8_t*>b"UNAVAILABLE", 11)
        line = b"502 Bad Gateway"
    return put_refusal(words, line, &code, &strange, &message, is_head, is_last, out)


cdef int write_bad_node(HttpWords* words, bint is_head, bint is_last, Buffer* out) noexcept nogil:
    """Answer that another node has sent an invalid version name."""
    cdef const char* line = b"a node answered from a version whose name is invalid"
    cdef Blob code = Blob(<const uint8_t*>b"UNAVAILABLE", 11)
    cdef Blob message = Blob(<const uint8_t*>line, <Py_ssize_t>strlen(line))
    cdef Blob nothing = Blob(NULL, 0)
    return put_refusal(words, b"502 Bad Gateway", &code, &nothing, &message, is_head, is_last, out)


cdef int put_refusal(
    HttpWords* words, const char* status, const Blob* code, const Blob* strange, const Blob* message, bint is_head,
    bint is_last, Buffer* out,
) noexcept nogil:
    """Write an error answer; `strange`, a code unknown here, begins the line."""
    cdef Py_ssize_t size = put_one_line(message, NULL) + 1
    if buffer_reserve(out, HEAD_ROOM + code.size + strange.size + message.size) < 0:
        return -1
    put_status(words, status, out)
    put_text_type(out)
    put_word(out, b"X-GossipKV-Error: ")
    put_blob(out, code)
    put_end(out)
    if memcmp(status, b"503", 3) == 0 or memcmp(status, b"429", 3) == 0:
        put_word(out, b"Retry-After: 1\r\n")
    elif memcmp(status, b"401", 3) == 0:
        put_word(out, b"WWW-Authenticate: Bearer\r\n")
    end_head(size if strange.size == 0 else strange.size + 2 + size, is_last, out)
    if is_head:
        return 0
    if strange.size > 0:
        put_blob(out, strange)
        put_word(out, b": ")
    put_one_line(message, out)
    put(out, 0x0A)
    return 0


cdef const char* status_of(const Blob* code, Cursor* details) noexcept nogil:
    """Return the code's status, or NULL. A dataset that is not ready is a 404: there may never be a version."""
    cdef int i
    for i in range(CODES):
        if blob_is(code, STATUSES[i].code, <Py_ssize_t>strlen(STATUSES[i].code)):
            if i == 0 and names_database(details):
                return b"404 Not Found"
            return STATUSES[i].line
    return NULL


cdef bint names_database(Cursor* details) noexcept nogil:
    cdef Py_ssize_t left = take_map(details)
    cdef Blob name
    while left > 0 and take_blob(details, &name):
        if blob_is(&name, b"database", 8):
            return True
        skip_value(details)
        left -= 1
    return False


cdef Py_ssize_t put_one_line(const Blob* message, Buffer* out) noexcept nogil:
    """Write the message's words separated by blanks, or only count if `out` is NULL. Return the number of bytes."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t i
    cdef bint is_apart = False
    for i in range(message.size):
        if is_space(message.data[i]):
            is_apart = size > 0
            continue
        if out != NULL:
            if is_apart:
                put(out, 0x20)
            put(out, message.data[i])
        size += 1 + is_apart
        is_apart = False
    return size


cdef int write_too_slow(HttpWords* words, int64_t limit_ms, Buffer* out) noexcept nogil:
    """Answer that a request was incomplete at its time-out, and end the connection after that; -1 if out of memory."""
    cdef char line[128]
    cdef Blob message = Blob(<const uint8_t*>line, 0)
    message.size = snprintf(
        line, sizeof(line), b"the request did not arrive completely within %g s", <double>limit_ms / 1000
    )
    if buffer_reserve(out, HEAD_ROOM + message.size) < 0:
        return -1
    put_status(words, b"408 Request Timeout", out)
    put_text_type(out)
    end_head(message.size + 1, True, out)
    put_blob(out, &message)
    put(out, 0x0A)
    return 0


# Heads; there is room ---------------------------------------------------------------------------------------------


# These headers follow the date of each answer, as in the gateway (`gossipkv.http.exchange`): no stored value is a page.
cdef const char* GUARDS = (
    b"X-Content-Type-Options: nosniff\r\n"
    b"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; sandbox\r\n"
)
cdef const char* DAYS = b"SunMonTueWedThuFriSat"
cdef const char* MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"


cdef void put_status(HttpWords* words, const char* status, Buffer* out) noexcept nogil:
    """Write the status line, and the common headers, which are rewritten once a second."""
    cdef tm when
    cdef char line[DATED_BYTES + 1]
    cdef time_t seconds = <time_t>words.now_s
    if words.dated_s != words.now_s:
        gmtime_r(&seconds, &when)
        snprintf(
            line, sizeof(line), b"Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n%s",
            DAYS + 3 * when.tm_wday, when.tm_mday, MONTHS + 3 * when.tm_mon, 1900 + when.tm_year,
            when.tm_hour, when.tm_min, when.tm_sec, GUARDS,
        )
        memcpy(words.dated, line, DATED_BYTES)
        words.dated_s = words.now_s
    put_word(out, b"HTTP/1.1 ")
    put_word(out, status)
    put_end(out)
    put_bytes(out, words.dated, DATED_BYTES)


cdef void put_type(const Blob* media_type, Buffer* out) noexcept nogil:
    put_word(out, b"Content-Type: ")
    put_blob(out, media_type)
    put_end(out)


cdef void put_text_type(Buffer* out) noexcept nogil:
    put_word(out, b"Content-Type: text/plain; charset=utf-8\r\n")


cdef void put_validators(const HttpAnswer* answer, Buffer* out) noexcept nogil:
    """Write the tag, with a checksum since a version may be republished under its name; and the version's time."""
    cdef uint8_t checksum[8]
    write_checksum(answer.checksum, checksum)
    put_word(out, b"ETag: \"")
    put_blob(out, &answer.tagged)
    put(out, 0x2D)
    put_bytes(out, checksum, 8)
    put_word(out, b"\"\r\n")
    put_blob(out, &answer.modified)


cdef void put_about(const HttpAnswer* answer, Buffer* out) noexcept nogil:
    """Write the version or token, the name of the node that answered if it was another, and the lifetime if any."""
    if not answer.of_table:
        put_word(out, b"X-Sequins-Version: ")
        put_blob(out, &answer.origin)
        put_end(out)
    else:
        put_word(out, b"Cache-Control: no-store\r\n")
        put_token_line(&answer.origin, out)
    if answer.node.size > 0:
        put_word(out, b"X-Sequins-Proxied-To: ")
        put_blob(out, &answer.node)
        put_end(out)
    if answer.lifetime_s > 0:
        put_word(out, b"GossipKV-TTL: ")
        put_decimal(out, <uint64_t>answer.lifetime_s)
        put_end(out)


cdef void put_token_line(const Blob* token, Buffer* out) noexcept nogil:
    if token.size > 0:
        put_word(out, b"GossipKV-Token: ")
        put_base64(token, out)
        put_end(out)


cdef void put_base64(const Blob* data, Buffer* out) noexcept nogil:
    cdef const char* letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef uint32_t three
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t left
    cdef int j
    while i < data.size:
        left = min(data.size - i, <Py_ssize_t>3)
        three = 0
        for j in range(3):
            three = (three << 8) | (data.data[i + j] if j < left else 0)
        for j in range(4):
            put(out, <uint8_t>(letters[(three >> (18 - 6 * j)) & 0x3F] if j <= left else 0x3D))
        i += 3


cdef void end_head(int64_t size, bint is_last, Buffer* out) noexcept nogil:
    """Write the length of the body, and the end of the head."""
    put_word(out, b"Content-Length: ")
    put_decimal(out, <uint64_t>size)
    put_end(out)
    end_connection(is_last, out)


cdef void end_connection(bint is_last, Buffer* out) noexcept nogil:
    """Write the end of a head; with `is_last` the connection closes after the answer."""
    if is_last:
        put_word(out, b"Connection: close\r\n")
    put_end(out)
