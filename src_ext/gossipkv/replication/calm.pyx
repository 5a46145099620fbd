"""Calm replicas: what a serving loop must know to answer a read without Python.

A replica is calm while all hosts of its partition are AVAILABLE, one for each slot, and nothing is under way:
`gossipkv.table.calm` decides that. Python makes a `CalmReplica` then, and ends it before anything changes but clocks.
These counters only grow, so Python stores them one by one, and a loop needs no lock to read them. The rows of a table
change within the gate of the store.

The answer is that of Python (`gossipkv.table.records`), byte by byte: also its token, without settled entries. What is
rare is left to Python: a token of several tables, of partitions that are not here, or of writes that this replica
lacks.

An *ended* origin is one that no host of the partition has. Its writes stay in tokens unless a node reported that they
are settled; after such a report, records of ended origins are left to Python.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcmp, memcpy

from gossipkv.keyspace._keyspace cimport murmur3
from gossipkv.storage._storage cimport Slice
from gossipkv.storage.engine._engine cimport ReadGate, end_change

cdef extern from "<stdint.h>" nogil:
    const uint64_t ENDLESS "UINT64_MAX"

MAX_CALM_HOSTS = <int>MAX_HOSTS

cdef uint64_t LEFT_OUT = ENDLESS    # The pseudo-assignment that tells the oldest map by which entries were omitted.


@cython.final
cdef class CalmReplica:
    """A calm replica; `assigned`: the assignments of its partition, in order; `assignment`: its own."""

    def __cinit__(
        self, uint32_t space, bytes first not None, bytes end, tuple assigned not None, uint64_t assignment,
        uint64_t config,
    ):
        cdef int place
        if not 1 <= len(assigned) <= MAX_HOSTS or assignment not in assigned:
            raise ValueError(f"a calm replica has 1 to {MAX_HOSTS} hosts")
        self.hosts = <int>len(assigned)
        self.counters = <uint64_t*>calloc((self.hosts + 1) * self.hosts, sizeof(uint64_t))
        if self.counters == NULL:
            raise MemoryError
        for place in range(self.hosts):
            self.ids[place] = assigned[place]
        self.space, self.first, self.end, self.config, self.state = space, first, end, config, 1
        self.low = Slice(bytes_of(first), PyBytes_GET_SIZE(first))
        if end is not None:
            self.high = Slice(bytes_of(end), PyBytes_GET_SIZE(end))
        for place in range(self.hosts):
            self.counters[(1 + self.place_of(assignment)) * self.hosts + place] = ENDLESS

    def __dealloc__(self):
        free(self.counters)

    def syncs(self, bytes clock not None):
        """Show the synced clock."""
        self.set_clock(self.counters, clock)

    def takes(self, uint64_t config):
        """Show the newest config of accepted records."""
        store_calm(&self.taken_config, config)

    def confirms(self, uint64_t assignment, bytes clock):
        """Show the clock that another host has confirmed under the replica's config; None: no such clock."""
        cdef int place = self.place_of(assignment)
        if place >= 0:
            self.set_clock(self.counters + (1 + place) * self.hosts, b"" if clock is None else clock)

    def ends(self):
        """Leave the fast path; return the requests since `take_requests`."""
        store_state(&self.state, 0)
        self.owner = None
        return self.take_requests()

    def take_requests(self):
        """Return the requests that loops have answered since the last call."""
        return swap_calm(&self.requests, 0)

    cdef int place_of(self, uint64_t assignment) noexcept nogil:
        """Return the place of a host's assignment; -1 if it is none."""
        cdef int place
        for place in range(self.hosts):
            if self.ids[place] == assignment:
                return place
        return -1

    cdef void set_clock(self, uint64_t* row, bytes clock) noexcept:
        cdef const unsigned char* data = bytes_of(clock)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(clock)
        cdef int place
        for place in range(self.hosts):
            store_calm(row + place, clock_counter(data, size, self.ids[place]))


