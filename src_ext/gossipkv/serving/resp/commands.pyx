"""Commands of RESP, translated to the core's few requests; commands about the connection are answered here.

    GET STRLEN GETRANGE TYPE TTL, EXISTS of one key ──> get
    MGET, EXISTS of several ──> a get_many for each database
    SET SETEX PSETEX ──> put          DEL and UNLINK of one key ──> delete
    each with the tokens that the connection's session has seen of the table (`session.pyx`)
    PING ECHO SELECT HELLO RESET QUIT, CLIENT SETNAME ──> the connection's own
    any other ──> `resp`, which Python answers in RESP (`gossipkv.serving.resp`)

After `SELECT 0`, the initial state, a key's first colon divides database and key. After `SELECT n` the database is the
n-th of `resp_databases`, and the whole word is the key. Words and parameters are written into `core.words`. Room is
reserved before a command is read, since gathered gets point into the buffer. Python answers a SET with KEEPTTL, which
reads first, and every SET that may be refused.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strlen

from gossipkv.storage._storage cimport hash64_of
from gossipkv.wire._buffer cimport Buffer, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, put, put_answer, put_array, put_bin, put_map, put_text, put_unsigned,
)
from gossipkv.wire._resp cimport put_bulk, read_number, take_word
from gossipkv.wire._text cimport hex_digit, is_space, put_end, word_is

cdef enum:
    COMMANDS = 28
    ERROR_LINE_BYTES = 256  # limit of the error lines written here

cdef struct CommandRule:
    const char* name
    Verb verb
    AnswerForm form
    int least  # least number of words, including the name
    int most  # 0 for no limit

cdef CommandRule COMMAND_RULES[COMMANDS]
COMMAND_RULES[:] = [
    CommandRule(b"get", ONE_KEY, VALUE, 2, 2),
    CommandRule(b"mget", MANY_KEYS, VALUES, 2, 0),
    CommandRule(b"exists", MANY_KEYS, FOUND_OF, 2, 0),
    CommandRule(b"strlen", ONE_KEY, LENGTH, 2, 2),
    CommandRule(b"getrange", ONE_KEY, RANGE, 4, 4),
    CommandRule(b"type", ONE_KEY, TYPE, 2, 2),
    CommandRule(b"set", SET, DONE, 3, 0),
    CommandRule(b"del", DELETE, DELETED, 2, 0),
    CommandRule(b"unlink", DELETE, DELETED, 2, 0),
    CommandRule(b"ping", PING, SAID, 1, 2),
    CommandRule(b"echo", ECHO, SAID, 2, 2),
    CommandRule(b"select", SELECT, SAID, 2, 2),
    CommandRule(b"hello", HELLO, SAID, 1, 0),
    CommandRule(b"reset", RESET, SAID, 1, 1),
    CommandRule(b"client", CLIENT, SAID, 2, 0),
    CommandRule(b"quit", QUIT, SAID, 1, 0),
    CommandRule(b"substr", ONE_KEY, RANGE, 4, 4),
    CommandRule(b"setex", SET, DONE, 4, 4),
    CommandRule(b"psetex", SET, DONE, 4, 4),
    CommandRule(b"ttl", ONE_KEY, EXPIRES, 2, 2),
    CommandRule(b"pttl", ONE_KEY, EXPIRES, 2, 2),
    CommandRule(b"expiretime", ONE_KEY, EXPIRES, 2, 2),
    CommandRule(b"pexpiretime", ONE_KEY, EXPIRES, 2, 2),
    CommandRule(b"multi", MULTI, SAID, 1, 1),
    CommandRule(b"exec", EXEC, SAID, 1, 1),
    CommandRule(b"discard", DISCARD, SAID, 1, 1),
    CommandRule(b"watch", REFUSED, SAID, 1, 0),
    CommandRule(b"unwatch", UNWATCH, SAID, 1, 1),
]

cdef struct LifetimeOption:
    const char* name
    const char* option  # that of `put`
    int64_t unit_ms
    int64_t least_ms
    int64_t most_ms

cdef LifetimeOption LIFETIME_OPTIONS[4]
LIFETIME_OPTIONS[:] = [
    LifetimeOption(b"ex", b"ttl_ms", 1000, 1, MAX_TTL_MS),
    LifetimeOption(b"px", b"ttl_ms", 1, 1, MAX_TTL_MS),
    LifetimeOption(b"exat", b"expires_at", 1000, MIN_EXPIRES_MS, MAX_EXPIRES_MS),
    LifetimeOption(b"pxat", b"expires_at", 1, MIN_EXPIRES_MS, MAX_EXPIRES_MS),
]

cdef const char* OK = b"+OK\r\n"
cdef const char* NO_DATABASE = (
    b"-ERR the key has no colon; with SELECT 0, a key is DATABASE:KEY; else SELECT a number of resp_databases\r\n"
)
cdef const char* BAD_NAME = b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
# Clients know the codes; a client that sends `MULTI` must hear of no success.
cdef const char* NO_TRANSACTIONS = (
    b"-ERR transactions are not supported, and this command did nothing; see "
    b"https://github.com/gossipkv/gossipkv/blob/main/docs/users/redis.md#transactions\r\n"
)
cdef const char* ABORTED = (
    b"-EXECABORT transactions are not supported, and nothing was written since MULTI; see "
    b"https://github.com/gossipkv/gossipkv/blob/main/docs/users/redis.md#transactions\r\n"
)
cdef const char* BAD_QUOTES = b"-ERR Protocol error: unbalanced quotes in request\r\n"
cdef const char* NO_INTEGER = b"-ERR value is not an integer or out of range\r\n"


# Words ------------------------------------------------------------------------------------------------------------


cdef bint word_number(const Blob* word, int64_t* number) noexcept nogil:
    """Parse an integer. Return False if the word is none."""
    cdef uint8_t line[24]
    if not 0 < word.size <= 20:
        return False
    memcpy(line, word.data, word.size)
    memcpy(line + word.size, b"\r\n", 2)
    return read_number(line, word.size + 2, number) == word.size + 2


cdef inline uint8_t unescaped(uint8_t letter) noexcept nogil:
    if letter == 0x6E:
        return 0x0A
    if letter == 0x72:
        return 0x0D
    if letter == 0x74:
        return 0x09
    if letter == 0x62:
        return 0x08
    return 0x07 if letter == 0x61 else letter


cdef const uint8_t* write_quoted(const uint8_t* at, const uint8_t* end, Buffer* out) noexcept nogil:
    """Write a quoted string by Redis's rules. Return the position behind the closing quote, or NULL if invalid."""
    cdef uint8_t quote = at[0]
    at += 1
    while at < end and at[0] != quote:
        if at[0] == 0x5C and end - at > 1 and (quote == 0x22 or at[1] == quote):
            if quote == 0x22 and end - at > 3 and at[1] == 0x78 and hex_digit(at[2]) >= 0 and hex_digit(at[3]) >= 0:
                put(out, <uint8_t>(16 * hex_digit(at[2]) + hex_digit(at[3])))
                at += 4
            else:
                put(out, unescaped(at[1]) if quote == 0x22 else quote)
                at += 2
        else:
            put(out, at[0])
            at += 1
    if at >= end or (end - at > 1 and not is_space(at[1])):
        return NULL
    return at + 1


