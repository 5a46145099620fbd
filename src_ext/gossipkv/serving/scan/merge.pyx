"""Records of a scan as answered by several nodes: checked, and merged into one page without an object for each.

Records are as `page.pyx` writes them, each `[key, value]` as MessagePack, in scan order, and are copied unchanged.
Answers are not trusted: `read_records` checks every record first. Each asked member gives one run, so comparing the
first record of each run finds the next one.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gossipkv.keyspace._keyspace cimport partition_of
from gossipkv.storage._storage cimport compare_keys
from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport Blob, Cursor, put_array, take_array, take_bin

from gossipkv.errors import TooLarge

cdef struct RunHead:
    # The first record of a run that was not taken yet; its fields point into the run's bytes.
    Cursor left
    Py_ssize_t count  # this record and those behind it
    bint more  # further records follow that were not answered
    const uint8_t* begin
    Blob key
    Blob value


cdef inline bint take_record(Cursor* cursor, Blob* key, Blob* value) noexcept nogil:
    return take_array(cursor) == 2 and take_bin(cursor, key) and take_bin(cursor, value)


cdef bint is_within(const Blob* key, bytes start, bytes end):
    if start is not None and compare_keys(
        key.data, key.size, <const uint8_t*>PyBytes_AS_STRING(start), len(start)
    ) < 0:
        return False
    return end is None or compare_keys(key.data, key.size, <const uint8_t*>PyBytes_AS_STRING(end), len(end)) < 0


cdef struct AskedParts:
    # Partitions that a member was asked for, and the function from keys to partitions.
    int function
    Py_ssize_t count
    const uint8_t* bitmap


cdef inline bint is_of(const AskedParts* asked, const Blob* key) noexcept nogil:
    cdef Py_ssize_t at = partition_of(asked.function, key.data, key.size, asked.count)
    return at >= 0 and asked.bitmap[at >> 3] >> (at & 7) & 1


def read_records(
    bytes packed not None, Py_ssize_t at, bytes start, bytes end, bint reverse, Py_ssize_t limit, tuple asked not None
):
    """Check the array of records that begins at byte `at` of `packed`. Return the last key and the offset behind it.

    `asked` has the code of the partition function, the number of partitions, and a bitmap of the partitions asked for.
    Without records the key is None.

    Raises:
        ValueError: the bytes are no such array, have more than `limit` records, or keys that are out of order, out of
            bounds, or of other partitions.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef Cursor cursor
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    cdef Blob key = Blob(NULL, 0)
    cdef Blob value
    cdef Blob before = Blob(NULL, 0)
    cdef AskedParts home
    cdef bytes bitmap
    cdef int compared
    home.function, home.count, bitmap = asked
    home.bitmap = <const uint8_t*>PyBytes_AS_STRING(bitmap)
    if not 0 <= home.count <= 8 * len(bitmap):
        raise IndexError("the bitmap is too short for the number of partitions")
    if not 0 <= at <= len(packed):
        raise ValueError("the position is outside of the answer")
    cursor = Cursor(data + at, data + len(packed))
    count = take_array(&cursor)
    if not 0 <= count <= limit:
        raise ValueError(f"expected an array of at most {limit} records")
    for i in range(count):
        if not take_record(&cursor, &key, &value):
            raise ValueError("a record must be a key and a value")
        if i > 0:
            compared = compare_blobs(&before, &key)
            if compared == 0 or (compared > 0) != reverse:
                raise ValueError("the keys are not in order")
        # All keys lie between the first and the last.
        if (i == 0 or i == count - 1) and not is_within(&key, start, end):
            raise ValueError("the answer has keys outside of the requested range")
        if not is_of(&home, &key):
            raise ValueError("the answer has a key of a partition that was not requested")
        before = key
    return PyBytes_FromStringAndSize(<const char*>key.data, key.size) if count > 0 else None, cursor.at - data


cdef int advance(RunHead* head) except -1:
    """Point at the run's next record, if there is one."""
    head.begin = head.left.at
    if head.count > 0 and not take_record(&head.left, &head.key, &head.value):
        raise ValueError("a record must be a key and a value")
    return 0


