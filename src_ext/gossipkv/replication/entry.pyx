"""Log entries as nodes exchange them: conversion of packed clocks to counters and back, and validation.

A received entry has clocks, as counters of assignments named before, and records. All of it is validated here at once,
and a refused entry changes nothing.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

from gossipkv.errors import ProtocolError

cdef enum:
    # Approximate bytes of a sent entry beside its records, and of each record beside its key and data.
    ENTRY_OVERHEAD = 64
    RECORD_OVERHEAD = 8


def clock_of(tuple ids not None, list counters not None, /):
    """Return the clock of assignments with these counters. Raises: ProtocolError for invalid or missing counters."""
    cdef Py_ssize_t count = len(ids), number
    cdef uint64_t before = 0, id_
    cdef bytes clock
    cdef unsigned char* at
    if len(counters) != count:
        raise ProtocolError(f"this clock must have {count} counters, not {len(counters)}")
    clock = PyBytes_FromStringAndSize(NULL, count * ENTRY_BYTES)
    at = <unsigned char*>PyBytes_AS_STRING(clock)
    for number in range(count):
        value = counters[number]
        if not isinstance(value, int):
            raise ProtocolError(f"a counter must be a number, not {value!r:.80}")
        try:
            store_number(at + NUMBER_BYTES, value)
        except OverflowError as error:
            raise ProtocolError(f"a counter must be 0 to 2**64 - 1, not {value}") from error
        id_ = ids[number]
        if number and id_ <= before:  # The ids are in another order than ours, which is rare and may be slow.
            return of(zip(ids, counters, strict=True))
        store_number(at, id_)
        before = id_
        at += ENTRY_BYTES
    return clock


def counters_of(bytes clock not None, tuple ids not None, /):
    """Return the counters of a clock, in the order of those assignments."""
    cdef const unsigned char* data = bytes_of(clock)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(clock), place = 0
    cdef uint64_t id_
    cdef list counters = []
    for wanted in ids:
        id_ = wanted
        if place < size and load_number(data + place) == id_:  # The ids are mostly in the clock's order.
            counters.append(load_number(data + place + NUMBER_BYTES))
        else:
            counters.append(clock_counter(data, size, id_))
        place += ENTRY_BYTES
    return counters


@cython.final
@cython.no_gc  # Nothing that an entry refers to refers to entries.
cdef class LogEntry:
    """The effect of a log batch on one replica; `before` and `after` are packed clocks.

    `source`: assignment of the host that sent the entry; 0: a local entry. `config`: config by which the entry's clocks
    name assignments; of an entry from another host only if newer than the local one. `joining`: bootstrap
    state of an incomplete replica after the entry; such an entry feeds no host.
    """

    cdef readonly object replica
    cdef readonly tuple records     # Keys and records.
    cdef readonly bytes before
    cdef readonly bytes after
    cdef public bint is_own         # The records were written by this node.
    cdef public uint64_t position   # Position in the local log.
    cdef readonly Py_ssize_t size_bytes  # Approximate size on the wire.
    cdef readonly bint deletes      # A record is a tombstone.
    cdef readonly tuple origins     # Assignments whose records the entry has, or had.
    cdef readonly object source
    cdef readonly object config
    cdef readonly object joining

    def __init__(
        self, replica, tuple records not None, bytes before not None, bytes after not None, bint is_own,
        uint64_t position=0, *, source=0, config=0, joining=None,
    ):
        cdef Py_ssize_t size = ENTRY_OVERHEAD
        cdef bytes key, data
        for key, data in records:
            size += PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(data) + RECORD_OVERHEAD
            self.deletes |= head_of(data)[DOT_END] == KIND_DELETED
        self.replica, self.records, self.before, self.after = replica, records, before, after
        self.is_own, self.position, self.size_bytes = is_own, position, size
        self.source, self.config, self.joining = source, config, joining
        self.origins = ahead(after, before)

    cdef int join(self, LogEntry entry) except -1:
        """Add an entry that begins where this one ends, while nobody else knows this one."""
        self.records += entry.records
        self.after = entry.after
        self.size_bytes += entry.size_bytes - ENTRY_OVERHEAD
        self.deletes |= entry.deletes
        self.is_own = self.is_own and entry.is_own
        self.origins = ahead(self.after, self.before)
        return 0

    def records_of(self, ids, /):
        """Return the records of these origins; no clock names an ended origin any more."""
        if set(ids).issuperset(self.origins):
            return self.records
        left = named(self.after, ids)
        return [(key, data) for key, data in self.records if covers(left, dot(data))]

    def of(self, replica, /):
        """Return the part of the entry for a replica inside the bounds: records by key, clocks unchanged."""
        assert self.replica.bounds.covers(replica.bounds), (self.replica.bounds, replica.bounds)
        has = replica.bounds.has
        records = tuple([row for row in self.records if has(row[0])])
        return LogEntry(replica, records, self.before, self.after, False, self.position, config=self.config)


def forget_synced(dict unsynced not None, tuple records not None, /):
    """Drop the keys whose last record is one of these; `unsynced`: each key's last record."""
    cdef bytes key, data
    for key, data in records:
        order = unsynced.get(key)
        if order is not None and memcmp(bytes_of(<bytes>order), head_of(data), DOT_END) == 0:
            del unsynced[key]