cdef Py_ssize_t write_words(const uint8_t* at, Py_ssize_t size, Buffer* out) noexcept nogil:
    """Write the words of an inline command as those of an array. Return their number, or -1 for unbalanced quotes."""
    cdef const uint8_t* end = at + size
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t begin
    cdef Py_ssize_t left
    cdef int digit
    while at < end:
        if is_space(at[0]):
            at += 1
            continue
        begin = out.end
        out.end += 8  # Reserve `$`, five digits and the line's end, which suffice for the longest line.
        while at < end and not is_space(at[0]):
            if at[0] == 0x22 or at[0] == 0x27:
                at = write_quoted(at, end, out)
                if at == NULL:
                    return -1
            else:
                put(out, at[0])
                at += 1
        left = out.end - begin - 8
        out.data[begin] = 0x24
        for digit in range(5):
            out.data[begin + 5 - digit] = <uint8_t>(0x30 + left % 10)
            left //= 10
        memcpy(out.data + begin + 6, b"\r\n", 2)
        put_end(out)
        count += 1
    return count


# Requests ---------------------------------------------------------------------------------------------------------


cdef void read_command(
    Core core, const Connection* connection, const uint8_t* data, Py_ssize_t size, Command* command
) noexcept nogil:
    """Parse a scanned command; write its request if it has one key."""
    cdef Py_ssize_t begin = core.words.end
    cdef int64_t number
    command.count = connection.scan.elements
    command.lifetime_option = NULL
    command.verb = NOTHING
    command.request.method = Blob(NULL, 0)
    if data[0] == 0x2A:
        command.words = Cursor(data + 1 + read_number(data + 1, size - 1, &number), data + size)
    else:
        command.count = write_words(data, size, &core.words)
        command.words = params_from(&core.words, begin)
        if command.count < 0:
            refuse(command, BAD_QUOTES)
    if command.count > 0:
        take_word(&command.words, &command.name)
        find_command_rule(command, resp_of(connection.replies).in_multi)
        if command.verb == SET or command.verb == DELETE:
            hash_key(core, resp_of(connection.replies), command)
        if command.verb == ONE_KEY:
            read_key(core, resp_of(connection.replies), command)


