# A record of a table, for C code without the GIL.
#
#     offset size field
#     0      8    time: hybrid, 48 bits of milliseconds, then 16 of counting
#     8      8    assignment of the origin
#     16     8    counter of the origin's writes, from 1
#     24     1    kind: 1 put, 2 deleted, 3 put with an expiry
#     25     1-5  size d of the dependencies, LEB128, in as few bytes as it takes
#            d    dependencies
#            8    of kind 3 alone: the expiry, milliseconds of the wall clock, from 1
#            rest value; empty in a tombstone
#
# Numbers are big-endian, so the first 24 bytes order two records. A record's dot is bytes 8 to 24: an entry of a packed
# clock.

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    KIND_PUT = 1
    KIND_DELETED = 2
    KIND_EXPIRING = 3
    DOT_OFFSET = 8
    DOT_END = 24
    HEAD_BYTES = 25
    MAX_LENGTH_BYTES = 5
    EXPIRY_BYTES = 8


cdef enum Fault:
    SOUND = 0
    CUT = 1
    NO_COUNTER = 2
    NO_KIND = 3
    NO_LENGTH = 4
    TOO_LONG = 5
    VALUED = 6
    NO_EXPIRY = 7


cdef struct RecordView:
    uint8_t kind
    const unsigned char* dependencies
    Py_ssize_t dependencies_size
    uint64_t expires_ms  # 0: never
    const unsigned char* value
    Py_ssize_t value_size


# Fill `view` and return SOUND; or return the fault, with `view` undefined.
cdef Fault parse_record(const unsigned char* data, Py_ssize_t size, RecordView* view) noexcept nogil


cdef inline void expire_record(RecordView* view, uint64_t now_ms) noexcept nogil:
    """Turn a record whose expiry has come into a tombstone."""
    if view.expires_ms != 0 and view.expires_ms <= now_ms:
        view.kind, view.value_size, view.expires_ms = KIND_DELETED, 0, 0


# Return a `RecordWrite`; value None: the key is deleted.
cdef object write_of(bytes key, bytes value, bytes dependencies, int64_t expiry)
