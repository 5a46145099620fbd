# One operation of a batch: its bytes, in a frame of the log and in every other place.
#
#     offset size field
#     0      1    kind: 1 value, 2 tombstone, 3 new space, 4 dropped space
#     1      2    size of the key, including its space
#     3      4    size of the value; 0 except for kind 1
#     7      k    key: the space, big-endian in four bytes, then the user's key; for kinds 3 and 4 only the space
#     7+k    v    value
#
# The first two kinds are also the flags of a record: the byte before every value in a memtable and in a run.

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from gossipkv.storage._storage cimport load32

cdef enum:
    VALUE = 1
    TOMBSTONE = 2
    NEW_SPACE = 3
    DROPPED_SPACE = 4
    SPACE_BYTES = 4
    OPERATION_HEADER_BYTES = 7
    MAX_KEY_BYTES = 65531          # Limit of a user's key; with its space it is as long as a sorted file allows.
    MAX_VALUE_BYTES = 16777216


cdef struct Operation:
    uint8_t kind
    const uint8_t* key              # Begins with its space.
    uint32_t key_size
    const uint8_t* value
    uint32_t value_size


cdef inline const uint8_t* next_operation(const uint8_t* at, const uint8_t* end, Operation* operation) noexcept nogil:
    """Parse the operation at `at` < `end`; returns the start of the next one, or NULL if it is invalid."""
    cdef uint16_t key_size
    if end - at < OPERATION_HEADER_BYTES + SPACE_BYTES:
        return NULL
    operation.kind = at[0]
    memcpy(&key_size, at + 1, 2)
    operation.key_size = key_size
    operation.value_size = load32(at + 3)
    at += OPERATION_HEADER_BYTES
    if not VALUE <= operation.kind <= DROPPED_SPACE or operation.key_size < SPACE_BYTES:
        return NULL
    if operation.kind >= NEW_SPACE and operation.key_size != SPACE_BYTES:
        return NULL
    if operation.kind != VALUE and operation.value_size != 0:
        return NULL
    if operation.value_size > MAX_VALUE_BYTES or operation.key_size + operation.value_size > <size_t> (end - at):
        return NULL
    operation.key = at
    operation.value = at + operation.key_size
    return at + operation.key_size + operation.value_size
