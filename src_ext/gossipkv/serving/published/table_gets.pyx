"""Gets and small batches of tables, from calm replicas: with the same stages as lookups in files.

    gathered ──> gate entered ──> replica found, token checked ──> fetched ──> answered ──> gate left

All stages but the first are within the gate of the store (`storage/engine/gate.pyx`), which the loop enters once for
all gets that came together. Pages of runs that are not in memory are waited for in place, as Python does.

The answer is that of `gossipkv.table.records.read`, byte by byte. What is not plain is handed to Python as it came: a
replica that is not calm, a long key, a record whose dependencies are more than a map of its table, damage, a token that
`take_token` leaves to Python.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from gossipkv.replication._replication cimport (
    DOT_OFFSET, KIND_DELETED, SOUND, CalmReplica, CalmTable, RecordView, SeenWrite, SeenWrites, add_calm,
    begin_seen, expire_record, load_calm, parse_record, see_config_alone, see_record, settle, take_read_tokens,
    take_token, token_size, write_token,
)
from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport (
    SHORT_KEY_BYTES, SPACE_BYTES, ReadGate, StoreLookup, View, enter_gate, leave_gate, write_space,
)
from gossipkv.wire._buffer cimport Buffer, buffer_reserve
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, blob_is, put, put_answer, put_array, put_bin, put_bin_head, put_nil, take_array, take_bin,
    take_flag_or_nil, take_map, take_nil, take_str, take_unsigned,
)

cdef enum:
    RECORD_BYTE = 1  # The byte before each user's key in its space.
    MAX_GET_SEEN = 32  # An entry for each of 8 hosts and an ended origin; the rest for what a session has seen besides.
    # Larger batches are left to Python.
    MAX_TABLE_KEYS = 500
    # All records of an answer: as `ANSWER_BYTES` of `gossipkv.table.records.read`.
    MAX_RECORD_BYTES = 17301504
    RECORD_HEAD_BYTES = 8


cdef bint take_text(Cursor* cursor, Blob* text) noexcept nogil:
    """Do `take_blob`: with more calls of that, the compiler would not inline it in a get of a dataset any more."""
    return take_bin(cursor, text) or take_str(cursor, text)


cdef bint take_session_option(
    Cursor* params, const Blob* name, Blob* token, uint64_t* config, bint* is_taken
) noexcept nogil:
    """Parse the value of an option of gets and writes: `token`, `config` or `wait_ms`. Return False for another one."""
    cdef uint64_t number
    if blob_is(name, b"token", 5):
        token.size = 0
        is_taken[0] = take_nil(params) or take_bin(params, token)
    elif blob_is(name, b"config", 6):
        config[0] = 0
        is_taken[0] = take_nil(params) or take_unsigned(params, config)
    elif blob_is(name, b"wait_ms", 7):
        is_taken[0] = take_nil(params) or take_timeout(params, &number)
    else:
        return False
    return True


cdef bint take_table_option(Cursor* params, bint many, TableOptions* options) noexcept nogil:
    """Parse one option and its value. Return False if Python must answer."""
    cdef uint64_t number
    cdef bint flag
    cdef Blob name
    if not take_text(params, &name):
        return False
    if take_session_option(params, &name, &options.token, &options.config, &flag):
        return flag
    if blob_is(&name, b"timeout_ms", 10):
        return take_nil(params) or take_timeout(params, &number)
    if blob_is(&name, b"explain", 7):
        return not many and take_flag_or_nil(params, &options.explain)
    return blob_is(&name, b"local", 5) and take_flag_or_nil(params, &flag)


cdef PyObject* plan_table_read(
    PublishedTable published, Cursor* params, Blob* key, TableOptions* options, bint many
) noexcept nogil:
    """Parse `table, key or [keys], {options}`; the cursor then stands at the keys. NULL: Python must answer."""
    cdef Py_ssize_t count = take_array(params)
    cdef Py_ssize_t entries
    cdef DatabaseRow* database
    cdef Cursor keys
    cdef Blob name
    if not 2 <= count <= 3 or not take_text(params, &name):
        return NULL
    database = published.find_database(&name)
    if database == NULL or database.table == NULL or not may_be_read(published, database):
        return NULL
    keys = params[0]
    if not (skip_blobs(params) if many else take_text(params, key)):
        return NULL
    options.token.size = 0
    options.config = 0
    options.explain = False
    entries = take_map(params) if count == 3 else 0
    if entries < 0:
        return NULL
    while entries > 0:
        entries -= 1
        if not take_table_option(params, many, options):
            return NULL
    params[0] = keys
    return database.table


cdef int begin_table_get(
    PublishedTable published, Cursor params, const ReadLimits* limits, TableGet* get
) noexcept nogil:
    """Parse the parameters of a `get` of a table. Return `ANSWERED` if it may be answered here, else `HAND_OFF`."""
    get.table = plan_table_read(published, &params, &get.key, &get.options, False)
    return HAND_OFF if get.table == NULL or get.key.size > limits.max_key else ANSWERED


cdef bint find_replica(TableGet* get, View view) noexcept nogil:
    """Find the calm replica of the key, and begin the lookup: the first stage. Return False if Python must answer."""
    get.replica = NULL
    if SPACE_BYTES + 1 + get.key.size > SHORT_KEY_BYTES:
        return False
    if get.options.config != 0 and get.options.config != load_calm(&(<CalmTable>get.table).config):
        return False
    get.replica = (<CalmTable>get.table).find(get.key.data, get.key.size)
    if get.replica == NULL:
        return False
    write_space(get.pending.key, (<CalmReplica>get.replica).space)
    get.pending.key[SPACE_BYTES] = RECORD_BYTE
    memcpy(get.pending.key + SPACE_BYTES + 1, get.key.data, <size_t>get.key.size)
    get.pending.lookup.key = get.pending.key
    get.pending.lookup.size = SPACE_BYTES + 1 + get.key.size
    view.begin(&get.pending.lookup)
    return True


cdef inline int find_value(
    TableGet* get, View view, uint64_t now_ms, RecordView* record, SeenWrites* seen
) noexcept nogil:
    """Return 1 and the record, 0 if the key has none, or -1 if Python must answer: the last stage.

    The writes that the record shows are added to `seen`. The record may be a tombstone, and is one if it has expired.
    Copy it, and then call `View.confirm`.
    """
    cdef Slice data
    cdef int found = view.find(&get.pending.lookup, &data)
    seen.config = max(seen.config, load_calm(&(<CalmReplica>get.replica).taken_config))
    if found <= 0:
        return found
    if parse_record(data.data, data.size, record) != SOUND or not see_config_alone(
        <CalmTable>get.table, record.dependencies, record.dependencies_size, seen
    ):
        return -1
    expire_record(record, now_ms)
    return 1 if see_record(<CalmTable>get.table, <CalmReplica>get.replica, data.data + DOT_OFFSET, seen) else -1


cdef inline void put_found(const RecordView* record, int found, Buffer* out) noexcept nogil:
    """Write the value, or nil. Requires: there is room."""
    if found and record.kind != KIND_DELETED:
        put_bin(out, record.value, record.value_size)
    else:
        put_nil(out)


cdef int end_table_get(
    TableGet* get, View view, uint32_t msgid, const ReadLimits* limits, const Blob* node, Buffer* out
) noexcept nogil:
    """Answer with `[value or nil, token]`, and this node's name if asked to explain; or return `HAND_OFF`."""
    cdef SeenWrite writes[MAX_GET_SEEN]
    cdef SeenWrites seen
    cdef RecordView record
    cdef Py_ssize_t before = buffer_offset(out)
    cdef Py_ssize_t size
    cdef int found
    begin_seen(&seen, writes, MAX_GET_SEEN)
    record.value_size = record.expires_ms = 0
    found = find_value(get, view, limits.now_ms, &record, &seen)
    if found < 0:
        return HAND_OFF
    if get.options.token.size > 0 and not take_read_tokens(
        <CalmTable>get.table, get.replica, get.options.token.data, get.options.token.size, &seen
    ):
        return HAND_OFF
    settle(&seen)
    size = record.value_size + token_size(&seen) + 4 * HEAD_BYTES + explanation_bytes(node)
    if size > limits.max_frame:
        return HAND_OFF
    if buffer_reserve(out, size) < 0:
        return OUT_OF_MEMORY
    put_answer(out, msgid)
    put(out, 0x93 if get.options.explain else 0x92)
    put_found(&record, found, out)
    put_token(<CalmTable>get.table, &seen, out)
    if get.options.explain:
        put_explanation(out, node, record.expires_ms)
    if not view.confirm(&get.pending.lookup):
        out.end = out.start + before
        return HAND_OFF
    add_calm(&(<CalmReplica>get.replica).requests, 1)
    return ANSWERED