@cython.final
@cython.no_gc_clear  # `rows` points to the replicas, and `keys` to one of `kept_keys`.
cdef class CalmTable:
    """The calm replicas of a table on this node, and the keys of its tokens."""

    def __cinit__(
        self, str name not None, bytes table_id not None, TokenKeys keys not None, ReadGate gate not None,
        Py_ssize_t shards, *, bint is_timed=False, int64_t ttl_ms=0,
    ):
        if len(table_id) != TABLE_ID_BYTES:
            raise ValueError(f"a table's id must have {TABLE_ID_BYTES} bytes, not {len(table_id)}")
        memcpy(self.id_bytes, bytes_of(table_id), TABLE_ID_BYTES)
        self.name, self.id, self.gate, self.shards, self.replicas = name, table_id, gate, shards, []
        self.is_timed, self.ttl_ms = is_timed, ttl_ms
        self.kept_keys = []
        self.use_keys(keys)

    def __dealloc__(self):
        free(self.rows)

    def serve(self, uint64_t config, list replicas not None, *, bint has_all):
        """Answer from these calm replicas from now on, by the map of that config id.

        `replicas`: one for each shard, None where none is here; or those of ranges, in order. `has_all`: this node
        answers for all shards as for one group of hosts.
        """
        cdef PyObject** rows = <PyObject**>calloc(len(replicas) + 1, sizeof(PyObject*))
        cdef PyObject** before = self.rows
        cdef list old = self.replicas
        cdef CalmReplica replica
        cdef Py_ssize_t at
        if rows == NULL:
            raise MemoryError
        for at in range(len(replicas)):
            replica = replicas[at]
            rows[at] = NULL if replica is None else <PyObject*>replica
        self.gate.begin_change()
        self.rows, self.row_count, self.replicas, self.has_all = rows, len(replicas), replicas, has_all
        self.generation += 1
        store_calm(&self.config, config if len(replicas) >= self.shards else 0)
        end_change(self.gate)
        free(before)
        del old  # No loop reads them any more.

    def use_keys(self, TokenKeys keys not None):
        """Seal and verify tokens by these keys from now on."""
        if self.keys != <PyObject*>keys:
            self.kept_keys.append(keys)
            store_keys(&self.keys, <PyObject*>keys)

    def stop(self):
        """Answer nothing until `serve`, since the map is stale."""
        store_calm(&self.config, 0)

    def note_reports(self):
        """Note that another node reported settled entries of the table."""
        store_state(&self.has_reports, 1)

    @property
    def is_whole(self):
        """True if no replica has left the fast path since `serve`."""
        cdef Py_ssize_t at
        for at in range(self.row_count):
            if self.rows[at] != NULL and (<CalmReplica>self.rows[at]).state == 0:
                return False
        return True

    cdef PyObject* find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """Return the calm replica that has a key; NULL: none is here."""
        cdef PyObject* found
        if load_calm(&self.config) == 0:
            return NULL
        if self.shards > 0:
            found = self.rows[murmur3(key, size, 0) % <uint64_t>self.shards]
        else:
            found = self.range_of(key, size)
        return found if found != NULL and load_state(&(<CalmReplica>found).state) else NULL

    cdef PyObject* range_of(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.row_count, middle
        cdef PyObject* found
        while low < high:
            middle = (low + high) // 2
            if is_before(key, size, &(<CalmReplica>self.rows[middle]).low):
                high = middle
            else:
                low = middle + 1
        if low == 0:
            return NULL
        found = self.rows[low - 1]
        if (<CalmReplica>found).high.data == NULL or is_before(key, size, &(<CalmReplica>found).high):
            return found
        return NULL

    cdef PyObject* last_below(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """Return the calm range with the last keys below a key, or with the last of all if `key` is NULL."""
        cdef Py_ssize_t low = 0 if key != NULL else self.row_count
        cdef Py_ssize_t high = self.row_count, middle
        cdef Slice bound = Slice(key, size)
        cdef const Slice* first
        while low < high:
            middle = (low + high) // 2
            first = &(<CalmReplica>self.rows[middle]).low
            if is_before(first.data, first.size, &bound):
                low = middle + 1
            else:
                high = middle
        return self.rows[low - 1] if low > 0 else NULL

    cdef PyObject* host_of(self, uint64_t assignment) noexcept nogil:
        """Return the calm replica of which an assignment is a host; NULL: none is here."""
        cdef Py_ssize_t at
        for at in range(self.row_count):
            if self.rows[at] != NULL and (<CalmReplica>self.rows[at]).place_of(assignment) >= 0:
                return self.rows[at] if load_state(&(<CalmReplica>self.rows[at]).state) else NULL
        return NULL


# Tokens -----------------------------------------------------------------------------------------------------------


cdef void begin_seen(SeenWrites* seen, SeenWrite* writes, Py_ssize_t room) noexcept nogil:
    """Begin with no writes; there is room for so many."""
    seen.config = seen.left_out = seen.settled_config = seen.settled_left_out = 0
    seen.is_unsettled = False
    seen.count = 0
    seen.room = room
    seen.writes = writes


cdef bint see(SeenWrites* seen, uint64_t origin, uint64_t counter, PyObject* replica) noexcept nogil:
    cdef int place = (<CalmReplica>replica).place_of(origin)
    cdef uint64_t config
    if seen.count == seen.room:
        return False
    if place >= 0 and is_settled(<CalmReplica>replica, place, counter):
        config = (<CalmReplica>replica).config
        seen.settled_config = max(seen.settled_config, config)
        # A greater counter stands for an older map, and merging keeps the greater one.
        seen.settled_left_out = max(seen.settled_left_out, ENDLESS - config)
    else:
        seen.is_unsettled = True
    seen.writes[seen.count] = SeenWrite(origin, counter, replica)
    seen.count += 1
    return True


cdef bint see_record(CalmTable table, CalmReplica replica, const uint8_t* dot, SeenWrites* seen) noexcept nogil:
    """Add the dot of a record to the seen writes. Return False if Python must answer."""
    cdef uint64_t origin = load_number(dot)
    if replica.place_of(origin) < 0 and load_state(&table.has_reports):
        return False
    return see(seen, origin, load_number(dot + NUMBER_BYTES), <PyObject*>replica)


cdef bint take_read_tokens(
    CalmTable table, PyObject* replica, const uint8_t* data, Py_ssize_t size, SeenWrites* seen
) noexcept nogil:
    """Add the tokens of a client that reads a `CalmReplica` to the seen writes. Return False if Python must answer.

    That is so unless each is a sound token of this table, by a map that is known, whose entries are those of calm
    replicas here; this one covers its own. What the session has seen of other partitions does not matter to the read.
    """
    cdef Py_ssize_t length
    while size > 0:
        length = size
        if size > TOKEN_HEAD_BYTES:
            length = min(size, TOKEN_HEAD_BYTES + TOKEN_SEAL_BYTES + <Py_ssize_t>number_at(data + 1))
        if not take_token(table, replica, data, length, seen, True):
            return False
        data += length
        size -= length
    return True


cdef bint take_token(
    CalmTable table, PyObject* replica, const uint8_t* data, Py_ssize_t size, SeenWrites* seen, bint reads=False
) noexcept nogil:
    """Add a client's token to the seen writes. Return False if Python must answer.

    That is so unless the data is one sound token of this table, by a map that is known, which has no entries but those
    of the `CalmReplica`'s partition, all covered by it; without one, those of any calm replicas that cover them.
    `reads`: as for `take_read_tokens`.
    """
    cdef const uint8_t* entry = data + TOKEN_HEAD_BYTES + TOKEN_PART_BYTES
    cdef const uint8_t* end = data + size - TOKEN_SEAL_BYTES
    cdef uint64_t before = 0, origin, counter, config
    cdef PyObject* host
    cdef int place
    if size < TOKEN_HEAD_BYTES + TOKEN_PART_BYTES + TOKEN_SEAL_BYTES or data[0] != TOKEN_FORMAT:
        return False
    if number_at(data + 1) != <uint64_t>(end - data) - TOKEN_HEAD_BYTES or (end - entry) % ENTRY_BYTES != 0:
        return False
    if not is_sealed(<TokenKeys>load_keys(&table.keys), data, end - data):
        return False
    if memcmp(data + TOKEN_HEAD_BYTES, table.id_bytes, TABLE_ID_BYTES) != 0:
        return False
    if number_at(entry - 4) != <uint64_t>(end - entry) // ENTRY_BYTES:
        return False
    config = load_number(data + TOKEN_HEAD_BYTES + TABLE_ID_BYTES)
    if config > load_calm(&table.config):
        return False
    seen.config = max(seen.config, config)
    while entry < end:
        origin, counter = load_number(entry), load_number(entry + NUMBER_BYTES)
        if entry > data + TOKEN_HEAD_BYTES + TOKEN_PART_BYTES and origin <= before:
            return False
        if origin == LEFT_OUT:
            if counter == 0:
                return False
            seen.left_out = max(seen.left_out, counter)
        else:
            host = replica if replica != NULL else table.host_of(origin)
            place = (<CalmReplica>host).place_of(origin) if host != NULL else -1
            if reads and place < 0:
                host = table.host_of(origin)
                place = -1 if host == NULL else 0
            elif place >= 0 and not is_covered(<CalmReplica>host, place, counter):
                return False
            if place < 0:
                return False
            if not see(seen, origin, counter, host):
                return False
        before = origin
        entry += ENTRY_BYTES
    return True


cdef bytes config_alone(CalmTable table, uint64_t config):
    """Return the body of a token of this table without entries: the dependencies of a plain write with a token."""
    cdef uint8_t body[TOKEN_PART_BYTES]
    memcpy(body, table.id_bytes, TABLE_ID_BYTES)
    store_number(body + TABLE_ID_BYTES, config)
    store_short(body + TOKEN_PART_BYTES - 4, 0)
    return PyBytes_FromStringAndSize(<const char*>body, TOKEN_PART_BYTES)


cdef bint see_config_alone(CalmTable table, const uint8_t* data, Py_ssize_t size, SeenWrites* seen) noexcept nogil:
    """Add a record's dependencies to the seen writes. Return False if they are more than a config of this table."""
    if size == 0:
        return True
    if (
        size != TOKEN_PART_BYTES or memcmp(data, table.id_bytes, TABLE_ID_BYTES) != 0
        or number_at(data + TOKEN_PART_BYTES - 4) != 0
    ):
        return False
    seen.config = max(seen.config, load_number(data + TABLE_ID_BYTES))
    return True


cdef void settle(SeenWrites* seen) noexcept nogil:
    """Keep one write of each origin, the last one, and omit settled ones."""
    cdef SeenWrite write
    cdef Py_ssize_t number, kept = 0
    cdef int place
    if not seen.is_unsettled:
        seen.config = max(seen.config, seen.settled_config)
        seen.left_out = max(seen.left_out, seen.settled_left_out)
        seen.count = 0
        return
    if seen.count > 1:
        qsort(seen.writes, <size_t>seen.count, sizeof(SeenWrite), compare_writes)
    for number in range(seen.count):
        write = seen.writes[number]
        if number + 1 < seen.count and seen.writes[number + 1].origin == write.origin:
            continue
        place = (<CalmReplica>write.replica).place_of(write.origin)
        if place < 0 or not is_settled(<CalmReplica>write.replica, place, write.counter):
            seen.writes[kept] = write
            kept += 1
            continue
        seen.config = max(seen.config, (<CalmReplica>write.replica).config)
        seen.left_out = max(seen.left_out, ENDLESS - (<CalmReplica>write.replica).config)
    seen.count = kept


cdef Py_ssize_t write_token(CalmTable table, const SeenWrites* seen, uint8_t* into) noexcept nogil:
    """Write the token of a session that sees these writes, after `settle`; return its size.

    Requires: there is room for `token_size`.
    """
    cdef uint8_t* at = into + TOKEN_HEAD_BYTES + TOKEN_PART_BYTES
    cdef Py_ssize_t number
    for number in range(seen.count):
        at = put_entry(at, seen.writes[number].origin, seen.writes[number].counter)
    if seen.left_out > 0:
        at = put_entry(at, LEFT_OUT, seen.left_out)
    into[0] = TOKEN_FORMAT
    store_short(into + 1, <uint32_t>(at - into - TOKEN_HEAD_BYTES))
    memcpy(into + TOKEN_HEAD_BYTES, table.id_bytes, TABLE_ID_BYTES)
    store_number(into + TOKEN_HEAD_BYTES + TABLE_ID_BYTES, seen.config)
    store_short(
        into + TOKEN_HEAD_BYTES + TOKEN_PART_BYTES - 4,
        <uint32_t>((at - into - TOKEN_HEAD_BYTES - TOKEN_PART_BYTES) // ENTRY_BYTES),
    )
    seal_token(<TokenKeys>load_keys(&table.keys), into, at - into, at)
    return at - into + TOKEN_SEAL_BYTES


cdef inline uint8_t* put_entry(uint8_t* at, uint64_t origin, uint64_t counter) noexcept nogil:
    store_number(at, origin)
    store_number(at + NUMBER_BYTES, counter)
    return at + ENTRY_BYTES


cdef int compare_writes(const void* one, const void* other) noexcept nogil:
    """Compare by origin, then by counter."""
    cdef const SeenWrite* left = <const SeenWrite*>one
    cdef const SeenWrite* right = <const SeenWrite*>other
    if left.origin != right.origin:
        return 1 if left.origin > right.origin else -1
    return (left.counter > right.counter) - (left.counter < right.counter)


cdef inline uint64_t number_at(const uint8_t* at) noexcept nogil:
    """Load a number of four bytes."""
    return <uint64_t>at[0] << 24 | <uint64_t>at[1] << 16 | <uint64_t>at[2] << 8 | at[3]


cdef inline void store_short(uint8_t* at, uint32_t number) noexcept nogil:
    """Store a number of four bytes."""
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number
