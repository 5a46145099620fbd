r"""HTTP/1.1 as the generator speaks it to a gateway: GET, `_mget` and `_scan`, PUT, DELETE and `_mput`.

Answers come in order, so requests may be pipelined.  A head is read line by line, and only these parts count:

    HTTP/1.1 <status> ...               200 values; 404 with a version: no such key; anything else is an error
    Content-Length, Transfer-Encoding   the end of the answer; a head with neither is garbage
    X-Sequins-Version                   the version that answered, on hits and on misses
    GossipKV-Token                      of a table: the session, which the next request shows
    X-GossipKV-Error                    the code of an error; without one it is HTTP_<status>
    Connection: close                   the connection ends behind this answer

The answer to `_mget` is an array in MessagePack; that to `scan` is lines of JSON (`json_lines.pxd`).
`tests/oracle/load_http.py` is the same in plain Python.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport (
    FRAME_COMPLETE, Blob, Cursor, put, put_array, put_bin, put_bin_head, put_bytes, take_array,
)

cdef enum:
    HEAD_LIMIT = 65536  # No server under test writes a longer head.
    BODY_LIMIT = 1073741824
    CR = 13
    LF = 10
    SPACE = 32
    TAB = 9
    COLON = 58
    STATUS_AT = 9  # The status follows "HTTP/1.1 ".
    STATUS_END = 12
    OK = 200
    NOT_FOUND = 404
    NO_CONTENT = 204
    NOT_GOOD = 300
    STRING_BYTES = 4  # Three bytes of a key take this many characters of base64.

cdef struct HttpHead:
    Py_ssize_t size  # The size includes the empty line.
    int status
    Py_ssize_t length  # The length of the body; -1 if not given.
    bint is_chunked
    bint is_last
    Blob version
    Blob token
    Blob code

cdef char* HEX = b"0123456789ABCDEF"
cdef char* BASE_64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef inline Py_ssize_t bin_size(Py_ssize_t size) noexcept nogil:
    """Return the size of bytes in MessagePack."""
    return size + (2 if size < 256 else (3 if size < 65536 else 5))


cdef inline bint is_plain(uint8_t byte) noexcept nogil:
    """True if a byte of a key stands for itself in a target (RFC 3986, unreserved)."""
    return (
        97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57
        or byte == 45 or byte == 46 or byte == 95 or byte == 126
    )


cdef void put_escaped(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if is_plain(data[i]):
            put(out, data[i])
        else:
            put(out, 37)
            put(out, <uint8_t>HEX[data[i] >> 4])
            put(out, <uint8_t>HEX[data[i] & 15])


cdef void put_base_64(Buffer* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint32_t bits
    cdef Py_ssize_t left
    while at < size:
        left = size - at
        bits = <uint32_t>data[at] << 16
        if left > 1:
            bits |= <uint32_t>data[at + 1] << 8
        if left > 2:
            bits |= data[at + 2]
        put(out, <uint8_t>BASE_64[bits >> 18])
        put(out, <uint8_t>BASE_64[(bits >> 12) & 63])
        put(out, <uint8_t>BASE_64[(bits >> 6) & 63] if left > 1 else 61)
        put(out, <uint8_t>BASE_64[bits & 63] if left > 2 else 61)
        at += 3


cdef inline bint is_named(const uint8_t* line, Py_ssize_t colon, const char* name, Py_ssize_t size) noexcept nogil:
    """True if a header has this name, which is in lower case."""
    cdef Py_ssize_t i
    if colon != size:
        return False
    for i in range(size):
        if (line[i] | 32 if 65 <= line[i] <= 90 else line[i]) != <uint8_t>name[i]:
            return False
    return True


cdef Blob value_of(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return the text between two places, without space around it."""
    while at < end and (at[0] == SPACE or at[0] == TAB):
        at += 1
    while end > at and ((end - 1)[0] == SPACE or (end - 1)[0] == TAB or (end - 1)[0] == CR):
        end -= 1
    return Blob(at, end - at)