cdef inline void put_token(CalmTable table, const SeenWrites* seen, Buffer* out) noexcept nogil:
    """Write the token of a session. Requires: there is room for it and its head."""
    cdef Py_ssize_t size = token_size(seen)
    put_bin_head(out, size)
    out.end += write_token(table, seen, out.data + out.end)


cdef int read_table_keys(
    PublishedTable published, Cursor params, uint32_t msgid, const ReadLimits* limits, TableGet* window, int loop,
    Py_ssize_t* count, Buffer* out
) noexcept nogil:
    """Answer a `get_many` of a table with `[[value or nil, ...], token]`, and fill in its keys; or return `HAND_OFF`.

    It is read in windows of `MAX_GATHERED` keys, each within the gate, and Python answers if the rows of the table
    change meanwhile.
    """
    cdef SeenWrite writes[MAX_TABLE_KEYS]
    cdef PyObject* replicas[MAX_TABLE_KEYS]
    cdef SeenWrites seen
    cdef TableOptions options
    cdef Blob unused
    cdef Py_ssize_t before = buffer_offset(out)
    cdef Py_ssize_t left
    cdef Py_ssize_t i
    cdef Py_ssize_t bytes_left = MAX_RECORD_BYTES
    cdef uint64_t generation = 0
    cdef PyObject* table = plan_table_read(published, &params, &unused, &options, True)
    cdef int outcome = ANSWERED
    if table == NULL:
        return HAND_OFF
    left = count[0] = take_array(&params)
    if not 1 <= left <= MAX_TABLE_KEYS:
        return HAND_OFF
    begin_seen(&seen, writes, MAX_TABLE_KEYS)
    if buffer_reserve(out, 4 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(out, msgid)
    put(out, 0x92)
    put_array(out, left)
    while left > 0 and outcome == ANSWERED:
        enter_gate(<ReadGate>published.gate, loop)
        if left < count[0] and (<CalmTable>table).generation != generation:
            outcome = HAND_OFF
        else:
            generation = (<CalmTable>table).generation
            outcome = read_table_window(
                published, table, &params, min(left, <Py_ssize_t>MAX_GATHERED), limits, &options, window, loop, &seen,
                replicas + count[0] - left, &bytes_left, out,
            )
        left -= MAX_GATHERED
        if left <= 0 and outcome == ANSWERED:
            if options.token.size > 0 and not take_token(
                <CalmTable>table, NULL, options.token.data, options.token.size, &seen
            ):
                outcome = HAND_OFF
            settle(&seen)
            for i in range(count[0] if outcome == ANSWERED else 0):
                add_calm(&(<CalmReplica>replicas[i]).requests, 1)
        leave_gate(<ReadGate>published.gate, loop)
    if outcome == ANSWERED and buffer_reserve(out, token_size(&seen) + HEAD_BYTES) < 0:
        outcome = OUT_OF_MEMORY
    if outcome == ANSWERED:
        put_token(<CalmTable>table, &seen, out)
        if buffer_offset(out) - before > limits.max_frame:
            outcome = HAND_OFF
    if outcome != ANSWERED:
        out.end = out.start + before
    return outcome


cdef int read_table_window(
    PublishedTable published, PyObject* table, Cursor* keys, Py_ssize_t count, const ReadLimits* limits,
    const TableOptions* options, TableGet* window, int loop, SeenWrites* seen, PyObject** replicas,
    Py_ssize_t* bytes_left, Buffer* out
) noexcept nogil:
    """Append the values of some keys, and note the replicas. Requires: the loop is within the gate."""
    cdef PyObject* view = view_of(published, loop)
    cdef RecordView record
    cdef StoreLookup* lookups[MAX_GATHERED]
    cdef TableGet* get
    cdef Py_ssize_t i
    cdef int found
    if view == NULL:
        return HAND_OFF
    for i in range(count):
        get = &window[i]
        get.table = table
        get.options.config = options.config
        if not take_text(keys, &get.key) or get.key.size > limits.max_key or not find_replica(get, <View>view):
            return HAND_OFF
        lookups[i] = &get.pending.lookup
    (<View>view).fetch_all(lookups, count)
    for i in range(count):
        get = &window[i]
        record.value_size = 0
        found = find_value(get, <View>view, limits.now_ms, &record, seen)
        bytes_left[0] -= RECORD_HEAD_BYTES + (get.pending.lookup.value.size if found > 0 else 0)
        if found < 0 or bytes_left[0] < 0:
            return HAND_OFF
        if buffer_reserve(out, record.value_size + HEAD_BYTES) < 0:
            return OUT_OF_MEMORY
        put_found(&record, found, out)
        if not (<View>view).confirm(&get.pending.lookup):
            return HAND_OFF
        replicas[i] = get.replica
    return ANSWERED
