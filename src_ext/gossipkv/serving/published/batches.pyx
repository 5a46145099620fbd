"""Reads of many keys from one version: window by window, until all are read or the work budget is used.

The lookups of a window overlap their cache misses: first all buckets, then all records, then all values. Values are
written in key order behind the answer's head, so they form the answer if all are local. A key that other nodes are
asked for leaves a place among them::

    plan ──> begin ──> read ──> end
                       │  ^
                       └──┘  after any stop: the budget is used, or a key is not plain

The caller decides what happens to the key at a stop, of which nothing was written, and continues.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gossipkv.keyspace._keyspace cimport partition_of
from gossipkv.storage._storage cimport Slice, SortedFile, is_whole
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport (
    HEAD_BYTES, Blob, Cursor, put, put_answer, put_array, put_bin, put_bytes, put_nil, take_array, take_blob,
)

cdef enum:
    # Overlapping lookups of one batch: a core has about a dozen line-fill buffers, and a lookup has two misses; a
    # larger window would evict what the first lookups fetched.
    WINDOW = 32
    # After so many stops at one key for missing pages, the next lookup of the key waits for the disk.
    MAX_BATCH_STOPS = 8

cdef struct KeyLookup:
    const uint8_t* at  # the encoded key
    Py_ssize_t size  # size of the encoded key
    Blob key
    Py_ssize_t partition
    PyObject* file  # NULL if other nodes have the partition
    uint64_t hash
    uint32_t place


cdef int plan_reading(
    PublishedTable table, Cursor params, const ReadLimits* limits, BatchRead* reading, ReadOptions* options
) noexcept nogil:
    """Parse the parameters of a `get_many` and choose the version. Return `ANSWERED` or `HAND_OFF`."""
    cdef Blob unused
    reading.params = params.at
    reading.version = table.plan(&params, &unused, options, True)
    if reading.version == NULL:
        return HAND_OFF
    reading.count = reading.left = take_array(&params)
    reading.keys = params
    reading.max_frame = answer_limit(limits, options)
    reading.by_name = options.has_version
    reading.may_ask = may_go_elsewhere(reading.version, options)
    reading.stopped_at = -1
    reading.too_long = 0
    reading.hits = 0
    reading.value_bytes = 0
    return ANSWERED


cdef int begin_reading(BatchRead* reading, uint32_t msgid, Buffer* out) noexcept nogil:
    """Write the head of the answer. Return `ANSWERED` or `OUT_OF_MEMORY`."""
    reading.room = buffer_size(out) + reading.max_frame - reading.version.packed_name.size
    if buffer_reserve(out, 4 * HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    put_answer(out, msgid)
    put(out, 0x92)
    put_array(out, reading.count)
    return ANSWERED


cdef int read_keys(
    BatchRead* reading, const ReadLimits* limits, Buffer* out, Buffer* places, int64_t* work
) noexcept nogil:
    """Read until all keys are read (`ANSWERED`), the budget is used (`UNDER_WAY`), or a key has another outcome.

    The reading then stands at that key, of which nothing was written. A key of a missing partition gets a place in
    `places`; if `places` is NULL the outcome is `ELSEWHERE`.
    """
    cdef Py_ssize_t before
    cdef Py_ssize_t left
    cdef int outcome = ANSWERED
    while outcome == ANSWERED and reading.left > 0:
        if work[0] <= 0:
            return UNDER_WAY
        before = buffer_size(out)
        left = reading.left
        outcome = read_window(reading, min(left, <Py_ssize_t>WINDOW), limits, out, places, work[0])
        work[0] -= KEY_WORK * (left - reading.left) + (buffer_size(out) - before) // BYTES_PER_WORK
    return outcome


cdef int read_window(
    BatchRead* reading, Py_ssize_t count, const ReadLimits* limits, Buffer* out, Buffer* places, int64_t work
) noexcept nogil:
    """Look up some keys so that their cache misses overlap."""
    cdef KeyLookup targets[WINDOW]
    cdef KeyLookup* target
    cdef VersionRow* version = reading.version
    cdef Cursor ahead = reading.keys
    cdef Py_ssize_t most = buffer_size(out) + work * BYTES_PER_WORK
    cdef Py_ssize_t i
    cdef int outcome
    for i in range(count):
        target = &targets[i]
        target.at = ahead.at
        if not take_blob(&ahead, &target.key) or target.key.size > limits.max_key:
            return HAND_OFF
        target.size = ahead.at - target.at
        target.partition = partition_of(version.function, target.key.data, target.key.size, version.partitions)
        if target.partition < 0:
            return HAND_OFF
        target.file = version.files[target.partition]
        if target.file != NULL:
            target.hash = (<SortedFile>target.file).prefetch_bucket(target.key.data, target.key.size)
        elif places == NULL:
            return ELSEWHERE
    for i in range(count):
        if targets[i].file != NULL:
            targets[i].place = (<SortedFile>targets[i].file).prefetch_record(targets[i].hash)
    if version.long_values:
        for i in range(count):
            if targets[i].file != NULL:
                (<SortedFile>targets[i].file).prefetch_value(targets[i].place)
    for i in range(count):
        target = &targets[i]
        if buffer_size(out) > most:
            outcome = UNDER_WAY
        elif target.file == NULL:
            outcome = add_place(reading, target, out, places)
        else:
            outcome = read_value(reading, target, limits, i == 0 and is_patient_batch(reading), out)
        if outcome != ANSWERED:
            reading.keys.at = target.at
            reading.left -= i
            reading.partition = target.partition
            return outcome
    reading.keys = ahead
    reading.left -= count
    return ANSWERED


cdef inline bint is_patient_batch(const BatchRead* reading) noexcept nogil:
    """True if the lookup of the current key should now wait for the disk."""
    return reading.left == reading.stopped_at and reading.stops >= MAX_BATCH_STOPS


cdef inline int read_value(
    BatchRead* reading, const KeyLookup* target, const ReadLimits* limits, bint waits, Buffer* out
) noexcept nogil:
    """Append the value of one local key, or nil."""
    cdef Slice value
    cdef Py_ssize_t before = buffer_size(out)
    cdef int found
    value.size = 0
    ask_first(target.file, waits)
    found = (<SortedFile>target.file).find_at(target.key.data, target.key.size, target.hash, target.place, &value)
    ask_first(target.file, True)
    if found < 0:
        return why_not(target.file)
    if value.size > limits.max_value:
        reading.too_long = value.size
        return REFUSED_SIZE
    if value.size + HEAD_BYTES > reading.room - before:
        return REFUSED_SIZE
    if buffer_reserve(out, value.size + HEAD_BYTES) < 0:
        return OUT_OF_MEMORY
    if found:
        put_bin(out, value.data, value.size)
    else:
        put_nil(out)
    if not is_whole(<SortedFile>target.file):
        out.end = out.start + before
        return DAMAGED
    if found:
        reading.hits += 1
        reading.value_bytes += <uint64_t>value.size
    return ANSWERED


cdef int read_cold(
    BatchRead* reading, const ReadLimits* limits, ColdPages cold, PageWait* wait, PyObject* table
) noexcept nogil:
    """Request the missing pages of the next keys, from the current one on. Return how many are being read.

    Each lookup finds one missing page at most. It continues after the page was read, and may stop again.
    """
    cdef VersionRow* version = reading.version
    cdef Cursor ahead = reading.keys
    cdef PyObject* file
    cdef Slice unused
    cdef Blob key
    cdef Py_ssize_t partition
    reading.stops = reading.stops + 1 if reading.left == reading.stopped_at else 1
    reading.stopped_at = reading.left
    for _ in range(<int>min(<Py_ssize_t>MAX_AT_ONCE, reading.left)):
        if not take_blob(&ahead, &key):
            break
        partition = partition_of(version.function, key.data, key.size, version.partitions)
        file = version.files[partition] if partition >= 0 else NULL
        if file == NULL:
            continue
        ask_first(file, False)
        if (<SortedFile>file).find(key.data, key.size, &unused) < 0 and why_not(file) == COLD:
            cold.ask(wait, file, table, 0)
        ask_first(file, True)
    return <int>wait.count


cdef int add_place(BatchRead* reading, const KeyLookup* target, const Buffer* out, Buffer* places) noexcept nogil:
    """Leave a place for the value of a key that other nodes have."""
    cdef RemoteKey place
    place.partition = target.partition
    place.key_at = target.at - reading.params
    place.key_size = target.size
    place.slot = buffer_size(out)
    place.size = MISSING_VALUE
    place.damaged = target.file != NULL
    return ANSWERED if buffer_append(places, <const uint8_t*>&place, sizeof(RemoteKey)) == 0 else OUT_OF_MEMORY


cdef int pass_over(BatchRead* reading, const Buffer* out, Buffer* places) noexcept nogil:
    """Leave a place for the current key with a damaged local record. Return `ANSWERED` or `OUT_OF_MEMORY`."""
    cdef KeyLookup target
    target.at = reading.keys.at
    take_blob(&reading.keys, &target.key)
    target.size = reading.keys.at - target.at
    target.partition = reading.partition
    target.file = reading.version.files[reading.partition]
    reading.left -= 1
    return add_place(reading, &target, out, places)


cdef int end_reading(const BatchRead* reading, Buffer* out) noexcept nogil:
    """Write the end of an answer with only local values. Return `ANSWERED` or `OUT_OF_MEMORY`."""
    if buffer_reserve(out, reading.version.packed_name.size) < 0:
        return OUT_OF_MEMORY
    put_bytes(out, reading.version.packed_name.data, reading.version.packed_name.size)
    return ANSWERED


cdef int refuse_reading(const BatchRead* reading, uint32_t msgid, const ReadLimits* limits, Buffer* out) noexcept nogil:
    """Refuse the batch as too large. Return `REFUSED_SIZE` or `OUT_OF_MEMORY`."""
    if reading.too_long > 0:
        return refuse_too_large(out, msgid, VALUE_TOO_LONG, limits.max_value, reading.too_long)
    return refuse_too_large(
        out, msgid, b"the values do not fit into one answer; request fewer keys", reading.max_frame, -1
    )
