"""Plain writes of tables: a loop gathers them by replica, and Python begins all writes to a replica together.

    handed off ──> gathered ──> begun ──> reached, or late

A *plain* write is a `put`, `delete` or `put_many` of little data in one calm replica's partition, with no options but
level, time-out, map, expiry and a token that the replica covers. Python answers every other write as it came, behind
those that were gathered before it, and each gathered write that it does not begin. So writes begin in the order in
which they were handed off, and only `gossipkv.table.records.write` refuses them.

While the store writes a group, the loop gathers further: these writes could only be in the next group.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport HUGE_VAL
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from gossipkv.replication._replication cimport (
    MAX_SEEN, NUMBER_BYTES, CalmReplica, CalmTable, SeenWrite, SeenWrites, begin_seen, config_alone, load_calm,
    see_record, settle, store_number, take_token, token_size, write_of, write_token,
)
from gossipkv.wire._buffer cimport buffer_append, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, blob_is, put_bin_head, take_array, take_map, take_nil,
)

cdef enum:
    MAX_PLAIN_KEY_BYTES = 251
    MAX_PLAIN_BYTES = 65536
    # All gathered writes make one batch; as `BATCH_BYTES` of `gossipkv.table.records.origin`.
    MAX_GATHERED_BYTES = 262144
    MAJORITY_LEVEL = 1
    WRITE_TIMEOUT_MS = 1000  # the default; as `RECORD_MS` of `gossipkv.table.records.request`

# The limits of `gossipkv.settings.tables`; they exceed an `int`.
cdef int64_t MAX_TTL_MS = 1 << 42
cdef int64_t MIN_EXPIRES_MS = 1000000000000
cdef int64_t MAX_EXPIRES_MS = (1 << 48) - 1

cdef tuple LEVELS = ("one", "majority", "all")


@cython.final
@cython.no_gc_clear  # The connections are needed for the last answers.
cdef class GatheredWrites:
    """The writes to one replica that a loop has gathered; `writes` has their rows, in order, as `RecordWrite`s."""

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self.count):
            free(self.items[number].request)
        free(self.items)
        buffer_release(&self.words)

    cdef int add(self, BacklogRequest* request, const WriteOptions* options, list written) except -1:
        """Add the rows of a write, and take over its request."""
        cdef GatheredWrite* items
        if self.count == self.room:
            items = <GatheredWrite*>realloc(self.items, <size_t>(2 * self.room + 4) * sizeof(GatheredWrite))
            if items == NULL:
                raise MemoryError
            self.items, self.room = items, 2 * self.room + 4
        self.writes += written
        self.items[self.count] = GatheredWrite(request, options[0], HUGE_VAL, len(self.writes))
        self.count += 1
        self.waiting += 1
        self.size_bytes += request.size
        return 0

    @property
    def levels(self):
        """The levels of these writes; to each how many rows there are up to the last one of that level."""
        cdef dict last = {}
        cdef Py_ssize_t number
        for number in range(self.count):
            last[LEVELS[self.items[number].options.level]] = self.items[number].rows
        return last

    @property
    def shortest_s(self):
        """The shortest time-out of these writes, in seconds."""
        cdef uint64_t shortest = self.items[0].options.timeout_ms
        cdef Py_ssize_t number
        for number in range(self.count):
            shortest = min(shortest, self.items[number].options.timeout_ms)
        return <double>shortest / 1000

    def begin(self, uint64_t last_counter, double now):
        """Take note that the writes are in the open batch, the last row under that counter."""
        cdef Py_ssize_t number
        self.has_begun = True
        self.config, self.assignment = self.replica.config, self.replica.assignment
        self.before = last_counter - <uint64_t>len(self.writes)
        for number in range(self.count):
            self.items[number].deadline = now + <double>self.items[number].options.timeout_ms / 1000

    @property
    def due(self):
        """The first deadline of a write that is not answered; inf: all are."""
        cdef double due = HUGE_VAL
        cdef Py_ssize_t number
        for number in range(self.count):
            if self.items[number].request != NULL:
                due = min(due, self.items[number].deadline)
        return due

    def reached(self, str level not None):
        """Answer all writes of a level, each with the token of a session that has seen it."""
        self.answer_all(LEVELS.index(level), HUGE_VAL, None)

    def late_levels(self, double now):
        """Return the levels of the writes whose deadline has passed."""
        cdef dict late = {}
        cdef Py_ssize_t number
        for number in range(self.count):
            if self.items[number].request != NULL and self.items[number].deadline <= now:
                late[LEVELS[self.items[number].options.level]] = None
        return list(late)

    def refuse_late(self, str level not None, double now, Refusal refusal not None):
        """Refuse the writes of a level whose deadline has passed."""
        self.answer_all(LEVELS.index(level), now, refusal)

    cdef int answer_all(self, int level, double until, Refusal refusal) except -1:
        """Answer the writes of a level whose deadline is not after `until`."""
        cdef GatheredWrite* item
        cdef Py_ssize_t number
        cdef Core core = self.core
        if core.lock is not None:
            core.lock.__enter__()
        try:
            for number in range(self.count):
                item = &self.items[number]
                if item.request != NULL and item.deadline <= until and item.options.level == level:
                    self.answer(number, refusal)
        finally:
            if core.lock is not None:
                core.lock.__exit__()
        self.wake()
        return 0

    cdef int answer(self, Py_ssize_t number, Refusal refusal) except -1:
        cdef BacklogRequest* request = self.items[number].request
        if refusal is None:
            self.write_seen(number)
            answer_pending(
                self.core, request.handle, request.msgid, request.received_ns, RESULT,
                self.words.data + self.words.start, buffer_size(&self.words),
            )
        else:
            answer_pending(
                self.core, request.handle, request.msgid, request.received_ns, REFUSAL,
                <const uint8_t*><const char*>refusal.error, len(refusal.error),
            )
        self.items[number].request = NULL
        self.waiting -= 1
        free(request)
        return 0

    cdef int write_seen(self, Py_ssize_t number) except -1:
        """Write the token into `words`: that of the write and the client's, without settled entries."""
        cdef Blob token = self.items[number].options.token
        cdef SeenWrite writes[MAX_SEEN]
        cdef SeenWrites seen
        cdef uint8_t dot[2 * NUMBER_BYTES]
        cdef bint is_taken
        begin_seen(&seen, writes, MAX_SEEN)
        seen.config = self.config
        store_number(dot, self.assignment)
        store_number(dot + NUMBER_BYTES, self.before + <uint64_t>self.items[number].rows)
        see_record(self.table, self.calm, dot, &seen)
        is_taken = token.size == 0 or take_token(self.table, <PyObject*>self.calm, token.data, token.size, &seen)
        if not is_taken:  # The table was stopped meanwhile. Concatenated tokens are a token.
            seen.count = 1
            seen.left_out = 0
        settle(&seen)
        self.words.start = self.words.end = 0
        if buffer_reserve(&self.words, HEAD_BYTES + token_size(&seen) + token.size) < 0:
            raise MemoryError
        put_bin_head(&self.words, token_size(&seen) + (0 if is_taken else token.size))
        self.words.end += write_token(self.table, &seen, self.words.data + self.words.end)
        if not is_taken:
            buffer_append(&self.words, token.data, token.size)
        return 0


