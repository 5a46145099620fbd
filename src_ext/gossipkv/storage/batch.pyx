"""Batches of records, without a Python object for each.

A batch points into buffers that it holds. A source's decoder adds records, a partitioner sets their groups, and the
sorter copies them. Sizes are 32 bits wide: no key or value of a sorted file is longer.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc


@cython.final
cdef class RecordBatch:
    """Up to `BATCH_RECORDS` records; see `gossipkv.storage.batch`."""

    def __cinit__(self):
        self.records = <BatchRecord*> malloc(BATCH_RECORDS * sizeof(BatchRecord))
        if self.records == NULL:
            raise MemoryError
        self.owners = []

    def __dealloc__(self):
        free(self.records)

    cdef int hold(self, object owner) except -1:
        """Keep a buffer that records point into alive until `clear`."""
        self.owners.append(owner)
        return 0

    cdef bint put(
        self, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size, uint64_t offset
    ) noexcept nogil:
        """Add a record; returns False if the batch is full.

        The caller checks the sizes, and keeps the buffers alive.
        """
        cdef BatchRecord* record
        if self.count == BATCH_RECORDS:
            return False
        record = &self.records[self.count]
        record.key = key
        record.value = value
        record.key_size = <uint32_t> key_size
        record.value_size = <uint32_t> value_size
        record.offset = offset
        record.group = 0
        self.count += 1
        return True

    def append(self, bytes key not None, bytes value not None, uint64_t offset=0):
        """Add one record; returns False, without effect, if the batch is full.

        Raises:
            ValueError: the key or value is longer than 4 GiB.
        """
        cdef Py_ssize_t longest = max(PyBytes_GET_SIZE(key), PyBytes_GET_SIZE(value))
        if <uint64_t> longest > <uint64_t> 0xFFFFFFFF:
            raise ValueError(f"the key or the value has {longest:,} bytes, at most 4,294,967,295 are allowed")
        if not self.put(
            <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
            <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), offset,
        ):
            return False
        self.owners.append(key)
        self.owners.append(value)
        return True

    def clear(self):
        """Remove the records, and release their buffers."""
        self.count = 0
        self.owners.clear()

    @property
    def full(self):
        """True if no further record fits."""
        return self.count == BATCH_RECORDS

    def __len__(self):
        return self.count

    def __iter__(self):
        """Yield the records as (key, value)."""
        cdef Py_ssize_t number
        for number in range(self.count):
            yield key_of(&self.records[number]), value_of(&self.records[number])

    def keys(self, limit=None):
        """Return the first `limit` keys, or all."""
        cdef Py_ssize_t most = self.count if limit is None else min(self.count, <Py_ssize_t> limit)
        return [key_of(&self.records[number]) for number in range(most)]

    def offsets(self):
        """Return the place of each record in its source."""
        return [self.records[number].offset for number in range(self.count)]

    def groups(self):
        """Return the sorted file of each record."""
        return [self.records[number].group for number in range(self.count)]


cdef inline bytes key_of(const BatchRecord* record):
    return (<const char*> record.key)[:record.key_size]


cdef inline bytes value_of(const BatchRecord* record):
    return (<const char*> record.value)[:record.value_size]