cdef inline void refuse(Command* command, const char* why) noexcept nogil:
    command.verb = REFUSED
    command.why = why


cdef void find_command_rule(Command* command, bint in_multi) noexcept nogil:
    """Look up the command's name, and check its number of words, and whether transactions forbid it."""
    cdef const CommandRule* rule
    cdef int i
    command.verb = OTHER
    command.form = SAID
    for i in range(COMMANDS):
        rule = &COMMAND_RULES[i]
        if not word_is(&command.name, rule.name):
            continue
        command.known_name = rule.name
        command.verb = rule.verb
        command.form = rule.form
        if command.count < rule.least or (rule.most > 0 and command.count > rule.most):
            refuse(command, NULL)
            return
        break
    if command.verb == REFUSED or in_multi and command.verb < RESET:
        refuse(command, NO_TRANSACTIONS)
        return
    if command.verb == DELETE and command.count > 2 or (
        command.verb == SET and command.count > 3 and not read_lifetime(command)
    ):
        command.verb = OTHER
        command.form = SAID
    elif command.verb == MANY_KEYS:
        command.request.method = Blob(<const uint8_t*>b"get_many", 8)
        if command.form == FOUND_OF and command.count == 2:
            command.verb = ONE_KEY
            command.form = FOUND


cdef bint read_lifetime(Command* command) noexcept nogil:
    """Parse the words of a SET that has a lifetime. Return False if Python must answer it."""
    cdef const LifetimeOption* option
    cdef Cursor words = command.words
    cdef Blob word, name, lifetime
    cdef int64_t number
    take_word(&words, &word)  # the key
    if command.name.size > 3:  # SETEX or PSETEX
        take_word(&words, &lifetime)
        option = &LIFETIME_OPTIONS[0 if command.name.size == 5 else 1]
    else:
        take_word(&words, &word)  # the value
        take_word(&words, &name)
        option = find_lifetime_option(&name)
        if command.count != 5 or option == NULL:
            return False
        take_word(&words, &lifetime)
    if lifetime.size == 0 or not 0x31 <= lifetime.data[0] <= 0x39 or not word_number(&lifetime, &number):
        return False
    if number > option.most_ms // option.unit_ms or number * option.unit_ms < option.least_ms:
        return False
    command.lifetime_option = option.option
    command.lifetime_ms = <uint64_t>(number * option.unit_ms)
    command.count = 3
    return True


