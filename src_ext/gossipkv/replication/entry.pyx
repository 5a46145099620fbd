"""Log entries as nodes exchange them: conversion of packed clocks to counters and back, and validation.

A received entry has clocks, as counters of assignments named before, and records. All of it is validated here at once,
and a refused entry changes nothing.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy


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
        raise ProtocolError(f"a clock has {count} counters here, not {len(counters)}")
    clock = PyBytes_FromStringAndSize(NULL, count * ENTRY_BYTES)
    at = <unsigned char*>PyBytes_AS_STRING(clock)
    for number in range(count):
        value = counters[number]
        if not isinstance(value, int):
            raise ProtocolError(f"a counter is a number, not {value!r:.80}")
        try:
            store_number(at + NUMBER_BYTES, value)
        except OverflowError as error:
            raise ProtocolError(f"a counter has 64 bits, and is not negative: {value}") from error
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


def size_bytes(tuple records not None, /):
    """Return the approximate bytes of a sent entry with these records."""
    cdef Py_ssize_t size = ENTRY_OVERHEAD
    cdef bytes key, data
    for key, data in records:
        size += PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(data) + RECORD_OVERHEAD
    return size


def records_of(list flat not None, /):
    """Parse `[key, record, ...]` into pairs. Raises: ProtocolError."""
    cdef list records = []
    cdef Py_ssize_t number
    cdef RecordView view
    if len(flat) % 2:
        raise ProtocolError("records are keys, each with its record")
    for number in range(0, len(flat), 2):
        key, data = flat[number], flat[number + 1]
        if not isinstance(key, bytes) or not isinstance(data, bytes):
            raise ProtocolError("keys and records are bytes")
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
    raise ProtocolError("an entry's clock after covers the clock before, and all of its records")


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
            raise ProtocolError(f"record {load_number(dot + 8)} of {load_number(dot)} is of no assignment of the clock")
        if load_number(dot + NUMBER_BYTES) != load_number(at + NUMBER_BYTES) + 1:
            raise ProtocolError(
                f"record {load_number(dot + 8)} of {load_number(dot)} does not follow {load_number(at + 8)}"
            )
        memcpy(at, dot, ENTRY_BYTES)
    return ends
