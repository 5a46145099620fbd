"""A record of a table: one write to a key, with its time and its dependencies on other writes.

A record names its origin by a dot (`vector_clock.pyx`). A delete is a record too, a tombstone. Of two records of a key
the later one by (time, assignment, counter) wins: the same one on every replica, in any order of arrival. `record.pxd`
draws the bytes; the dependencies are not interpreted here. `check_record` or `decode` validates received bytes. The
other functions expect validated bytes, and refuse others. A record whose expiry has come is read as a tombstone.
"""

from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy


from gossipkv.errors import ProtocolError

cdef enum:
    TIME_COUNT_BITS = 16  # The bits of a hybrid time below its milliseconds.

PUT = KIND_PUT
DELETED = KIND_DELETED
EXPIRING = KIND_EXPIRING

cdef dict REASONS = {
    CUT: "the record ends within its head",
    NO_COUNTER: "the counter at byte 16 is 0; counters start at 1",
    NO_KIND: "the kind at byte 24 is not 1 (put), 2 (delete) or 3 (put with an expiry)",
    NO_LENGTH: "the size of the dependencies at byte 25 is not encoded in the fewest bytes, or has more than 5 bytes",
    TOO_LONG: "the dependencies extend beyond the end",
    VALUED: "a delete has a value",
    NO_EXPIRY: "the expiry after the dependencies is incomplete, or 0",
}


class Record(NamedTuple):
    """A record as fields; `kind` is PUT, DELETED or EXPIRING, and only EXPIRING has an expiry."""

    time: int
    assignment: int
    counter: int
    kind: int
    dependencies: bytes
    value: bytes
    expires_ms: int = 0


class RecordWrite(NamedTuple):
    """A write that a client asks for."""

    key: bytes
    value: bytes | None  # None: the key is deleted.
    dependencies: bytes = b""
    time: int = 0  # Time at which another node accepted the put (`smeared`); 0: the origin assigns one.
    expiry: int = 0  # Milliseconds since 1970; below 0: so many after the origin's clock; 0: never.


cdef object record_tuple = tuple.__new__


cdef object write_of(bytes key, bytes value, bytes dependencies, int64_t expiry):
    """Return a `RecordWrite`; value None: the key is deleted."""
    return record_tuple(RecordWrite, (key, value, dependencies, 0, expiry))


cdef Fault parse_record(const unsigned char* data, Py_ssize_t size, RecordView* view) noexcept nogil:
    cdef Py_ssize_t at = HEAD_BYTES
    cdef uint64_t length = 0
    cdef uint8_t byte = 0x80
    if size <= HEAD_BYTES:
        return CUT
    if load_number(data + DOT_END - 8) == 0:
        return NO_COUNTER
    view.kind = data[DOT_END]
    if not KIND_PUT <= view.kind <= KIND_EXPIRING:
        return NO_KIND
    while byte & 0x80:
        if at == HEAD_BYTES + MAX_LENGTH_BYTES:
            return NO_LENGTH
        if at == size:
            return CUT
        byte = data[at]
        length |= <uint64_t>(byte & 0x7F) << (7 * (at - HEAD_BYTES))
        at += 1
    if byte == 0 and at > HEAD_BYTES + 1:
        return NO_LENGTH
    if length > <uint64_t>(size - at):
        return TOO_LONG
    view.dependencies = data + at
    view.dependencies_size = <Py_ssize_t>length
    view.value = view.dependencies + view.dependencies_size
    view.value_size = size - at - view.dependencies_size
    view.expires_ms = 0
    if view.kind == KIND_EXPIRING:
        if view.value_size >= EXPIRY_BYTES:
            view.expires_ms = load_number(view.value)
        if view.expires_ms == 0:
            return NO_EXPIRY
        view.value += EXPIRY_BYTES
        view.value_size -= EXPIRY_BYTES
    return VALUED if view.kind == KIND_DELETED and view.value_size else SOUND


cdef object refusal(Fault fault, Py_ssize_t size):
    return ProtocolError(f"a record of {size} bytes is malformed: {REASONS[fault]}", {"size": size})


cdef int parsed(bytes data, RecordView* view) except -1:
    """Fill `view`, or raise ProtocolError."""
    cdef Fault fault = parse_record(bytes_of(data), PyBytes_GET_SIZE(data), view)
    if fault != SOUND:
        raise refusal(fault, PyBytes_GET_SIZE(data))
    return 0


cdef const unsigned char* head_of(bytes data) except NULL:
    """Return the first bytes of a record. Raises: ProtocolError if they are missing."""
    if PyBytes_GET_SIZE(data) <= HEAD_BYTES:
        raise refusal(CUT, PyBytes_GET_SIZE(data))
    return bytes_of(data)