cdef bint is_write(const BacklogRequest* request) noexcept nogil:
    """True if the method is one of those that write records for clients."""
    cdef Blob method = Blob(request_bytes(<BacklogRequest*>request), request.method_size)
    return request.kind == ASKED and (
        blob_is(&method, b"put", 3) or blob_is(&method, b"delete", 6) or blob_is(&method, b"put_many", 8)
    )


cdef bint take_write_option(Cursor* params, WriteOptions* options) noexcept nogil:
    """Parse one option and its value. Return False if Python must answer."""
    cdef bint is_taken
    cdef uint64_t number
    cdef Blob name
    if not take_text(params, &name):
        return False
    if take_session_option(params, &name, &options.token, &options.config, &is_taken):
        return is_taken
    if blob_is(&name, b"level", 5):
        options.level = MAJORITY_LEVEL
        if take_nil(params):
            return True
        if not take_text(params, &name):
            return False
        options.level = 0 if blob_is(&name, b"one", 3) else 2
        if blob_is(&name, b"majority", 8):
            options.level = MAJORITY_LEVEL
            return True
        return options.level == 0 or blob_is(&name, b"all", 3)
    if blob_is(&name, b"ttl_ms", 6) or blob_is(&name, b"expires_at", 10):
        if not options.takes_expiry:
            return False
        if take_nil(params):
            return True
        if not take_unsigned(params, &number):
            return False
        options.takes_expiry = False
        options.expiry = -<int64_t>number if name.size == 6 else <int64_t>number
        return number <= <uint64_t>MAX_TTL_MS if name.size == 6 else (
            <uint64_t>MIN_EXPIRES_MS <= number <= <uint64_t>MAX_EXPIRES_MS
        )
    if not blob_is(&name, b"timeout_ms", 10):
        return False
    options.timeout_ms = WRITE_TIMEOUT_MS
    return take_nil(params) or take_timeout(params, &options.timeout_ms)


cdef bint take_row(Cursor* rows, WriteKind kind, const ReadLimits* limits, Blob* key, Blob* value) noexcept nogil:
    """Parse the next key, and its value unless it is deleted. Return False if Python must answer."""
    if kind == PUT_MANY and take_array(rows) != 2:
        return False
    value.size = 0
    return (
        take_text(rows, key) and key.size <= min(limits.max_key, <Py_ssize_t>MAX_PLAIN_KEY_BYTES)
        and (kind == DELETE_ONE or take_text(rows, value))
        and value.size <= limits.max_value
    )


