"""Plans of scans: a plain request is parsed without Python.

A request is plain if its options are as in `docs/users/wire.md`, database and version are known, and every partition is
local. `gossipkv.serving.scan` defines the cursor. The rules for bounds and versions also stand there and in
`gossipkv.serving.reads`; tests hold both together.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from gossipkv.storage._storage cimport MAX_KEY_SIZE, compare_keys, crc32c_of, write_prefix_end
from gossipkv.wire._buffer cimport Buffer, buffer_reserve
from gossipkv.wire._wire cimport (
    Blob, Cursor, big_endian, blob_is, put, put_bytes, take_array, take_bin, take_blob, take_blob_or_nil,
    take_flag_or_nil, take_map, take_nil, take_str, take_unsigned,
)

cdef enum:
    MAX_NAME_BYTES = 255  # as in `gossipkv.wire.arguments`
    LONGEST_CURSOR = CURSOR_CHECKSUM_BYTES + 6 + MAX_NAME_BYTES + MAX_KEY_SIZE  # as in `gossipkv.serving.scan`

cdef struct ScanOptions:
    Blob start
    Blob end
    Blob prefix
    Blob cursor
    Blob version
    Blob min_version
    bint has_start
    bint has_end
    bint has_prefix
    bint has_cursor
    bint has_version
    bint has_min_version
    bint reverse
    bint local
    uint64_t limit


cdef inline bint take_limit_or_nil(Cursor* params, uint64_t* limit) noexcept nogil:
    limit[0] = <uint64_t>-1
    return take_nil(params) or (take_unsigned(params, limit) and limit[0] > 0)


cdef bint take_scan_option(Cursor* params, ScanOptions* asked) noexcept nogil:
    """Parse one option and its value. Return False if they are not plain."""
    cdef uint64_t timeout_ms
    cdef Blob name
    if not take_blob(params, &name):
        return False
    if blob_is(&name, b"start", 5):
        return take_blob_or_nil(params, &asked.start, &asked.has_start)
    if blob_is(&name, b"end", 3):
        return take_blob_or_nil(params, &asked.end, &asked.has_end)
    if blob_is(&name, b"prefix", 6):
        return take_blob_or_nil(params, &asked.prefix, &asked.has_prefix)
    if blob_is(&name, b"cursor", 6):
        return take_blob_or_nil(params, &asked.cursor, &asked.has_cursor)
    if blob_is(&name, b"version", 7):
        return take_blob_or_nil(params, &asked.version, &asked.has_version)
    if blob_is(&name, b"min_version", 11):
        return take_blob_or_nil(params, &asked.min_version, &asked.has_min_version)
    if blob_is(&name, b"reverse", 7):
        return take_flag_or_nil(params, &asked.reverse)
    if blob_is(&name, b"limit", 5):
        return take_limit_or_nil(params, &asked.limit)
    if blob_is(&name, b"local", 5):  # A scan of missing data is handed off in any case.
        return take_flag_or_nil(params, &asked.local)
    # A local read takes hardly any time, so it keeps to any timeout.
    return blob_is(&name, b"timeout_ms", 10) and (take_nil(params) or take_timeout(params, &timeout_ms))


cdef bint take_scan_options(Cursor* params, ScanOptions* asked, TableOptions* options) noexcept nogil:
    """Parse the last parameter; `options`: also those of a table. Return False if Python must answer."""
    cdef Py_ssize_t entries = take_map(params)
    cdef Cursor option
    if entries < 0:
        return False
    while entries > 0:
        entries -= 1
        option = params[0]
        if not take_scan_option(params, asked):
            params[0] = option
            if options == NULL or not take_table_option(params, True, options):
                return False
    return True


cdef bint may_be_name(const Blob* text) noexcept nogil:
    """True if Python would accept the text as a name, held or not."""
    cdef Py_ssize_t i
    if text.size > MAX_NAME_BYTES:
        return False
    for i in range(text.size):
        if text.data[i] >= 0x80:
            return False
    return True


cdef bint take_cursor(const Blob* cursor, Blob* version, Blob* last) noexcept nogil:
    """Parse a cursor as written by `write_cursor`. Return False for any other bytes."""
    cdef Cursor body = Cursor(cursor.data + CURSOR_CHECKSUM_BYTES, cursor.data + cursor.size)
    if not CURSOR_CHECKSUM_BYTES < cursor.size <= LONGEST_CURSOR:
        return False
    if crc32c_of(body.at, body.end - body.at, 0) != <uint32_t>big_endian(cursor.data, CURSOR_CHECKSUM_BYTES):
        return False
    return take_array(&body) == 2 and take_str(&body, version) and take_bin(&body, last) and body.at == body.end


cdef inline int compare_blobs(const Blob* one, const Blob* other) noexcept nogil:
    return compare_keys(one.data, one.size, other.data, other.size)


cdef inline void raise_start(KeyRange* range, const Blob* key) noexcept nogil:
    if not range.has_start or compare_blobs(&range.start, key) < 0:
        range.start = key[0]
        range.has_start = True


cdef inline void lower_end(KeyRange* range, const Blob* key) noexcept nogil:
    if not range.has_end or compare_blobs(key, &range.end) < 0:
        range.end = key[0]
        range.has_end = True


cdef int set_range(const ScanOptions* asked, const Blob* last, Buffer* bounds, KeyRange* range) noexcept nogil:
    """Set the range to the requested keys behind `last` (NULL for all); derived keys are stored in `bounds`."""
    cdef Blob made
    memset(range, 0, sizeof(KeyRange))
    range.reverse = asked.reverse
    range.has_start = asked.has_start
    range.start = asked.start
    range.has_end = asked.has_end
    range.end = asked.end
    bounds.start = 0
    bounds.end = 0
    # Reserve all room at once, since the blobs point into the buffer.
    if buffer_reserve(bounds, (last.size + 1 if last != NULL else 0) + asked.prefix.size) < 0:
        return -1
    if last != NULL and asked.reverse:
        lower_end(range, last)
    elif last != NULL:
        made = Blob(bounds.data, last.size + 1)  # This is the least key above `last`.
        put_bytes(bounds, last.data, last.size)
        put(bounds, 0)
        raise_start(range, &made)
    if asked.has_prefix:
        raise_start(range, &asked.prefix)
        made.data = bounds.data + bounds.end
        made.size = write_prefix_end(asked.prefix.data, asked.prefix.size, bounds.data + bounds.end)
        if made.size > 0:
            bounds.end += made.size
            lower_end(range, &made)
    return 0


cdef int make_plan(
    PublishedTable table, Cursor params, const ReadLimits* limits, Py_ssize_t scan_limit, Buffer* bounds, ScanPlan* plan
) noexcept nogil:
    """Parse `database, {options}` and choose the version. Return `ANSWERED`, or the reason for no plan."""
    cdef Py_ssize_t count = take_array(&params)
    cdef DatabaseRow* database
    cdef ReadOptions options
    cdef ScanOptions asked
    cdef Blob last
    memset(&asked, 0, sizeof(ScanOptions))
    asked.limit = <uint64_t>-1
    if count < 1 or count > 2 or not take_blob(&params, &plan.database):
        return HAND_OFF
    if count == 2 and not take_scan_options(&params, &asked, NULL):
        return HAND_OFF
    if max(asked.start.size, asked.end.size, asked.prefix.size) > limits.max_key:
        return HAND_OFF
    if asked.has_min_version and not may_be_name(&asked.min_version):
        return HAND_OFF
    memset(&options, 0, sizeof(ReadOptions))
    options.choosing = asked.has_version or asked.has_min_version or asked.has_cursor
    options.has_version = asked.has_version
    options.version = asked.version
    options.has_min_version = asked.has_min_version
    options.min_version = asked.min_version
    if asked.has_cursor:
        if not take_cursor(&asked.cursor, &options.version, &last):
            return HAND_OFF
        if asked.has_version and compare_blobs(&asked.version, &options.version) != 0:
            return HAND_OFF
        options.has_version = True
        options.has_min_version = False
    database = table.find_database(&plan.database)
    if database == NULL or not may_be_read(table, database):
        return HAND_OFF
    plan.version = choose_version(database, &options)
    if plan.version == NULL or not plan.version.complete:
        return HAND_OFF
    plan.by_name = options.has_version
    plan.limit = <Py_ssize_t>min(asked.limit, <uint64_t>scan_limit)
    if set_range(&asked, &last if asked.has_cursor else NULL, bounds, &plan.range) < 0:
        return OUT_OF_MEMORY
    return ANSWERED
