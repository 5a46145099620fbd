r"""HTTP/1.1: a parser of plain requests.

    GET /DATABASE/KEY HTTP/1.1\r\n          or HEAD, or HTTP/1.0; escapes in the key are decoded once
    Host: ...\r\n                           one (of HTTP/1.0 or none), and no other header than those of the table below
    \r\n
    PUT /TABLE/KEY HTTP/1.1\r\n             or DELETE, without a body
    Host: ...\r\n
    Content-Length: 3\r\n                   one, of digits alone, at most `MAX_BODY`; the value follows the head
    \r\n

Every other request is *strange*: a host that the node does not expect (`request/intake.pyx`), another body, another
target, a condition on a write, a header that affects the answering version, or no HTTP. Strange requests are not
refused here: the connection is detached, and the gateway judges them with h11 (`request/intake.pyx`). So this parser
reads only a part of the grammar that every reader has always read alike, and its table lists allowed headers.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, strlen

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, blob_is, put, put_bin, put_bin_head
from gossipkv.wire._text cimport LONGEST_DATABASE, hex_digit, is_of_name, lower, word_is

cdef enum:
    MAX_FIELDS = 100
    LONGEST_TAG = 1024
    MAX_DIGITS = 18  # More digits are beyond the end of any value.
    FIELDS = 33
    MAX_LENGTH_DIGITS = 5
    HIDDEN = 6
    TOKEN_SIZE = 14

cdef enum FieldMeaning:
    NO_MEANING = 0  # ignored in a read
    HOST = 1
    CONNECTION = 2
    RANGE_FIELD = 4
    IF_NONE_MATCH = 8
    COOKIE = 16
    SHOWN_TOKEN = 32
    CONTENT_LENGTH = 64

cdef struct HeaderField:
    const char* name
    int size
    FieldMeaning meaning

cdef HeaderField ALLOWED[FIELDS]
ALLOWED[:] = [
    HeaderField(b"host", 4, HOST),
    HeaderField(b"user-agent", 10, NO_MEANING),
    HeaderField(b"accept", 6, NO_MEANING),
    HeaderField(b"accept-encoding", 15, NO_MEANING),
    HeaderField(b"accept-language", 15, NO_MEANING),
    HeaderField(b"connection", 10, CONNECTION),
    HeaderField(b"if-none-match", 13, IF_NONE_MATCH),
    HeaderField(b"range", 5, RANGE_FIELD),
    HeaderField(b"cache-control", 13, NO_MEANING),
    HeaderField(b"pragma", 6, NO_MEANING),
    HeaderField(b"referer", 7, NO_MEANING),
    HeaderField(b"cookie", 6, COOKIE),
    HeaderField(b"dnt", 3, NO_MEANING),
    HeaderField(b"origin", 6, NO_MEANING),
    HeaderField(b"via", 3, NO_MEANING),
    HeaderField(b"forwarded", 9, NO_MEANING),
    HeaderField(b"x-forwarded-for", 15, NO_MEANING),
    HeaderField(b"x-forwarded-host", 16, NO_MEANING),
    HeaderField(b"x-forwarded-proto", 17, NO_MEANING),
    HeaderField(b"x-real-ip", 9, NO_MEANING),
    HeaderField(b"x-request-id", 12, NO_MEANING),
    HeaderField(b"traceparent", 11, NO_MEANING),
    HeaderField(b"tracestate", 10, NO_MEANING),
    HeaderField(b"priority", 8, NO_MEANING),
    HeaderField(b"upgrade-insecure-requests", 25, NO_MEANING),
    HeaderField(b"x-forwarded-port", 16, NO_MEANING),
    HeaderField(b"x-correlation-id", 16, NO_MEANING),
    HeaderField(b"x-amzn-trace-id", 15, NO_MEANING),
    HeaderField(b"baggage", 7, NO_MEANING),
    HeaderField(b"b3", 2, NO_MEANING),
    HeaderField(b"content-type", 12, NO_MEANING),  # Some clients send it with every request.
    HeaderField(b"gossipkv-token", 14, SHOWN_TOKEN),
    HeaderField(b"content-length", 14, CONTENT_LENGTH),
]

cdef const char* TOKEN = b"gossipkv-token"

# Databases with these names are shadowed by the gateway's own paths (`gossipkv.http.order.HIDING`).
cdef const char* HIDING[HIDDEN]
HIDING[:] = [b"healthz", b"livez", b"readyz", b"metrics", b"debug", b"static"]


cdef Py_ssize_t read_plain(const uint8_t* data, Py_ssize_t size, PlainRequest* plain) noexcept nogil:
    """Parse the first request. Return its length, `NOT_WHOLE` or `STRANGE`."""
    cdef const uint8_t* at
    cdef const uint8_t* end = data + min(size, <Py_ssize_t>MAX_HEAD)
    cdef int fields = 0
    cdef int seen = 0
    cdef int meaning
    cdef Py_ssize_t left = NOT_WHOLE if size < MAX_HEAD else STRANGE  # The result if the bytes end within the head.
    plain.is_last = False
    plain.wanted = WHOLE
    plain.host = plain.tag = plain.token = plain.body = Blob(NULL, 0)
    plain.method = READ_KEY
    if memcmp(data, b"GET /", min(size, <Py_ssize_t>5)) == 0:
        at = data + 5
    elif memcmp(data, b"HEAD /", min(size, <Py_ssize_t>6)) == 0:
        at = data + 6
    elif memcmp(data, b"PUT /", min(size, <Py_ssize_t>5)) == 0:
        plain.method = PUT_KEY
        at = data + 5
    elif memcmp(data, b"DELETE /", min(size, <Py_ssize_t>8)) == 0:
        plain.method = DELETE_KEY
        at = data + 8
    else:
        return STRANGE
    if at >= end:
        return left
    at = read_target(at, end, plain)
    if at == NULL:
        return STRANGE
    while at < end:
        if at[0] == 0x0D:
            if end - at < 2:
                break
            if at[1] != 0x0A or not (seen & HOST or plain.is_old):
                return STRANGE
            if plain.is_old and seen & CONNECTION and not plain.is_last:
                return STRANGE
            if plain.method != READ_KEY:
                return end_write(data, size, at + 2, seen, plain)
            if seen & CONTENT_LENGTH:
                return STRANGE
            plain.is_last |= plain.is_old
            if data[0] == 0x48:
                plain.wanted = HEAD
            return at + 2 - data
        fields += 1
        meaning = read_field(&at, end, plain)
        if meaning < 0 or seen & meaning or fields > MAX_FIELDS:
            return STRANGE
        seen |= meaning
    return left


cdef Py_ssize_t end_write(
    const uint8_t* data, Py_ssize_t size, const uint8_t* at, int seen, PlainRequest* plain
) noexcept nogil:
    """Find the body of a write, which begins at `at`. Return the length of the request, `NOT_WHOLE` or `STRANGE`."""
    if plain.is_old or seen & (RANGE_FIELD | IF_NONE_MATCH) or plain.body.size > MAX_BODY:
        return STRANGE
    if plain.method == DELETE_KEY and plain.body.size > 0:
        return STRANGE
    if plain.method == PUT_KEY and not seen & CONTENT_LENGTH:
        return STRANGE
    plain.wanted = WRITTEN
    plain.body.data = at
    return at + plain.body.size - data if plain.body.size <= data + size - at else NOT_WHOLE


cdef const uint8_t* read_target(const uint8_t* at, const uint8_t* end, PlainRequest* plain) noexcept nogil:
    """Parse database, key and the rest of the line. Return the position behind, NULL if strange, or `end` if cut."""
    cdef const uint8_t* begin = at
    cdef int i
    while at < end and is_of_name(at[0]):
        at += 1
    plain.database = Blob(begin, at - begin)
    if at == end:
        return end if plain.database.size <= LONGEST_DATABASE else NULL
    if at[0] != 0x2F or not 0 < plain.database.size <= LONGEST_DATABASE:
        return NULL
    for i in range(HIDDEN):
        if blob_is(&plain.database, HIDING[i], <Py_ssize_t>strlen(HIDING[i])):
            return NULL
    at += 1
    begin = at
    plain.escapes = 0
    while at < end and 0x20 < at[0] < 0x7F and at[0] != 0x3F:
        if at[0] == 0x25:
            if end - at < 3:
                return end
            if hex_digit(at[1]) < 0 or hex_digit(at[2]) < 0:
                return NULL
            plain.escapes += 1
            at += 2
        at += 1
    plain.key = Blob(begin, at - begin)
    plain.is_old = end - at > 8 and at[8] == 0x30
    if end - at < 11:
        return end if memcmp(at, b" HTTP/1.0\r" if plain.is_old else b" HTTP/1.1\r", end - at) == 0 else NULL
    if memcmp(at, b" HTTP/1.", 8) != 0 or not (plain.is_old or at[8] == 0x31) or at[9] != 0x0D or at[10] != 0x0A:
        return NULL
    return at + 11 if plain.key.size > 0 else NULL


cdef int read_field(const uint8_t** at, const uint8_t* end, PlainRequest* plain) noexcept nogil:
    """Parse a header and move `at` behind it, or to `end` if incomplete. Return its meaning, or `STRANGE`."""
    cdef const uint8_t* begin = at[0]
    cdef const uint8_t* colon = <const uint8_t*>memchr(begin, 0x3A, end - begin)
    cdef const uint8_t* stop
    cdef Blob name
    cdef Blob value
    cdef int meaning
    if colon == NULL:
        at[0] = end
        return STRANGE if memchr(begin, 0x0A, end - begin) != NULL else NO_MEANING
    name = Blob(begin, colon - begin)
    meaning = meaning_of(&name)
    if meaning < 0:
        return STRANGE
    begin = colon + 1
    stop = <const uint8_t*>memchr(begin, 0x0D, end - begin)
    at[0] = end if stop == NULL or stop + 1 == end else stop + 2
    if stop == NULL:
        stop = end
    elif stop + 1 < end and stop[1] != 0x0A:
        return STRANGE
    if has_control(begin, stop):
        return STRANGE
    if at[0] == end and (stop == end or stop + 1 == end):
        return NO_MEANING
    while begin < stop and (begin[0] == 0x20 or begin[0] == 0x09):
        begin += 1
    while begin < stop and ((stop - 1)[0] == 0x20 or (stop - 1)[0] == 0x09):
        stop -= 1
    value = Blob(begin, stop - begin)
    if meaning == HOST:
        plain.host = value
    if meaning == CONNECTION:
        plain.is_last = word_is(&value, b"close")
        return meaning if plain.is_last or word_is(&value, b"keep-alive") else STRANGE
    if meaning == RANGE_FIELD:
        return meaning if read_range(value, plain) else STRANGE
    if meaning == COOKIE:
        return STRANGE if has_token(&value) else NO_MEANING
    if meaning == SHOWN_TOKEN:
        plain.token = value
        return meaning if is_base64(&value) else STRANGE
    if meaning == CONTENT_LENGTH:
        if not 0 < value.size <= MAX_LENGTH_DIGITS:
            return STRANGE
        plain.body.size = <Py_ssize_t>read_digits(&value.data, stop)
        return meaning if value.data == stop else STRANGE
    if meaning == IF_NONE_MATCH:
        plain.tag = value
        return meaning if is_tag(&value) else STRANGE
    return meaning


cdef int meaning_of(const Blob* name) noexcept nogil:
    """Return the meaning of a header for a read, or `STRANGE`."""
    cdef Py_ssize_t i
    for i in range(FIELDS):
        if ALLOWED[i].size == name.size and word_is(name, ALLOWED[i].name):
            return ALLOWED[i].meaning
    if name.size < 5 or lower(name.data[0]) != 0x73 or lower(name.data[1]) != 0x65 or lower(name.data[2]) != 0x63:
        return STRANGE
    for i in range(3, name.size):  # These are Sec-Fetch-Mode and similar headers, which only browsers may send.
        if not is_of_name(name.data[i]):
            return STRANGE
    return NO_MEANING if name.data[3] == 0x2D else STRANGE


cdef inline bint has_control(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """True if there is a byte that no header value may have."""
    cdef bint found = False
    while at < end:
        found |= (at[0] < 0x20 and at[0] != 0x09) or at[0] == 0x7F
        at += 1
    return found


cdef bint has_token(const Blob* value) noexcept nogil:
    """True if a cookie may be the page's, by which the gateway identifies a user (`gossipkv.http.permissions`)."""
    cdef Py_ssize_t i
    for i in range(value.size - TOKEN_SIZE + 1):
        if memcmp(value.data + i, TOKEN, TOKEN_SIZE) == 0:
            return True
    return False


