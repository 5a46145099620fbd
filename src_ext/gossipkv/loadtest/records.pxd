"""The records of a load, and their right values: one table of values for each known version.

Records have the same number in every table, so a requested key finds its value in the version that answered.  Records
from `present` on have keys that are certain to be absent.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

cdef enum:
    ABSENT = 0xFFFFFFFF  # The value size of a key that the server must not have.
    ANY = 0xFFFFFFFE  # The value size of a key with an unknown value, for which any value is accepted.

cdef struct Record:
    const uint8_t* key  # The value follows the key.
    uint32_t key_size
    uint32_t value_size


cdef inline bint is_value(const Record* record, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return True if this is the value of the record."""
    if size != <Py_ssize_t>record.value_size:
        return record.value_size == <uint32_t>ANY
    return memcmp(data, record.key + record.key_size, size) == 0


cdef inline bint may_be_absent(const Record* record) noexcept nogil:
    """Return True if the record may have no value."""
    return record.value_size >= <uint32_t>ANY


cdef inline bint is_unknown(const Record* record) noexcept nogil:
    """Return True if the value is unknown."""
    return record.value_size == <uint32_t>ANY


cdef inline int order(const uint8_t* one, Py_ssize_t size, const uint8_t* other, Py_ssize_t other_size) noexcept nogil:
    """Compare two keys: below zero if `one` precedes, zero if they are equal."""
    cdef int found = memcmp(one, other, min(size, other_size))
    return found if found != 0 else (size > other_size) - (size < other_size)


cdef class Records:
    cdef Record** tables
    cdef uint8_t** contents
    cdef list versions  # The name of each table's version, as bytes; None: of any version.
    cdef Py_ssize_t table_count
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t present
    cdef Py_ssize_t longest_key
    cdef const uint8_t* names[64]
    cdef Py_ssize_t name_sizes[64]
    cdef bint wholes[64]  # True if a table's version has no other keys.
    cdef Py_ssize_t fallback  # The table of any version; -1: none.
    cdef uint32_t* ordered  # The present records in key order, if scans are compared; else NULL.
    cdef uint32_t* places  # The place of each record in `ordered`.

    # Return the table for answers of this version; NULL if it is unknown.
    cdef const Record* table_of(self, const uint8_t* version, Py_ssize_t size) noexcept nogil

    # Return True if a version has only the keys of its table.
    cdef bint is_whole(self, const Record* table) noexcept nogil