cdef const LifetimeOption* find_lifetime_option(const Blob* word) noexcept nogil:
    cdef int i
    for i in range(4):
        if word_is(word, LIFETIME_OPTIONS[i].name):
            return &LIFETIME_OPTIONS[i]
    return NULL


cdef void hash_key(Core core, const RespState* resp, Command* command) noexcept nogil:
    cdef Cursor words = command.words
    cdef Blob word, database
    cdef Blob key = Blob(NULL, 0)
    take_word(&words, &word)
    divide_key(core, resp, &word, &database, &key)
    command.first = <int64_t>hash64_of(key.data, key.size, 0)


cdef void read_key(Core core, RespState* resp, Command* command) noexcept nogil:
    cdef Blob word
    take_word(&command.words, &word)
    if not write_get(core, resp, &word, command.form == EXPIRES, &command.request):
        refuse(command, NO_DATABASE)
        return
    if command.form == EXPIRES:  # Milliseconds if the name begins with P, and from now unless it is a time.
        command.first = 1 if command.known_name[0] == 0x70 else 1000
        command.last = 0 if command.name.size > 4 else <int64_t>core.read_limits.now_ms
    if command.form == RANGE:
        take_word(&command.words, &word)
        if not word_number(&word, &command.first):
            refuse(command, NO_INTEGER)
            return
        take_word(&command.words, &word)
        if not word_number(&word, &command.last):
            refuse(command, NO_INTEGER)
            return


cdef PendingReply* queue_answer(Core core, Connection* connection, const Command* command, int parts) noexcept nogil:
    """Queue the reply to the next request in the command's form, for `parts` requests; NULL if out of memory."""
    cdef PendingReply* reply = queue_reply(connection.replies, command.form, parts)
    if reply == NULL:
        core.connections.doom(connection, CLOSED_MEMORY)
        return NULL
    reply.protocol = <uint8_t>resp_of(connection.replies).protocol
    note_shown(resp_of(connection.replies), reply)
    resp_of(connection.replies).writes += is_of_write(command.form)
    reply.first = command.first
    reply.last = command.last
    return reply


cdef void ask(Core core, Connection* connection, Command* command) noexcept nogil:
    """Serve the command's only request."""
    command.request.msgid = next_id(connection.replies)
    if queue_answer(core, connection, command, 1) != NULL:
        take_request(core, connection, &command.request)


# Commands ---------------------------------------------------------------------------------------------------------


cdef void take_command(Core core, Connection* connection, Command* command) noexcept nogil:
    """Answer the command, or serve its requests."""
    if command.verb == ONE_KEY:
        core.elements = 2
        ask(core, connection, command)
    elif command.verb == MANY_KEYS:
        take_reads(core, connection, command)
    elif command.verb == SET or command.verb == DELETE:
        take_write(core, connection, command)
    elif command.verb == REFUSED:
        core.counts[BAD_REQUESTS] += 1
        if command.why != NULL:
            write_line(core, connection, command.why)
        else:
            refuse_count(core, connection, command)
    elif command.verb == OTHER:
        hand_over(core, connection, command)
    elif command.verb != NOTHING:
        take_word_of_connection(core, connection, command)