def records_of(list flat not None, /):
    """Parse `[key, record, ...]` into pairs. Raises: ProtocolError."""
    cdef list records = []
    cdef Py_ssize_t number
    cdef RecordView view
    if len(flat) % 2:
        raise ProtocolError("records must be pairs of a key and a record")
    for number in range(0, len(flat), 2):
        key, data = flat[number], flat[number + 1]
        if not isinstance(key, bytes) or not isinstance(data, bytes):
            raise ProtocolError("keys and records must be bytes")
        if parse_record(bytes_of(data), PyBytes_GET_SIZE(data), &view) != SOUND:
            check_record(data)
        records.append((key, data))
    return tuple(records)


def ends_of(bytes begins not None, bytes told, tuple records not None, /):
    """Return the clock after an entry: `told`, or the clock that follows from the records if `told` is None.

    Raises:
        ProtocolError: `told` does not cover the clock before and all records; or the records do not continue that clock
            without gaps.
    """
    cdef bytes ends
    cdef bytes data
    if told is None:
        return behind(begins, records)
    ends = told
    for _, data in records:
        if clock_counter(
            bytes_of(ends), PyBytes_GET_SIZE(ends), load_number(bytes_of(data) + DOT_OFFSET)
        ) < load_number(bytes_of(data) + DOT_OFFSET + NUMBER_BYTES):
            break
    else:
        if covers(ends, begins):
            return ends
    raise ProtocolError("an entry's clock after it must cover the clock before it, and its records")


cdef bytes behind(bytes begins, tuple records):
    """Return the clock after records that continue it without gaps."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(begins), place
    cdef bytes ends = PyBytes_FromStringAndSize(PyBytes_AS_STRING(begins), size) if records else begins
    cdef unsigned char* at
    cdef const unsigned char* dot
    cdef bytes data
    for _, data in records:
        dot = bytes_of(data) + DOT_OFFSET
        place = clock_place(bytes_of(ends), size, load_number(dot))
        at = <unsigned char*>PyBytes_AS_STRING(ends) + place
        if place >= size or load_number(at) != load_number(dot):
            raise ProtocolError(
                f"the clock does not have the assignment of record {load_number(dot + 8)} of {load_number(dot)}"
            )
        if load_number(dot + NUMBER_BYTES) != load_number(at + NUMBER_BYTES) + 1:
            raise ProtocolError(
                f"record {load_number(dot + 8)} of {load_number(dot)} does not follow {load_number(at + 8)}"
            )
        memcpy(at, dot, ENTRY_BYTES)
    return ends
