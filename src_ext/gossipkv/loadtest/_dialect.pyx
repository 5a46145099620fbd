"""The records that a load asks for, and what every dialect has in common.  The rules stand in `_dialect.pxd`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport Buffer

cdef enum:
    LONGEST = 0xFFFFFFFE  # A size is 32 bits, and the last one means that there is no value.


cdef class Dialect:
    """How to ask for records, and whether what comes back is right.

    A key and its value stand side by side in one block of memory, so that the check of a value mostly finds it in the
    cache: its lines were fetched when the key was asked for.
    """

    def __dealloc__(self):
        free(self.records)
        free(self.content)

    cdef int keep(self, records) except -1:
        """Copy pairs of a key and a value; None is the value of a key that must be absent."""
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size
        cdef Py_ssize_t i = 0
        cdef bytes key
        cdef bytes value
        cdef uint8_t* at
        records = list(records)
        for key, value in records:
            size = PyBytes_GET_SIZE(key)
            self.longest_key = max(self.longest_key, size)
            if value is not None:
                size = max(size, PyBytes_GET_SIZE(value))
                total += PyBytes_GET_SIZE(value)
            if size > LONGEST:
                raise ValueError("a key or a value of 4 GiB or more")
            total += PyBytes_GET_SIZE(key)
        self.count = len(records)
        if not 0 < self.count <= LONGEST:
            raise ValueError(f"a load needs from 1 to {LONGEST} records, got {self.count}")
        self.records = <Record*>malloc(self.count * sizeof(Record))
        self.content = <uint8_t*>malloc(total + 1)
        if self.records == NULL or self.content == NULL:
            raise MemoryError
        at = self.content
        for i, (key, value) in enumerate(records):
            size = PyBytes_GET_SIZE(key)
            self.records[i] = Record(at, <uint32_t>size, ABSENT)
            memcpy(at, PyBytes_AS_STRING(key), size)
            at += size
            if value is not None:
                size = PyBytes_GET_SIZE(value)
                self.records[i].value_size = <uint32_t>size
                memcpy(at, PyBytes_AS_STRING(value), size)
                at += size
        return 0

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return 0

    cdef void write(self, Buffer* out, uint32_t id, const uint32_t* keys, uint32_t batch) noexcept nogil:
        pass

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        return GARBAGE

    def __len__(self):
        return self.count

    def record(self, Py_ssize_t number):
        """The key and the value of a record."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        cdef Record found = self.records[number]
        cdef bytes key = found.key[:found.key_size]
        if found.value_size == ABSENT:
            return key, None
        return key, (found.key + found.key_size)[:found.value_size]
