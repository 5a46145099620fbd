"""The published table as C structs: databases, their versions, and the files of each partition."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gossipkv.replication._replication cimport CalmTable
from gossipkv.storage._storage cimport FAULT_COLD, MappedFile
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, Cursor, put, put_str, put_text, put_unsigned, take_bin

cdef enum Outcome:
    OUT_OF_MEMORY = -1
    HAND_OFF = 0  # Python must answer; nothing was written
    ANSWERED = 1
    REFUSED_SIZE = 2  # answered with TOO_LARGE
    UNDER_WAY = 3  # the answer comes later
    ELSEWHERE = 4  # other nodes have the partition; nothing was written
    DAMAGED = 5  # the local data cannot be read; nothing was written
    TAKEN_OVER = 6  # its id is in flight, and a relay or scan answers it
    COLD = 7  # a needed page is not in memory; nothing was written

cdef struct ReadLimits:
    Py_ssize_t max_frame
    Py_ssize_t max_key
    Py_ssize_t max_value
    uint64_t now_ms  # the time of day, by which records of tables expire; it never goes back

cdef struct ReadCounts:  # shown by `info` per database
    uint64_t requests  # gets, batches and pages of scans
    uint64_t forwarded  # requests for which other nodes were asked
    uint64_t hits  # keys
    uint64_t misses
    uint64_t value_bytes  # bytes of the hits' values
    uint64_t errors
    uint64_t asked_again  # forwarded requests answered here after all, which are in `requests` twice

cdef struct VersionRow:
    DatabaseRow* database
    Blob name
    Blob packed_name  # name as MessagePack, copied into every answer
    Blob modified  # HTTP's line with the time of modification; empty if unknown
    int function  # code of the partition function
    Py_ssize_t partitions
    bint long_values  # values are worth a prefetch of their own
    Py_ssize_t mean_value  # bytes
    bint complete  # every partition is here
    bint passed  # clients may read it
    bint for_sessions  # clients may read it if they ask for one at least as new
    bint shared  # it has an identity, so other nodes may be asked for it
    uint8_t identity[IDENTITY_BYTES]
    PyObject** files  # borrowed from `PublishedTable.owned`; NULL where the partition is not here
    ReadCounts counts  # local answers, and all requests
    uint64_t requests_by_name

cdef struct DatabaseRow:
    Blob name
    ReadCounts counts  # answers of other nodes
    VersionRow* versions  # in ascending order of name
    Py_ssize_t version_count
    VersionRow* active  # NULL: none yet
    PyObject* table  # the `CalmTable` of a table, which has no versions; borrowed; NULL for a dataset

cdef struct Lookup:
    Blob key
    VersionRow* version
    Py_ssize_t partition
    PyObject* file
    uint64_t hash
    uint32_t place
    Py_ssize_t max_frame  # limit of the answer
    bint by_name
    bint explain


cdef inline int compare(const Blob* one, const Blob* other) noexcept nogil:
    """Compare versions as strings: by byte, then by length."""
    cdef Py_ssize_t shared = min(one.size, other.size)
    cdef int order = memcmp(one.data, other.data, shared)
    if order != 0:
        return order
    return (one.size > other.size) - (one.size < other.size)


cdef inline VersionRow* version_named(DatabaseRow* database, const Blob* name) noexcept nogil:
    """Return the version of that name, which clients may not be allowed to read yet; NULL if it is not here."""
    cdef Py_ssize_t i
    for i in range(database.version_count):
        if compare(&database.versions[i].name, name) == 0:
            return &database.versions[i]
    return NULL


cdef inline VersionRow* version_of(DatabaseRow* database, const uint8_t* identity) noexcept nogil:
    """Return the version of that identity, which clients may not be allowed to read yet; NULL if it is not here."""
    cdef VersionRow* version
    cdef Py_ssize_t i
    for i in range(database.version_count):
        version = &database.versions[i]
        if version.shared and memcmp(version.identity, identity, IDENTITY_BYTES) == 0:
            return version
    return NULL


cdef inline VersionRow* choose_version(DatabaseRow* database, const ReadOptions* options) noexcept nogil:
    """Return the version that answers; NULL if Python must explain why there is none."""
    cdef VersionRow* version
    cdef Py_ssize_t i
    if not options.choosing:
        return database.active
    if options.forwarded:
        return version_of(database, options.identity.data)
    if options.has_version:
        version = version_named(database, &options.version)
        if version == NULL or not version.passed:
            return NULL
        return NULL if options.has_min_version and compare(&version.name, &options.min_version) < 0 else version
    if database.active != NULL and compare(&database.active.name, &options.min_version) >= 0:
        return database.active
    for i in range(database.version_count):
        version = &database.versions[i]
        if (version.passed or version.for_sessions) and compare(&version.name, &options.min_version) >= 0:
            return version
    return NULL


cdef inline Py_ssize_t answer_limit(const ReadLimits* limits, const ReadOptions* options) noexcept nogil:
    """Return the longest answer that both this node and the asking one accept."""
    return <Py_ssize_t>min(options.max_frame, <uint64_t>limits.max_frame)


cdef inline bint may_go_elsewhere(const VersionRow* version, const ReadOptions* options) noexcept nogil:
    """True if other nodes may be asked; a forwarded request is not forwarded again."""
    return version.shared and not options.forwarded and not options.local


cdef inline void count_request(VersionRow* version, bint by_name) noexcept nogil:
    version.counts.requests += 1
    if by_name:
        version.requests_by_name += 1


cdef inline void count_value(ReadCounts* counts, Cursor value) noexcept nogil:
    """Count a key by its value, which may be nil."""
    cdef Blob found
    if take_bin(&value, &found):
        counts.hits += 1
        counts.value_bytes += <uint64_t>found.size
    else:
        counts.misses += 1


cdef inline void count_forwarded(VersionRow* version, bint by_name) noexcept nogil:
    """Count a request for which other nodes are asked."""
    count_request(version, by_name)
    version.database.counts.forwarded += 1


cdef inline void count_refused(VersionRow* version, bint by_name) noexcept nogil:
    """Count a request that is answered with an error."""
    count_request(version, by_name)
    version.counts.errors += 1


cdef inline void ask_first(PyObject* file, bint waits) noexcept nogil:
    """Make the next lookup in that file stop at a page that is not in memory, unless `waits`.

    The caller resets this with `waits` True, since other readers of the file wait.
    """
    (<MappedFile>file).asks = (<MappedFile>file).paged and not waits


cdef inline int why_not(PyObject* file) noexcept nogil:
    """Return the outcome for a lookup in that file that has just failed."""
    return COLD if (<MappedFile>file).fault_reason == FAULT_COLD else DAMAGED


cdef class PublishedTable:
    cdef object gate  # the `ReadGate` of all tables; None if there are none
    cdef dict gone  # counts of databases and versions that are no longer served
    cdef list owned  # the files and the encoded names, which keep the pointers valid
    cdef DatabaseRow* databases
    cdef Py_ssize_t database_count
    cdef Py_ssize_t* slots
    cdef Py_ssize_t slot_mask
    cdef bint pinned
    cdef Py_ssize_t readers  # running scans and batches, which need the files after this table is replaced
    cdef list bitmaps  # owns the bytes that `users` points to
    # readable databases of each user as bits, NULL for all; the last entry is for unknown users
    cdef const uint8_t** users
    cdef uint32_t user_count
    cdef const uint8_t* readable  # the bits of the current user

    cdef int hold(self, bytes text, Blob* blob) except -1
    cdef int add_database(self, str name, object active, object versions, CalmTable table) except -1
    cdef int add_version(
        self, DatabaseRow* database, str name, int function, list files, bytes identity, int standing, bytes modified
    ) except -1
    cdef int keep(self, const Blob* database, const ReadCounts* counts) except -1
    cdef VersionRow* find_version(self, bytes database, bytes version) noexcept
    cdef DatabaseRow* find_database(self, const Blob* name) noexcept nogil
    cdef VersionRow* heir_of(self, const VersionRow* version) noexcept nogil
    cdef VersionRow* plan(self, Cursor* params, Blob* key, ReadOptions* options, bint many) noexcept nogil
    cdef int begin_get(self, Cursor params, const ReadLimits* limits, Lookup* lookup) noexcept nogil
    cdef void fetch_record(self, Lookup* lookup) noexcept nogil
    cdef void fetch_value(self, Lookup* lookup) noexcept nogil
    cdef int end_get(
        self, Lookup* lookup, uint32_t msgid, const ReadLimits* limits, const Blob* node, bint waits, Buffer* out
    ) noexcept nogil


cdef inline void read_as(PublishedTable table, uint32_t user) noexcept nogil:
    """Apply that user's rights to all reads until the next call."""
    table.readable = table.users[min(user, table.user_count)]


cdef inline bint may_be_read(PublishedTable table, const DatabaseRow* database) noexcept nogil:
    """True if the current user may read that database."""
    cdef Py_ssize_t number
    if table.readable == NULL:
        return True
    number = database - table.databases
    return table.readable[number >> 3] >> (number & 7) & 1


cdef inline Py_ssize_t explanation_bytes(const Blob* node) noexcept nogil:
    """Return the most room that `put_explanation` takes."""
    return 5 * HEAD_BYTES + 4 + 10 + node.size


cdef inline void put_explanation(Buffer* out, const Blob* node, uint64_t expires_ms) noexcept nogil:
    """Write `{"node": ...}` behind value and version, with `expires_at` unless that is 0. Requires: there is room."""
    put(out, 0x82 if expires_ms else 0x81)
    put_text(out, b"node")
    put_str(out, node.data, node.size)
    if expires_ms:
        put_text(out, b"expires_at")
        put_unsigned(out, expires_ms)


cdef const char* VALUE_TOO_LONG

cdef int refuse_too_large(
    Buffer* out, uint32_t msgid, const char* message, Py_ssize_t limit, Py_ssize_t size
) noexcept nogil
