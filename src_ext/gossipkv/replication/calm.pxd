"""Calm replicas, for reads without the GIL; `calm.pyx` explains the design.

    token       [format 2][length u32][body][seal 24 bytes, of all before it (`token_keys.pxd`)]
    body        of the one table: [table 16 bytes][config id u64][count u32][[assignment u64][counter u64], ...]

`gossipkv.table.session.token` has the rules of all tokens.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport ReadGate

cdef enum:
    MAX_HOSTS = 8           # A replica of a partition with more hosts is never calm.
    MAX_SEEN = MAX_HOSTS + 2        # Entries of a get: one for each host, a record's ended origin, and LEFT_OUT.
    TABLE_ID_BYTES = 16
    TOKEN_FORMAT = 2
    TOKEN_HEAD_BYTES = 5
    TOKEN_PART_BYTES = 28

cdef struct SeenWrite:
    # A dot that a session sees.
    uint64_t origin
    uint64_t counter
    PyObject* replica       # The `CalmReplica` of the record; borrowed, valid within the gate.

cdef struct SeenWrites:
    # The writes of one table that a session sees: unsorted, an origin perhaps several times.
    uint64_t config
    uint64_t left_out       # Counter of LEFT_OUT; 0: no such entry.
    uint64_t settled_config  # The newest config of replicas with settled writes.
    uint64_t settled_left_out       # The counter of LEFT_OUT that these writes need; 0: there are none.
    bint is_unsettled       # True if a write is not settled.
    Py_ssize_t count
    Py_ssize_t room
    SeenWrite* writes       # Owned by the caller.


cdef class CalmReplica:
    cdef int state          # 1: calm; 0: it has left the fast path.
    cdef public object owner        # The replica that is shown; None: it has left the fast path.
    cdef readonly uint32_t space
    cdef readonly bytes first
    cdef readonly bytes end
    cdef Slice low, high            # The same bounds; the last range's `high` has no data.
    cdef int hosts
    cdef uint64_t ids[MAX_HOSTS]    # The assignments, ascending.
    cdef uint64_t config, taken_config
    cdef uint64_t requests
    cdef uint64_t* counters         # The synced clock; then the confirmed clock of each host, its own one's endless.

    cdef int place_of(self, uint64_t assignment) noexcept nogil
    cdef void set_clock(self, uint64_t* row, bytes clock) noexcept


cdef class CalmTable:
    cdef readonly bytes id
    cdef uint8_t id_bytes[TABLE_ID_BYTES]
    cdef readonly str name
    cdef ReadGate gate
    cdef PyObject* keys     # The `TokenKeys` in use.
    cdef list kept_keys     # All that were in use: a loop may seal by the former ones at this moment.
    cdef int has_reports    # 1: settled clocks of other nodes may omit entries of ended origins.
    cdef readonly bint is_timed     # Keys have times, so Python examines writes.
    cdef readonly int64_t ttl_ms    # Default of puts; 0: records never expire.
    cdef Py_ssize_t shards  # 0: the partitions are ranges.
    cdef uint64_t generation        # Number of changes of the rows.
    cdef uint64_t config    # Config id of the map that the rows follow; 0: the map is stale, and nothing is answered.
    cdef list replicas      # Owns the rows.
    cdef PyObject** rows    # By shard, NULL where no calm replica is here; or calm replicas in the order of ranges.
    cdef Py_ssize_t row_count
    cdef bint has_all       # True if a page of a hash table needs no other node.

    cdef PyObject* find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef PyObject* range_of(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef PyObject* last_below(self, const uint8_t* key, Py_ssize_t size) noexcept nogil
    cdef PyObject* host_of(self, uint64_t assignment) noexcept nogil


cdef bint take_read_tokens(
    CalmTable table, PyObject* replica, const uint8_t* data, Py_ssize_t size, SeenWrites* seen
) noexcept nogil
cdef bint take_token(
    CalmTable table, PyObject* replica, const uint8_t* data, Py_ssize_t size, SeenWrites* seen, bint reads=*
) noexcept nogil
cdef void begin_seen(SeenWrites* seen, SeenWrite* writes, Py_ssize_t room) noexcept nogil
cdef bint see_record(CalmTable table, CalmReplica replica, const uint8_t* dot, SeenWrites* seen) noexcept nogil
cdef bytes config_alone(CalmTable table, uint64_t config)
cdef bint see_config_alone(CalmTable table, const uint8_t* data, Py_ssize_t size, SeenWrites* seen) noexcept nogil
cdef void settle(SeenWrites* seen) noexcept nogil
cdef Py_ssize_t write_token(CalmTable table, const SeenWrites* seen, uint8_t* into) noexcept nogil


cdef inline Py_ssize_t token_size(const SeenWrites* seen) noexcept nogil:
    """Return how many bytes `write_token` writes."""
    return TOKEN_HEAD_BYTES + TOKEN_PART_BYTES + (seen.count + (seen.left_out > 0)) * ENTRY_BYTES + TOKEN_SEAL_BYTES


cdef extern from *:
    """
    #define gkv_calm_load(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
    #define gkv_calm_store(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
    #define gkv_calm_add(to, value) __atomic_fetch_add(to, value, __ATOMIC_RELAXED)
    #define gkv_calm_swap(to, value) __atomic_exchange_n(to, value, __ATOMIC_RELAXED)
    """
    uint64_t load_calm "gkv_calm_load"(const uint64_t* source) noexcept nogil
    int load_state "gkv_calm_load"(const int* source) noexcept nogil
    void store_calm "gkv_calm_store"(uint64_t* target, uint64_t value) noexcept nogil
    void store_state "gkv_calm_store"(int* target, int value) noexcept nogil
    void add_calm "gkv_calm_add"(uint64_t* target, uint64_t value) noexcept nogil
    uint64_t swap_calm "gkv_calm_swap"(uint64_t* target, uint64_t value) noexcept nogil
    PyObject* load_keys "gkv_calm_load"(PyObject** source) noexcept nogil
    void store_keys "gkv_calm_store"(PyObject** target, PyObject* value) noexcept nogil


cdef inline bint is_before(const uint8_t* key, Py_ssize_t size, const Slice* other) noexcept nogil:
    """True if a key is below another one."""
    cdef int order = memcmp(key, other.data, <size_t>min(size, other.size))
    return order < 0 or (order == 0 and size < other.size)


cdef inline bint is_covered(CalmReplica replica, int place, uint64_t counter) noexcept nogil:
    """True if the replica has synced the writes of its host at that place up to the counter."""
    return counter <= load_calm(replica.counters + place)


cdef inline bint is_settled(CalmReplica replica, int place, uint64_t counter) noexcept nogil:
    """True if all hosts have confirmed the writes of the host at that place up to the counter."""
    cdef int row
    for row in range(replica.hosts + 1):
        if counter > load_calm(replica.counters + row * replica.hosts + place):
            return False
    return True
