"""The records that a load asks for, and what is right: one table of values for each version that is known.

The numbers of records are the same in every table, so a key that was asked for finds what it should have in the
version that answered.  Records from `present` on are keys that are certain to be absent.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

cdef enum:
    ABSENT = 0xFFFFFFFF  # The size of the value of a key that the server must not have.
    ANY = 0xFFFFFFFE  # Of one that is not known: whatever comes is taken.

cdef struct Record:
    const uint8_t* key  # the value stands behind it
    uint32_t key_size
    uint32_t value_size


cdef inline bint is_value(const Record* record, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Whether this is the value of the record."""
    if size != <Py_ssize_t>record.value_size:
        return record.value_size == <uint32_t>ANY
    return memcmp(data, record.key + record.key_size, size) == 0


cdef inline bint may_be_absent(const Record* record) noexcept nogil:
    """Whether no value is right."""
    return record.value_size >= <uint32_t>ANY


cdef inline bint is_unknown(const Record* record) noexcept nogil:
    """Whether nothing is known of the value."""
    return record.value_size == <uint32_t>ANY


cdef inline int order(const uint8_t* one, Py_ssize_t size, const uint8_t* other, Py_ssize_t other_size) noexcept nogil:
    """Which key comes first: below zero if it is the one, zero if they are the same."""
    cdef int found = memcmp(one, other, min(size, other_size))
    return found if found != 0 else (size > other_size) - (size < other_size)


cdef class Records:
    cdef Record** tables
    cdef uint8_t** contents
    cdef list versions  # the name of each table's version, as bytes; None: of any version
    cdef Py_ssize_t table_count
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t present
    cdef Py_ssize_t longest_key
    cdef const uint8_t* names[64]
    cdef Py_ssize_t name_sizes[64]
    cdef bint wholes[64]  # whether a table's version has no other keys
    cdef Py_ssize_t fallback  # the table of any version; -1: none
    cdef uint32_t* ordered  # the present records in key order, where scans are compared; NULL: they are not
    cdef uint32_t* places  # of each record in `ordered`

    # The table that answers of this version are compared with; NULL: nothing is known of it.
    cdef const Record* table_of(self, const uint8_t* version, Py_ssize_t size) noexcept nogil

    # Whether a version has no keys but those of its table.
    cdef bint is_whole(self, const Record* table) noexcept nogil
