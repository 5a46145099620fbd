"""What every dialect has in common.  The rules stand in `_dialect.pxd`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

from gossipkv.loadtest._records import as_records

from gossipkv.wire._buffer cimport Buffer

KIND_NAMES = ("get", "get_many", "scan")


cdef class Dialect:
    """How to ask for records, and whether what comes back is right."""

    cdef int keep(self, records) except -1:
        """Ask for these: `Records`, or pairs of a key and a value; None is the value of a key that must be absent."""
        self.truth = as_records(records)
        self.records = self.truth.tables[0]
        self.count = self.truth.count
        self.longest_key = self.truth.longest_key
        return 0

    cdef int greet(self, bytes greeting) except -1:
        """Say this first on each connection."""
        self.greeting = greeting
        self.greeting_at = <const uint8_t*>PyBytes_AS_STRING(greeting)
        self.greeting_size = PyBytes_GET_SIZE(greeting)
        return 0

    cdef Py_ssize_t room(self, uint32_t batch) noexcept nogil:
        return 0

    cdef void write(self, Buffer* out, uint32_t id, uint8_t kind, const uint32_t* keys, uint32_t count) noexcept nogil:
        pass

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        return GARBAGE

    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        return GARBAGE

    def __len__(self):
        return self.count

    def record(self, Py_ssize_t number):
        """The key and the value of a record."""
        return self.truth.record(number)