cdef int first_of(const RunHead* heads, int count, bint reverse) except -2:
    """Return the head that comes first; -1 if all runs have ended, or one with unknown further records."""
    cdef int first = -1
    cdef int compared
    cdef int i
    for i in range(count):
        if heads[i].count == 0:
            if heads[i].more:
                return -1
            continue
        if first >= 0:
            compared = compare_blobs(&heads[i].key, &heads[first].key)
            if compared == 0:
                raise ValueError("two partitions have the same key")
            if (compared > 0) != reverse:
                continue
        first = i
    return first


cdef Py_ssize_t take_page(
    RunHead* heads, int count, bint reverse, Py_ssize_t limit, Py_ssize_t max_bytes, Py_ssize_t max_value,
    Buffer* out, Blob* key, bint* more,
) except -1:
    """Copy the records of the page. Return their number, and set the last key and whether a record was left."""
    cdef Py_ssize_t taken = 0
    cdef Py_ssize_t size
    cdef RunHead* head
    cdef int first = first_of(heads, count, reverse)
    while first >= 0:
        head = &heads[first]
        size = head.key.size + head.value.size
        if head.value.size > max_value and taken == 0:
            raise TooLarge("the value is longer than the node may send", {"limit": max_value, "size": head.value.size})
        if taken == limit or (taken > 0 and (size > max_bytes or head.value.size > max_value)):
            more[0] = True
            break
        if buffer_append(out, head.begin, head.left.at - head.begin) < 0:
            raise MemoryError
        key[0] = head.key
        max_bytes -= size
        taken += 1
        head.count -= 1
        advance(head)
        first = first_of(heads, count, reverse)
    return taken


cdef int begin_run(RunHead* head, bytes packed, Py_ssize_t at, bint more) except -1:
    """Point at the first record of a run."""
    if not 0 <= at <= len(packed):
        raise ValueError("the position is outside of the answer")
    head.left.at = <const uint8_t*>PyBytes_AS_STRING(packed) + at
    head.left.end = <const uint8_t*>PyBytes_AS_STRING(packed) + len(packed)
    head.count = max(<Py_ssize_t>0, take_array(&head.left))
    head.more = more
    return advance(head)


def merge_runs(list runs not None, bint reverse, Py_ssize_t limit, Py_ssize_t max_bytes, Py_ssize_t max_value):
    """Merge runs `(packed, at, more)` into one page; an array of records begins at byte `at` of `packed`.

    Return the array of records as MessagePack, and the last key if there are more. The page ends where a run with
    `more` ends.

    Raises:
        TooLarge: the first value is longer than `max_value`.
        ValueError: two runs have the same key, or one is malformed.
    """
    cdef RunHead* heads = <RunHead*>calloc(len(runs) + 1, sizeof(RunHead))
    cdef Buffer out
    cdef Buffer begun
    cdef uint8_t array_head[ARRAY_HEAD_BYTES]
    cdef Py_ssize_t taken
    cdef Blob key = Blob(NULL, 0)
    cdef bint more = False
    cdef int i
    if heads == NULL:
        raise MemoryError
    buffer_init(&out)
    try:
        for i, (packed, at, goes_on) in enumerate(runs):
            begin_run(&heads[i], packed, at, goes_on)
            more = more or goes_on
        if buffer_reserve(&out, ARRAY_HEAD_BYTES) < 0:
            raise MemoryError
        out.end = ARRAY_HEAD_BYTES  # The bytes are written when the number of records is known.
        taken = take_page(heads, <int>len(runs), reverse, limit, max_bytes, max_value, &out, &key, &more)
        buffer_init(&begun)
        begun.data = array_head
        put_array(&begun, taken)
        out.start = ARRAY_HEAD_BYTES - begun.end
        memcpy(out.data + out.start, array_head, begun.end)
        return (
            PyBytes_FromStringAndSize(<const char*>out.data + out.start, buffer_size(&out)),
            PyBytes_FromStringAndSize(<const char*>key.data, key.size) if more and taken > 0 else None,
        )
    finally:
        buffer_release(&out)
        free(heads)