cdef void take_write(Core core, Connection* connection, Command* command) noexcept nogil:
    """Serve a write of one key."""
    cdef Buffer* out = &core.words
    cdef RespState* resp = resp_of(connection.replies)
    cdef bint has_lifetime = command.lifetime_option != NULL
    cdef Py_ssize_t begin = out.end
    cdef Blob word, database, key
    take_word(&command.words, &word)
    if not divide_key(core, resp, &word, &database, &key):
        write_line(core, connection, NO_DATABASE)
        return
    resp.is_shown = False  # `params_to_ask` shows it.
    begin_params(out, 2 + <int>(command.verb == SET) + <int>has_lifetime, &database)
    put_bin(out, key.data, key.size)
    if command.verb == SET:
        if command.name.size > 3:  # SETEX has the lifetime before the value.
            take_word(&command.words, &word)
        take_word(&command.words, &word)
        put_bin(out, word.data, word.size)
    if has_lifetime:
        put_map(out, 1)
        put_text(out, command.lifetime_option)
        put_unsigned(out, command.lifetime_ms)
    core.elements = 3 + 3 * <int>has_lifetime
    command.request.method = Blob(<const uint8_t*>b"put", 3)
    if command.verb == DELETE:
        command.request.method = Blob(<const uint8_t*>b"delete", 6)
    command.request.params = params_from(out, begin)
    ask(core, connection, command)


cdef void hand_over(Core core, Connection* connection, Command* command) noexcept nogil:
    """Let Python answer: `resp [connection, protocol, database, name, [words], token]`; it bounds the words itself."""
    cdef RespState* resp = resp_of(connection.replies)
    cdef Buffer* out = &core.words
    cdef Py_ssize_t begin = out.end
    cdef Cursor words = command.words
    cdef Blob word = command.name
    core.elements = 6
    put_array(out, 6)
    put_unsigned(out, connection.handle)
    put_unsigned(out, <uint32_t>resp.protocol)
    put_unsigned(out, resp.database)
    put_bin(out, resp.name, resp.name_size)
    put_array(out, command.count)
    put_bin(out, word.data, word.size)
    for _ in range(command.count - 1):
        take_word(&words, &word)
        put_bin(out, word.data, word.size)
    put_bin(out, resp.replies.seen.data + resp.replies.seen.start, buffer_size(&resp.replies.seen))
    resp.is_shown = True
    resp.shown_table = 0
    command.request.method = Blob(<const uint8_t*>b"resp", 4)
    command.request.params = params_from(out, begin)
    ask(core, connection, command)


# The connection's own ---------------------------------------------------------------------------------------------


cdef void take_word_of_connection(Core core, Connection* connection, Command* command) noexcept nogil:
    """Answer PING, ECHO and commands that change the connection."""
    cdef RespState* resp = resp_of(connection.replies)
    cdef Cursor words = command.words
    cdef Blob word = Blob(NULL, 0)
    cdef int64_t number = 0
    if command.verb == PING:
        core.counts[PINGS] += 1
    if command.verb == HELLO:
        greet(core, connection, command)
    elif command.verb == PING and command.count == 1:
        write_line(core, connection, b"+PONG\r\n")
    elif command.verb == PING or command.verb == ECHO:
        take_word(&words, &word)
        write_bulk(core, connection, &word)
    elif command.verb == QUIT:
        write_line(core, connection, OK)
        connection.broken = True
        core.connections.finish(connection, CLOSED_BY_PEER)
    elif command.verb >= MULTI or command.verb == UNWATCH:
        write_line(core, connection, take_transaction(resp, command.verb))
    elif command.verb == RESET:
        resp.in_multi = False
        resp.protocol = 2
        resp.database = 0
        resp.name_size = 0
        forget_session(resp)
        connection.user = connection.certified
        read_as(core.published, connection.user)
        write_line(core, connection, b"+RESET\r\n")
    elif command.verb == SELECT:
        take_word(&words, &word)
        if not word_number(&word, &number):
            write_line(core, connection, NO_INTEGER)
        elif not 0 <= number <= core.resp_name_count:
            write_line(core, connection, b"-ERR DB index is out of range\r\n")
        else:
            resp.database = <uint32_t>number
            write_line(core, connection, OK)
    else:
        take_word(&words, &word)
        if word_is(&word, b"setname") and command.count == 3:
            take_word(&words, &word)
            write_line(core, connection, OK if set_name(resp, &word) else BAD_NAME)
        else:
            hand_over(core, connection, command)


