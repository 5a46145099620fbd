"""What the node serves now, as C structs: databases, their versions, the files of each partition."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._message cimport Blob, Cursor, take_unsigned

cdef enum Outcome:
    OUT_OF_MEMORY = -1
    HAND_OFF = 0  # Python must see it: nothing was written
    ANSWERED = 1
    REFUSED_SIZE = 2  # answered with TOO_LARGE

cdef struct ReadLimits:
    Py_ssize_t max_frame
    Py_ssize_t max_key
    Py_ssize_t max_value

cdef struct VersionRow:
    Blob name
    Blob packed_name  # the name as MessagePack: copied into every answer
    int function  # code of the partition function
    Py_ssize_t partitions
    bint long_values  # worth a prefetch of their own
    bint complete  # every partition is here
    PyObject** files  # borrowed from `PublishedTable.owned`; NULL where the partition is not here
    uint64_t requests
    uint64_t requests_by_name
    uint64_t hits
    uint64_t misses

cdef struct DatabaseRow:
    Blob name
    VersionRow* versions  # in ascending order of name
    Py_ssize_t version_count
    VersionRow* active  # NULL: none yet

cdef struct ReadOptions:
    Blob version
    Blob min_version
    bint has_version
    bint has_min_version

cdef struct Lookup:
    Blob key
    VersionRow* version
    PyObject* file
    uint64_t hash
    uint32_t place
    bint by_name


cdef inline int compare(const Blob* one, const Blob* other) noexcept nogil:
    """Versions are ordered as strings: by byte, then by length."""
    cdef Py_ssize_t shared = min(one.size, other.size)
    cdef int order = memcmp(one.data, other.data, shared)
    if order != 0:
        return order
    return (one.size > other.size) - (one.size < other.size)


cdef inline VersionRow* choose_version(DatabaseRow* database, const ReadOptions* options) noexcept nogil:
    """The version that answers; NULL when Python must say why there is none."""
    cdef VersionRow* version
    cdef Py_ssize_t i
    if options.has_version:
        for i in range(database.version_count):
            version = &database.versions[i]
            if compare(&version.name, &options.version) == 0:
                if options.has_min_version and compare(&version.name, &options.min_version) < 0:
                    return NULL
                return version
        return NULL
    if not options.has_min_version:
        return database.active
    if database.active != NULL and compare(&database.active.name, &options.min_version) >= 0:
        return database.active
    for i in range(database.version_count):
        version = &database.versions[i]
        if compare(&version.name, &options.min_version) >= 0:
            return version
    return NULL


cdef class PublishedTable:
    cdef list owned  # the files and the encoded names, so that the pointers stay good
    cdef DatabaseRow* databases
    cdef Py_ssize_t database_count
    cdef Py_ssize_t* slots
    cdef Py_ssize_t slot_mask
    cdef bint pinned
    cdef Py_ssize_t readers  # scans under way, which need the files also when this is no longer what is served

    cdef int hold(self, bytes text, Blob* blob) except -1
    cdef int add_database(self, str name, object active, object versions) except -1
    cdef int add_version(self, DatabaseRow* database, str name, int function, list files) except -1
    cdef VersionRow* find_version(self, bytes database, bytes version) noexcept
    cdef DatabaseRow* find_database(self, const Blob* name) noexcept nogil
    cdef VersionRow* plan(self, Cursor* params, Blob* key, ReadOptions* options, bint many) noexcept nogil
    cdef bint begin_get(self, Cursor params, const ReadLimits* limits, Lookup* lookup) noexcept nogil
    cdef void fetch_record(self, Lookup* lookup) noexcept nogil
    cdef void fetch_value(self, Lookup* lookup) noexcept nogil
    cdef int end_get(self, Lookup* lookup, uint32_t msgid, const ReadLimits* limits, Buffer* out) noexcept nogil
    cdef int get_many(
        self, uint32_t msgid, Cursor params, const ReadLimits* limits, Buffer* out, uint64_t* keys_read
    ) noexcept nogil


cdef inline bint take_timeout(Cursor* cursor) noexcept nogil:
    """A `timeout_ms` that Python would not refuse (`gossipkv.node.arguments`)."""
    cdef uint64_t timeout_ms
    return take_unsigned(cursor, &timeout_ms) and timeout_ms <= <uint64_t>1 << 40