cdef bint is_tag(const Blob* value) noexcept nogil:
    """True if the value is `*`, or exactly one tag."""
    cdef const uint8_t* at = value.data
    cdef const uint8_t* end = at + value.size
    if value.size == 1:
        return at[0] == 0x2A
    if value.size > LONGEST_TAG:
        return False
    if value.size > 2 and at[0] == 0x57 and at[1] == 0x2F:
        at += 2
    if end - at < 2 or at[0] != 0x22 or (end - 1)[0] != 0x22:
        return False
    at += 1
    while at < end - 1:
        if at[0] <= 0x20 or at[0] == 0x22:
            return False
        at += 1
    return True


cdef int base64_digit(uint8_t letter) noexcept nogil:
    """Return the digit's value, or -1."""
    if 0x41 <= letter <= 0x5A:
        return letter - 0x41
    if 0x61 <= letter <= 0x7A:
        return letter - 0x61 + 26
    if 0x30 <= letter <= 0x39:
        return letter - 0x30 + 52
    return 62 if letter == 0x2B else 63 if letter == 0x2F else -1


cdef inline Py_ssize_t base64_padding(const Blob* value) noexcept nogil:
    cdef Py_ssize_t padding = 0
    while padding < min(value.size, <Py_ssize_t>2) and value.data[value.size - 1 - padding] == 0x3D:
        padding += 1
    return padding


