"""Commands of RESP as requests; `commands.pyx` explains the design."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from gossipkv.wire._buffer cimport Buffer, buffer_size
from gossipkv.wire._wire cimport TRUE, Blob, Cursor, Envelope, put, put_array, put_bin, put_map, put_text
from gossipkv.wire._text cimport LONGEST_DATABASE

cdef enum Verb:
    OTHER = 0  # passed to Python, which may not know it either, or does it in steps
    NOTHING = 1
    ONE_KEY = 2  # a `get`
    MANY_KEYS = 3  # a `get_many` for each database
    SET = 4
    DELETE = 5
    PING = 6
    ECHO = 7
    SELECT = 8
    HELLO = 9
    CLIENT = 10
    UNWATCH = 11  # nothing is ever watched
    REFUSED = 12  # `why` has the reason
    # Those from here on are taken between `MULTI` and `EXEC` as well.
    RESET = 13
    QUIT = 14
    MULTI = 15
    EXEC = 16
    DISCARD = 17

cdef struct Command:
    Verb verb
    AnswerForm form
    Py_ssize_t count  # number of words, including the name
    Blob name
    const char* known_name  # the name as spelled in `COMMAND_RULES`, if it is there
    Cursor words  # the words behind the name
    const char* why
    int64_t first  # first and last byte of a range; unit of a lifetime and when it begins; of a write, its key's hash
    int64_t last
    const char* lifetime_option  # the option of `put` for a record that expires; NULL: there is none
    uint64_t lifetime_ms
    Envelope request  # complete for one key; only the method for many


cdef inline bint divide_key(
    Core core, const RespState* resp, const Blob* word, Blob* database, Blob* key
) noexcept nogil:
    """Split a word into database and key. Return False if it names no database."""
    cdef const uint8_t* colon
    if resp.database > 0:
        database[0] = core.resp_names[resp.database - 1]
        key[0] = word[0]
        return True
    colon = <const uint8_t*>memchr(word.data, 0x3A, min(word.size, <Py_ssize_t>LONGEST_DATABASE + 1))
    if colon == NULL:
        return False
    database[0] = Blob(word.data, colon - word.data)
    key[0] = Blob(colon + 1, word.data + word.size - colon - 1)
    return True


cdef inline void begin_params(Buffer* out, int count, const Blob* database) noexcept nogil:
    put_array(out, count)
    put_bin(out, database.data, database.size)


cdef inline Cursor params_from(const Buffer* out, Py_ssize_t begin) noexcept nogil:
    return Cursor(out.data + begin, out.data + out.end)


cdef inline bint write_get(
    Core core, RespState* resp, const Blob* word, bint explains, Envelope* request
) noexcept nogil:
    """Write the request `get [database, key, {options}]`. Return False if the word names no database."""
    cdef Py_ssize_t begin = core.words.end
    cdef Py_ssize_t shown = 0
    cdef Blob database
    cdef Blob key
    if not divide_key(core, resp, word, &database, &key):
        return False
    if buffer_size(&resp.replies.seen) > 0:
        shown = shown_bytes(core, resp, &database)
    begin_params(&core.words, 3 if shown > 0 or explains else 2, &database)
    put_bin(&core.words, key.data, key.size)
    if shown > 0 or explains:
        put_map(&core.words, <int>(shown > 0) + <int>explains)
    if shown > 0:
        put_shown(resp, shown, &core.words)
    if explains:
        put_text(&core.words, b"explain")
        put(&core.words, TRUE)
    request.msgid = next_id(&resp.replies)
    request.method = Blob(<const uint8_t*>b"get", 3)
    request.params = params_from(&core.words, begin)
    return True


cdef void read_command(
    Core core, const Connection* connection, const uint8_t* data, Py_ssize_t size, Command* command
) noexcept nogil
cdef PendingReply* queue_answer(Core core, Connection* connection, const Command* command, int parts) noexcept nogil
cdef void take_command(Core core, Connection* connection, Command* command) noexcept nogil
cdef void write_line(Core core, Connection* connection, const char* line) noexcept nogil
cdef void write_now(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
