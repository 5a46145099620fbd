"""The value at the last of many sorted keys up to a given one.

Comparing key objects would miss the processor's cache at each step. So a row has the value and, as a number, the eight
bytes after the prefix that the keys share; only keys with equal numbers are compared whole. The first key is never
compared, since a key below the second one finds the first value. Memory: 16 bytes a key, beside keys and values.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

cdef enum:
    WORD_BYTES = 8

cdef struct Row:
    uint64_t word
    PyObject* value


cdef inline uint64_t word_of(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Return the first eight bytes, zero-padded and big-endian, so that words compare as bytes do."""
    cdef uint64_t word = 0
    cdef Py_ssize_t at
    for at in range(min(size, WORD_BYTES)):
        word |= <uint64_t>data[at] << (56 - 8 * at)
    return word


@cython.final
@cython.no_gc_clear  # `rows` points to the values.
cdef class KeyIndex:
    """Finds the value at the last key up to a given one. Requires: the keys ascend."""

    cdef readonly tuple keys
    cdef readonly tuple values
    cdef Row* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t shared  # The bytes that all keys but the first begin with.
    cdef const unsigned char* second

    def __cinit__(self, keys, values):
        cdef const unsigned char* last
        cdef Py_ssize_t at, most
        cdef bytes key
        self.keys, self.values = tuple(keys), tuple(values)
        self.count = len(self.keys)
        if self.count == 0 or self.count != len(self.values):
            raise ValueError(
                f"an index needs keys and one value for each, got {self.count} keys and {len(self.values)} values"
            )
        for key in self.keys:
            if key is None:
                raise TypeError("the keys of an index must be bytes, not None")
        self.rows = <Row*>PyMem_Calloc(self.count, sizeof(Row))
        if self.rows == NULL:
            raise MemoryError
        key = self.keys[self.count > 1]
        self.second, most = bytes_of(key), PyBytes_GET_SIZE(key)
        key = self.keys[self.count - 1]
        last, most = bytes_of(key), min(most, PyBytes_GET_SIZE(key))
        while self.shared < most and self.second[self.shared] == last[self.shared]:
            self.shared += 1
        for at in range(self.count):
            key = self.keys[at]
            self.rows[at].value = <PyObject*>self.values[at]
            if at > 0:
                self.rows[at].word = word_of(bytes_of(key) + self.shared, PyBytes_GET_SIZE(key) - self.shared)

    def __dealloc__(self):
        PyMem_Free(self.rows)

    def find(self, bytes key not None, /):
        """Return the value at the last key up to `key`; the first value if there is none."""
        cdef const unsigned char* data = bytes_of(key)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef Py_ssize_t low = 1
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        cdef int order = memcmp(data, self.second, min(size, self.shared))
        cdef uint64_t word
        if order > 0:
            return <object>self.rows[high - 1].value
        if order < 0 or size < self.shared:
            return <object>self.rows[0].value
        word = word_of(data + self.shared, size - self.shared)
        while low < high:
            middle = (low + high) >> 1
            if self.rows[middle].word < word or (self.rows[middle].word == word and self.keys[middle] <= key):
                low = middle + 1
            else:
                high = middle
        return <object>self.rows[low - 1].value
