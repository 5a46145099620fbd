"""Records of a sorted file that arrives piece by piece, and the check that each belongs to the file's partition.

The reader of served files (`storage`) maps a whole file.  A source may be on another machine, or be truncated by its
owner at any moment (SIGBUS under a map).  So here records are parsed from pieces that were read and checked before.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from gossipkv.keyspace._keyspace cimport partition_of
from gossipkv.storage._storage cimport (
    MAX_KEY_SIZE, MAX_PLAIN_SIZE, BatchRecord, Record as Parsed, RecordBatch, Slice, aligned8, compare_keys,
    lz4_decompress, parse_record,
)

cdef enum:
    LEAST = 8  # The least bytes of a record, which contain its sizes.
    MORE_BYTES = 7  # The most bytes of both varints together.


def fill_records(RecordBatch batch not None, bytes data not None, Py_ssize_t at, uint64_t offset, Py_ssize_t step):
    """Put records from `data[at]` on into the batch, until it is full or a record is incomplete.

    `offset` is the position of `data` in its file.  `step` is 1 if records lie there as they do here, 0 if only their
    unit does.  Return the start of the next record.
    """
    cdef Slice rest
    cdef Parsed parsed
    cdef uint64_t size
    cdef const uint8_t* base = <const uint8_t*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), first = batch.count
    if at < 0 or at > end:
        raise ValueError(f"the position must be from 0 to {end}, got {at}")
    with nogil:
        while at < end:
            rest.data = base + at
            rest.size = end - at
            size = parse_record(rest, &parsed)
            if size == 0 or size > <uint64_t> rest.size or not batch.put(
                parsed.key.data, parsed.key.size, parsed.value.data, parsed.value.size,
                offset + <uint64_t> (at * step),
            ):
                break
            at += <Py_ssize_t> size
    if batch.count > first:
        batch.hold(data)
    return at


def first_longer(RecordBatch batch not None, uint64_t limit):
    """Return the first record whose value has more than `limit` bytes; the batch's size if there is none."""
    cdef Py_ssize_t number
    for number in range(batch.count):
        if batch.records[number].value_size > limit:
            return number
    return batch.count


def record_span(bytes data not None, Py_ssize_t at):
    """Return the full size of the record at `data[at]`, complete or not; 0 if it is over its limits."""
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef uint8_t head[LEAST]
    cdef uint64_t key_size, value_size, size = 0
    if at < 0 or at > end:
        raise ValueError(f"the position must be from 0 to {end}, got {at}")
    if end - at < LEAST:
        return LEAST
    memcpy(head, PyBytes_AS_STRING(data) + at, LEAST)
    key_size = varint(head, &size)
    value_size = varint(head, &size)
    if key_size > MAX_KEY_SIZE or value_size > MAX_PLAIN_SIZE or size > MORE_BYTES:
        return 0
    return aligned8(size + key_size + value_size)


cdef uint64_t varint(const uint8_t* head, uint64_t* at) noexcept nogil:
    """Return the number at `head[at]`, of at most four bytes within LEAST; a longer one is over every limit."""
    cdef uint64_t number = 0
    cdef int shift = 0
    while shift < 28 and at[0] < LEAST:
        number |= <uint64_t> (head[at[0]] & 0x7F) << shift
        at[0] += 1
        if head[at[0] - 1] < 0x80:
            return number
        shift += 7
    return <uint64_t> 1 << 32


def decompress_block(bytes data not None, Py_ssize_t start, Py_ssize_t end, Py_ssize_t capacity):
    """Decompress `data[start:end]`, one lz4 block, to at most `capacity` bytes.  Return None if it is damaged."""
    cdef bytes target
    cdef int size
    if start < 0 or start > end or end > PyBytes_GET_SIZE(data) or capacity <= 0 or capacity > 1 << 26:
        raise ValueError(f"bytes {start} to {end} of {len(data)} cannot be decompressed into {capacity} bytes")
    target = PyBytes_FromStringAndSize(NULL, capacity)
    size = lz4_decompress(
        <const uint8_t*> PyBytes_AS_STRING(data) + start, <int> (end - start),
        <uint8_t*> PyBytes_AS_STRING(target), <int> capacity, <int> capacity,
    )
    if size < 0:
        return None
    return target if size == capacity else target[:size]


@cython.final
cdef class Placement:
    """Checks batch after batch of one file that keys ascend and that all belong to one partition."""

    cdef int function
    cdef Py_ssize_t partition, partitions, before_size
    cdef uint8_t before[65536]
    cdef bint begun

    def __cinit__(self, int function, Py_ssize_t partition, Py_ssize_t partitions):
        self.function = function
        self.partition = partition
        self.partitions = partitions

    def first_wrong(self, RecordBatch batch not None):
        """Return the first record of the batch that is out of place; the batch's size if there is none."""
        cdef Py_ssize_t number = 0, count = batch.count
        cdef BatchRecord* record
        cdef const uint8_t* before = self.before
        cdef Py_ssize_t before_size = self.before_size
        cdef bint begun = self.begun
        with nogil:
            while number < count:
                record = &batch.records[number]
                if begun and compare_keys(before, before_size, record.key, <Py_ssize_t> record.key_size) >= 0:
                    break
                if self.partition != partition_of(
                    self.function, record.key, <Py_ssize_t> record.key_size, self.partitions
                ):
                    break
                before = record.key
                before_size = <Py_ssize_t> record.key_size
                begun = True
                number += 1
        if number > 0:
            # The batch may be gone when the next one comes.
            record = &batch.records[number - 1]
            if record.key_size > MAX_KEY_SIZE:
                raise ValueError(f"the key has {record.key_size:,} bytes; the limit is {MAX_KEY_SIZE:,} bytes")
            memcpy(self.before, record.key, record.key_size)
            self.before_size = <Py_ssize_t> record.key_size
            self.begun = True
        return number
