"""The records of a load, copied once into memory that every dialect shares.  The rules stand in `_records.pxd`.

A key and its value stand side by side in one block of memory, so that the check of a value mostly finds it in the
cache: its lines were fetched when the key was asked for.
"""

from bisect import bisect_left

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    LONGEST = 0xFFFFFFFD  # A size is 32 bits, and the last two have a meaning.
    TABLES = 64  # A load that meets more versions than that is compared with the newest.


@cython.final
cdef class Records:
    """Keys, and for each version their values: None is absent, `...` is unknown.

    `ordered`: scans are compared, too; `whole`: no version has other keys.
    """

    def __cinit__(self, keys, values, *, present=None, ordered=False, whole=False):
        cdef list keys_list = list(keys)
        cdef Py_ssize_t at
        cdef Py_ssize_t place
        self.fallback = -1
        self.count = len(keys_list)
        self.present = self.count if present is None else present
        if not 0 < self.count <= LONGEST or not 0 <= self.present <= self.count:
            raise ValueError(f"a load needs from 1 to {LONGEST} records, got {self.count}")
        if not 0 < len(values) <= TABLES:
            raise ValueError(f"a load has values of 1 to {TABLES} versions, got {len(values)}")
        self.versions = [None if version is None else version.encode() for version in values]
        self.tables = <Record**>calloc(TABLES, sizeof(Record*))
        self.contents = <uint8_t**>calloc(TABLES, sizeof(uint8_t*))
        if self.tables == NULL or self.contents == NULL:
            raise MemoryError
        for at, (version, table) in enumerate(values.items()):
            self.fill(at, keys_list, list(table))
            self.wholes[at] = whole
            if version is None:
                self.fallback = at
            else:
                self.names[at] = <const uint8_t*>PyBytes_AS_STRING(self.versions[at])
                self.name_sizes[at] = PyBytes_GET_SIZE(self.versions[at])
        if ordered:
            self.ordered = <uint32_t*>malloc((self.present + 1) * sizeof(uint32_t))
            self.places = <uint32_t*>calloc(self.count, sizeof(uint32_t))
            if self.ordered == NULL or self.places == NULL:
                raise MemoryError
            in_order = sorted(range(self.present), key=keys_list.__getitem__)
            for place, number in enumerate(in_order):
                self.ordered[place] = number
                self.places[<Py_ssize_t>number] = <uint32_t>place
            for at in range(self.present, self.count):
                self.places[at] = <uint32_t>bisect_left(in_order, keys_list[at], key=keys_list.__getitem__)

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.table_count):
            free(self.tables[at])
            free(self.contents[at])
        free(self.tables)
        free(self.contents)
        free(self.ordered)
        free(self.places)

    cdef int fill(self, Py_ssize_t at, list keys, list values) except -1:
        """Copy the keys and one version's values."""
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t size
        cdef Py_ssize_t i
        cdef bytes key
        cdef object value
        cdef uint8_t* to
        if len(values) != self.count:
            raise ValueError(f"{len(values)} values for {self.count} keys")
        for i in range(self.count):
            key = keys[i]
            value = values[i]
            if key is None or not (value is None or value is ... or isinstance(value, bytes)):
                raise TypeError("a record is a key and a value, of bytes")
            size = PyBytes_GET_SIZE(key)
            self.longest_key = max(self.longest_key, size)
            total += size
            if isinstance(value, bytes):
                total += PyBytes_GET_SIZE(value)
                size = max(size, PyBytes_GET_SIZE(value))
            if size > LONGEST:
                raise ValueError("a key or a value of 4 GiB or more")
        self.table_count += 1
        self.tables[at] = <Record*>malloc(self.count * sizeof(Record))
        self.contents[at] = <uint8_t*>malloc(total + 1)
        if self.tables[at] == NULL or self.contents[at] == NULL:
            raise MemoryError
        to = self.contents[at]
        for i in range(self.count):
            key = keys[i]
            value = values[i]
            size = PyBytes_GET_SIZE(key)
            self.tables[at][i] = Record(to, <uint32_t>size, <uint32_t>(ABSENT if value is None else ANY))
            memcpy(to, PyBytes_AS_STRING(key), size)
            to += size
            if isinstance(value, bytes):
                size = PyBytes_GET_SIZE(value)
                self.tables[at][i].value_size = <uint32_t>size
                memcpy(to, PyBytes_AS_STRING(value), size)
                to += size
        return 0

    cdef const Record* table_of(self, const uint8_t* version, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t at
        for at in range(self.table_count):
            if at != self.fallback and size == self.name_sizes[at] and memcmp(version, self.names[at], size) == 0:
                return self.tables[at]
        return self.tables[self.fallback] if self.fallback >= 0 else NULL

    cdef bint is_whole(self, const Record* table) noexcept nogil:
        cdef Py_ssize_t at
        for at in range(self.table_count):
            if self.tables[at] == table:
                return self.wholes[at]
        return False

    def __len__(self):
        return self.count

    def record(self, Py_ssize_t number, version=None):
        """The key and the value of a record, of a version or of the first that is known."""
        if not 0 <= number < self.count:
            raise IndexError(number)
        cdef Py_ssize_t at = 0
        if version is not None and version.encode() in self.versions:
            at = self.versions.index(version.encode())
        elif version is not None and self.fallback >= 0:
            at = self.fallback
        cdef Record found = self.tables[at][number]
        cdef bytes key = found.key[:found.key_size]
        if found.value_size == <uint32_t>ABSENT:
            return key, None
        if found.value_size == <uint32_t>ANY:
            return key, ...
        return key, (found.key + found.key_size)[:found.value_size]


def as_records(records):
    """Records as they are, or made of pairs of a key and a value."""
    if isinstance(records, Records):
        return records
    cdef list pairs = list(records)
    return Records([key for key, _ in pairs], {None: [value for _, value in pairs]})