cdef const char* take_transaction(RespState* resp, Verb verb) noexcept nogil:
    """Answer the limits of a transaction as Redis does for one with errors: it is never done."""
    cdef bint was_in_multi = resp.in_multi
    resp.in_multi = verb == MULTI
    if verb == UNWATCH or verb == MULTI and not was_in_multi or verb == DISCARD and was_in_multi:
        return OK
    if verb == MULTI:
        return b"-ERR MULTI calls can not be nested\r\n"
    if was_in_multi:
        return ABORTED
    return b"-ERR EXEC without MULTI\r\n" if verb == EXEC else b"-ERR DISCARD without MULTI\r\n"


cdef bint set_name(RespState* resp, const Blob* name) noexcept nogil:
    """Set the connection's name. Return False if the name is not allowed."""
    cdef Py_ssize_t i
    if name.size > MAX_NAME:
        return False
    for i in range(name.size):
        if not 0x21 <= name.data[i] <= 0x7E:
            return False
    memcpy(resp.name, name.data, name.size)
    resp.name_size = <uint8_t>name.size
    return True


cdef void greet(Core core, Connection* connection, Command* command) noexcept nogil:
    """HELLO [2 or 3 [AUTH name token] [SETNAME name]]: Python describes the server, or refuses, in that protocol.

    Of the words it gets the token alone.
    """
    cdef RespState* resp = resp_of(connection.replies)
    cdef Cursor words = command.words
    cdef Py_ssize_t left = command.count - 1
    cdef int64_t protocol = resp.protocol
    cdef Blob word = Blob(NULL, 0)
    cdef Blob name = Blob(&resp.name[0], resp.name_size)
    command.count = 1
    if left > 0:
        take_word(&words, &word)
        left -= 1
        if not word_number(&word, &protocol):
            write_line(core, connection, b"-ERR Protocol version is not an integer or out of range\r\n")
            return
        if protocol != 2 and protocol != 3:
            write_line(core, connection, b"-NOPROTO unsupported protocol version\r\n")
            return
    while left > 0:
        take_word(&words, &word)
        if left >= 3 and word_is(&word, b"auth"):
            take_word(&words, &word)
            command.words, command.count = words, 2
            take_word(&words, &word)
            left -= 3
        elif left >= 2 and word_is(&word, b"setname"):
            take_word(&words, &name)
            left -= 2
        else:
            write_line(
                core, connection, b"-ERR Syntax error in HELLO: HELLO [2 | 3 [AUTH name token] [SETNAME name]]\r\n"
            )
            return
    if not set_name(resp, &name):
        write_line(core, connection, BAD_NAME)
        return
    resp.protocol = <int>protocol
    hand_over(core, connection, command)


# Immediate answers ------------------------------------------------------------------------------------------------


cdef void refuse_count(Core core, Connection* connection, const Command* command) noexcept nogil:
    cdef char line[ERROR_LINE_BYTES]
    snprintf(line, ERROR_LINE_BYTES, b"-ERR wrong number of arguments for '%s' command\r\n", command.known_name)
    write_line(core, connection, line)


cdef void write_line(Core core, Connection* connection, const char* line) noexcept nogil:
    """Queue this line as the answer, behind earlier ones."""
    write_now(core, connection, <const uint8_t*>line, <Py_ssize_t>strlen(line))


cdef void write_bulk(Core core, Connection* connection, const Blob* word) noexcept nogil:
    cdef Py_ssize_t begin = core.words.end
    put_bulk(&core.words, word.data, word.size)
    write_now(core, connection, core.words.data + begin, core.words.end - begin)


cdef void write_now(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t id = next_id(connection.replies)
    if queue_reply(connection.replies, SAID, 1) == NULL or buffer_reserve(core.out, size + 3 * HEAD_BYTES) < 0:
        core.connections.doom(connection, CLOSED_MEMORY)
        return
    put_answer(core.out, id)
    put_bin(core.out, data, size)
    core.fresh_answers += 1