cdef Py_ssize_t decimal_of(const Blob* value) noexcept nogil:
    """Return the number, or -2 if it is malformed, or beyond every limit."""
    cdef Py_ssize_t number = 0
    cdef Py_ssize_t i
    if value.size == 0:
        return -2
    for i in range(value.size):
        if not 48 <= value.data[i] <= 57 or number > BODY_LIMIT:
            return -2
        number = 10 * number + value.data[i] - 48
    return number if number <= BODY_LIMIT else -2


cdef int take_status(const uint8_t* line, Py_ssize_t size, HttpHead* head) noexcept nogil:
    """Take a line `HTTP/1.1 200 ...`."""
    cdef Py_ssize_t i
    cdef int status = 0
    if size < STATUS_END or memcmp(line, b"HTTP/1.", 7) != 0 or line[STATUS_AT - 1] != SPACE:
        return GARBAGE
    for i in range(STATUS_AT, STATUS_END):
        if not 48 <= line[i] <= 57:
            return GARBAGE
        status = 10 * status + line[i] - 48
    head.status = status
    head.is_last = line[7] == 48  # HTTP/1.0 closes the connection by default.
    return COMPLETE


cdef int take_header(const uint8_t* line, const uint8_t* end, HttpHead* head) noexcept nogil:
    """Take one line of a head."""
    cdef const uint8_t* colon = <const uint8_t*>memchr(line, COLON, end - line)
    cdef Py_ssize_t name
    cdef Py_ssize_t length
    cdef Blob value
    if colon == NULL:
        return GARBAGE
    name = colon - line
    value = value_of(colon + 1, end)
    if is_named(line, name, b"content-length", 14):
        length = decimal_of(&value)
        if length < 0 or (head.length >= 0 and head.length != length):
            return GARBAGE
        head.length = length
    elif is_named(line, name, b"transfer-encoding", 17):
        if not is_named(value.data, value.size, b"chunked", 7):
            return GARBAGE
        head.is_chunked = True
    elif is_named(line, name, b"connection", 10):
        if is_named(value.data, value.size, b"close", 5):
            head.is_last = True
        elif is_named(value.data, value.size, b"keep-alive", 10):
            head.is_last = False
    elif is_named(line, name, b"x-sequins-version", 17):
        head.version = value
    elif is_named(line, name, b"gossipkv-token", 14):
        head.token = value
    elif is_named(line, name, b"x-gossipkv-error", 16):
        head.code = value
    return COMPLETE


cdef int take_head(const uint8_t* data, Py_ssize_t size, HttpHead* head) noexcept nogil:
    """Take all lines up to the empty one."""
    cdef const uint8_t* end = data + size
    cdef const uint8_t* line = data
    cdef const uint8_t* behind
    cdef bint is_first = True
    cdef int result
    head.length = -1
    head.is_chunked = False
    head.version = Blob(data, 0)
    head.token = Blob(data, 0)
    head.code = Blob(data, 0)
    while True:
        behind = <const uint8_t*>memchr(line, LF, end - line)
        if behind == NULL:
            if is_first and memcmp(data, b"HTTP/1.", min(size, <Py_ssize_t>7)) != 0:
                return GARBAGE
            return PARTIAL if size < HEAD_LIMIT else GARBAGE
        if behind == line or (behind - 1)[0] != CR:
            return GARBAGE
        if behind - line == 1:
            head.size = behind + 1 - data
            return GARBAGE if is_first else COMPLETE
        result = take_status(line, behind - line, head) if is_first else take_header(line, behind - 1, head)
        if result != COMPLETE:
            return result
        is_first = False
        line = behind + 1