cdef bint is_base64(const Blob* value) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(value.size - base64_padding(value)):
        if base64_digit(value.data[i]) < 0:
            return False
    return value.size % 4 == 0


cdef bint read_range(Blob value, PlainRequest* plain) noexcept nogil:
    """Parse `bytes=a-b`, `bytes=a-` or `bytes=-n`. Return False for any other or an invalid range."""
    cdef const uint8_t* at = value.data + 6
    cdef const uint8_t* end = value.data + value.size
    if value.size < 8 or memcmp(value.data, b"bytes=", 6) != 0:
        return False
    plain.first = read_digits(&at, end)
    if at == end or at[0] != 0x2D:
        return False
    at += 1
    plain.last = read_digits(&at, end)
    if at < end or plain.first < -1 or plain.last < -1 or (plain.first < 0 and plain.last < 0):
        return False
    plain.wanted = BYTE_RANGE if plain.first >= 0 else LAST_BYTES
    return plain.first < 0 or plain.last < 0 or plain.first <= plain.last


cdef int64_t read_digits(const uint8_t** at, const uint8_t* end) noexcept nogil:
    """Parse a number. Return -1 without digits, less with too many."""
    cdef const uint8_t* begin = at[0]
    cdef int64_t number = 0
    while at[0] < end and 0x30 <= at[0][0] <= 0x39 and at[0] - begin <= MAX_DIGITS:
        number = 10 * number + at[0][0] - 0x30
        at[0] += 1
    if at[0] - begin > MAX_DIGITS:
        return -2
    return number if at[0] > begin else -1