def encode(
    uint64_t time, uint64_t assignment, uint64_t counter, uint8_t kind,
    bytes dependencies not None, bytes value not None, uint64_t expires_ms=0, /,
):
    """Return the bytes of a record.

    Requires: the counter is from 1, a tombstone has the value b"", and the kind is EXPIRING if there is an expiry.

    Raises:
        OverflowError: a number is negative, or has more than 64 bits; a kind, more than 8.
    """
    cdef uint64_t length = PyBytes_GET_SIZE(dependencies)
    cdef unsigned char head[HEAD_BYTES + 10]
    cdef Py_ssize_t size = HEAD_BYTES
    cdef Py_ssize_t expiry_size = EXPIRY_BYTES if expires_ms else 0
    cdef RecordView view
    store_number(head, time)
    store_number(head + DOT_OFFSET, assignment)
    store_number(head + DOT_END - 8, counter)
    head[DOT_END] = kind
    while length >= 0x80:
        head[size] = <unsigned char>(length & 0x7F | 0x80)
        length >>= 7
        size += 1
    head[size] = <unsigned char>length
    size += 1
    cdef bytes data = PyBytes_FromStringAndSize(
        NULL, size + PyBytes_GET_SIZE(dependencies) + expiry_size + PyBytes_GET_SIZE(value)
    )
    cdef unsigned char* whole = <unsigned char*>PyBytes_AS_STRING(data)
    cdef unsigned char* at = whole
    memcpy(at, head, size)
    at += size
    memcpy(at, bytes_of(dependencies), PyBytes_GET_SIZE(dependencies))
    at += PyBytes_GET_SIZE(dependencies)
    if expires_ms:
        store_number(at, expires_ms)
    memcpy(at + expiry_size, bytes_of(value), PyBytes_GET_SIZE(value))
    assert parse_record(whole, PyBytes_GET_SIZE(data), &view) == SOUND, "what is written is read"
    return data


def new_records(writes, uint64_t last, uint64_t assignment, uint64_t counter, uint64_t now_ms, /):
    """Return keys and records of `RecordWrite`s under the counters behind `counter`, and the greatest time.

    Each time is after the last one, or that of the acceptance of the write (`replica.hlc` has the rules).
    """
    cdef list records = []
    cdef uint64_t time, expires_ms
    cdef int64_t expiry
    for key, written, dependencies, accepted, expiry in writes:
        counter += 1
        time = accepted or max(last + 1, now_ms << TIME_COUNT_BITS)
        last = max(last, time)
        expires_ms = 0 if written is None else now_ms - <uint64_t>expiry if expiry < 0 else <uint64_t>expiry
        kind = KIND_DELETED if written is None else KIND_EXPIRING if expires_ms else KIND_PUT
        records.append((key, encode(time, assignment, counter, kind, dependencies, written or b"", expires_ms)))
    return records, last


def decode(bytes data not None, /):
    """Return the fields of a record.

    Raises:
        ProtocolError: the bytes are no record.
    """
    cdef RecordView view
    parsed(data, &view)
    cdef const unsigned char* head = bytes_of(data)
    return Record(
        load_number(head), load_number(head + DOT_OFFSET), load_number(head + DOT_END - 8), view.kind,
        (<const char*>view.dependencies)[:view.dependencies_size], (<const char*>view.value)[:view.value_size],
        view.expires_ms,
    )


def check_record(bytes data not None, /):
    """Validate the bytes of a record.

    Raises:
        ProtocolError: the bytes are no record; the message names the wrong field.
    """
    cdef RecordView view
    parsed(data, &view)


def wins(bytes one not None, bytes other not None, /):
    """Return True if `one` is later than `other`, by (time, assignment, counter); no record is later than itself."""
    return memcmp(head_of(one), head_of(other), DOT_END) > 0


def dot(bytes data not None, /):
    """Return the (assignment, counter) of a record, as a packed clock of one entry."""
    return (<const char*>head_of(data))[DOT_OFFSET:DOT_END]


def expires_ms(bytes data not None, /):
    """Return the time of day at which a record expires, in milliseconds; 0: never."""
    cdef RecordView view
    parsed(data, &view)
    return view.expires_ms


def is_deleted(bytes data not None, /):
    """Return True if a record is a tombstone, without decoding it: this runs for each synced record."""
    return head_of(data)[DOT_END] == KIND_DELETED


def dependencies(bytes data not None, /):
    """Return the dependencies of a record; usually none."""
    cdef RecordView view
    parsed(data, &view)
    return (<const char*>view.dependencies)[:view.dependencies_size]


def newest(records, /):
    """Return the newest counter of each origin among records, and their distinct dependencies but for empty ones.

    Raises:
        ProtocolError: the bytes of one are no record.
    """
    cdef dict counters = {}
    cdef set dependencies = set()
    cdef RecordView view
    cdef const unsigned char* head
    cdef bytes data
    for data in records:
        parsed(data, &view)
        head = bytes_of(data)
        origin = load_number(head + DOT_OFFSET)
        if load_number(head + DOT_END - 8) > <uint64_t>counters.get(origin, 0):
            counters[origin] = load_number(head + DOT_END - 8)
        if view.dependencies_size:
            dependencies.add((<const char*>view.dependencies)[:view.dependencies_size])
    return counters, dependencies


def value(bytes data not None, now_ms=0, /):
    """Return the value of a record; None for a tombstone, or if it has expired at that time of day.

    `now_ms` may be a function, which is called for a record with an expiry only.
    """
    cdef RecordView view
    parsed(data, &view)
    if view.expires_ms:
        expire_record(&view, now_ms() if callable(now_ms) else now_ms)
    return None if view.kind == KIND_DELETED else (<const char*>view.value)[:view.value_size]