cdef PyObject* plan_write(
    PublishedTable published, Cursor* params, WriteKind kind, const ReadLimits* limits, Py_ssize_t* rows,
    WriteOptions* options
) noexcept nogil:
    """Parse `table, key, value, {options}`, or with rows in place of key and value. Return the `CalmTable`.

    The cursor then stands at the first of so many rows. NULL: Python must answer.
    """
    cdef Py_ssize_t count = take_array(params)
    cdef Py_ssize_t fixed = 3 if kind == PUT_ONE else 2
    cdef Py_ssize_t entries
    cdef DatabaseRow* database
    cdef Cursor first
    cdef Blob key
    cdef Blob value
    if not fixed <= count <= fixed + 1 or not take_text(params, &key):
        return NULL
    database = published.find_database(&key)
    if database == NULL or database.table == NULL or (<CalmTable>database.table).is_timed:
        return NULL
    rows[0] = take_array(params) if kind == PUT_MANY else 1
    first = params[0]
    for _ in range(rows[0]):
        if not take_row(params, kind, limits, &key, &value):
            return NULL
    options.token.size = 0
    options.config = 0
    options.timeout_ms = WRITE_TIMEOUT_MS
    options.level = MAJORITY_LEVEL
    options.expiry = -(<CalmTable>database.table).ttl_ms
    options.takes_expiry = kind != DELETE_ONE
    entries = take_map(params) if count > fixed else 0
    if entries < 0:
        return NULL
    while entries > 0:
        entries -= 1
        if not take_write_option(params, options):
            return NULL
    params[0] = first
    if options.timeout_ms == 0 or options.config not in (0, load_calm(&(<CalmTable>database.table).config)):
        return NULL
    return database.table


cdef PyObject* replica_for(PyObject* table, const Blob* key, WriteOptions* options) noexcept nogil:
    """Return the `CalmReplica` that takes a plain write; NULL: Python must answer."""
    cdef PyObject* replica = (<CalmTable>table).find(key.data, key.size)
    cdef SeenWrite writes[MAX_SEEN]
    cdef SeenWrites seen
    if replica == NULL or options.token.size == 0:
        return replica
    begin_seen(&seen, writes, MAX_SEEN)
    if not take_token(<CalmTable>table, replica, options.token.data, options.token.size, &seen):
        return NULL
    options.seen_config = seen.config
    return replica


cdef list written_rows(
    Cursor rows, Py_ssize_t count, WriteKind kind, CalmTable table, const ReadLimits* limits,
    WriteOptions* options, PyObject** replica
):
    """Return the rows as `RecordWrite`s, and the `CalmReplica` that takes all; None: Python must answer."""
    cdef dict written = {}
    cdef bytes depends = None
    cdef PyObject* taken
    cdef Blob key = Blob(NULL, 0)
    cdef Blob value = Blob(NULL, 0)
    for _ in range(count):
        take_row(&rows, kind, limits, &key, &value)
        taken = replica_for(<PyObject*>table, &key, options)
        if taken == NULL or (written and taken != replica[0]):
            return None
        replica[0] = taken
        name = PyBytes_FromStringAndSize(<const char*>key.data, key.size)
        data = None if kind == DELETE_ONE else PyBytes_FromStringAndSize(<const char*>value.data, value.size)
        if options.token.size > 0 and depends is None:
            depends = config_alone(table, options.seen_config)
        written[name] = write_of(name, data, depends or b"", options.expiry)
    return list(written.values()) if len(written) == count > 0 else None  # The last row of a key counts.


cdef bint may_write(dict rights, writer, uint32_t user, str table) except -1:
    """True if a user may write to a table; each is asked for once, and kept in `rights`."""
    asked = user, table
    found = rights.get(asked)
    if found is None:
        found = rights[asked] = writer.may_write(user, table)
    return found


cdef bint gather_write(Core core, BacklogRequest* request, dict gathered, dict rights, writer, wake) except -1:
    """Gather a plain write, and take over its request; return False if it is not plain.

    `rights`: those of users that were asked for in this step.
    """
    cdef Blob method = Blob(request_bytes(request), request.method_size)
    cdef const uint8_t* params = request_bytes(request) + request.method_size
    cdef Cursor rows = Cursor(params, params + request.size)
    cdef WriteKind kind = PUT_ONE if method.size == 3 else DELETE_ONE if method.size == 6 else PUT_MANY
    cdef Py_ssize_t count
    cdef WriteOptions options
    cdef PyObject* table
    cdef PyObject* replica = NULL
    cdef list written
    cdef GatheredWrites writes
    if core.published.gate is None or request.size > MAX_PLAIN_BYTES:
        return False
    table = plan_write(core.published, &rows, kind, &core.read_limits, &count, &options)
    if table == NULL or (
        core.published.bitmaps
        and not may_write(rights, writer, core.connections.find(request.handle).user, (<CalmTable>table).name)
    ):
        return False
    written = written_rows(rows, count, kind, <CalmTable>table, &core.read_limits, &options, &replica)
    if written is None or not covers_session(core, request, <CalmTable>table, <CalmReplica>replica):
        return False
    owner = (<CalmReplica>replica).owner  # It may have left the fast path and come back since the first write.
    writes = gathered.get(owner)
    if writes is None:
        writes = gathered[owner] = GatheredWrites.__new__(GatheredWrites)
        writes.core, writes.wake, writes.table, writes.calm = core, wake, <CalmTable>table, <CalmReplica>replica
        writes.replica, writes.writes = owner, []
    writes.add(request, &options, written)
    return True