cdef void put_key(const PlainRequest* plain, Buffer* out) noexcept nogil:
    """Write the key as MessagePack, with escapes decoded. Requires: there is room."""
    cdef const uint8_t* at = plain.key.data
    cdef const uint8_t* end = at + plain.key.size
    if plain.escapes == 0:
        put_bin(out, at, plain.key.size)
        return
    put_bin_head(out, plain.key.size - 2 * plain.escapes)
    while at < end:
        if at[0] == 0x25:
            put(out, <uint8_t>(16 * hex_digit(at[1]) + hex_digit(at[2])))
            at += 2
        else:
            put(out, at[0])
        at += 1


cdef void put_shown_token(const PlainRequest* plain, Buffer* out) noexcept nogil:
    """Write the token as MessagePack. Requires: there is room, and a token."""
    cdef Py_ssize_t size = plain.token.size // 4 * 3 - base64_padding(&plain.token)
    cdef uint32_t group = 0
    cdef Py_ssize_t i
    put_bin_head(out, size)
    for i in range(size):
        if i % 3 == 0:
            group = group_at(plain.token.data + i // 3 * 4)
        put(out, <uint8_t>(group >> (16 - 8 * (i % 3))))


cdef inline uint32_t group_at(const uint8_t* letters) noexcept nogil:
    """Return the 24 bits of four letters; a padding letter has none."""
    cdef uint32_t group = 0
    cdef int i
    for i in range(4):
        group = group << 6 | <uint32_t>max(base64_digit(letters[i]), 0)
    return group
