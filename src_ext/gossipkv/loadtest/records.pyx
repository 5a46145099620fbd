"""The records of a load, copied once into memory that every dialect shares; `records.pxd` has the rules.

A key and its value are adjacent in one block of memory.  A value is therefore mostly in the cache when it is checked,
since its lines were fetched when the key was requested.
"""

from bisect import bisect_left

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    LONGEST = 0xFFFFFFFD  # A size has 32 bits, and the last two values have a meaning.
    TABLES = 64  # A load that meets more versions is compared with the newest.


@cython.final
cdef class LateTable:
    """Values of a later version, until `Records.adopt` adds them."""

    cdef Record* table
    cdef uint8_t* content
    cdef bytes version
    cdef bint whole

    def __dealloc__(self):
        free(self.table)
        free(self.content)


cdef int fill(Records records, Py_ssize_t at, list keys, list values) except -1:
    """Copy the keys and one version's values."""
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size
    cdef Py_ssize_t i
    cdef bytes key
    cdef object value
    cdef uint8_t* to
    if len(values) != records.count:
        raise ValueError(f"the version has {len(values)} values for {records.count} keys")
    for i in range(records.count):
        key = keys[i]
        value = values[i]
        if key is None or not (value is None or value is ... or isinstance(value, bytes)):
            raise TypeError("a record must be a key and a value, both bytes")
        size = PyBytes_GET_SIZE(key)
        records.longest_key = max(records.longest_key, size)
        total += size
        if isinstance(value, bytes):
            total += PyBytes_GET_SIZE(value)
            size = max(size, PyBytes_GET_SIZE(value))
        if size > LONGEST:
            raise ValueError("a key or a value has 4 GiB or more")
    records.table_count += 1
    records.tables[at] = <Record*>malloc(records.count * sizeof(Record))
    records.contents[at] = <uint8_t*>malloc(total + 1)
    if records.tables[at] == NULL or records.contents[at] == NULL:
        raise MemoryError
    to = records.contents[at]
    for i in range(records.count):
        key = keys[i]
        value = values[i]
        size = PyBytes_GET_SIZE(key)
        records.tables[at][i] = Record(to, <uint32_t>size, <uint32_t>(ABSENT if value is None else ANY))
        memcpy(to, PyBytes_AS_STRING(key), size)
        to += size
        if isinstance(value, bytes):
            size = PyBytes_GET_SIZE(value)
            records.tables[at][i].value_size = <uint32_t>size
            memcpy(to, PyBytes_AS_STRING(value), size)
            to += size
    return 0


cdef Py_ssize_t merge(
    Records records, LateTable late, const uint8_t** values, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    """Fill a table, finding its values first and copying them then; return the number of unknown keys."""
    cdef Py_ssize_t strangers = 0
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t i
    cdef uint32_t sizes[2]
    cdef uint8_t* to
    cdef Record* record = late.table
    for i in range(records.count):
        late.table[i] = records.tables[0][i]
        late.table[i].value_size = <uint32_t>ABSENT
        total += late.table[i].key_size
    while size > 0:
        if size < <Py_ssize_t>sizeof(sizes):
            return -1
        memcpy(sizes, data, sizeof(sizes))
        data += sizeof(sizes)
        size -= sizeof(sizes)
        if size < <Py_ssize_t>sizes[0] + sizes[1]:
            return -1
        while place < records.present:
            record = late.table + records.ordered[place]
            if order(record.key, record.key_size, data, sizes[0]) >= 0:
                break
            place += 1
        if place < records.present and order(record.key, record.key_size, data, sizes[0]) == 0:
            record.value_size = sizes[1]
            values[records.ordered[place]] = data + sizes[0]
            total += sizes[1]
        else:
            strangers += 1
        data += <Py_ssize_t>sizes[0] + sizes[1]
        size -= <Py_ssize_t>sizes[0] + sizes[1]
    late.content = <uint8_t*>malloc(total + 1)
    if late.content == NULL:
        return -2
    to = late.content
    for i in range(records.count):
        record = late.table + i
        memcpy(to, record.key, record.key_size)
        record.key = to
        to += record.key_size
        if values[i] != NULL:
            memcpy(to, values[i], record.value_size)
            to += record.value_size
    return strangers


@cython.final
cdef class Records:
    """Keys, and for each version their values: None is absent, `...` is unknown.

    `ordered`: scans are compared as well; `whole`: no version has other keys.
    """

    def __cinit__(self, keys, values, *, present=None, ordered=False, whole=False):
        cdef list keys_list = list(keys)
        cdef Py_ssize_t at
        cdef Py_ssize_t place
        self.fallback = -1
        self.count = len(keys_list)
        self.present = self.count if present is None else present
        if not 0 < self.count <= LONGEST or not 0 <= self.present <= self.count:
            raise ValueError(f"a load needs from 1 to {<uint32_t>LONGEST} records, got {self.count}")
        if not 0 < len(values) <= TABLES:
            raise ValueError(f"a load needs values of 1 to {TABLES} versions, got {len(values)}")
        self.versions = [None if version is None else version.encode() for version in values]
        self.tables = <Record**>calloc(TABLES, sizeof(Record*))
        self.contents = <uint8_t**>calloc(TABLES, sizeof(uint8_t*))
        if self.tables == NULL or self.contents == NULL:
            raise MemoryError
        for at, (version, table) in enumerate(values.items()):
            fill(self, at, keys_list, list(table))
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

    def prepare(self, str version not None, bytes data not None):
        """Prepare the values of another version, from its records in key order: two sizes of 32 bits, key, value.

        A thread may do this beside a load, since the GIL is released.  Requires: the records are ordered.
        """
        cdef LateTable late = LateTable()
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef const uint8_t** values = <const uint8_t**>calloc(self.count, sizeof(uint8_t*))
        cdef Py_ssize_t strangers
        if self.ordered == NULL:
            free(values)
            raise ValueError("the records have no order")
        late.version = version.encode()
        late.table = <Record*>calloc(self.count, sizeof(Record))
        if values == NULL or late.table == NULL:
            free(values)
            raise MemoryError
        with nogil:
            strangers = merge(self, late, values, start, size)
        free(values)
        if strangers == -1:
            raise ValueError("the records are truncated")
        if strangers == -2:
            raise MemoryError
        late.whole = strangers == 0
        return late

    def adopt(self, LateTable late not None):
        """Compare with a prepared version from now on; return False if there is no room, or it is known already.

        Requires: no load is running at this moment.
        """
        cdef Py_ssize_t at = self.table_count
        if at == TABLES or late.table == NULL or late.version in self.versions:
            return False
        self.tables[at], late.table = late.table, NULL
        self.contents[at], late.content = late.content, NULL
        self.wholes[at] = late.whole
        self.versions.append(late.version)
        self.names[at] = <const uint8_t*>PyBytes_AS_STRING(late.version)
        self.name_sizes[at] = PyBytes_GET_SIZE(late.version)
        self.table_count += 1
        return True

    def __len__(self):
        return self.count

    def record(self, Py_ssize_t number, version=None):
        """Return the key and the value of a record, of a version or of the first one known."""
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
    """Return records as they are, or make them from pairs of a key and a value."""
    if isinstance(records, Records):
        return records
    cdef list pairs = list(records)
    return Records([key for key, _ in pairs], {None: [value for _, value in pairs]})