cdef Py_ssize_t chunk_size(const uint8_t* line, const uint8_t* end) noexcept nogil:
    """Return the size at the beginning of a chunk's line, or -1; text behind a semicolon is ignored."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t* at = line
    cdef uint8_t digit
    while at < end and size <= BODY_LIMIT:
        digit = at[0] | 32
        if 48 <= at[0] <= 57:
            size = 16 * size + at[0] - 48
        elif 97 <= digit <= 102:
            size = 16 * size + digit - 87
        else:
            break
        at += 1
    if at == line or size > BODY_LIMIT or not (at == end or at[0] == 59 or at[0] == SPACE or at[0] == TAB):
        return -1
    return size


cdef void end_head(Buffer* out, const Slot* slot, Py_ssize_t length) noexcept nogil:
    """Write the last lines of a head; with a `length` below zero there is no body."""
    cdef Blob token = token_of(slot)
    if length >= 0:
        put_bytes(out, <const uint8_t*>b"Content-Length: ", 16)
        put_decimal(out, length)
        put_bytes(out, <const uint8_t*>b"\r\n", 2)
    if token.size > 0:
        put_bytes(out, <const uint8_t*>b"GossipKV-Token: ", 16)
        put_blob(out, &token)
        put_bytes(out, <const uint8_t*>b"\r\n", 2)
    put_bytes(out, <const uint8_t*>b"\r\n", 2)


@cython.final
cdef class HttpDialect(Dialect):
    """Requests for one database, from the server in a request's `Host`; each request shows the token."""

    cdef Buffer body  # The joined chunks of one answer.
    cdef Buffer forms  # The keys and values of one answer to a scan.
    cdef uint8_t code[8]
    cdef Blob heads[FORMS]  # For one key, up to the key; else the lines before the length.
    cdef Blob get_tail  # The lines behind the key.
    cdef Blob write_tail
    cdef Blob put_tail  # More lines of a PUT.

    def __cinit__(self, database, host, records, *, token=None, writes=None, level=None, ttl_ms=None):
        cdef int form
        cdef bytes path = b"/" + database.encode() + b"/"
        cdef bytes lines = b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\nUser-Agent: gossipkv-loadtest\r\n"
        if token is not None:
            lines += b"Authorization: Bearer " + token.encode() + b"\r\n"
        if writes is not None and writes.sessions:
            lines += b"X-GossipKV-Wait-Ms: %d\r\n" % WAIT_MS
        reaches = b"" if level is None else b"X-GossipKV-Level: " + level.encode() + b"\r\n"
        expires = b"" if ttl_ms is None else b"GossipKV-TTL: %d\r\n" % -(-ttl_ms // 1000)
        packed = b"Content-Type: application/msgpack\r\n"
        self.in_order = True
        self.stretch = 3  # In a target.
        self.writes = writes
        self.keep(records)
        for form, head in enumerate((
            b"GET " + path,
            b"POST " + path + b"_mget" + lines + packed + b"Accept: application/msgpack\r\n",
            b"POST " + path + b"_scan" + lines + b"Content-Type: application/json\r\n",
            b"PUT " + path,
            b"DELETE " + path,
            b"POST " + path + b"_mput" + lines + reaches + expires + packed,
        )):
            self.heads[form] = self.own(head)
        self.get_tail = self.own(lines)
        self.write_tail = self.own(lines + reaches)
        self.put_tail = self.own(expires)

    def __dealloc__(self):
        buffer_release(&self.body)
        buffer_release(&self.forms)

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        cdef const Record* record = self.records + asked[0].key
        cdef bint is_many = slot.form == GET_MANY or slot.form == PUT_MANY
        cdef uint32_t i
        put_blob(out, &self.heads[slot.form])
        if slot.form == SCAN:
            self.write_scan(out, slot, record)
            return
        if not is_many:
            put_escaped(out, record.key, record.key_size)
            put_blob(out, &self.get_tail if slot.form == GET else &self.write_tail)
        if slot.form == PUT:
            put_blob(out, &self.put_tail)
        end_head(out, slot, self.body_size(slot, asked))
        if is_many:
            put_array(out, slot.count)
        for i in range(slot.count if is_many else 0):
            record = self.records + asked[i].key
            if slot.form == PUT_MANY:
                put_array(out, 2)
            put_bin(out, record.key, record.key_size)
            if slot.form == PUT_MANY:
                put_bin_head(out, self.writes.size_of(asked + i))
                self.writes.put_value(out, asked + i)
        if slot.form == PUT:
            self.writes.put_value(out, asked)

    cdef Py_ssize_t body_size(self, const Slot* slot, const Asked* asked) noexcept nogil:
        """Return the size of a value, or of an array; below zero, there is no body."""
        cdef Py_ssize_t size = 1 if slot.count < 16 else (3 if slot.count < 65536 else 5)
        cdef uint32_t i
        if slot.form == GET or slot.form == DELETE:
            return -1
        if slot.form == PUT:
            return self.writes.size_of(asked)
        for i in range(slot.count):
            size += bin_size(self.records[asked[i].key].key_size)
            if slot.form == PUT_MANY:
                size += 1 + bin_size(self.writes.size_of(asked + i))
        return size

    cdef void write_scan(self, Buffer* out, const Slot* slot, const Record* record) noexcept nogil:
        """Write `{"start":{"base64":"..."},"limit":n}`, behind the end of the head."""
        cdef Py_ssize_t start = (record.key_size + 2) // 3 * STRING_BYTES
        cdef Py_ssize_t digits = 1
        cdef uint32_t rest = slot.count
        while rest >= 10:
            rest //= 10
            digits += 1
        end_head(out, slot, 20 + start + 11 + digits + 1)
        put_bytes(out, <const uint8_t*>b'{"start":{"base64":"', 20)
        put_base_64(out, record.key, record.key_size)
        put_bytes(out, <const uint8_t*>b'"},"limit":', 11)
        put_decimal(out, slot.count)
        put(out, 125)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        cdef HttpHead head
        cdef Blob body
        cdef uint32_t at = window_oldest(window)
        cdef int result
        if at == NO_SLOT:
            return UNASKED
        result = take_head(data, size, &head)
        if result != COMPLETE:
            return result
        if head.status == NO_CONTENT:
            head.length = 0
        if head.status < OK or (head.length < 0 and not head.is_chunked):
            return GARBAGE
        if head.is_chunked:
            result = self.take_chunks(data, size, &head, &body, reply)
            if result != COMPLETE:
                return result
        else:
            if size - head.size < head.length:
                return PARTIAL
            body = Blob(data + head.size, head.length)
            reply.size = head.size + head.length
        self.judge(window, at, &head, &body, reply)
        return COMPLETE

    cdef int take_chunks(
        self, const uint8_t* data, Py_ssize_t size, const HttpHead* head, Blob* body, Reply* reply
    ) noexcept nogil:
        """Join the chunks of a body once all have arrived; trailing headers are ignored."""
        cdef const uint8_t* end = data + size
        cdef const uint8_t* at = data + head.size
        cdef const uint8_t* behind
        cdef Py_ssize_t chunk = -1
        self.body.start = 0
        self.body.end = 0
        while chunk != 0:
            behind = <const uint8_t*>memchr(at, LF, end - at)
            if behind == NULL:
                return PARTIAL if end - at < HEAD_LIMIT else GARBAGE
            chunk = chunk_size(at, behind - 1) if behind > at and (behind - 1)[0] == CR else -1
            if chunk < 0:
                return GARBAGE
            at = behind + 1
            if chunk > 0:
                if end - at < chunk + 2:
                    return PARTIAL
                if at[chunk] != CR or at[chunk + 1] != LF or self.body.end > BODY_LIMIT:
                    return GARBAGE
                if buffer_append(&self.body, at, chunk) < 0:
                    return GARBAGE
                at += chunk + 2
        while True:
            behind = <const uint8_t*>memchr(at, LF, end - at)
            if behind == NULL:
                return PARTIAL if end - at < HEAD_LIMIT else GARBAGE
            if behind == at or (behind - 1)[0] != CR:
                return GARBAGE
            chunk = behind - at
            at = behind + 1
            if chunk == 1:
                break
        body[0] = Blob(self.body.data, self.body.end)
        reply.size = at - data
        return COMPLETE

    cdef void judge(
        self, const Window* window, uint32_t at, const HttpHead* head, const Blob* body, Reply* reply
    ) noexcept nogil:
        """Judge a complete answer."""
        cdef const Slot* slot = window.slots + at
        cdef const Asked* asked = self.expect(window, at, reply)
        cdef bint is_table = self.writes is not None
        cdef const Record* table = self.answered_from(&head.token if is_table else &head.version, reply)
        cdef bint is_absent = head.status == NOT_FOUND and (
            head.code.size == 0 if is_table else head.version.size > 0
        )
        reply.is_last = head.is_last
        if slot.form == GET and is_absent:
            self.judge_value(table, asked[0].key, NULL, 0, reply)
        elif not (head.status == OK or (slot.form >= PUT and OK < head.status < NOT_GOOD)):
            self.refuse(head, reply)
        elif slot.form == GET:
            # An empty value must have an address, too.
            self.judge_value(table, asked[0].key, body.data if body.data != NULL else reply.version, body.size, reply)
        elif slot.form == SCAN:
            self.judge_scan(body, table, asked[0].key, slot.count, reply)
        elif slot.form == GET_MANY:
            self.judge_many(body, table, asked, reply)

    cdef void refuse(self, const HttpHead* head, Reply* reply) noexcept nogil:
        """Note an error, by its code, else by its status."""
        if head.code.size > 0:
            reply_error(reply, head.code.data, head.code.size)
            return
        self.code[5] = <uint8_t>(48 + head.status // 100)
        self.code[6] = <uint8_t>(48 + head.status // 10 % 10)
        self.code[7] = <uint8_t>(48 + head.status % 10)
        memcpy(self.code, b"HTTP_", 5)
        reply_error(reply, self.code, 8)

    cdef void judge_many(
        self, const Blob* body, const Record* table, const Asked* asked, Reply* reply
    ) noexcept nogil:
        """Judge an array of values, in the requested order."""
        cdef Cursor cursor = Cursor(body.data, body.data + body.size)
        cdef Py_ssize_t found = -1
        cdef Py_ssize_t size
        if scan_message(body.data, body.size, &size) == FRAME_COMPLETE and size == body.size:
            found = take_array(&cursor)
        self.judge_values(&cursor, found, table, asked, reply)

    cdef void judge_scan(
        self, const Blob* body, const Record* table, uint32_t start, uint32_t limit, Reply* reply
    ) noexcept nogil:
        """Judge lines of records, up to the limit, and a last line with the cursor or an error."""
        cdef const uint8_t* at = body.data
        cdef const uint8_t* end = body.data + body.size
        cdef const uint8_t* behind = NULL
        cdef ScanCheck scan
        cdef int last
        reply.keys = 0
        self.scan_begin(&scan, table, start)
        self.forms.start = 0
        self.forms.end = 0
        if buffer_reserve(&self.forms, body.size + 1) < 0:
            reply_wrong(reply, start, NULL, 0)
            return
        while at < end:
            behind = <const uint8_t*>memchr(at, LF, end - at)
            if behind == NULL or behind + 1 == end:
                break
            self.judge_line(at, behind, &scan, reply)
            at = behind + 1
        last = last_line(at, end)
        if passed(at, end, b'{"error"') != NULL:
            reply_error(reply, <const uint8_t*>b"SCAN_BROKEN_OFF", 15)
        elif last == NO_LAST_LINE:
            reply_wrong(reply, start, NULL, 0)
        else:
            self.scan_end(&scan, last == HAS_CURSOR, reply)
        reply_too_many(reply, reply.keys, limit)

    cdef void judge_line(
        self, const uint8_t* line, const uint8_t* end, ScanCheck* scan, Reply* reply
    ) noexcept nogil:
        """Judge a record of a scan."""
        cdef Blob key
        cdef Blob value
        reply.keys += 1
        if take_record_line(line, end, &self.forms, &key, &value):
            self.scan_record(scan, &key, &value, reply)
        else:
            reply_wrong(reply, ABSENT, line, end - line)
